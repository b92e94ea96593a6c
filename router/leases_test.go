package router

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/store"
)

// TestLeasesOfDeliveriesEndWithTheNode: after a crash a delivery does not wait
// for the lease of the attempt before, whose worker writes nothing more. What
// others lease outlives the node.
func TestLeasesOfDeliveriesEndWithTheNode(t *testing.T) {
	r := newRig(t)
	r.start()
	r.put("one", Spec{Types: []string{"*"}, Lease: "ticket/{id}", Claim: Duration(30 * time.Minute), Backoff: "1ms..2ms"})
	own, err := r.leases.Acquire(t.Context(), r.people.get("worker"), lease.Request{
		Resources: []string{"ticket/own"}, Worker: "subscription one", TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.publish(event("e1", "a.b", "k"))
	first := r.pull("one", 1, 10*time.Second)
	if len(first) != 1 || first[0].Lease == nil {
		t.Fatalf("%+v", first)
	}
	r.crash()
	r.start()
	defer r.end()
	again := r.pull("one", 1, 10*time.Second)
	if len(again) != 1 || again[0].Lease == nil || again[0].Lease.Epoch <= first[0].Lease.Epoch {
		t.Fatalf("%+v", again)
	}
	if _, _, err := r.leases.Verify(t.Context(), first[0].Lease.Token, ""); headgate.CodeOf(err) != headgate.CodeStaleFence {
		t.Errorf("the lease before the crash: %v", err)
	}
	if _, _, err := r.leases.Verify(t.Context(), own[0].Token, ""); err != nil {
		t.Errorf("a lease that is of no delivery: %v", err)
	}
}

// TestExplainNamesTheLeaseThatIsWaitedFor and no longer once it was had.
func TestExplainNamesTheLeaseThatIsWaitedFor(t *testing.T) {
	r := newRig(t)
	r.start()
	defer r.end()
	r.put("one", Spec{Types: []string{"*"}, Lease: "ticket/{id}"})
	held, err := r.leases.Acquire(t.Context(), r.people.get("worker"), lease.Request{Resources: []string{"ticket/e1"}, Worker: "w7", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ev := event("e1", "a.b", "k")
	r.publish(ev)
	if got := r.pull("one", 1, 100*time.Millisecond); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
	stats, err := r.broker.Stat(t.Context(), "events")
	if err != nil {
		t.Fatal(err)
	}
	var pos headgate.Position
	for _, st := range stats {
		if st.Next > st.First {
			pos = headgate.Position{Partition: st.Partition, Offset: st.First}
		}
	}
	why := func() string {
		all, err := r.router.Explain(t.Context(), ev, "events", pos)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0].State + " " + all[0].Why
	}
	if got := why(); !strings.HasPrefix(got, "pending") || !strings.Contains(got, `waits for the lease on "ticket/e1", which worker (w7) holds`) {
		t.Error(got)
	}
	if err := r.leases.Release(t.Context(), r.people.get("worker"), "", held[0].Token); err != nil {
		t.Fatal(err)
	}
	if got := r.pull("one", 1, 10*time.Second); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	if got := why(); !strings.HasPrefix(got, "in_flight") || strings.Contains(got, "waits") {
		t.Error(got)
	}
}

// TestADeliveryTakesOverASealedLease: the target that the lease was sealed at is
// told as soon as a delivery has it, and not before: the worker before may still
// renew a lease that has run out.
func TestADeliveryTakesOverASealedLease(t *testing.T) {
	told := make(chan lease.Sealing, 8)
	r := newRig(t)
	r.seal = map[string]lease.Target{"crm": {Seal: func(_ context.Context, s lease.Sealing) ([]headgate.BlockingSession, error) {
		told <- s
		return nil, nil
	}}}
	r.start()
	defer r.end()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.leases.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	r.put("one", Spec{Types: []string{"*"}, Lease: "ticket/{id}"})
	before, err := r.leases.Acquire(t.Context(), r.people.get("worker"), lease.Request{
		Resources: []string{"ticket/e1"}, TTL: lease.MaxTTL, Seal: []string{"crm"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := <-told; s.Epoch != before[0].Epoch {
		t.Fatalf("the grant is %d, the target was told of %d", before[0].Epoch, s.Epoch)
	}
	// It runs out now. By itself it would be ended after another hour.
	err = r.store.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Leases.Now(ctx)
		if err != nil {
			return err
		}
		return tx.Leases.Touch(ctx, "ticket/e1", before[0].Epoch, now, now, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(told); n != 0 {
		t.Errorf("the target was told of %d ends before the lease was taken over", n)
	}
	r.publish(event("e1", "a.b", "k"))
	got := r.pull("one", 1, 10*time.Second)
	if len(got) != 1 || got[0].Lease == nil || got[0].Lease.Epoch <= before[0].Epoch+1 {
		t.Fatalf("%+v", got)
	}
	select {
	case s := <-told:
		if s.Resource != "ticket/e1" || s.Epoch != before[0].Epoch+1 {
			t.Errorf("the grant was %d, the target was told of %s, %d", before[0].Epoch, s.Resource, s.Epoch)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("the target was not told that a delivery took over %d", before[0].Epoch)
	}
}
