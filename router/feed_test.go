package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/store"
)

// TestFeedHistories plays random histories of subscriptions with different
// speeds over one stream: they fall out of the feed and join it again, are
// paused, changed, added and removed, and the router restarts and crashes. Each
// must get each event of its own, in order per key, never again after its
// settlement was answered, and nothing else; the counts must add up to that.
//
// A failing seed is played again with HEADGATE_ROUTER_SEED.
func TestFeedHistories(t *testing.T) {
	if s := os.Getenv("HEADGATE_ROUTER_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := playFeed(t, seed, nil).err; err != nil {
			t.Fatal(err)
		}
		return
	}
	rounds := uint64(15)
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds = 5000
	}
	base, alone, joined := rand.Uint64()>>16, int64(0), int64(0)
	for i := range rounds {
		h := playFeed(t, base+i, nil)
		if h.err != nil {
			t.Fatalf("%v\nreplay: HEADGATE_ROUTER_SEED=%d go test ./router -run TestFeedHistories", h.err, base+i)
		}
		alone, joined = alone+h.alone, joined+h.joined
	}
	if alone < int64(rounds) || joined < int64(rounds) {
		t.Errorf("in %d histories subscriptions left the feed %d times and joined it %d times: too few to show anything", rounds, alone, joined)
	}
}

// TestFeedHistoriesCatch: a router that loses events on the way into the feed or
// out of it must be caught.
func TestFeedHistoriesCatch(t *testing.T) {
	for name, fault := range map[string]func(*Router){
		"joins before it has read up to the feed": func(r *Router) { r.joinEarly = true },
		"drops what does not fit into a queue":    func(r *Router) { r.dropWhenFull = true },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				if err := playFeed(t, seed, fault).err; err != nil {
					t.Logf("caught at seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("200 histories did not notice")
		})
	}
}

// crowd is a history of many subscriptions.
type crowd struct {
	*rig
	rng           *rand.Rand
	subs          []*reader
	events        []*headgate.Event
	added         int
	draining      bool // everything is settled at once
	err           error
	alone, joined int64
}

// reader is one subscription, and what the model knows of it.
type reader struct {
	name   string
	spec   Spec
	speed  int // its share of the steps
	since  int // the first event that it is entitled to
	settle map[string]bool
	// settled holds, for each key, an event before which all are settled.
	settled map[string]int
	open    []Delivery
	odd     bool // its condition wants odd numbers
}

func playFeed(t *testing.T, seed uint64, fault func(*Router)) (h *crowd) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 2))
		faults := &membroker.Faults{
			Seed: seed, Throttle: 0.03 * rng.Float64(), Delay: 0.1 * rng.Float64(), Reorder: 0.3 * rng.Float64(),
			LoseSettle: 0.1 * rng.Float64(), Crash: 0.02 * rng.Float64(),
		}
		h = &crowd{rig: newRigWith(t, membroker.Config{Faults: faults}, 1+rng.IntN(3)), rng: rng}
		h.buffer = []int{4, 16, 64}[rng.IntN(3)]
		h.quiet = true
		h.tune = func(r *Router) {
			r.inbox = h.buffer
			if fault != nil {
				fault(r)
			}
		}
		h.start()
		h.err = h.play()
		h.count()
		h.gate.set(nil)
		_ = h.stop()
		h.close()
	})
	return h
}

func (h *crowd) count() {
	h.alone += h.router.went.alone.Load()
	h.joined += h.router.went.joined.Load()
}

func (h *crowd) play() error {
	for range 2 + h.rng.IntN(5) {
		h.add()
	}
	for range 60 + h.rng.IntN(60) {
		if err := h.step(); err != nil {
			return err
		}
	}
	return h.finish()
}

func (h *crowd) step() error {
	switch n := h.rng.IntN(100); {
	case n < 20:
		h.emit(1 + h.rng.IntN(2*h.buffer))
	case n < 75:
		return h.consume(h.pick(), 1+h.rng.IntN(h.buffer))
	case n < 85:
		time.Sleep(time.Duration(h.rng.IntN(8000)) * time.Millisecond)
	case n < 88:
		return h.laws()
	case n < 91:
		s := h.pick()
		_ = h.router.Pause(context.Background(), s.name)
	case n < 94:
		s := h.pick()
		_ = h.router.Resume(context.Background(), s.name)
	case n < 95:
		h.add()
	case n < 96:
		s := h.pick()
		s.spec.Concurrency, s.open = 1+h.rng.IntN(50), nil
		h.put(s.name, s.spec)
	case n < 97 && len(h.subs) > 2:
		i := h.rng.IntN(len(h.subs))
		if err := h.router.Delete(context.Background(), h.subs[i].name); err != nil {
			return err
		}
		h.subs = append(h.subs[:i], h.subs[i+1:]...)
	case n < 98:
		h.count()
		if err := h.stop(); err != nil {
			return err
		}
		h.reopen()
	default:
		h.count()
		h.crash()
		h.reopen()
	}
	return nil
}

func (h *crowd) reopen() {
	for _, s := range h.subs {
		s.open = nil
	}
	h.start()
}

// pick returns a subscription, fast ones more often.
func (h *crowd) pick() *reader {
	sum := 0
	for _, s := range h.subs {
		sum += s.speed
	}
	n := h.rng.IntN(sum)
	for _, s := range h.subs {
		if n -= s.speed; n < 0 {
			return s
		}
	}
	return h.subs[0]
}

func (h *crowd) add() {
	h.added++
	s := &reader{name: fmt.Sprintf("s%d", h.added), speed: []int{1, 5, 30}[h.rng.IntN(3)], settle: map[string]bool{}, settled: map[string]int{}}
	s.spec = Spec{
		Types: [][]string{{"a.x"}, {"a.*", "a.x"}, {"*"}, {"b.z", "a.y"}, {"a.deep.*"}, {"none.*"}}[h.rng.IntN(6)],
		Order: []string{OrderStrict, OrderRelease, OrderNone}[h.rng.IntN(3)], Concurrency: 1 + h.rng.IntN(50),
		Backoff: "1s..2s", Attempts: 1000, MaxBlock: Duration(time.Hour * 24), Claim: Duration(10 * time.Second),
	}
	if h.rng.IntN(4) == 0 {
		s.odd, s.spec.When = true, "data.n % 2 == 1"
	}
	if h.rng.IntN(2) == 0 {
		s.spec.From = "beginning"
	} else {
		s.since = len(h.events)
	}
	h.put(s.name, s.spec)
	h.subs = append(h.subs, s)
}

func (h *crowd) emit(n int) {
	first := len(h.events)
	for range n {
		i := len(h.events)
		ev := event(fmt.Sprintf("e%d", i), []string{"a.x", "a.y", "a.deep.er", "b.z", "c"}[h.rng.IntN(5)], []string{"", "k1", "k2", "k3"}[h.rng.IntN(4)])
		ev.Data = fmt.Appendf(nil, `{"n":%d}`, i)
		h.events = append(h.events, ev)
	}
	// What is throttled of a key takes its followers with it, so that one call
	// keeps the order.
	for batch := h.events[first:]; len(batch) > 0; batch = batch[min(len(batch), 20):] {
		for _, ev := range batch[:min(len(batch), 20)] {
			h.publish(ev)
		}
	}
}

func (s *reader) wants(h *crowd, i int) bool {
	if i < s.since || (s.odd && i%2 == 0) {
		return false
	}
	for _, t := range s.spec.Types {
		if headgate.MatchType(t, h.events[i].Type) {
			return true
		}
	}
	return false
}

// consume pulls and settles most of what a subscription has.
func (h *crowd) consume(s *reader, limit int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	wait := time.Duration(h.rng.IntN(300)) * time.Millisecond
	if h.draining {
		wait = 3 * time.Second
	}
	got, err := h.router.Pull(ctx, h.people.get("worker"), s.name, limit, wait)
	if err != nil && headgate.CodeOf(err) != headgate.CodeCanceled {
		return fmt.Errorf("pull from %s: %w", s.name, err)
	}
	var in []Settlement
	for _, d := range append(s.open, got...) {
		out := OutcomeAck
		if h.rng.IntN(20) == 0 && !h.draining {
			out = OutcomeRetry
		}
		in = append(in, Settlement{Claim: d.Claim, Outcome: out})
	}
	for _, d := range got {
		if err := h.delivered(s, d); err != nil {
			return err
		}
	}
	all := append(s.open, got...)
	s.open = nil
	if h.rng.IntN(8) == 0 && !h.draining {
		s.open = all // let some claims run out
		return nil
	}
	out, err := h.router.Settle(context.Background(), h.people.get("worker"), s.name, in)
	if err != nil {
		return fmt.Errorf("settle of %s: %w", s.name, err)
	}
	for i, res := range out {
		if res.Err == nil && in[i].Outcome == OutcomeAck {
			s.settle[all[i].Event.ID] = true
		}
	}
	return nil
}

func (h *crowd) delivered(s *reader, d Delivery) error {
	i, _ := strconv.Atoi(d.Event.ID[1:])
	switch {
	case !s.wants(h, i):
		return fmt.Errorf("%s got %s of type %s, which is not for it", s.name, d.Event.ID, d.Event.Type)
	case s.settle[d.Event.ID]:
		return fmt.Errorf("%s got %s after its settlement was answered", s.name, d.Event.ID)
	case d.Event.Key == "" || s.spec.Order == OrderNone:
		return nil
	}
	for k := s.settled[d.Event.Key]; k < i; k++ {
		if ev := h.events[k]; ev.Key == d.Event.Key && s.wants(h, k) && !s.settle[ev.ID] {
			return fmt.Errorf("%s got %s of key %s before %s", s.name, d.Event.ID, d.Event.Key, ev.ID)
		}
	}
	s.settled[d.Event.Key] = i
	return nil
}

// laws asserts the conservation law.
func (h *crowd) laws() error {
	all, err := h.router.Conservation(context.Background())
	if err != nil {
		return err
	}
	for _, b := range all {
		if !b.Holds {
			return fmt.Errorf("the conservation law is broken: %+v", b)
		}
	}
	return nil
}

// finish drains every subscription and compares with what it was entitled to.
func (h *crowd) finish() error {
	h.draining = true
	for _, s := range h.subs {
		if err := h.router.Resume(context.Background(), s.name); err != nil {
			return err
		}
		for round := 0; len(s.settle) < s.due(h); round++ {
			if round > 3000 {
				return fmt.Errorf("%s settled %d of %d events\n%s", s.name, len(s.settle), s.due(h), h.router.sub(s.name).dump())
			}
			if err := h.consume(s, 50); err != nil {
				return err
			}
		}
	}
	time.Sleep(time.Minute) // tides and checkpoints
	all, err := h.router.Conservation(context.Background())
	if err != nil {
		return err
	}
	for _, s := range h.subs {
		for _, b := range all {
			if b.Subscription == s.name && (!b.Holds || b.Counts.Settled != uint64(s.due(h)) || b.Counts.Sum() != b.Accepted || b.Counts.Trimmed != 0) {
				return fmt.Errorf("%s is to have settled %d: %+v", s.name, s.due(h), b)
			}
		}
		if err := h.saved(s); err != nil {
			return err
		}
	}
	return nil
}

// saved asserts that the stored floors are at the end of the stream.
func (h *crowd) saved(s *reader) error {
	floors, sum := h.router.sub(s.name).heads("events"), uint64(0)
	h.router.sub(s.name).mu.Lock()
	defer h.router.sub(s.name).mu.Unlock()
	for _, p := range h.router.sub(s.name).parts {
		if p.saved != floors[p.partition] {
			return fmt.Errorf("%s: floor %d of partition %d is stored, and %d reached", s.name, p.saved, p.partition, floors[p.partition])
		}
		sum += p.saved
	}
	if sum != uint64(len(h.events)) {
		return fmt.Errorf("%s: floors at %d of %d events", s.name, sum, len(h.events))
	}
	return nil
}

func (s *reader) due(h *crowd) (n int) {
	for i := range h.events {
		if s.wants(h, i) {
			n++
		}
	}
	return n
}

// TestSlowSubscriptionHoldsNobody: a subscription that nobody pulls from leaves
// the feed, the others go on at once, and it joins again once it has caught up.
func TestSlowSubscriptionHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 2)
		r.buffer = 16
		r.start()
		defer r.end()
		r.put("slow", Spec{Concurrency: 1000})
		r.put("fast", Spec{Concurrency: 1000})
		r.put("none", Spec{Types: []string{"other"}})
		drain := func(name string, n int) {
			t.Helper()
			for n > 0 {
				got := r.pull(name, 100, time.Second)
				if len(got) == 0 {
					t.Fatalf("%s waits for %d more", name, n)
				}
				in := make([]Settlement, len(got))
				for i, d := range got {
					in[i] = Settlement{Claim: d.Claim, Outcome: OutcomeAck}
				}
				r.settle(name, in...)
				n -= len(got)
			}
		}
		start := time.Now()
		for i := range 100 {
			for k := range 10 {
				r.publish(event(fmt.Sprint(i, "-", k), "x", ""))
			}
			drain("fast", 10)
		}
		if d := time.Since(start); d > 0 { // nothing waited for a timer
			t.Errorf("the fast subscription took %v", d)
		}
		synctest.Wait()
		if _, members := r.router.feeds.all()[0].turn(0); len(members) != 2 {
			t.Errorf("%d subscriptions are in the feed, want all but the slow one", len(members))
		}
		drain("slow", 1000)
		time.Sleep(10 * time.Second)
		if n := r.router.went.joined.Load(); n != 1 {
			t.Errorf("%d subscriptions joined again", n)
		}
		if _, members := r.router.feeds.all()[0].turn(0); len(members) != 3 {
			t.Errorf("%d subscriptions are in the feed at the end", len(members))
		}
		r.publish(event("last", "x", ""))
		drain("slow", 1)
		drain("fast", 1)
		if all, err := r.router.Conservation(t.Context()); err != nil || all[1].Counts.Unmatched != 1001 || !all[1].Holds {
			t.Errorf("the other one: %+v, %v", all, err)
		}
	})
}

// A tide that still holds a subscription which ended meanwhile leaves it out:
// its rows are another one's now.
func TestTideLeavesOutWhoEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		r.put("s", Spec{Types: []string{"other"}})
		old := r.router.sub("s")
		for i := range 10 {
			r.publish(event(fmt.Sprint(i), "x", ""))
		}
		if err := r.router.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		r.put("s", Spec{Types: []string{"x"}})
		rows := func() []store.Progress {
			t.Helper()
			var rows []store.Progress
			err := r.store.View(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
				rows, err = tx.Deliveries.Progress(ctx, "s")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return rows
		}
		before := rows()
		for _, p := range old.parts {
			p.dirty = true
		}
		if err := r.router.saveTide(t.Context(), []*sub{old}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, rows()); diff != "" {
			t.Errorf("a tide wrote for a subscription that ended:\n%s", diff)
		}
	})
}
