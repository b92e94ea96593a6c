package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
	// Drained is how long the holder took to release, or was waited for, with
	// the transactions under the lease that were open in the store's database.
	Drained time.Duration
	// Killed: the holder had not released, and the lease was ended for it, by
	// this call or by another one, or ran out and was taken.
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
	l, here, leave, err := s.shut(ctx, resource)
	defer leave()
	if err != nil {
		return Revoked{}, err
	}
	s.cfg.Log.Info("lease is being revoked", "resource", resource, "holder", l.Holder, "epoch", l.Epoch)
	begun := time.Now()
	if !r.Terminate {
		row, gone, err := s.drained(ctx, &l, r.Deadline)
		if err != nil {
			return Revoked{}, err
		}
		if gone {
			return Revoked{Epoch: row.Epoch, Drained: time.Since(begun), Killed: here.killed.Load() || ranOut(&row, &l)}, nil
		}
	}
	return s.supersede(ctx, &l, here, begun)
}

// ranOut reports whether the present holder took a lease that nobody had given
// back: a lease whose gate is closed is not renewed, so that before its end
// only its release lets another take it.
func ranOut(now, before *store.Lease) bool {
	return now.Holder != "" && !now.Acquired.Before(before.Expires)
}

// revocations are the calls that revoke, by lease: what one of them does, the
// others tell, too.
type revocations struct {
	mu  sync.Mutex
	all map[grantID]*revocation
}

type grantID struct {
	resource string
	epoch    int64
}

type revocation struct {
	killed atomic.Bool
	calls  int
}

func (r *revocations) join(l *store.Lease) (here *revocation, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := grantID{l.Resource, l.Epoch}
	here = r.all[id]
	if here == nil {
		here = &revocation{}
		if r.all == nil {
			r.all = map[grantID]*revocation{}
		}
		r.all[id] = here
	}
	here.calls++
	return here, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if here.calls--; here.calls == 0 {
			delete(r.all, id)
		}
	}
}

// shut is the first phase. It joins the other calls that revoke the lease
// before any of them can know that its gate is closed.
func (s *Service) shut(ctx context.Context, resource string) (l store.Lease, here *revocation, leave func(), err error) {
	leave = func() {}
	err = s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		leave() // of a transaction that is repeated
		leave = func() {}
		if l, err = tx.Leases.Get(ctx, resource); err != nil {
			return err
		}
		if l.Holder == "" {
			return headgate.NewError(headgate.CodeNotFound, "Nobody holds the lease on %q.", resource)
		}
		now, err := tx.Leases.Now(ctx)
		if err != nil {
			return err
		}
		here, leave = s.revoking.join(&l)
		return tx.Leases.Touch(ctx, resource, l.Epoch, l.Expires, now, true)
	})
	if err == nil {
		s.changed(&l)
	}
	return l, here, leave, err
}

// drained waits for the holder to release. A lease that runs out meanwhile
// will not be released any more.
func (s *Service) drained(ctx context.Context, l *store.Lease, most time.Duration) (row store.Lease, gone bool, err error) {
	end := time.Now().Add(most)
	for {
		moved, leave := s.watch.of(l.Resource)
		row, now, err := s.look(ctx, l.Resource)
		left := min(row.Expires.Sub(now), time.Until(end))
		if err != nil || row.Epoch != l.Epoch || left <= 0 {
			leave()
			return row, err == nil && row.Epoch != l.Epoch, err
		}
		err = pause(ctx, moved, min(pollEvery, left))
		leave()
		if err != nil {
			return row, false, &headgate.Error{
				Code: headgate.CodeCanceled, Outcome: headgate.Applied, Err: err,
				Detail: "The gate is closed; the lease ends when it is released or runs out.",
			}
		}
	}
}

// supersede is the second phase.
func (s *Service) supersede(ctx context.Context, l *store.Lease, here *revocation, begun time.Time) (Revoked, error) {
	var freed store.Lease
	ended := false
	err := patiently(ctx, revokePatience, func() error {
		return s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
			now, err := tx.Leases.Get(ctx, l.Resource)
			if err != nil {
				return err
			}
			if ended = now.Epoch == l.Epoch; !ended {
				freed = now
				return nil
			}
			here.killed.Store(true) // before anybody can see the new epoch
			freed, err = s.end(ctx, tx, &now)
			return err
		})
	})
	if err != nil && ended {
		here.killed.Store(false)
	}
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
	if ended {
		s.stats.Revoked.Add(1)
		s.changed(&freed)
	}
	return Revoked{Epoch: freed.Epoch, Drained: time.Since(begun), Killed: here.killed.Load() || ranOut(&freed, l)}, nil
}
