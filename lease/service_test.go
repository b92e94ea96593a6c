package lease

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// guardCases is the table of what a guard must refuse; each row says by which
// predicate. It runs once whole, and once per predicate taken out, when it
// must notice.
func guardCases(t *testing.T, without string) (faults []string) {
	type step struct {
		what string
		do   func(*rig) string // returns the token to write with
		want headgate.Code
	}
	for _, c := range []step{
		{"holder", func(r *rig) string { return r.acquire("a", "r").Token }, ""},
		{"after a takeover", func(r *rig) string {
			old := r.acquire("a", "r")
			r.pass(11 * time.Second)
			r.acquire("b", "r")
			return old.Token
		}, headgate.CodeStaleFence},
		{"after its own takeover (T16)", func(r *rig) string {
			old := r.acquire("a", "r")
			r.pass(11 * time.Second)
			r.acquire("a", "r")
			return old.Token
		}, headgate.CodeStaleFence},
		{"after release", func(r *rig) string {
			old := r.acquire("a", "r")
			if err := r.Release(r.t.Context(), worker("a"), "r", old.Token); err != nil {
				r.t.Fatal(err)
			}
			return old.Token
		}, headgate.CodeStaleFence},
		{"same epoch, other nonce", func(r *rig) string {
			g := r.acquire("a", "r")
			f, err := r.Read(r.t.Context(), g.Token, "")
			if err != nil {
				r.t.Fatal(err)
			}
			f.Nonce = []byte("0123456789abcdef")
			token, err := sign(&f, r.ring.Load().keys[0].private)
			if err != nil {
				r.t.Fatal(err)
			}
			return token
		}, headgate.CodeFenceConflict},
		{"gate closed", func(r *rig) string {
			g := r.acquire("a", "r")
			if _, _, _, err := r.shut(r.t.Context(), "r"); err != nil {
				r.t.Fatal(err)
			}
			return g.Token
		}, headgate.CodeLeaseClosing},
		{"ran out", func(r *rig) string {
			g := r.acquire("a", "r")
			r.pass(10 * time.Second)
			return g.Token
		}, headgate.CodeLeaseExpired},
		{"a moment before it runs out", func(r *rig) string {
			g := r.acquire("a", "r")
			r.pass(10*time.Second - 1)
			return g.Token
		}, ""},
		{"ran out, renewed late", func(r *rig) string {
			g := r.acquire("a", "r")
			r.pass(time.Hour)
			if n, err := r.Renew(r.t.Context(), worker("a"), "r", g.Token, 0); err != nil || !n.Late {
				r.t.Fatalf("%+v, %v", n, err)
			}
			return g.Token
		}, ""},
	} {
		r := newRig(t, memory(t))
		r.without = without
		token := c.do(r)
		if err := r.write(token); headgate.CodeOf(err) != c.want {
			faults = append(faults, fmt.Sprintf("%s: %v, want %q", c.what, err, c.want))
		}
	}
	return faults
}

func TestGuard(t *testing.T) {
	for _, f := range guardCases(t, "") {
		t.Error(f)
	}
}

// TestGuardMutants: every predicate of the guard is needed.
func TestGuardMutants(t *testing.T) {
	for _, p := range []string{onEpoch, onNonce, onGate, onExpiry} {
		if len(guardCases(t, p)) == 0 {
			t.Errorf("the guard without its predicate on %s went unnoticed", p)
		}
	}
}

func TestAcquireIsExclusive(t *testing.T) {
	r := newRig(t, memory(t))
	first := r.acquire("a", "ticket/1")
	_, err := r.Acquire(t.Context(), worker("b"), Request{Resources: []string{"ticket/1"}})
	want(t, "second holder", err, headgate.CodeLeaseHeld)
	if e := headgate.AsError(err); e.RetryAfter != 10*time.Second || !strings.Contains(e.Detail, "held by a") {
		t.Errorf("%v, retry after %s", e, e.RetryAfter)
	}
	_, err = r.Acquire(t.Context(), worker("a"), Request{Resources: []string{"ticket/1"}})
	want(t, "another worker of the holder", err, headgate.CodeLeaseHeld)
	r.pass(11 * time.Second)
	second := r.acquire("b", "ticket/1")
	if second.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	_, err = r.Renew(t.Context(), worker("a"), "", first.Token, 0)
	want(t, "renewal of what was taken", err, headgate.CodeLeaseLost)
	want(t, "release of what was taken", r.Release(t.Context(), worker("a"), "", first.Token), headgate.CodeLeaseLost)
	if err := r.write(second.Token); err != nil {
		t.Error(err)
	}
}

// TestRenewNeedsTheWholeFence: wrong holder, epoch or nonce renew nothing.
func TestRenewNeedsTheWholeFence(t *testing.T) {
	r := newRig(t, memory(t))
	g := r.acquire("a", "r")
	good, err := r.Read(t.Context(), g.Token, "")
	if err != nil {
		t.Fatal(err)
	}
	forge := func(change func(*Fence)) string {
		f := good
		f.Nonce = slices.Clone(good.Nonce)
		change(&f)
		token, err := sign(&f, r.ring.Load().keys[0].private)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for what, c := range map[string]struct {
		token string
		who   string
		code  headgate.Code
	}{
		"wrong holder": {g.Token, "b", headgate.CodeFenceForeign},
		"lower epoch":  {forge(func(f *Fence) { f.Epoch-- }), "a", headgate.CodeLeaseLost},
		"higher epoch": {forge(func(f *Fence) { f.Epoch++ }), "a", headgate.CodeLeaseLost},
		"wrong nonce":  {forge(func(f *Fence) { f.Nonce[0] ^= 1 }), "a", headgate.CodeFenceConflict},
		"no token":     {"hgl1.e30.AAAA", "a", headgate.CodeFenceInvalid},
	} {
		_, err := r.Renew(t.Context(), worker(c.who), "r", c.token, 0)
		want(t, what, err, c.code)
		want(t, what+", release", r.Release(t.Context(), worker(c.who), "r", c.token), c.code)
	}
	_, err = r.Renew(t.Context(), worker("a"), "other", g.Token, 0)
	want(t, "wrong resource", err, headgate.CodeFenceForeign)
	no := worker("a")
	no.Lease = nil
	_, err = r.Renew(t.Context(), no, "r", g.Token, 0)
	want(t, "right withdrawn", err, headgate.CodeForbidden)
}

func TestRequestIDs(t *testing.T) {
	r := newRig(t, memory(t))
	ask := func(who, id string, resources ...string) ([]Grant, error) {
		return r.Acquire(t.Context(), worker(who), Request{Resources: resources, TTL: 10 * time.Second, RequestID: id})
	}
	first, err := ask("a", "one", "x", "y")
	if err != nil {
		t.Fatal(err)
	}
	r.pass(4 * time.Second)
	same, err := ask("a", "one", "y", "x")
	if err != nil || same[0].Epoch != first[0].Epoch || same[1].Epoch != first[1].Epoch || !same[0].Again || same[0].ExpiresIn != 6*time.Second {
		t.Errorf("repeated: %+v, %v", same, err)
	}
	if err := r.write(same[1].Token); err != nil {
		t.Error(err)
	}
	_, err = ask("b", "one", "x", "y")
	want(t, "the id of another principal", err, headgate.CodeLeaseHeld)
	for _, other := range [][]string{{"x", "z"}, {"x"}, {"y"}, {"x", "y", "z"}} {
		_, err = ask("a", "one", other...)
		want(t, fmt.Sprint("the id for ", other), err, headgate.CodeConflict)
	}
	for what, q := range map[string]Request{
		"another TTL":      {TTL: time.Minute},
		"another worker":   {TTL: 10 * time.Second, Worker: "w"},
		"another audience": {TTL: 10 * time.Second, Audience: []string{"crm"}},
		"a longest hold":   {TTL: 10 * time.Second, MaxHold: time.Hour},
	} {
		q.Resources, q.RequestID = []string{"x", "y"}, "one"
		_, err = r.Acquire(t.Context(), worker("a"), q)
		want(t, what, err, headgate.CodeConflict)
	}
	if err := r.Release(t.Context(), worker("a"), "x", first[0].Token); err != nil {
		t.Fatal(err)
	}
	_, err = ask("a", "one", "x", "y")
	want(t, "repeated after the release of one", err, headgate.CodeConflict)
	r.pass(time.Hour)
	_, err = ask("a", "one", "x", "y")
	want(t, "repeated after it ran out", err, headgate.CodeConflict)
	if _, err = ask("a", "two", "x", "y"); err != nil {
		t.Error(err)
	}
}

// TestRequestIDsOutliveTheRow: others had the resources since, and the id is
// not granted again, nor for other resources.
func TestRequestIDsOutliveTheRow(t *testing.T) {
	base := memory(t)
	r := newRig(t, base)
	ask := func(s *Service, id string, wait time.Duration, resources ...string) error {
		_, err := s.Acquire(t.Context(), worker("a"), Request{Resources: resources, RequestID: id, Wait: wait})
		return err
	}
	if err := ask(r.Service, "one", 0, "x", "y"); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Hour)
	g := r.acquire("b", "x")
	want(t, "repeated while another holds it", ask(r.Service, "one", MaxWait, "x", "y"), headgate.CodeConflict)
	if err := r.Release(t.Context(), worker("b"), "x", g.Token); err != nil {
		t.Fatal(err)
	}
	h := r.acquire("b", "y")
	if err := r.Release(t.Context(), worker("b"), "y", h.Token); err != nil {
		t.Fatal(err)
	}
	want(t, "repeated after others held them", ask(r.Service, "one", 0, "x", "y"), headgate.CodeConflict)
	want(t, "for other resources", ask(r.Service, "one", 0, "z"), headgate.CodeConflict)
	if err := r.grantedNothing("z"); err != nil {
		t.Error(err)
	}

	// A service that starts knows it all the same: what rows say, and what they
	// have forgotten before.
	if err := ask(r.Service, "two", 0, "x"); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Minute)
	next := service(t, r.st)
	want(t, "forgotten by the rows, after a restart", ask(next, "one", MaxWait, "x", "y"), headgate.CodeConflict)
	want(t, "for other resources, after a restart", ask(next, "one", MaxWait, "z"), headgate.CodeConflict)
	g2, err := next.Acquire(t.Context(), worker("b"), Request{Resources: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Release(t.Context(), worker("b"), "x", g2[0].Token); err != nil {
		t.Fatal(err)
	}
	want(t, "after a restart", ask(service(t, r.st), "two", 0, "x"), headgate.CodeConflict)
	want(t, "others'", r.acquireAs("b", "two", "x"), "")
}

func (r *rig) acquireAs(who, id, resource string) error {
	_, err := r.Acquire(r.t.Context(), worker(who), Request{Resources: []string{resource}, RequestID: id})
	return err
}

// grantedNothing tells whether a resource was ever leased.
func (r *rig) grantedNothing(resource string) error {
	_, err := r.Get(r.t.Context(), resource)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return nil
	}
	return fmt.Errorf("%s was leased (%w)", resource, err)
}

// TestRequestIDsAreForgotten after their hour, and not before.
func TestRequestIDsAreForgotten(t *testing.T) {
	r := newRig(t, memory(t))
	for i := range 3 {
		if err := r.acquireAs("a", fmt.Sprint("id-", i), fmt.Sprint("r/", i)); err != nil {
			t.Fatal(err)
		}
		r.pass(25 * time.Minute)
	}
	if err := r.forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "of 75 minutes", r.acquireAs("a", "id-0", "other"), "")
	want(t, "of 50 minutes", r.acquireAs("a", "id-1", "another"), headgate.CodeConflict)
	// Its row knows better than the table for as long as nobody else had it.
	want(t, "of 75 minutes, by its row", r.acquireAs("a", "id-0", "r/0"), headgate.CodeConflict)
}

func TestSeveralAreGrantedTogetherOrNot(t *testing.T) {
	r := newRig(t, memory(t))
	r.acquire("a", "m")
	r.pass(time.Second)
	r.acquire("c", "n")
	_, err := r.Acquire(t.Context(), worker("b"), Request{Resources: []string{"z", "n", "m", "a"}})
	want(t, "two are held", err, headgate.CodeLeaseHeld)
	held := []headgate.HeldLease{{Resource: "m", Holder: "a", ExpiresIn: 9 * time.Second}, {Resource: "n", Holder: "c", ExpiresIn: 10 * time.Second}}
	if e := headgate.AsError(err); !slices.Equal(e.Held, held) || e.RetryAfter != 10*time.Second {
		t.Errorf("held: %+v, retry after %s", e.Held, e.RetryAfter)
	}
	for _, name := range []string{"a", "z"} {
		_, err := r.Get(t.Context(), name)
		want(t, name, err, headgate.CodeNotFound)
	}
}

// TestListsWhatIsHeld by the store's clock, not what once was.
func TestListsWhatIsHeld(t *testing.T) {
	r := newRig(t, memory(t))
	r.acquire("a", "gone")
	r.pass(10 * time.Second)
	g := r.acquire("a", "given back")
	r.acquire("a", "held")
	if err := r.Release(t.Context(), worker("a"), "", g.Token); err != nil {
		t.Fatal(err)
	}
	for held, names := range map[bool][]string{true: {"held"}, false: {"given back", "gone", "held"}} {
		all, err := r.List(t.Context(), Filter{Held: held})
		var got []string
		for i := range all {
			got = append(got, all[i].Resource)
		}
		if err != nil || !slices.Equal(got, names) {
			t.Errorf("held %v: %v, %v, want %v", held, got, err, names)
		}
	}
}

// TestCrossedSetsDoNotDeadlock: calls that want the same resources in another
// order all come to an end.
func TestCrossedSetsDoNotDeadlock(t *testing.T) {
	st := memory(t)
	s := service(t, st)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			set := []string{"a", "b", "c"}
			if i%2 == 0 {
				slices.Reverse(set)
			}
			p := worker(fmt.Sprint("w", i))
			g, err := s.Acquire(t.Context(), p, Request{Resources: set[:2], Wait: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			for _, one := range g {
				if err := s.Release(t.Context(), p, one.Resource, one.Token); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s.Waiting() != 0 || len(s.queue.byResource) != 0 || len(s.queue.byPrincipal) != 0 {
		t.Errorf("%d calls still wait", s.Waiting())
	}
}

// TestWaitersAreServedInOrder: and a newcomer does not jump the queue.
func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory(t)
		s := service(t, st)
		held, err := s.Acquire(t.Context(), worker("first"), Request{Resources: []string{"r"}})
		if err != nil {
			t.Fatal(err)
		}
		const n = 5
		order := make(chan int, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				p := worker(fmt.Sprint("w", i))
				g, err := s.Acquire(t.Context(), p, Request{Resources: []string{"r"}, Wait: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				order <- i
				if err := s.Release(t.Context(), p, "", g[0].Token); err != nil {
					t.Error(err)
				}
			})
			for s.Waiting() <= i {
				synctest.Wait()
			}
		}
		_, err = s.Acquire(t.Context(), worker("hasty"), Request{Resources: []string{"r"}})
		want(t, "who would not wait", err, headgate.CodeLeaseHeld)
		if err := s.Release(t.Context(), worker("first"), "r", held[0].Token); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if got := <-order; got != i {
				t.Errorf("call %d was served as number %d", got, i)
			}
		}
		wg.Wait()
	})
}

// TestTwoNodes: what one node releases, revokes or loses reaches those who wait
// at another, and its memory of superseded epochs is never ahead of the store.
func TestTwoNodes(t *testing.T) {
	st := memory(t)
	one, two := service(t, st), service(t, st)
	g, err := one.Acquire(t.Context(), worker("a"), Request{Resources: []string{"r"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	old, err := two.Read(t.Context(), g[0].Token, "")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan Grant, 1)
	go func() {
		g, err := two.Acquire(t.Context(), worker("b"), Request{Resources: []string{"r"}, TTL: time.Minute, Wait: time.Minute})
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		got <- g[0]
	}()
	for two.Waiting() == 0 {
		runtime.Gosched()
	}
	if err := two.Current(t.Context(), &old); err != nil {
		t.Error(err)
	}
	if err := one.Release(t.Context(), worker("a"), "", g[0].Token); err != nil {
		t.Fatal(err)
	}
	next, ok := <-got
	if !ok || next.Epoch <= g[0].Epoch {
		t.Fatalf("%+v after %+v", next, g[0])
	}
	want(t, "old token at the other node", two.Superseded(&old), headgate.CodeStaleFence)
	want(t, "write at the first node", write(t.Context(), one, st, g[0].Token), headgate.CodeStaleFence)
	if err := write(t.Context(), one, st, next.Token); err != nil {
		t.Error(err)
	}
}

func TestRevoke(t *testing.T) {
	ctx := t.Context()
	s := service(t, memory(t))
	st := s.cfg.Store
	_, err := s.Revoke(ctx, "r", Revocation{})
	want(t, "nothing to revoke", err, headgate.CodeNotFound)
	take := func() Grant {
		g, err := s.Acquire(ctx, worker("a"), Request{Resources: []string{"r"}})
		if err != nil {
			t.Fatal(err)
		}
		return g[0]
	}
	t.Run("terminate", func(t *testing.T) {
		g := take()
		got, err := s.Revoke(ctx, "r", Revocation{Terminate: true})
		if err != nil || !got.Killed || got.Epoch <= g.Epoch {
			t.Errorf("%+v, %v", got, err)
		}
		want(t, "write", write(ctx, s, st, g.Token), headgate.CodeStaleFence)
	})
	t.Run("drain", func(t *testing.T) {
		g := take()
		closed := make(chan struct{})
		done := make(chan Revoked, 1)
		watching, stop := context.WithCancel(ctx)
		defer stop()
		go s.Watch(watching, "r", func(st State) error {
			if st.Closing {
				close(closed)
				return errors.New("enough")
			}
			return nil
		})
		go func() {
			got, err := s.Revoke(ctx, "r", Revocation{Deadline: time.Minute})
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		<-closed
		want(t, "write while the gate is closed", write(ctx, s, st, g.Token), headgate.CodeLeaseClosing)
		_, err := s.Renew(ctx, worker("a"), "r", g.Token, 0)
		want(t, "renewal while the gate is closed", err, headgate.CodeLeaseClosing)
		_, err = s.Acquire(ctx, worker("b"), Request{Resources: []string{"r"}})
		want(t, "acquire while the gate is closed", err, headgate.CodeLeaseHeld)
		if err := s.Release(ctx, worker("a"), "r", g.Token); err != nil {
			t.Error(err)
		}
		if got := <-done; got.Killed || got.Epoch <= g.Epoch {
			t.Errorf("%+v", got)
		}
	})
	t.Run("drain without an answer", func(t *testing.T) {
		g := take()
		got, err := s.Revoke(ctx, "r", Revocation{Deadline: 10 * time.Millisecond})
		if err != nil || !got.Killed || got.Epoch <= g.Epoch {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestTerminateWhileDraining: both calls say that the lease was taken from its
// holder, and a drain that its holder ended does not.
func TestTerminateWhileDraining(t *testing.T) {
	ctx := t.Context()
	s := service(t, memory(t))
	for _, release := range []bool{false, true} {
		g, err := s.Acquire(ctx, worker("a"), Request{Resources: []string{"r"}, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		waiter := make(chan error, 1)
		go func() { // takes it at once, so that a drain may see only its grant
			next, err := s.Acquire(ctx, worker("b"), Request{Resources: []string{"r"}, Wait: time.Minute})
			if err == nil {
				err = s.Release(ctx, worker("b"), "", next[0].Token)
			}
			waiter <- err
		}()
		drained := make(chan Revoked, 1)
		go func() {
			got, err := s.Revoke(ctx, "r", Revocation{Deadline: time.Minute})
			if err != nil {
				t.Error(err)
			}
			drained <- got
		}()
		for st := (State{}); !st.Closing; {
			if st, err = s.Get(ctx, "r"); err != nil {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		if release {
			if err := s.Release(ctx, worker("a"), "", g[0].Token); err != nil {
				t.Fatal(err)
			}
		} else if got, err := s.Revoke(ctx, "r", Revocation{Terminate: true}); err != nil || !got.Killed {
			t.Errorf("terminate: %+v, %v", got, err)
		}
		if got := <-drained; got.Killed == release || got.Epoch <= g[0].Epoch {
			t.Errorf("drain of a lease that was released (%v): %+v", release, got)
		}
		if err := <-waiter; err != nil {
			t.Error(err)
		}
	}
}

func TestMaxHold(t *testing.T) {
	r := newRig(t, memory(t))
	g, err := r.Acquire(t.Context(), worker("a"), Request{Resources: []string{"r"}, TTL: 10 * time.Second, MaxHold: 15 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.pass(9 * time.Second)
	n, err := r.Renew(t.Context(), worker("a"), "r", g[0].Token, 0)
	if err != nil || n.ExpiresIn != 6*time.Second {
		t.Errorf("%+v, %v", n, err)
	}
	r.pass(6 * time.Second)
	_, err = r.Renew(t.Context(), worker("a"), "r", g[0].Token, 0)
	want(t, "renewal beyond the longest hold", err, headgate.CodeLeaseExpired)
}

// TestClockSteps: an hour either way changes who may hold, never what is stale.
func TestClockSteps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			r := newRig(t, memory(t))
			old := r.acquire("a", "r")
			r.pass(jump)
			// Back in time the end is an hour off: the first who asks mends that.
			if _, err := r.Acquire(t.Context(), worker("b"), Request{Resources: []string{"r"}}); jump < 0 {
				want(t, "acquire", err, headgate.CodeLeaseHeld)
				if e := headgate.AsError(err); e.RetryAfter > 10*time.Second {
					t.Errorf("held for another %s", e.RetryAfter)
				}
				r.pass(11 * time.Second)
				r.acquire("b", "r")
			} else if err != nil {
				t.Fatal(err)
			}
			st, err := r.Get(t.Context(), "r")
			if err != nil || st.Holder != "b" || st.Epoch <= old.Epoch {
				t.Errorf("%+v, %v", st, err)
			}
			want(t, "write of the old holder", r.write(old.Token), headgate.CodeStaleFence)
			r.pass(-jump)
			want(t, "write of the old holder, later", r.write(old.Token), headgate.CodeStaleFence)
		})
	}
}

// TestLostRows: a row that a restored store does not know cannot make an old
// token pass, and its epoch is not given again.
func TestLostRows(t *testing.T) {
	r := newRig(t, memory(t))
	lost := r.acquire("a", "r")
	other := newRig(t, memory(t)) // the store as of before, with the same keys
	other.ring.Store(r.ring.Load())
	other.st.now = r.st.now.Add(time.Second)
	want(t, "write before anybody leased anew", other.write(lost.Token), headgate.CodeStaleFence)
	fresh := other.acquire("b", "r")
	if fresh.Epoch <= lost.Epoch {
		t.Errorf("epoch %d was given although %d was", fresh.Epoch, lost.Epoch)
	}
	want(t, "write after", other.write(lost.Token), headgate.CodeStaleFence)
}

func TestSupersededNeedsNoStore(t *testing.T) {
	r := newRig(t, memory(t))
	old := r.acquire("a", "r")
	f, err := r.Read(t.Context(), old.Token, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Superseded(&f); err != nil {
		t.Error(err)
	}
	r.pass(time.Minute)
	r.acquire("b", "r")
	want(t, "superseded", r.Superseded(&f), headgate.CodeStaleFence)
}

func TestRightToLease(t *testing.T) {
	s := service(t, memory(t))
	p := &headgate.Principal{Name: "p", Kind: headgate.KindAgent, Lease: []string{"ticket/*", "x"}}
	for resource, ok := range map[string]bool{"ticket/1": true, "ticket/1/2": true, "x": true, "ticket": false, "y": false, "x/1": false} {
		_, err := s.Acquire(t.Context(), p, Request{Resources: []string{resource}})
		if (err == nil) != ok {
			t.Errorf("%s: %v", resource, err)
		}
	}
	_, err := s.Acquire(t.Context(), nil, Request{Resources: []string{"x"}})
	want(t, "nobody", err, headgate.CodeUnauthenticated)
	admin := &headgate.Principal{Name: "root", Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleAdmin}}
	if _, err := s.Acquire(t.Context(), admin, Request{Resources: []string{"anything"}}); err != nil {
		t.Error(err)
	}
	for _, bad := range []Request{
		{},
		{Resources: []string{""}},
		{Resources: []string{"a", "a"}},
		{Resources: []string{"a//b"}},
		{Resources: []string{"../a"}},
		{Resources: []string{strings.Repeat("a", 257)}},
		{Resources: []string{"a\x00"}},
		{Resources: []string{"e\u0301"}}, // not in NFC: two spellings of one name would be two leases
		{Resources: []string{"a"}, TTL: time.Nanosecond},
		{Resources: []string{"a"}, TTL: -1},
		{Resources: []string{"a"}, Wait: time.Hour},
		{Resources: []string{"a"}, RequestID: "a\nb"},
		{Resources: []string{"a"}, Audience: []string{"no spaces"}},
		{Resources: make([]string, 65)},
		{Resources: []string{"a"}, MaxHold: -1},
	} {
		_, err := s.Acquire(t.Context(), admin, bad)
		want(t, fmt.Sprintf("%.80v", bad), err, headgate.CodeInvalidArgument)
	}
}

func TestAudience(t *testing.T) {
	s := service(t, memory(t))
	g, err := s.Acquire(t.Context(), worker("a"), Request{Resources: []string{"r"}, Audience: []string{"crm", "crm"}})
	if err != nil {
		t.Fatal(err)
	}
	for target, code := range map[string]headgate.Code{"crm": "", "": "", OwnAudience: "", "erp": headgate.CodeFenceForeign} {
		_, _, err := s.Verify(t.Context(), g[0].Token, target)
		want(t, "target "+target, err, code)
	}
}

// TestKeysRotate: old tokens stay good, new ones are signed by the new key
// once every node has seen it.
func TestKeysRotate(t *testing.T) {
	r := newRig(t, memory(t))
	g := r.acquire("a", "r")
	other := service(t, r.st) // a second node
	r.pass(time.Second)
	if err := r.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	n, err := r.Renew(t.Context(), worker("a"), "r", g.Token, 0)
	if err != nil || KeyIDOf(n.Token) != KeyIDOf(g.Token) {
		t.Errorf("a key signed before others knew it: %v", err)
	}
	r.pass(activateAfter)
	if n, err = r.Renew(t.Context(), worker("a"), "r", g.Token, 0); err != nil || KeyIDOf(n.Token) == KeyIDOf(g.Token) {
		t.Errorf("the new key does not sign: %v", err)
	}
	for _, token := range []string{g.Token, n.Token} {
		if _, _, err := other.Verify(t.Context(), token, ""); err != nil {
			t.Error(err)
		}
	}
	for range keyMemory {
		if err := r.Rotate(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		r.pass(activateAfter)
	}
	if _, keys := r.Keys(); len(keys) != keyMemory {
		t.Errorf("%d keys", len(keys))
	}
	_, err = r.Read(t.Context(), g.Token, "")
	want(t, "token of a dropped key", err, headgate.CodeFenceInvalid)
}

// TestGuardIsPartOfTheWrite: a refused guard leaves nothing behind.
func TestGuardIsPartOfTheWrite(t *testing.T) {
	r := newRig(t, memory(t))
	old := r.acquire("a", "r")
	r.pass(time.Minute)
	r.acquire("b", "r")
	f, err := r.Read(t.Context(), old.Token, "")
	if err != nil {
		t.Fatal(err)
	}
	err = r.st.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "s"}}); err != nil {
			return err
		}
		return r.Guard(ctx, tx, &f)
	})
	want(t, "guard last", err, headgate.CodeStaleFence)
	err = r.st.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		n, err := tx.Outbox.Count(ctx)
		if n != 0 {
			t.Errorf("%d events of a stale worker", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
