package lease

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestCallsOfOneRequest: only the last of the calls of a request gives its
// grants back, and only if none of them sealed everything and they were granted
// to one of them.
func TestCallsOfOneRequest(t *testing.T) {
	for _, c := range []struct {
		ends  []bool // of the calls, in this order
		first int    // which of them was granted the leases, -1: an earlier one
		ours  []bool
	}{
		{[]bool{false}, 0, []bool{true}},
		{[]bool{false}, -1, []bool{false}},
		{[]bool{true}, 0, []bool{false}},
		{[]bool{false, false}, 0, []bool{false, true}},
		{[]bool{false, false}, 1, []bool{false, true}},
		{[]bool{false, false}, -1, []bool{false, false}},
		{[]bool{true, false}, 0, []bool{false, false}},
		{[]bool{false, true, false}, 0, []bool{false, false, false}},
	} {
		var all sealings
		leave := make([]func(bool) bool, len(c.ends))
		for i := range c.ends {
			leave[i] = all.join("r", i == c.first)
		}
		other := all.join("another", true)
		for i, done := range c.ends {
			if got := leave[i](done); got != c.ours[i] {
				t.Errorf("%v: the grants are of call %d: %t", c.ends, i, got)
			}
		}
		if len(all.all) != 1 || !other(false) || len(all.all) != 0 {
			t.Errorf("%v: %d requests are remembered", c.ends, len(all.all))
		}
	}
}

// TestCallsThatRevoke: what one of them did the others know, until the last has
// left.
func TestCallsThatRevoke(t *testing.T) {
	var all revocations
	l, next := &store.Lease{Resource: "a", Epoch: 1}, &store.Lease{Resource: "a", Epoch: 2}
	first, leaveFirst := all.join(l)
	second, leaveSecond := all.join(l)
	other, leaveOther := all.join(next)
	if first != second || first == other {
		t.Error("calls of one grant do not know each other, or those of another do")
	}
	leaveFirst()
	third, leaveThird := all.join(l)
	if third != first {
		t.Error("a call that comes later does not know the one that is at work")
	}
	leaveSecond()
	leaveThird()
	leaveOther()
	if len(all.all) != 0 {
		t.Errorf("%d are remembered", len(all.all))
	}
}

// TestRanOut: a lease that another has was given back, unless that one took it
// after its end.
func TestRanOut(t *testing.T) {
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := &store.Lease{Expires: end}
	for _, c := range []struct {
		holder string
		taken  time.Duration // after the end
		want   bool
	}{
		{"v", -1, false},
		{"v", 0, true},
		{"v", 1, true},
		{"", 1, false},
	} {
		if got := ranOut(&store.Lease{Holder: c.holder, Acquired: end.Add(c.taken)}, before); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestSealFaults: of a target's failure a client reads what kind it is.
func TestSealFaults(t *testing.T) {
	for _, c := range []struct {
		err  error
		says string
	}{
		{headgate.NewError(headgate.CodeStaleFence, "secret"), "newer grant"},
		{headgate.NewError(headgate.CodeFenceConflict, "secret"), "another grant with the same epoch"},
		{headgate.NewError(headgate.CodeUnavailable, "secret"), "cannot be reached"},
		{context.DeadlineExceeded, "cannot be reached"},
		{headgate.NewError(headgate.CodeFenceForeign, "secret"), "fence_foreign"},
		{errors.New("secret"), "see the log"},
	} {
		if got := sealFault(c.err); !strings.Contains(got, c.says) || strings.Contains(got, "secret") {
			t.Errorf("%v is told as %q", c.err, got)
		}
	}
}

// TestSealingTakesOfTheLease: what a target takes is no longer there for the
// holder, and no target may take more than the lease lasts.
func TestSealingTakesOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, two := sealing(t)
		s.cfg.Seal["one"] = Target{Seal: func(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
			time.Sleep(3 * time.Second)
			return one.seal(ctx, f)
		}}
		g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}, Seal: []string{"one"}, TTL: 10 * time.Second, Wait: 5 * time.Second})
		if err != nil || g[0].ExpiresIn > 7*time.Second || g[0].ExpiresIn < 6*time.Second {
			t.Errorf("%+v, %v", g, err)
		}
		two.set(nil, true)
		begun := time.Now()
		_, err = s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"b"}, Seal: []string{"two"}, TTL: time.Second, Wait: time.Minute})
		want(t, "a target that hangs", err, headgate.CodeSealFailed)
		if took := time.Since(begun); took > 1100*time.Millisecond {
			t.Errorf("it took %s of a lease of 1 s", took)
		}
	})
}

// TestGivingBackFails: of a lease that could be neither sealed nor given back it
// is said that it runs out.
func TestGivingBackFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{Store: memory(t)}
		s, err := Open(t.Context(), Config{Store: f, Seal: map[string]Target{"one": {Seal: func(context.Context, Sealing) ([]headgate.BlockingSession, error) {
			f.at, f.seen = 1, 0
			return nil, errors.New("down")
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}, Seal: []string{"one"}})
		e := headgate.AsError(err)
		if want(t, "acquire", err, headgate.CodeSealFailed); e.Info().Outcome != headgate.Unknown || !strings.Contains(e.Detail, "runs out") || !errors.Is(err, errFailing) {
			t.Errorf("%+v", e)
		}
	})
}

// TestTellingLooksFirst: a target is not told of an end with an epoch that is
// another holder's, and not at all while the store cannot say.
func TestTellingLooksFirst(t *testing.T) {
	f := &failing{Store: memory(t)}
	one := &target{newest: map[string]int64{}}
	s, err := Open(t.Context(), Config{Store: f, Seal: map[string]Target{"one": {Seal: one.seal}}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	tell := func(epoch int64, sealed ...string) map[string]error {
		_, failed := s.tell(t.Context(), &store.Lease{Resource: "a", Epoch: epoch, Sealed: sealed}, false, time.Now())
		return failed
	}
	if failed := tell(g[0].Epoch-1, "one"); headgate.CodeOf(failed["one"]) != headgate.CodeConflict || one.knows("a") != 0 {
		t.Errorf("with the epoch of a holder: %v, the target knows %d", failed, one.knows("a"))
	}
	if failed := tell(g[0].Epoch-2, "one"); len(failed) != 0 || one.knows("a") != g[0].Epoch-1 {
		t.Errorf("below a holder's: %v, the target knows %d", failed, one.knows("a"))
	}
	if failed := tell(g[0].Epoch, "nobody"); headgate.CodeOf(failed["nobody"]) != headgate.CodeInvalidConfig {
		t.Errorf("a target that is configured no more: %v", failed)
	}
	f.at, f.seen = 1, 0
	if failed := tell(g[0].Epoch, "one"); !errors.Is(failed["one"], errFailing) || one.knows("a") != g[0].Epoch-1 {
		t.Errorf("while the store is away: %v, the target knows %d", failed, one.knows("a"))
	}
	f.at = 0
	if err := s.Release(t.Context(), worker("w"), "a", g[0].Token); err != nil {
		t.Fatal(err)
	}
	st, err := s.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if failed := tell(st.Epoch-1, "one"); len(failed) != 0 || one.knows("a") != st.Epoch {
		t.Errorf("with the epoch of nobody: %v, the target knows %d", failed, one.knows("a"))
	}
}

// TestRevocationsEnd: by the holder's release, by the deadline, and by the
// lease's running out; each says which, and how long it took.
func TestRevocationsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(t, memory(t))
		grant := func(ttl time.Duration) Grant {
			t.Helper()
			g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			return g[0]
		}
		revoke := func(what string, r Revocation, g Grant, most time.Duration, killed bool) {
			t.Helper()
			begun := time.Now()
			got, err := s.Revoke(t.Context(), "a", r)
			took := time.Since(begun)
			if err != nil || got.Killed != killed || got.Epoch <= g.Epoch || took > most || got.Drained != took {
				t.Errorf("%s: %+v after %s, %v", what, got, took, err)
			}
			if st, err := s.Get(t.Context(), "a"); err != nil || st.Held() {
				t.Errorf("%s: %+v, %v", what, st, err)
			}
		}
		g := grant(time.Hour)
		go func() {
			time.Sleep(4 * time.Second)
			want(t, "a renewal meanwhile", func() error { _, err := s.Renew(context.Background(), worker("w"), "a", g.Token, 0); return err }(), headgate.CodeLeaseClosing)
			if err := s.Release(context.Background(), worker("w"), "a", g.Token); err != nil {
				t.Error(err)
			}
		}()
		revoke("released", Revocation{}, g, 4*time.Second, false)
		g = grant(time.Hour)
		revoke("kept", Revocation{}, g, 10*time.Second, true)
		g = grant(time.Hour)
		revoke("kept for longer", Revocation{Deadline: time.Minute}, g, time.Minute, true)
		g = grant(3 * time.Second)
		revoke("run out", Revocation{Deadline: time.Minute}, g, 3500*time.Millisecond, true)
		g = grant(time.Hour)
		revoke("terminated", Revocation{Terminate: true}, g, 0, true)
		g = grant(time.Hour)
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_, err := s.Revoke(ctx, "a", Revocation{})
		if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeCanceled || e.Info().Outcome != headgate.Applied {
			t.Errorf("the caller left: %v", err)
		}
		want(t, "behind a closed gate", s.guardOnce(g), headgate.CodeLeaseClosing)
	})
}

// rollsBack is a store that runs its next update once in vain, as one does whose
// group was given up, and lets something happen before it is repeated.
type rollsBack struct {
	store.Store
	between func()
}

func (r *rollsBack) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	if between := r.between; between != nil {
		r.between = nil
		inVain := errors.New("given up")
		err := r.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return errors.Join(fn(ctx, tx), inVain) })
		if !errors.Is(err, inVain) {
			return err
		}
		between()
	}
	return r.Store.Update(ctx, fn)
}

// TestRevocationIsRepeated: a holder that releases before the transaction that
// would have ended its lease is repeated has released.
func TestRevocationIsRepeated(t *testing.T) {
	st := &rollsBack{Store: memory(t)}
	s := service(t, st)
	for _, released := range []bool{false, true} {
		g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		l, here, leave, err := s.shut(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		st.between = func() {
			if released {
				if err := s.Release(t.Context(), worker("w"), "a", g[0].Token); err != nil {
					t.Error(err)
				}
			}
		}
		e := ending{s: s, l: &l, here: here, terminate: true, until: time.Now().Add(time.Minute)}
		out, err := e.supersede(t.Context(), time.Now())
		leave()
		if err != nil || out.Killed == released || out.Epoch <= g[0].Epoch || here.kills.Load() > 1 {
			t.Errorf("released %v: %+v, %v, counted %d times", released, out, err, here.kills.Load())
		}
	}
}

// guardOnce says whether a write under the grant would pass.
func (s *Service) guardOnce(g Grant) error {
	f, err := s.Read(context.Background(), g.Token, "")
	if err != nil {
		return err
	}
	return s.cfg.Store.Update(context.Background(), func(ctx context.Context, tx *store.Tx) error { return s.Guard(ctx, tx, &f) })
}
