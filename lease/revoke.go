package lease

import (
	"context"
	"errors"
	"slices"
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
	// Terminate ends the lease at once, and with it the sessions of the
	// store's database that hold it in a transaction, where the node's role
	// may. Else its holder may finish and release it, for at most Deadline;
	// what it writes is refused meanwhile.
	Terminate bool
	// Deadline is how long to wait: for the holder, and for transactions under
	// the lease that are open in the store's database and not, or not to be,
	// ended. Default 10s, at most 5m.
	Deadline time.Duration
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
	// Sessions are those of the store's database, and of those of targets, that
	// this call ended.
	Sessions []headgate.BlockingSession
	// Untold are the targets that the lease was sealed at and that could not be
	// told in time: there the holder's writes may still pass. They are told
	// again for about a minute.
	Untold []string
}

// Revoke takes a lease from whoever holds it, in two phases: the gate closes,
// from when on no write and no renewal of the holder passes; then the epoch
// rises, when the holder has released or its time is up. A lease that nobody
// holds is not_found. When ctx ends in between the gate stays closed, and the
// lease runs out. So it does when the deadline passes beside a transaction
// under the lease: the error, unavailable and applied, names whose it is.
//
// The targets that the lease was sealed at are told, too: that their gate is
// closed at once, and of the end when it has come.
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
	gated := s.gateTargets(ctx, &l)
	out, err := s.endRevoked(ctx, &l, r, here, begun)
	<-gated
	if err == nil {
		s.tellTargets(ctx, &l, r.Terminate, begun.Add(r.Deadline), &out)
		s.over(&store.Lease{Resource: l.Resource, Epoch: l.Epoch, Sealed: out.Untold}) // they are told again
	}
	return out, err
}

// endRevoked waits for the holder, and ends the lease when it has not released.
func (s *Service) endRevoked(ctx context.Context, l *store.Lease, r Revocation, here *revocation, begun time.Time) (Revoked, error) {
	if !r.Terminate {
		row, gone, err := s.drained(ctx, l, r.Deadline)
		if err != nil {
			return Revoked{}, err
		}
		if gone {
			return Revoked{Epoch: row.Epoch, Drained: time.Since(begun), Killed: here.killed() || ranOut(&row, l)}, nil
		}
	}
	e := ending{s: s, l: l, here: here, terminate: r.Terminate, until: begun.Add(r.Deadline)}
	return e.supersede(ctx, begun)
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
	kills atomic.Int32 // calls that ended the lease, or are about to
	calls int
}

func (r *revocation) killed() bool { return r.kills.Load() > 0 }

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
		if err != nil && ctx.Err() != nil {
			leave()
			return row, false, leftBehind(err)
		}
		if err != nil || row.Epoch != l.Epoch || left <= 0 {
			leave()
			return row, err == nil && row.Epoch != l.Epoch, err
		}
		err = pause(ctx, moved, min(pollEvery, left))
		leave()
		if err != nil {
			return row, false, leftBehind(err)
		}
	}
}

// leftBehind is the answer to a caller that went away while the holder drained.
func leftBehind(err error) error {
	return &headgate.Error{
		Code: headgate.CodeCanceled, Outcome: headgate.Applied, Err: err,
		Detail: "The gate is closed; the lease ends when it is released or runs out.",
	}
}

// ending is the second phase of one call.
type ending struct {
	s         *Service
	l         *store.Lease
	here      *revocation
	terminate bool
	until     time.Time
	met       []headgate.BlockingSession // that held the lease in a transaction
}

// supersede raises the epoch, once the transactions under it have ended.
func (e *ending) supersede(ctx context.Context, begun time.Time) (Revoked, error) {
	freed, ended, err := e.patiently(ctx)
	if errors.Is(err, store.ErrGuarded) {
		return Revoked{}, e.guarded(ctx, err)
	}
	if err != nil {
		return Revoked{}, err
	}
	if ended {
		e.s.stats.Revoked.Add(1)
		e.s.changed(&freed)
	}
	out := Revoked{Epoch: freed.Epoch, Drained: time.Since(begun), Killed: e.here.killed() || ranOut(&freed, e.l)}
	for i := range e.met {
		if e.met[i].Ended {
			out.Sessions = append(out.Sessions, e.met[i])
		}
	}
	return out, nil
}

// patiently tries to raise the epoch until the deadline, and ends what is in
// the way when it is to.
func (e *ending) patiently(ctx context.Context) (freed store.Lease, ended bool, err error) {
	for {
		freed, ended, err = e.try(ctx)
		if !errors.Is(err, store.ErrGuarded) {
			return freed, ended, err
		}
		if e.terminate {
			e.evict(ctx, true)
		}
		// Once more after what was ended at the very end.
		late := time.Until(e.until) <= 0
		if late && e.terminate {
			freed, ended, err = e.try(ctx)
		}
		if late || pause(ctx, nil, guardedPause) != nil {
			return freed, ended, err
		}
	}
}

// try raises the epoch, unless another has done so.
func (e *ending) try(ctx context.Context) (freed store.Lease, ended bool, err error) {
	undo := func() {
		if ended {
			e.here.kills.Add(-1)
		}
		ended = false
	}
	err = e.s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		undo() // of a transaction that is repeated
		now, err := tx.Leases.Get(ctx, e.l.Resource)
		if err != nil {
			return err
		}
		if now.Epoch != e.l.Epoch {
			freed = now
			return nil
		}
		ended = true
		e.here.kills.Add(1) // before anybody can see the new epoch
		freed, err = e.s.end(ctx, tx, &now)
		return err
	})
	if err != nil {
		undo()
	}
	return freed, ended, err
}

// evict looks who holds the lease in a transaction, and ends those sessions if
// it is to. Its own failure is none of the revocation's: that goes on trying.
func (e *ending) evict(ctx context.Context, end bool) {
	by, can := e.s.cfg.Store.(store.Evictor)
	if !can {
		return
	}
	met, err := by.Evict(ctx, e.l.Resource, e.l.Epoch, end)
	if err != nil && ctx.Err() == nil {
		e.s.cfg.Log.Warn("sessions that hold a revoked lease could not be looked for", "resource", e.l.Resource, "error", err)
	}
	for i := range met {
		if met[i].Ended {
			e.s.cfg.Log.Warn("session ended that held a revoked lease", "resource", e.l.Resource, "epoch", e.l.Epoch,
				"pid", met[i].PID, "user", met[i].User, "application", met[i].Application)
		}
	}
	// Of earlier looks only what was ended counts: the rest is seen anew.
	e.met = slices.DeleteFunc(e.met, func(b headgate.BlockingSession) bool { return !b.Ended })
	e.met = append(e.met, met...)
}

// guarded is the answer when the deadline passed beside a transaction.
func (e *ending) guarded(ctx context.Context, err error) error {
	if !e.terminate {
		e.evict(ctx, false)
	}
	out := &headgate.Error{
		Code: headgate.CodeUnavailable, Outcome: headgate.Applied, Err: err, RetryAfter: guardedPause,
		Detail: "The gate is closed, but a transaction under the lease is still open in the database of the node",
		Fix:    "Revoke again once that transaction has ended, or with the mode terminate, which ends its session; no new write of the holder passes.",
	}
	sep := ": "
	for i := range e.met {
		b := &e.met[i]
		if b.Ended {
			continue
		}
		out.Detail += sep + b.String()
		sep = "; "
		if b.Lacks != "" {
			out.Detail += ", which the node's role may not end (" + b.Lacks + ")"
			out.Fix = "Give the node's role that right, or end the session in the database: SELECT pg_terminate_backend(PID). Then revoke again; no new write of the holder passes."
		}
	}
	out.Detail += "."
	return out
}
