package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// manyEnds has the service note the ends of leases at a target.
func manyEnds(s *Service, target string, n int) {
	for i := range n {
		s.over(&store.Lease{Resource: fmt.Sprint(target, "/", i), Epoch: 1, Sealed: []string{target}})
	}
}

// hanging is a target that answers nothing, and does not lock out who looks.
func hanging(ctx context.Context, _ Sealing) ([]headgate.BlockingSession, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestTargetsDoNotWaitForEachOther: hundreds of ends at a target that hangs or
// fails delay neither those at another one nor leases that run out.
func TestTargetsDoNotWaitForEachOther(t *testing.T) {
	for what, seal := range map[string]func(context.Context, Sealing) ([]headgate.BlockingSession, error){
		"hangs": hanging,
		"fails": func(context.Context, Sealing) ([]headgate.BlockingSession, error) { return nil, errors.New("down") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, one, _ := sealing(t)
				s.cfg.Seal["two"] = Target{Seal: seal}
				defer runs(t, s)()
				lapsing := sealedGrant(t, s, Request{Resources: []string{"lapsing"}, Seal: []string{"one"}, TTL: 3 * time.Second})
				g := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one"}})
				manyEnds(s, "two", 300)
				time.Sleep(time.Second)
				if err := s.Release(t.Context(), worker("w"), "a", g.Token); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if one.knows("a") != g.Epoch+1 {
					t.Errorf("released %d, the healthy target knows %d", g.Epoch, one.knows("a"))
				}
				time.Sleep(7 * time.Second)
				if one.knows("lapsing") != lapsing.Epoch+1 {
					t.Errorf("%d ran out, the healthy target knows %d", lapsing.Epoch, one.knows("lapsing"))
				}
			})
		})
	}
}

// TestFailingTargetIsProbed: a target that fails is asked for one end at a time,
// and hears of all of them soon after it is back.
func TestFailingTargetIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		asked := 0
		s.cfg.Seal["one"] = Target{Seal: func(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
			one.mu.Lock()
			asked++
			one.mu.Unlock()
			return one.seal(ctx, f)
		}}
		one.set(errors.New("down"), false)
		defer runs(t, s)()
		manyEnds(s, "one", 300)
		time.Sleep(20 * time.Second)
		one.mu.Lock()
		if asked > 12 {
			t.Errorf("a target that fails was asked %d times", asked)
		}
		one.mu.Unlock()
		one.set(nil, false)
		time.Sleep(endPause + time.Second)
		one.mu.Lock()
		defer one.mu.Unlock()
		if len(one.newest) != 300 {
			t.Errorf("it knows of %d ends", len(one.newest))
		}
	})
}

// TestOneLeaseThatFailsHoldsUpNoOther: a failure of one lease alone, such as a
// transaction that is open under it, is no failure of the target.
func TestOneLeaseThatFailsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		s.cfg.Seal["one"] = Target{Seal: func(ctx context.Context, f Sealing) ([]headgate.BlockingSession, error) {
			if f.Resource == "one/0" {
				return hanging(ctx, f)
			}
			return one.seal(ctx, f)
		}}
		defer runs(t, s)()
		manyEnds(s, "one", 100)
		synctest.Wait()
		if one.mu.Lock(); len(one.newest) != 99 {
			t.Errorf("it knows of %d ends", len(one.newest))
		}
		one.mu.Unlock()
	})
}

// TestLastEndsAreToldEachForItself: at the end of the service a target that hangs
// takes nothing from another, and no longer than its own time; the log says what
// it does not know.
func TestLastEndsAreToldEachForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		var log logged
		s.cfg.Log = log.logger()
		s.cfg.Seal["two"] = Target{Seal: hanging}
		stop := runs(t, s)
		manyEnds(s, "two", 300)
		time.Sleep(10 * time.Second)
		g := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one"}})
		if err := s.Release(t.Context(), worker("w"), "a", g.Token); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > sealTime {
			t.Errorf("the end took %s", took)
		}
		if one.knows("a") != g.Epoch+1 {
			t.Errorf("released %d, the healthy target knows %d", g.Epoch, one.knows("a"))
		}
		if text := log.String(); strings.Count(text, "does not know") != 1 || !strings.Contains(text, "leases=300") {
			t.Errorf("the log: %s", text)
		}
	})
}

// TestUnsealedTakeoverTellsTargets: who takes a lease over and seals nothing does
// not leave the targets open to the holder before for another TTL.
func TestUnsealedTakeoverTellsTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, two := sealing(t)
		defer runs(t, s)()
		g := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one", "two"}, TTL: time.Minute})
		time.Sleep(61 * time.Second)
		sealedGrant(t, s, Request{Resources: []string{"a"}, TTL: time.Hour})
		synctest.Wait()
		if one.knows("a") != g.Epoch+1 || two.knows("a") != g.Epoch+1 {
			t.Errorf("taken over from %d, the targets know %d and %d", g.Epoch, one.knows("a"), two.knows("a"))
		}
	})
}

// TestOldSealedLeasesAreFoundAgain: a node that was away for days ends what ran
// out before, and a lease that it did not know of ends when it ran out again.
func TestOldSealedLeasesAreFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, one, _ := sealing(t)
		gone := sealedGrant(t, before, Request{Resources: []string{"gone"}, Seal: []string{"one"}, TTL: 10 * time.Second})
		time.Sleep(72 * time.Hour)
		s, err := Open(t.Context(), before.cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer runs(t, s)()
		time.Sleep(2 * time.Second)
		if one.knows("gone") != gone.Epoch+1 {
			t.Errorf("granted %d, the target knows %d", gone.Epoch, one.knows("gone"))
		}
		// Of another node, which ends right after it:
		late := sealedGrant(t, before, Request{Resources: []string{"late"}, Seal: []string{"one"}, TTL: 10 * time.Second})
		if _, err := s.Renew(t.Context(), worker("w"), "late", late.Token, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(23 * time.Second)
		if one.knows("late") != late.Epoch+1 {
			t.Errorf("renewed %d, the target knows %d", late.Epoch, one.knows("late"))
		}
	})
}

// TestEarlierEndAtOtherTargets: an end that is noted after a later one of its
// resource is told to the targets that the later one does not concern.
func TestEarlierEndAtOtherTargets(t *testing.T) {
	e := endings{queues: newEndQueues(map[string]Target{"x": {}, "y": {}})}
	e.over("a", 5, []string{"x"})
	e.over("a", 3, []string{"x", "y"})
	for target, epoch := range map[string]int64{"x": 5, "y": 3} {
		if at := e.queues[target].ends["a"]; at == nil || at.epoch != epoch {
			t.Errorf("%s is told of %+v", target, at)
		}
	}
}

// TestEndQueue: what was never tried comes first and in its order, ends of one
// resource are one, and a later end of what is being told is told, too.
func TestEndQueue(t *testing.T) {
	q := newEndQueues(map[string]Target{"x": {}})["x"]
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	next := func(resource string, epoch int64) *untoldEnd {
		t.Helper()
		at, got, _ := q.next(now)
		if at == nil || at.resource != resource || got != epoch {
			t.Fatalf("next is %+v, epoch %d; want %s, %d", at, got, resource, epoch)
		}
		return at
	}
	for _, resource := range []string{"a", "b", "c"} {
		q.add(resource, 1, now)
	}
	q.add("b", 2, now)
	a := next("a", 1)
	q.add("a", 4, now) // while it is told
	q.settle(a, 1, endTold, now)
	q.settle(next("b", 2), 2, endRefused, now)
	now = now.Add(time.Hour / 100) // the retry of b is due
	q.settle(next("c", 1), 1, endTold, now)
	q.settle(next("a", 4), 4, endTold, now)
	b := next("b", 2)
	q.settle(b, 2, endUnreadable, now)
	q.add("b", 7, now) // counts as never tried
	q.settle(next("b", 7), 7, endBrokenOff, now)
	q.settle(next("b", 7), 7, endTold, now)
	if at, _, wait := q.next(now); at != nil || wait != 0 || len(q.ends)+len(q.fresh)+len(q.retries)+q.busy != 0 {
		t.Errorf("left: %+v, %s, %+v", at, wait, q)
	}
}

// TestEndsAreGivenUp: while a target fails all that is older than endFor is
// given up, tried or not, and the rest is kept.
func TestEndsAreGivenUp(t *testing.T) {
	q := newEndQueues(map[string]Target{"x": {}})["x"]
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 50 {
		q.add(fmt.Sprint("old", i), 1, now)
	}
	fail := func() (gaveUp []*untoldEnd) {
		at, epoch, _ := q.next(now)
		if at == nil {
			t.Fatal("there is no end to tell")
		}
		return q.settle(at, epoch, endRefused, now)
	}
	for range endFails {
		if n := len(fail()); n != 0 {
			t.Errorf("%d are given up at once", n)
		}
	}
	if at, _, wait := q.next(now); at != nil || wait != endEvery {
		t.Errorf("a failing target is told of %+v, pause %s", at, wait)
	}
	now = now.Add(endFor)
	q.add("new", 1, now)
	gaveUp := fail()
	if len(gaveUp) != 50 || len(q.ends) != 1 || slices.ContainsFunc(gaveUp, func(at *untoldEnd) bool { return at.resource == "new" }) {
		t.Errorf("%d are given up, %d left", len(gaveUp), len(q.ends))
	}
}
