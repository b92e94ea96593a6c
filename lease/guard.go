package lease

import (
	"context"
	"crypto/subtle"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Guard passes only while the fence's grant is current: its epoch and nonce
// are the stored ones, the gate is open and the lease has not run out. Called
// within Update it holds for everything that the transaction writes, before or
// after: no grant, release or revocation can come in between. Its error must
// be returned from the function, so that nothing is written.
//
// Errors: stale_fence, fence_conflict, lease_closing, lease_expired.
func (s *Service) Guard(ctx context.Context, tx *store.Tx, f *Fence) error {
	l, err := tx.Leases.Get(ctx, f.Resource)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		// The token is genuine, so the row was lost with a restored store.
		return stale(f, 0)
	}
	if err != nil {
		return err
	}
	now, err := tx.Leases.Now(ctx)
	if err != nil {
		return err
	}
	if refusal := s.judge(&l, f, now); refusal != nil {
		return refusal
	}
	return nil
}

// Finish is the guard of a holder's last write, and ends the grant in the same
// transaction. A holder whose lease is being revoked may still finish: that is
// what is waited for. Once its transaction is committed the caller calls Ended.
//
// Errors: stale_fence, fence_conflict, lease_expired.
func (s *Service) Finish(ctx context.Context, tx *store.Tx, f *Fence) (store.Lease, error) {
	l, err := tx.Leases.Get(ctx, f.Resource)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return l, stale(f, 0)
	}
	if err != nil {
		return l, err
	}
	now, err := tx.Leases.Now(ctx)
	if err != nil {
		return l, err
	}
	open := l
	open.Closing = false
	if refusal := s.judge(&open, f, now); refusal != nil {
		return l, refusal
	}
	return s.end(ctx, tx, &l)
}

// The predicates of the guard, by which tests take one out at a time.
const (
	onEpoch  = "epoch"
	onNonce  = "nonce"
	onGate   = "gate"
	onExpiry = "expiry"
)

// lacks reports whether a test took the predicate out.
func (s *Service) lacks(predicate string) bool {
	return s.without != "" && strings.Contains(s.without, predicate)
}

// judge is the guard itself.
func (s *Service) judge(l *store.Lease, f *Fence, now time.Time) *headgate.Error {
	switch {
	case l.Epoch != f.Epoch && !s.lacks(onEpoch):
		return stale(f, l.Epoch)
	case subtle.ConstantTimeCompare(l.Nonce, f.Nonce) != 1 && !s.lacks(onNonce):
		return headgate.NewError(headgate.CodeFenceConflict, "Epoch %d of %q was granted to another holder.", f.Epoch, f.Resource)
	case l.Closing && !s.lacks(onGate):
		return headgate.NewError(headgate.CodeLeaseClosing, "The lease on %q is being revoked.", f.Resource)
	case !l.Expires.After(now) && !s.lacks(onExpiry):
		return headgate.NewError(headgate.CodeLeaseExpired, "The lease on %q ran out %s ago.", f.Resource, now.Sub(l.Expires).Round(time.Millisecond))
	}
	return nil
}

func stale(f *Fence, current int64) *headgate.Error {
	if current == 0 {
		return headgate.NewError(headgate.CodeStaleFence, "Epoch %d of %q is not the current one.", f.Epoch, f.Resource)
	}
	return headgate.NewError(headgate.CodeStaleFence, "Epoch %d of %q is not the current one, which is %d.", f.Epoch, f.Resource, current)
}

// Superseded returns stale_fence for a grant that this node knows to be
// superseded, without asking the store, and nil where it does not know. What
// was superseded stays so: the answer needs no lock and cannot grow old.
func (s *Service) Superseded(f *Fence) error {
	if current, known := s.seen.get(f.Resource); known && f.Epoch < current {
		s.stats.Stale.Add(1)
		return stale(f, current)
	}
	return nil
}

// Verify says whether a token is genuine, meant for the target (empty:
// Headgate itself) and current now. A pass is worth as much as the time that
// went by since: only a guard within the transaction of a write protects the
// write. It returns how long the lease lasts.
func (s *Service) Verify(ctx context.Context, token, target string) (Fence, time.Duration, error) {
	f, err := s.Read(ctx, token, target)
	if err != nil {
		return f, 0, err
	}
	left, err := s.current(ctx, &f)
	return f, left, err
}

// Current says whether a grant is current now, without taking a writer. It
// protects nothing: it spares a stale worker the way to [Service.Guard].
func (s *Service) Current(ctx context.Context, f *Fence) error {
	_, err := s.current(ctx, f)
	return err
}

// current is the guard outside of any write.
func (s *Service) current(ctx context.Context, f *Fence) (left time.Duration, err error) {
	if err := s.Superseded(f); err != nil {
		return 0, err
	}
	var l store.Lease
	var now time.Time
	err = s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if l, err = tx.Leases.Get(ctx, f.Resource); headgate.CodeOf(err) == headgate.CodeNotFound {
			return stale(f, 0)
		}
		if err == nil {
			now, err = tx.Leases.Now(ctx)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	s.seen.raise(l.Resource, l.Epoch)
	if refusal := s.judge(&l, f, now); refusal != nil {
		s.Refused(refusal)
		return 0, refusal
	}
	return l.Expires.Sub(now), nil
}

// Refused counts the refusal of a guarded write.
func (s *Service) Refused(err error) {
	switch headgate.CodeOf(err) {
	case headgate.CodeStaleFence, headgate.CodeFenceConflict:
		s.stats.Stale.Add(1)
	case headgate.CodeLeaseClosing, headgate.CodeLeaseExpired:
		s.stats.Expired.Add(1)
	}
}
