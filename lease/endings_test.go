package lease

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// knows is what a target was told last.
func (t *target) knows(resource string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest[resource]
}

func (t *target) set(fail error, hangs bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail, t.hangs = fail, hangs
}

// runs has the service run until the test ends or stop is called.
func runs(t *testing.T, s *Service) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	return func() { cancel(); <-ended }
}

func sealedGrant(t *testing.T, s *Service, r Request) Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), worker("w"), r)
	if err != nil {
		t.Fatal(err)
	}
	return g[0]
}

// TestReleaseTellsTargets: the holder does not wait for a target that hangs, and
// every target hears of the end.
func TestReleaseTellsTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, two := sealing(t)
		defer runs(t, s)()
		g := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one", "two"}})
		two.set(errors.New("down"), false)
		begun := time.Now()
		if err := s.Release(t.Context(), worker("w"), "a", g.Token); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("the release waited %s", took)
		}
		synctest.Wait()
		if one.knows("a") != g.Epoch+1 || two.knows("a") != g.Epoch {
			t.Errorf("granted %d, the targets know %d and %d", g.Epoch, one.knows("a"), two.knows("a"))
		}
		time.Sleep(20 * time.Second)
		two.set(nil, false)
		time.Sleep(40 * time.Second)
		if two.knows("a") != g.Epoch+1 {
			t.Errorf("granted %d, the target that was down knows %d", g.Epoch, two.knows("a"))
		}
		next := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one", "two"}})
		if one.knows("a") != next.Epoch || next.Epoch <= g.Epoch+1 {
			t.Errorf("the next grant is %d, a target knows %d", next.Epoch, one.knows("a"))
		}
	})
}

// TestUntoldEndIsLogged: a target that stays away is told for about a minute,
// and then the log says that it does not know.
func TestUntoldEndIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		var log logged
		s.cfg.Log = log.logger()
		defer runs(t, s)()
		g := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one"}})
		one.set(nil, true)
		if err := s.Release(t.Context(), worker("w"), "a", g.Token); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if text := log.String(); strings.Contains(text, "does not know") {
			t.Errorf("given up after 30 s: %s", text)
		}
		time.Sleep(2 * time.Minute)
		if text := log.String(); strings.Count(text, "a target does not know that leases have ended") != 1 {
			t.Errorf("the log: %s", text)
		}
		if left := len(s.endings.queues["one"].ends) + len(s.endings.stand); left != 0 {
			t.Errorf("%d are remembered still", left)
		}
	})
}

// TestSealedLeaseRunsOut: a holder that went away keeps its targets open for
// twice its TTL at most; one that renews keeps them.
func TestSealedLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, two := sealing(t)
		defer runs(t, s)()
		const ttl = 10 * time.Second
		gone := sealedGrant(t, s, Request{Resources: []string{"gone"}, Seal: []string{"one"}, TTL: ttl})
		kept := sealedGrant(t, s, Request{Resources: []string{"kept"}, Seal: []string{"two"}, TTL: ttl})
		plain := sealedGrant(t, s, Request{Resources: []string{"plain"}, TTL: ttl})
		for range 4 {
			time.Sleep(9 * time.Second)
			n, err := s.Renew(t.Context(), worker("w"), "kept", kept.Token, 0)
			if err != nil {
				t.Fatal(err)
			}
			kept.Token = n.Token
		}
		if one.knows("gone") != gone.Epoch+1 {
			t.Errorf("granted %d, the target knows %d", gone.Epoch, one.knows("gone"))
		}
		if _, err := s.Renew(t.Context(), worker("w"), "gone", gone.Token, 0); headgate.CodeOf(err) != headgate.CodeLeaseLost {
			t.Errorf("renewing what has ended: %v", err)
		}
		if two.knows("kept") != kept.Epoch {
			t.Errorf("a renewed lease was ended: granted %d, the target knows %d", kept.Epoch, two.knows("kept"))
		}
		if _, err := s.Renew(t.Context(), worker("w"), "plain", plain.Token, 0); err != nil {
			t.Errorf("a lease that is sealed nowhere may be renewed late: %v", err)
		}
	})
}

// TestLateRenewalOfASealedLease: for as long again as it lasts it may be renewed.
func TestLateRenewalOfASealedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		defer runs(t, s)()
		g := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one"}, TTL: 10 * time.Second})
		time.Sleep(18 * time.Second)
		n, err := s.Renew(t.Context(), worker("w"), "a", g.Token, 0)
		if err != nil || !n.Late {
			t.Fatalf("%+v, %v", n, err)
		}
		time.Sleep(15 * time.Second)
		if one.knows("a") != g.Epoch {
			t.Errorf("granted %d, the target knows %d", g.Epoch, one.knows("a"))
		}
		time.Sleep(10 * time.Second)
		if one.knows("a") != g.Epoch+1 {
			t.Errorf("after it ran out at last: granted %d, the target knows %d", g.Epoch, one.knows("a"))
		}
	})
}

// TestTakeoverTellsTargets: who takes a lease over without sealing does not
// leave the target open to the holder before.
func TestTakeoverTellsTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, two := sealing(t)
		defer runs(t, s)()
		g := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one", "two"}, TTL: 5 * time.Second})
		time.Sleep(6 * time.Second)
		next := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"two"}, TTL: time.Hour})
		time.Sleep(6 * time.Second)
		if one.knows("a") != g.Epoch+1 || two.knows("a") != next.Epoch {
			t.Errorf("grants %d and %d, the targets know %d and %d", g.Epoch, next.Epoch, one.knows("a"), two.knows("a"))
		}
	})
}

// TestStandingLeasesAreFoundAgain: a node that died and came back ends what ran
// out meanwhile, and tells.
func TestStandingLeasesAreFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, _, _ := sealing(t)
		g := sealedGrant(t, before, Request{Resources: []string{"a"}, Seal: []string{"one"}, TTL: 10 * time.Second})
		one := &target{newest: map[string]int64{"a": g.Epoch}}
		after, err := Open(t.Context(), Config{Store: before.cfg.Store, Seal: map[string]Target{"one": {Seal: one.seal}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		defer runs(t, after)()
		time.Sleep(2 * time.Second)
		if one.knows("a") != g.Epoch+1 {
			t.Errorf("granted %d, the target knows %d", g.Epoch, one.knows("a"))
		}
	})
}

// TestEndsAreToldAtTheLast: a service that is about to end tells what it can.
func TestEndsAreToldAtTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := sealing(t)
		stop := runs(t, s)
		g := sealedGrant(t, s, Request{Resources: []string{"a"}, Seal: []string{"one"}})
		one.set(errors.New("down"), false)
		if err := s.Release(t.Context(), worker("w"), "a", g.Token); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		one.set(nil, false)
		stop()
		if one.knows("a") != g.Epoch+1 {
			t.Errorf("granted %d, the target knows %d", g.Epoch, one.knows("a"))
		}
	})
}

// TestEndingsAreBounded: beyond the bound nothing is kept, and it is said.
func TestEndingsAreBounded(t *testing.T) {
	e := endings{queues: newEndQueues(map[string]Target{"x": {}, "y": {}})}
	name := strconv.Itoa
	for i := range maxEndings {
		if !e.stands(&store.Lease{Resource: name(i), Epoch: 1, Sealed: []string{"x"}}, time.Hour, false) || !e.over("o"+name(i), 1, []string{"x"}) {
			t.Fatalf("no room for %d", i)
		}
	}
	if e.stands(&store.Lease{Resource: "more", Epoch: 1, Sealed: []string{"x"}}, time.Hour, false) || e.over("more", 1, []string{"x"}) {
		t.Error("there is room beyond the bound")
	}
	if !e.over("o"+name(0), 2, []string{"y"}) {
		t.Error("a later end of the same lease has no room")
	}
	for target, epoch := range map[string]int64{"x": 1, "y": 2} {
		if at := e.queues[target].ends["o"+name(0)]; at == nil || at.epoch != epoch {
			t.Errorf("%s is told of %+v", target, at)
		}
	}
}
