package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// guarded is a store on which a fenced write is in flight for so many tries to
// raise an epoch, as one is on Postgres.
type guarded struct {
	store.Store
	tries atomic.Int64
}

type guardedLeases struct {
	store.Leases
	tries *atomic.Int64
}

func (g guardedLeases) Grant(ctx context.Context, l store.Lease) error {
	if g.tries.Add(-1) >= 0 {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "in flight", RetryAfter: time.Millisecond, Err: store.ErrGuarded}
	}
	return g.Leases.Grant(ctx, l)
}

func (g *guarded) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return g.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		other := *tx
		other.Leases = guardedLeases{tx.Leases, &g.tries}
		return fn(ctx, &other)
	})
}

// Writes in flight under the lease before are waited for, by all that raises
// the epoch; nobody is told that nothing happened when the gate was closed.
func TestWritesInFlightAreWaitedFor(t *testing.T) {
	ctx := t.Context()
	st := &guarded{Store: memory(t)}
	s := service(t, st)
	take := func(wait time.Duration) (Grant, error) {
		g, err := s.Acquire(ctx, worker("a"), Request{Resources: []string{"r"}, Wait: wait})
		if err != nil {
			return Grant{}, err
		}
		return g[0], nil
	}
	st.tries.Store(3)
	if _, err := take(0); headgate.CodeOf(err) != headgate.CodeLeaseHeld || headgate.AsError(err).RetryAfter <= 0 {
		t.Errorf("without waiting: %v", err)
	}
	g, err := take(MaxWait)
	if err != nil {
		t.Fatal(err)
	}
	st.tries.Store(3)
	if err := s.Release(ctx, worker("a"), "r", g.Token); err != nil {
		t.Errorf("release: %v", err)
	}
	if g, err = take(0); err != nil {
		t.Fatal(err)
	}
	st.tries.Store(3)
	got, err := s.Revoke(ctx, "r", Revocation{Terminate: true})
	if err != nil || !got.Killed || got.Epoch <= g.Epoch || got.Drained < 3*guardedPause {
		t.Errorf("revoke: %+v, %v", got, err)
	}
	if _, err = take(0); err != nil {
		t.Fatal(err)
	}
	st.tries.Store(1 << 40) // it does not end before the caller gives up
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = s.Revoke(short, "r", Revocation{Terminate: true})
	if e := headgate.AsError(err); e == nil || e.Info().Outcome != headgate.Applied {
		t.Errorf("revoke that gave up: %v", err)
	}
	st.tries.Store(0)
	if _, err := s.Revoke(ctx, "r", Revocation{Terminate: true}); err != nil {
		t.Errorf("revoke again: %v", err)
	}
}
