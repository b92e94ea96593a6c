package lease

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// MaxDrain bounds how long a revocation may wait for the holder.
const MaxDrain = 5 * time.Minute

// Revocation says how a lease is taken from its holder.
type Revocation struct {
	// Terminate ends the lease at once. Else its holder may finish and
	// release it, for at most Deadline; what it writes is refused meanwhile.
	Terminate bool
	Deadline  time.Duration // default 10s, at most 5m
}

// Revoked is the answer to a revocation.
type Revoked struct {
	Epoch int64 // above the holder's
	// Drained is how long the holder took to release, or was waited for.
	Drained time.Duration
	// Killed: the holder had not released.
	Killed bool
}

// Revoke takes a lease from whoever holds it, in two phases: the gate closes,
// from when on no write and no renewal of the holder passes; then the epoch
// rises, when the holder has released or its time is up. A lease that nobody
// holds is not_found. When ctx ends in between the gate stays closed, and the
// lease runs out.
func (s *Service) Revoke(ctx context.Context, resource string, r Revocation) (Revoked, error) {
	if err := checkResource(resource); err != nil {
		return Revoked{}, err
	}
	if r.Deadline == 0 {
		r.Deadline = 10 * time.Second
	}
	if r.Deadline < 0 || r.Deadline > MaxDrain {
		return Revoked{}, headgate.NewError(headgate.CodeInvalidArgument, "The deadline must be from 0 to %s.", MaxDrain)
	}
	l, err := s.shut(ctx, resource)
	if err != nil {
		return Revoked{}, err
	}
	s.cfg.Log.Info("lease is being revoked", "resource", resource, "holder", l.Holder, "epoch", l.Epoch)
	begun := time.Now()
	if !r.Terminate {
		if at, gone, err := s.drained(ctx, &l, r.Deadline); err != nil || gone {
			return Revoked{Epoch: at, Drained: time.Since(begun)}, err
		}
	}
	return s.supersede(ctx, &l, time.Since(begun))
}

// shut is the first phase.
func (s *Service) shut(ctx context.Context, resource string) (l store.Lease, err error) {
	err = s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if l, err = tx.Leases.Get(ctx, resource); err != nil {
			return err
		}
		if l.Holder == "" {
			return headgate.NewError(headgate.CodeNotFound, "Nobody holds the lease on %s.", resource)
		}
		now, err := tx.Leases.Now(ctx)
		if err != nil {
			return err
		}
		return tx.Leases.Touch(ctx, resource, l.Epoch, l.Expires, now, true)
	})
	if err == nil {
		s.changed(&l)
	}
	return l, err
}

// drained waits for the holder to release. A lease that runs out meanwhile
// will not be released any more.
func (s *Service) drained(ctx context.Context, l *store.Lease, most time.Duration) (epoch int64, gone bool, err error) {
	end := time.Now().Add(most)
	for {
		moved, leave := s.watch.of(l.Resource)
		row, now, err := s.look(ctx, l.Resource)
		left := min(row.Expires.Sub(now), time.Until(end))
		if err != nil || row.Epoch != l.Epoch || left <= 0 {
			leave()
			return row.Epoch, err == nil && row.Epoch != l.Epoch, err
		}
		err = pause(ctx, moved, min(pollEvery, left))
		leave()
		if err != nil {
			return 0, false, &headgate.Error{
				Code: headgate.CodeCanceled, Outcome: headgate.Applied, Err: err,
				Detail: "The gate is closed; the lease ends when it is released or runs out.",
			}
		}
	}
}

// supersede is the second phase.
func (s *Service) supersede(ctx context.Context, l *store.Lease, took time.Duration) (Revoked, error) {
	var freed store.Lease
	killed := true
	err := patiently(ctx, revokePatience, func() error {
		return s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
			now, err := tx.Leases.Get(ctx, l.Resource)
			if err != nil {
				return err
			}
			if killed = now.Epoch == l.Epoch; !killed {
				freed = now
				return nil
			}
			freed, err = s.end(ctx, tx, &now)
			return err
		})
	})
	if errors.Is(err, store.ErrGuarded) {
		return Revoked{}, &headgate.Error{
			Code: headgate.CodeUnavailable, Outcome: headgate.Applied, Err: err, RetryAfter: guardedPause,
			Detail: "The gate is closed, but a write under the lease is still in flight.",
			Fix:    "Revoke again once that transaction has ended, or end it in the database; no new write of the holder passes.",
		}
	}
	if err != nil {
		return Revoked{}, err
	}
	s.stats.Revoked.Add(1)
	s.changed(&freed)
	return Revoked{Epoch: freed.Epoch, Drained: took, Killed: killed}, nil
}
