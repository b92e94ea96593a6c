package gateway_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/store"
)

// busy is a store in whose database a transaction under the lease of a
// resource is open, for so many tries to end the lease, as on Postgres.
type busy struct {
	store.Store
	resource string
	tries    atomic.Int64
}

type busyLeases struct {
	store.Leases
	*busy
}

func (b busyLeases) Grant(ctx context.Context, l store.Lease) error {
	if l.Resource == b.resource && l.Holder == "" && b.tries.Add(-1) >= 0 {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "in flight", Err: store.ErrGuarded}
	}
	return b.Leases.Grant(ctx, l)
}

func (b *busy) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return b.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		other := *tx
		other.Leases = busyLeases{tx.Leases, b}
		return fn(ctx, &other)
	})
}

// TestSettleBesideAnOpenTransaction of the worker's own: it waits for that,
// bounded, and holds nobody else up.
func TestSettleBesideAnOpenTransaction(t *testing.T) {
	b := &busy{resource: "ticket/7"}
	n := nodetest.Start(t, &nodetest.Opts{Store: func(st store.Store) store.Store { b.Store = st; return b }})
	triage := n.Client(t, "triage")
	leasedSubscription(t, n, "one")
	settle := func(d api.Delivery) error {
		_, err := triage.Settle(t.Context(), "one", api.Settlement{Claim: d.Claim, Outcome: "ack"})
		return err
	}
	openTicket(t, n, "e1", "7")
	b.tries.Store(3)
	if err := settle(pullOne(t, n, "one")); err != nil || b.tries.Load() >= 0 {
		t.Errorf("a transaction that ends: %v, %d tries left", err, b.tries.Load())
	}
	openTicket(t, n, "e2", "7")
	seven := pullOne(t, n, "one")
	openTicket(t, n, "e3", "8")
	eight := pullOne(t, n, "one")
	b.tries.Store(1 << 40)
	begun := time.Now()
	waits := make(chan error, 1)
	go func() { waits <- settle(seven) }()
	for b.tries.Load() == 1<<40 { // until it is in its way
		runtime.Gosched()
	}
	if err := settle(eight); err != nil {
		t.Errorf("another delivery meanwhile: %v", err)
	}
	select {
	case err := <-waits:
		t.Errorf("it did not wait: %v", err)
	default:
	}
	err := <-waits
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeUnavailable || e.Info().Outcome != headgate.NotApplied || e.Info().Retry != headgate.RetryLater {
		t.Errorf("a transaction that stays open: %v", err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it waited for %s", took)
	}
	b.tries.Store(0)
	if err := settle(seven); err != nil {
		t.Errorf("once it has ended: %v", err)
	}
}
