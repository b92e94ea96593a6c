package lease

import (
	"context"
	"crypto/subtle"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Renewed is the answer to a renewal.
type Renewed struct {
	Resource string
	Epoch    int64
	// Token replaces the one that was sent; both are good until then.
	Token string
	// ExpiresIn is what is left, counted by the holder from when it sent the
	// renewal.
	ExpiresIn time.Duration
	// Late: the lease had run out, and nobody had taken it.
	Late bool
}

// own reads a token and checks that it is the principal's.
func (s *Service) own(ctx context.Context, p *headgate.Principal, resource, token string) (Fence, error) {
	f, err := s.Read(ctx, token, "")
	if err != nil {
		return f, err
	}
	if p == nil || p.Disabled || f.Holder != p.Name {
		return f, headgate.NewError(headgate.CodeFenceForeign, "The lease belongs to another principal.")
	}
	if resource != "" && f.Resource != resource {
		return f, headgate.NewError(headgate.CodeFenceForeign, "The token is of another resource.")
	}
	return f, nil
}

// lost is how a superseded lease answers its holder.
func lost(f *Fence, current int64) *headgate.Error {
	if current == 0 { // the row was lost with a restored store
		return headgate.NewError(headgate.CodeLeaseLost, "Epoch %d of %q is not the current one.", f.Epoch, f.Resource)
	}
	return headgate.NewError(headgate.CodeLeaseLost, "Epoch %d of %q was superseded by %d.", f.Epoch, f.Resource, current)
}

// holds says whether the row is the fence's grant.
func holds(l *store.Lease, f *Fence) *headgate.Error {
	switch {
	case l.Epoch != f.Epoch:
		return lost(f, l.Epoch)
	case subtle.ConstantTimeCompare(l.Nonce, f.Nonce) != 1:
		return headgate.NewError(headgate.CodeFenceConflict, "Epoch %d of %q was granted to another holder.", f.Epoch, f.Resource)
	}
	return nil
}

// Renew makes a lease last for ttl from now; 0: for as long as it was asked
// for. Resource may be empty; else the token must be of it. A lease that ran
// out can be renewed until somebody takes it, or, where targets know of it, for
// as long again as it lasted.
//
// Errors: lease_lost, lease_closing, lease_expired when it reached its
// MaxHold, fence_conflict, fence_foreign. After any of them the holder must
// stop; after any other error it may try again until the lease's end.
func (s *Service) Renew(ctx context.Context, p *headgate.Principal, resource, token string, ttl time.Duration) (Renewed, error) {
	if ttl != 0 && (ttl < MinTTL || ttl > MaxTTL) {
		return Renewed{}, headgate.NewError(headgate.CodeInvalidArgument, "ttl must be from %s to %s.", MinTTL, MaxTTL)
	}
	f, err := s.own(ctx, p, resource, token)
	if err != nil {
		return Renewed{}, err
	}
	if err := mayHold(p, f.Resource); err != nil {
		return Renewed{}, err
	}
	if current, known := s.seen.get(f.Resource); known && f.Epoch < current {
		return Renewed{}, lost(&f, current)
	}
	var l store.Lease
	var now time.Time
	var late bool
	err = s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		l, now, late, err = s.renew(ctx, tx, &f, ttl)
		return err
	})
	if err != nil {
		return Renewed{}, err
	}
	s.stats.Renewed.Add(1)
	if late {
		s.stats.Late.Add(1)
	}
	s.seen.raise(l.Resource, l.Epoch)
	if len(l.Sealed) > 0 {
		s.stands(&l, lapse(&l).Sub(now))
	}
	again, err := s.token(&l, now)
	return Renewed{Resource: l.Resource, Epoch: l.Epoch, Token: again, ExpiresIn: l.Expires.Sub(now), Late: late}, err
}

func (s *Service) renew(ctx context.Context, tx *store.Tx, f *Fence, ttl time.Duration) (l store.Lease, now time.Time, late bool, err error) {
	l, err = tx.Leases.Get(ctx, f.Resource)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return l, now, false, lost(f, 0)
	}
	if err != nil {
		return l, now, false, err
	}
	if now, err = tx.Leases.Now(ctx); err != nil {
		return l, now, false, err
	}
	if refusal := holds(&l, f); refusal != nil {
		return l, now, false, refusal
	}
	if l.Closing {
		return l, now, false, headgate.NewError(headgate.CodeLeaseClosing, "The lease on %q is being revoked.", f.Resource)
	}
	if !l.Until.IsZero() && !l.Until.After(now) {
		return l, now, false, &headgate.Error{
			Code: headgate.CodeLeaseExpired, Detail: fmt.Sprintf("The lease on %q was held for as long as it may be.", f.Resource),
			Fix: "Release it and acquire it anew.",
		}
	}
	if ttl == 0 {
		ttl = l.TTL
	}
	late = !l.Expires.After(now)
	l.Expires = now.Add(ttl)
	if !l.Until.IsZero() && l.Expires.After(l.Until) {
		l.Expires = l.Until
	}
	return l, now, late, tx.Leases.Touch(ctx, l.Resource, l.Epoch, l.Expires, now, false)
}

// Release ends a lease at once. The epoch rises, so that what the holder still
// has under way is stale. Targets that it was sealed at are told afterwards,
// without making the caller wait. A lease that has ended already is lease_lost.
func (s *Service) Release(ctx context.Context, p *headgate.Principal, resource, token string) error {
	f, err := s.own(ctx, p, resource, token)
	if err != nil {
		return err
	}
	var was, l store.Lease
	err = patiently(ctx, releasePatience, func() error {
		return s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			was, l, err = s.release(ctx, tx, &f)
			return err
		})
	})
	if err != nil {
		return err
	}
	s.Ended(&l)
	s.over(&was)
	return nil
}

// release ends a grant within a transaction.
func (s *Service) release(ctx context.Context, tx *store.Tx, f *Fence) (was, l store.Lease, err error) {
	was, err = tx.Leases.Get(ctx, f.Resource)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return was, l, lost(f, 0)
	}
	if err != nil {
		return was, l, err
	}
	if refusal := holds(&was, f); refusal != nil {
		return was, l, refusal
	}
	l, err = s.end(ctx, tx, &was)
	return was, l, err
}

// Ended tells waiters, watchers and followers of a lease that Finish ended.
func (s *Service) Ended(l *store.Lease) {
	s.stats.Released.Add(1)
	s.changed(l)
}

// end raises the epoch: nobody holds the lease any more. The request id stays,
// so that a late repetition of the request does not take the lease again.
func (s *Service) end(ctx context.Context, tx *store.Tx, l *store.Lease) (store.Lease, error) {
	now, err := tx.Leases.Now(ctx)
	if err != nil {
		return *l, err
	}
	freed := store.Lease{
		Resource: l.Resource, Epoch: nextEpoch(l.Epoch, now), Request: l.Request,
		Acquired: l.Acquired, Expires: now, Changed: now,
	}
	return freed, tx.Leases.Grant(ctx, freed)
}
