package store

import (
	"context"

	"github.com/headgate/headgate"
)

// Evictor is a store on whose lease rows transactions of others' sessions can
// stand: those of guarded writes in the store's own database, for which
// Leases.Grant fails with [ErrGuarded].
type Evictor interface {
	// Evict looks for the sessions whose transactions hold the lease's row
	// under the epoch and returns those that it met. With end it ends each
	// that the store's role may, and returns when the row is free, or when
	// what is left of them it may not end; without, it returns at the first
	// sight of one. It waits a few seconds at most, and never longer than ctx
	// lasts; the sessions that it met are returned also with an error.
	Evict(ctx context.Context, resource string, epoch int64, end bool) ([]headgate.BlockingSession, error)
}
