package router

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

// TestBlockedKeySpills: the followers of a failing key go to the hold table
// beyond a bound, other keys flow on through the small buffer, and all come
// back in order.
func TestBlockedKeySpills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		r.buffer = 256
		r.start()
		defer r.end()
		r.put("s", Spec{Backoff: "1h..1h", MaxBlock: Duration(24 * time.Hour), Concurrency: 1000})
		r.publish(event("bad0", "x", "bad"))
		d := r.pull("s", 1, time.Second)
		r.settle("s", Settlement{Claim: d[0].Claim, Outcome: OutcomeRetry})
		for i := range 2000 {
			r.publish(event(fmt.Sprintf("bad%d", i+1), "x", "bad"), event(fmt.Sprintf("good%d", i), "x", fmt.Sprint("g", i%50)))
		}
		good := 0
		for {
			got := r.pull("s", 100, time.Second)
			if len(got) == 0 {
				break
			}
			for _, d := range got {
				if !strings.HasPrefix(d.Event.ID, "good") {
					t.Fatalf("%s was delivered behind a failing event of its key", d.Event.ID)
				}
				good++
				r.settle("s", Settlement{Claim: d.Claim, Outcome: OutcomeAck})
			}
		}
		if good != 2000 {
			t.Fatalf("%d events of other keys were delivered, want 2000", good)
		}
		s := r.router.sub("s")
		s.mu.Lock()
		for _, p := range s.parts {
			if p.mem > laneMemory {
				t.Errorf("%d events wait in memory, want at most %d", p.mem, laneMemory)
			}
		}
		s.mu.Unlock()
		r.balance()
		time.Sleep(time.Hour)
		for i := range 2001 {
			got := r.pull("s", 10, time.Minute)
			if len(got) != 1 || got[0].Event.ID != fmt.Sprintf("bad%d", i) {
				t.Fatalf("delivery %d: %v", i, got)
			}
			r.settle("s", Settlement{Claim: got[0].Claim, Outcome: OutcomeAck})
		}
		if b := r.balance(); b.Counts.Settled != 4001 || b.Pending != 0 {
			t.Fatalf("%+v", b)
		}
	})
}

// TestSlowKeyDoesNotStarve: a key whose head is merely slow fills the memory of
// its partition; its followers make room for others.
func TestSlowKeyDoesNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		r.buffer = 64
		r.start()
		defer r.end()
		r.put("s", Spec{Claim: Duration(time.Hour)})
		for i := range 300 {
			r.publish(event(fmt.Sprintf("slow%d", i), "x", "slow"))
		}
		r.publish(event("other", "x", "other"))
		slow := r.pull("s", 1, time.Second)
		got := r.pull("s", 1, time.Minute)
		if len(got) != 1 || got[0].Event.ID != "other" {
			t.Fatalf("got %v, want the event of the other key", got)
		}
		r.settle("s", Settlement{Claim: slow[0].Claim, Outcome: OutcomeAck}, Settlement{Claim: got[0].Claim, Outcome: OutcomeAck})
		for i := 1; i < 300; i++ {
			got := r.pull("s", 5, time.Minute)
			if len(got) != 1 || got[0].Event.ID != fmt.Sprintf("slow%d", i) {
				t.Fatalf("delivery %d: %v", i, got)
			}
			r.settle("s", Settlement{Claim: got[0].Claim, Outcome: OutcomeAck})
		}
		r.balance()
	})
}

// TestLongClaimDoesNotHoldTheFloor: one delivery that stays in flight does not
// stop what comes behind it, however much that is.
func TestLongClaimDoesNotHoldTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		r.quiet = true
		r.start()
		defer r.end()
		r.put("s", Spec{Claim: Duration(12 * time.Hour), Concurrency: 1000})
		r.publish(event("long", "x", ""))
		long := r.pull("s", 1, time.Second)
		total := dispatchSpan + 3000
		var batch []*headgate.Event
		for i := range total {
			if batch = append(batch, event(fmt.Sprint(i), "x", "")); len(batch) == 1000 || i == total-1 {
				r.publish(batch...)
				batch = nil
			}
		}
		for n := 0; n < total; {
			got := r.pull("s", 1000, 10*time.Second)
			if len(got) == 0 {
				t.Fatalf("stuck after %d of %d\n%s", n, total, r.router.sub("s").dump())
			}
			in := make([]Settlement, len(got))
			for i, d := range got {
				in[i] = Settlement{Claim: d.Claim, Outcome: OutcomeAck}
			}
			r.settle("s", in...)
			n += len(got)
		}
		if b := r.balance(); b.InFlight != 1 {
			t.Fatalf("%+v", b)
		}
		if res := r.settle("s", Settlement{Claim: long[0].Claim, Outcome: OutcomeAck}); res[0].Err != nil {
			t.Fatal(res[0].Err)
		}
		if b := r.balance(); b.Counts.Settled != uint64(total)+1 {
			t.Fatalf("%+v", b)
		}
	})
}

// TestPullersAreServedInOrder: who waits longest is served first, and a caller
// who went away loses nothing.
func TestPullersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		r.put("s", Spec{})
		order := make(chan int, 10)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if _, err := r.router.Pull(ctx, r.people.get("worker"), "s", 1, time.Hour); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		for i := range 5 {
			go func() {
				if got, err := r.router.Pull(t.Context(), r.people.get("worker"), "s", 1, time.Hour); err != nil || len(got) != 1 {
					t.Errorf("puller %d got %v %v", i, got, err)
				}
				order <- i
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		for i := range 5 {
			r.publish(event(fmt.Sprint(i), "x", ""))
			if got := <-order; got != i {
				t.Errorf("puller %d was served, want %d", got, i)
			}
		}
		r.balance()
	})
}

// TestConcurrencyBound: no more deliveries are in flight than allowed.
func TestConcurrencyBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		var now, most atomic.Int32
		err := r.router.Handle("h", func(context.Context, *Delivery, *Emitter) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r.put("h", Spec{Concurrency: 7, Deliver: Deliver{Handler: &Handler{}}})
		for i := range 70 {
			r.publish(event(fmt.Sprint(i), "x", ""))
		}
		time.Sleep(11 * time.Second)
		if b := r.balance(); b.Counts.Settled != 70 || most.Load() != 7 {
			t.Fatalf("%d at once, %+v", most.Load(), b)
		}
	})
}

// TestInactive: a temporary subscription goes when nobody uses it, and not
// before.
func TestInactive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		r.start()
		defer r.end()
		r.put("kept", Spec{})
		r.put("temporary", Spec{Inactive: Duration(10 * time.Minute), Claim: Duration(20 * time.Minute)})
		gone := func() bool {
			t.Helper()
			if err := r.router.RemoveInactive(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.router.Get(t.Context(), "kept"); err != nil {
				t.Fatalf("a subscription without a limit: %v", err)
			}
			_, err := r.router.Get(t.Context(), "temporary")
			return err != nil
		}
		for range 3 {
			time.Sleep(9 * time.Minute)
			if gone() {
				t.Fatal("removed before its time")
			}
			r.pull("temporary", 1, time.Minute)
		}
		r.publish(event("a", "x", ""))
		got := r.pull("temporary", 1, time.Minute)
		time.Sleep(11 * time.Minute)
		if gone() {
			t.Fatal("removed although somebody holds a claim")
		}
		r.settle("temporary", Settlement{Claim: got[0].Claim, Outcome: OutcomeAck})
		r.pull("temporary", 1, time.Millisecond)
		time.Sleep(10 * time.Minute)
		if !gone() {
			t.Fatal("still there")
		}
	})
}

// TestTrim: retention removes what is old and needed by nobody, and no more.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		r.start()
		defer r.end()
		r.router.streams = func() []topology.Stream { return []topology.Stream{{Name: "events", Retain: time.Hour}} }
		r.put("s", Spec{})
		for i := range 4 {
			r.publish(event(fmt.Sprint(i), "x", ""))
			time.Sleep(30 * time.Minute)
		}
		trimmed := func() uint64 {
			t.Helper()
			if err := r.router.Trim(t.Context()); err != nil {
				t.Fatal(err)
			}
			st, err := r.broker.Stat(t.Context(), "events")
			if err != nil {
				t.Fatal(err)
			}
			return st[0].First
		}
		if first := trimmed(); first != 0 {
			t.Fatalf("trimmed to %d, but a subscription needs all", first)
		}
		if len(r.logged) != 1 || !strings.Contains(r.logged[0], "lags behind the retention") {
			t.Fatalf("logged %q", r.logged)
		}
		got := r.pull("s", 10, time.Second)
		r.settle("s", Settlement{Claim: got[0].Claim, Outcome: OutcomeRetry, Delay: 24 * time.Hour})
		for _, d := range got[1:] {
			r.settle("s", Settlement{Claim: d.Claim, Outcome: OutcomeAck})
		}
		if first := trimmed(); first != 0 {
			t.Fatalf("trimmed to %d, but a retry needs its event", first)
		}
		time.Sleep(24 * time.Hour)
		if again := r.pull("s", 1, time.Minute); len(again) != 1 {
			t.Fatal("no retry")
		} else {
			r.settle("s", Settlement{Claim: again[0].Claim, Outcome: OutcomeAck})
		}
		r.publish(event("new", "x", ""))
		time.Sleep(2 * time.Hour) // the tombstone goes, and with it the last need
		if first := trimmed(); first != 4 {
			t.Fatalf("trimmed to %d, want 4: all that is old and done", first)
		}
		r.balance()
	})
}

// TestStartPositions: now, beginning, a time, a position.
func TestStartPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		r.start()
		defer r.end()
		for i := range 10 {
			r.publish(event(fmt.Sprint(i), "x", ""))
			time.Sleep(time.Minute)
		}
		middle := time.Now().Add(-4*time.Minute - time.Second).UTC().Format(time.RFC3339)
		for from, want := range map[string]int{
			"now": 0, "": 0, "beginning": 10, middle: 4, "events/0:7": 3, "events/0:10": 0,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339): 0, "2001-01-01T00:00:00Z": 0, "1999-01-01T00:00:00Z": 10,
		} {
			r.put("s", Spec{From: from, Concurrency: 100})
			synctest.Wait()
			if got := len(r.pull("s", 100, time.Second)); got != want {
				t.Errorf("from %q: %d deliveries, want %d", from, got, want)
			}
			r.balance()
			if err := r.router.Delete(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
		}
		for _, from := range []string{"events/0:11", "events/1:0", "events/0:x", "nowhere/0:1", "yesterday", "/0:1"} {
			_, err := r.router.Put(t.Context(), nil, "s", Spec{Types: []string{"x"}, As: "worker", From: from}, "api")
			if headgate.CodeOf(err) != headgate.CodeInvalidArgument {
				t.Errorf("from %q: %v", from, err)
			}
		}
	})
}

// TestStoreDown: while the store is down settlements are refused and their
// claims stay; afterwards everything goes on.
func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		r.put("s", Spec{Claim: Duration(time.Minute)})
		r.publish(event("a", "x", "k"), event("b", "x", ""))
		got := r.pull("s", 2, time.Second)
		synctest.Wait()
		got = append(got, r.pull("s", 2, 0)...)
		r.gate.set(func(int) error { return errDown })
		for _, d := range got {
			res := r.settle("s", Settlement{Claim: d.Claim, Outcome: OutcomeAck})
			if res[0].Err == nil || res[0].Err.Code != headgate.CodeUnavailable {
				t.Fatalf("settled without a store: %v", res[0].Err)
			}
		}
		time.Sleep(2 * time.Minute) // the claims run out, too: nothing of it can be saved
		r.gate.set(nil)
		again := r.pull("s", 2, time.Minute)
		if len(again) == 0 || again[0].Attempt != 2 {
			t.Fatalf("got %v", again)
		}
		r.balance()
	})
}

// TestUnknownCommit: a transaction that was committed although it answered
// with an error is found out to have been, and answered as settled.
func TestUnknownCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		r.put("s", Spec{})
		r.publish(event("a", "x", ""))
		got := r.pull("s", 1, time.Second)
		r.gate.set(func(int) error { return errAfter })
		if res := r.settle("s", Settlement{Claim: got[0].Claim, Outcome: OutcomeAck}); res[0].Err != nil {
			t.Fatal(res[0].Err)
		}
		r.gate.set(nil)
		if b := r.balance(); b.Counts.Settled != 1 {
			t.Fatalf("%+v", b)
		}
	})
}

// TestConservationNoticesLoss: the law does not trust the counts.
func TestConservationNoticesLoss(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, *rig){
		"a row vanished": func(t *testing.T, r *rig) {
			r.update(func(ctx context.Context, tx *store.Tx) error {
				return tx.Deliveries.DeleteException(ctx, "s", "events", headgate.Position{})
			})
		},
		"a count is off": func(t *testing.T, r *rig) {
			s := r.router.sub("s")
			s.mu.Lock()
			defer s.mu.Unlock()
			s.parts[partID{"events", 0}].counts.Settled++
		},
		"an event vanished": func(t *testing.T, r *rig) {
			if err := r.broker.Trim(t.Context(), "events", 0, 3); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigWith(t, membroker.Config{}, 1)
				r.start()
				r.put("s", Spec{})
				r.publish(event("a", "x", "k"), event("b", "x", "k"), event("c", "x", "k"))
				got := r.pull("s", 1, time.Second)
				r.settle("s", Settlement{Claim: got[0].Claim, Outcome: OutcomeRetry, Delay: time.Hour})
				r.balance()
				damage(t, r)
				all, err := r.router.Conservation(t.Context())
				if err != nil || all[0].Holds || all[0].Detail == "" {
					t.Errorf("not noticed: %+v %v", all, err)
				}
				_ = r.stop()
				r.close()
			})
		})
	}
}

// TestLostStream: when the broker lost settled events, the new ones that get
// their offsets are delivered, and the law tells of the loss.
func TestLostStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		r.start()
		r.put("s", Spec{Order: OrderNone})
		r.publish(event("a", "x", ""), event("b", "x", ""), event("c", "x", ""), event("d", "x", ""))
		for i, d := range r.pull("s", 4, time.Second) {
			if i != 1 { // a bit beyond the floor, too
				r.settle("s", Settlement{Claim: d.Claim, Outcome: OutcomeAck})
			}
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if err := r.broker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.broker = membroker.New(membroker.Config{})
		if _, err := r.broker.Ensure(t.Context(), []broker.StreamSpec{{Name: "events", Partitions: 1}}); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.publish(event("e", "x", ""), event("f", "x", ""), event("g", "x", ""), event("h", "x", ""))
		synctest.Wait()
		if got := r.pull("s", 10, time.Second); len(got) != 4 {
			t.Errorf("%d of 4 new events were delivered", len(got))
		}
		if all, err := r.router.Conservation(t.Context()); err != nil || all[0].Holds {
			t.Errorf("the loss was not noticed: %+v %v", all, err)
		}
		r.end()
	})
}

func (r *rig) update(fn func(context.Context, *store.Tx) error) {
	r.t.Helper()
	if err := r.store.Update(context.Background(), fn); err != nil {
		r.t.Fatal(err)
	}
}

// TestDrainInterruptsHandlers: a handler that does not end within the drain is
// interrupted, and that is not an attempt.
func TestDrainInterruptsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		attempts := make(chan int, 10)
		wait := true
		handler := func(ctx context.Context, d *Delivery, _ *Emitter) error {
			attempts <- d.Attempt
			if wait {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		r.start()
		if err := r.router.Handle("h", handler); err != nil {
			t.Fatal(err)
		}
		r.put("h", Spec{Attempts: 1, Claim: Duration(time.Hour), Deliver: Deliver{Handler: &Handler{}}})
		r.publish(event("a", "x", "k"))
		if n := <-attempts; n != 1 {
			t.Fatalf("attempt %d", n)
		}
		began := time.Now()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the drain took %s, want the 5s that handlers have", took)
		}
		wait = false
		r.start()
		defer r.end()
		if err := r.router.Handle("h", handler); err != nil {
			t.Fatal(err)
		}
		if n := <-attempts; n != 2 {
			t.Fatalf("attempt %d", n)
		}
		synctest.Wait()
		if b := r.balance(); b.Counts.Settled != 1 {
			t.Fatalf("%+v", b)
		}
	})
}

// TestChangeInterruptsHandlers: a change of a subscription does not wait for a
// stuck handler longer than a drain would.
func TestChangeInterruptsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		attempts := make(chan int, 10)
		err := r.router.Handle("h", func(ctx context.Context, d *Delivery, _ *Emitter) error {
			attempts <- d.Attempt
			if d.Attempt == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		r.put("h", Spec{Attempts: 1, Claim: Duration(time.Hour), Deliver: Deliver{Handler: &Handler{}}})
		r.publish(event("a", "x", "k"))
		<-attempts
		began := time.Now()
		// Who asks meanwhile is told to ask again, not that there is no such
		// subscription.
		meanwhile := time.AfterFunc(time.Second, func() {
			for name, want := range map[string]headgate.Code{"h": headgate.CodeUnavailable, "nobody": headgate.CodeNotFound} {
				if _, err := r.router.Settle(t.Context(), r.people.get("worker"), name, nil); headgate.CodeOf(err) != want {
					t.Errorf("settle for %s during a change: %v, want %s", name, err, want)
				}
				if _, err := r.router.Pull(t.Context(), r.people.get("worker"), name, 1, 0); headgate.CodeOf(err) != want {
					t.Errorf("pull from %s during a change: %v, want %s", name, err, want)
				}
			}
		})
		defer meanwhile.Stop()
		r.put("h", Spec{Attempts: 1, Claim: Duration(2 * time.Hour), Deliver: Deliver{Handler: &Handler{}}})
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the change took %s, want the 5s that handlers have", took)
		}
		if n := <-attempts; n != 2 {
			t.Errorf("attempt %d", n)
		}
		synctest.Wait()
		if b := r.balance(); b.Counts.Settled != 1 {
			t.Errorf("%+v", b)
		}
	})
}
