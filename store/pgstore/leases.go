package pgstore

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// leases is the role with grants that wait for fenced writes.
type leases struct {
	store.Leases
	t *tx
}

// guardWait is what a caller is told to wait for fenced writes to end.
const guardWait = 20 * time.Millisecond

// Grant implements store.Leases. A fenced write that is in flight on the
// database holds the row, and with it the epoch, until it has ended. Waiting
// for it here would keep every writer of every node waiting, so that the
// answer is unavailable at once, for the caller to try again.
func (r leases) Grant(ctx context.Context, l store.Lease) error {
	q := r.t.query(`SELECT (SELECT epoch FROM @leases WHERE resource = ?1),
		(SELECT epoch FROM @leases WHERE resource = ?1 FOR UPDATE SKIP LOCKED)`)
	q.Text(l.Resource)
	var stored uint64
	var exists, free bool
	if q.Next() {
		stored, exists = q.ColOptional()
		_, free = q.ColOptional()
	}
	if err := q.Close(); err != nil {
		return err
	}
	if exists && !free && int64(stored) < l.Epoch {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "a fenced write under the lease is in flight", RetryAfter: guardWait, Err: store.ErrGuarded}
	}
	return r.Leases.Grant(ctx, l)
}
