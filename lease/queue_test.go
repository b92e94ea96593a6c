package lease

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
)

// line is a queue in front of resources, with a clock of its own: calls wait
// in it, are granted, hold for a while and release. It does what
// Service.acquire does, and nothing that the queue did not tell it to.
type line struct {
	queue
	fail    func(format string, args ...any)
	now     time.Time
	waiting []*caller
	held    map[string]time.Time // until when
	granted []int                // callers, in the order of their grants
	// reverse lets those who came last act first, as goroutines may.
	reverse bool
	// neverReserve takes the phases of reservation out.
	neverReserve bool
}

type caller struct {
	*ticket
	id   int
	hold time.Duration
	poll time.Time // when it looks again; zero: only when it is woken
	// denied is for how long all that it wants has been free.
	denied time.Duration
}

const tick = 50 * time.Millisecond

func newLine(fail func(string, ...any)) *line {
	l := &line{fail: fail, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), held: map[string]time.Time{}}
	l.init(1000, 1000)
	return l
}

func (l *line) arrive(id int, hold time.Duration, resources ...string) *caller {
	t, _, err := l.join("p", "", resources, true, l.now)
	if err != nil {
		l.fail("join: %v", err)
		return nil
	}
	c := &caller{ticket: t, id: id, hold: hold, poll: l.now}
	l.waiting = append(l.waiting, c)
	l.settle()
	return c
}

// pass lets time go by in ticks.
func (l *line) pass(d time.Duration) {
	for range d / tick {
		l.now = l.now.Add(tick)
		for r, until := range l.held {
			if !until.After(l.now) {
				delete(l.held, r)
				l.notify(r, l.now)
			}
		}
		l.settle()
		l.idle()
	}
}

// settle lets every caller act who was woken, or looks again by itself.
func (l *line) settle() {
	for acted := true; acted; {
		acted = false
		order := slices.Clone(l.waiting)
		if l.reverse {
			slices.Reverse(order)
		}
		for _, c := range order {
			woken := false
			select {
			case <-c.wake:
				woken = true
			default:
			}
			if woken || !c.poll.IsZero() && !c.poll.After(l.now) {
				l.act(c)
				acted = true
			}
		}
	}
}

func (l *line) act(c *caller) {
	if l.neverReserve {
		c.joined = l.now
	}
	c.poll = time.Time{}
	may, lookAgain := l.first(c.ticket, l.now)
	if may || lookAgain {
		c.poll = l.now.Add(pollEvery)
	}
	if !may {
		return
	}
	for _, r := range c.resources {
		if _, taken := l.held[r]; taken {
			l.denied(c.ticket, r, l.now)
			return
		}
	}
	l.judge(c)
	for _, r := range c.resources {
		l.held[r] = l.now.Add(c.hold)
	}
	l.granted = append(l.granted, c.id)
	l.waiting = slices.DeleteFunc(l.waiting, func(o *caller) bool { return o == c })
	l.leave(c.ticket, l.now)
	for _, r := range c.resources {
		l.notify(r, l.now)
	}
}

// judge: whoever is served overtakes only those who could not be served: they
// want something else that is held, or that somebody before them wants.
func (l *line) judge(t *caller) {
	for _, u := range l.waiting {
		if u.number >= t.number || !shares(u, t.resources) {
			continue
		}
		if u.reserves(l.now) {
			l.fail("call %d took what call %d reserves", t.id, u.id)
		}
		could := true
		for _, x := range u.resources {
			_, taken := l.held[x]
			if slices.Contains(t.resources, x) {
				continue
			}
			could = could && !taken && !slices.ContainsFunc(l.waiting, func(w *caller) bool { return w.number < u.number && slices.Contains(w.resources, x) })
		}
		if could {
			l.fail("call %d overtook call %d, which could be served", t.id, u.id)
		}
	}
}

func shares(u *caller, resources []string) bool {
	return slices.ContainsFunc(resources, func(r string) bool { return slices.Contains(u.resources, r) })
}

// idle: nobody waits for what is free for longer than it takes to look again,
// unless it is reserved.
func (l *line) idle() {
	reserved := slices.ContainsFunc(l.waiting, func(u *caller) bool { return u.reserves(l.now) })
	for _, c := range l.waiting {
		if reserved || slices.ContainsFunc(c.resources, func(r string) bool { _, taken := l.held[r]; return taken }) {
			c.denied = 0
			continue
		}
		if c.denied += tick; c.denied > pollEvery+tick {
			l.fail("call %d waits for %v, which nobody holds or reserves", c.id, c.resources)
		}
	}
}

// TestQueue: whatever calls come, nobody overtakes who could be served, nobody
// waits for what nobody has, and everybody is served in the end.
func TestQueue(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(t *rapid.T) {
		l := newLine(t.Fatalf)
		l.reverse = rapid.Bool().Draw(t, "reverse")
		calls := rapid.IntRange(1, 25).Draw(t, "calls")
		for i := range calls {
			want := slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID).Draw(t, "resources")))
			hold := time.Duration(rapid.IntRange(1, 30).Draw(t, "hold")) * tick
			l.arrive(i, hold, want...)
			l.pass(time.Duration(rapid.IntRange(0, 40).Draw(t, "pause")) * tick)
		}
		// One after the other would take so long, and a poll more for each.
		l.pass(time.Duration(calls) * (30*tick + pollEvery))
		if len(l.waiting) > 0 || l.len() != 0 || l.several != 0 || len(l.byResource) != 0 {
			t.Fatalf("%d calls were never served", len(l.waiting))
		}
	})
}

// starve keeps a and b busy in turn, so that they are never free together,
// and returns after how long a call for both is served.
func starve(t *testing.T, neverReserve bool) time.Duration {
	t.Helper()
	l := newLine(t.Fatalf)
	l.neverReserve = neverReserve
	const hold = 600 * time.Millisecond
	l.arrive(0, hold, "a")
	l.pass(hold / 2)
	l.arrive(1, hold, "b")
	both := l.arrive(2, hold, "a", "b")
	begun := l.now
	for i := 3; slices.Contains(l.waiting, both); i++ {
		if l.now.Sub(begun) > MaxWait {
			return MaxWait
		}
		l.arrive(i, hold, []string{"a", "b"}[i%2]) // waits for the next turn
		l.pass(hold / 2)
	}
	return l.now.Sub(begun)
}

// TestCallsForSeveralDoNotStarve: and the test would notice it if they did.
func TestCallsForSeveralDoNotStarve(t *testing.T) {
	if took := starve(t, false); took > 6*time.Second {
		t.Errorf("served after %s", took)
	}
	if took := starve(t, true); took < MaxWait {
		t.Errorf("without reservations served after %s: the test proves nothing", took)
	}
}

// TestFreeResourcesAreNotDenied: a call that waits for two leases of which one
// is free leaves that one to others, also to those who would not wait.
func TestFreeResourcesAreNotDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(t, memory(t))
		a, err := s.Acquire(t.Context(), worker("x"), Request{Resources: []string{"a"}, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		both := make(chan []Grant, 1)
		go func() {
			g, err := s.Acquire(t.Context(), worker("y"), Request{Resources: []string{"a", "b"}, Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			both <- g
		}()
		for s.Waiting() == 0 {
			synctest.Wait()
		}
		time.Sleep(10 * time.Millisecond) // of the bubble: it has looked
		b, err := s.Acquire(t.Context(), worker("z"), Request{Resources: []string{"b"}})
		if err != nil {
			t.Fatalf("b, which nobody holds: %v", err)
		}
		if _, err := s.Acquire(t.Context(), worker("z"), Request{Resources: []string{"a"}}); headgate.CodeOf(err) != headgate.CodeLeaseHeld {
			t.Errorf("a, for which another waits: %v", err)
		}
		for _, g := range []Grant{a[0], b[0]} {
			if err := s.Release(t.Context(), worker(g.Holder), "", g.Token); err != nil {
				t.Fatal(err)
			}
		}
		if g := <-both; len(g) != 2 {
			t.Errorf("%+v", g)
		}
	})
}

// TestManyBehindOne: the search for who may try is bounded, and whoever waits
// behind more than it looks at is served all the same.
func TestManyBehindOne(t *testing.T) {
	l := newLine(t.Fatalf)
	l.arrive(0, 20*time.Second, "a")
	const n = 2 * sight
	for i := range n {
		l.arrive(i+1, tick, "a", fmt.Sprint("x", i%7))
	}
	l.pass(20*time.Second + (n+1)*tick)
	if len(l.waiting) > 0 {
		t.Errorf("%d calls wait", len(l.waiting))
	}
	if !slices.IsSorted(l.granted) {
		t.Error("calls for the same lease overtook each other")
	}
}
