package lease

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Request asks for leases.
type Request struct {
	// Resources are granted together or not at all; 1 to 64, none twice.
	Resources []string
	// Worker says which of the principal's workers asks, for people to read.
	Worker string
	// TTL is how long the lease lasts without a renewal; default 30s, 100ms
	// to 1h.
	TTL time.Duration
	// Wait is how long to wait for the leases; 0: not at all; at most 1m.
	Wait time.Duration
	// MaxHold is beyond what no renewal goes; 0: none.
	MaxHold time.Duration
	// RequestID names this very call, so that it can be repeated when its
	// answer was lost: at most 128 bytes of printable text.
	RequestID string
	// Audience are the targets that the token is for, beside Headgate.
	Audience []string
	// Seal are the names of configured targets (see Config.Seal) that must know
	// of the grant before it is returned. Its token is meant for them, too.
	Seal []string
	// OfNode: the lease is taken by the node for what ends with it, see
	// [Service.EndLeft]. It goes without a RequestID.
	OfNode bool

	internal bool // may lease Headgate's own roles
}

// Grant is a lease that was granted. Its Token is a secret.
type Grant struct {
	Resource string
	Epoch    int64
	Token    string
	Holder   string
	TTL      time.Duration
	// ExpiresIn is what is left as of the answer. A holder counts it from
	// when it sent the request, on its monotonic clock.
	ExpiresIn time.Duration
	// Again is true for a repeated request id: the grant is the one of before.
	Again bool
}

func (r *Request) check(p *headgate.Principal) *headgate.Error {
	bad := func(format string, args ...any) *headgate.Error {
		return headgate.NewError(headgate.CodeInvalidArgument, format, args...)
	}
	if len(r.Resources) == 0 || len(r.Resources) > MaxResources {
		return bad("There must be 1 to %d resources.", MaxResources)
	}
	r.Resources = slices.Sorted(slices.Values(r.Resources))
	for i, name := range r.Resources {
		if err := checkResource(name); err != nil {
			return err
		}
		if strings.HasPrefix(name, ReservedPrefix) && !r.internal {
			return headgate.NewError(headgate.CodeForbidden, "Resources below %s are Headgate's own.", ReservedPrefix)
		}
		if i > 0 && name == r.Resources[i-1] {
			return bad("A resource is named twice.")
		}
		if err := mayHold(p, name); err != nil {
			return err
		}
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	switch {
	case r.TTL < MinTTL || r.TTL > MaxTTL:
		return bad("ttl must be from %s to %s.", MinTTL, MaxTTL)
	case r.Wait < 0 || r.Wait > MaxWait:
		return bad("wait must be from 0 to %s.", MaxWait)
	case r.MaxHold < 0 || r.MaxHold > MaxHold || r.MaxHold > 0 && r.MaxHold < MinTTL:
		return bad("max_hold must be from %s to %s, or 0 for none.", MinTTL, MaxHold)
	case !printable(r.Worker, 128) || !printable(r.RequestID, 128):
		return bad("worker and request_id are at most 128 bytes of printable text.")
	}
	r.Audience = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(r.Audience), OwnAudience))))
	r.Seal = slices.Compact(slices.Sorted(slices.Values(r.Seal)))
	return checkAudience(r.Audience)
}

// printable reports whether text may be stored and shown as it is.
func printable(s string, most int) bool {
	if len(s) > most || !utf8.ValidString(s) {
		return false
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return false
		}
	}
	return true
}

// Acquire grants the leases of a request in the order of their resources,
// waiting at most as long as it says, and seals the targets that it names. A
// call that ended without an answer may have been granted; with the same
// RequestID it can be repeated.
//
// Errors: lease_held, with who holds what and how long to wait; conflict
// when the request id was used for another request, or for a grant that has
// ended; seal_failed when a target could not be sealed, whereupon the leases
// were given back, or, with the outcome unknown, kept since another call of the
// request may have them; forbidden; overloaded when too many wait.
func (s *Service) Acquire(ctx context.Context, p *headgate.Principal, r Request) ([]Grant, error) {
	if err := r.check(p); err != nil {
		return nil, err
	}
	if err := s.knowsTargets(r.Seal); err != nil {
		return nil, err
	}
	if _, err := s.audience(&r); err != nil {
		return nil, err
	}
	end := time.Now().Add(r.Wait)
	mine, err := s.askedBefore(ctx, p, &r)
	if err != nil {
		return nil, err
	}
	var grants []Grant
	if mine {
		grants, err = s.try(ctx, p, &r)
	} else {
		grants, err = s.acquire(ctx, p, &r, end)
	}
	if err != nil || len(r.Seal) == 0 {
		return grants, err
	}
	return s.sealed(ctx, p, &r, grants, end)
}

// try grants everything now or returns lease_held. It looks first: a call that
// is denied takes no writer.
func (s *Service) try(ctx context.Context, p *headgate.Principal, r *Request) ([]Grant, error) {
	var refusal *headgate.Error
	err := s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		refusal, err = standing(ctx, tx, r.Resources, func(l *store.Lease, now time.Time) bool {
			return l.Expires.After(now.Add(l.TTL)) || again(l, p, r) || reused(l, p, r)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, refusal
	}
	nonces := make([]byte, nonceSize*len(r.Resources))
	s.randMu.Lock()
	_, err = io.ReadFull(s.cfg.Rand, nonces)
	s.randMu.Unlock()
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInternal, "no randomness for a nonce: %v", err)
	}
	var rows, taken []store.Lease
	var now time.Time
	same := false
	err = s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		rows, taken, refusal, same = rows[:0], taken[:0], nil, false
		if now, err = tx.Leases.Now(ctx); err != nil {
			return err
		}
		return s.grantAll(ctx, tx, p, r, nonces, now, &rows, &taken, &refusal, &same)
	})
	if err != nil {
		return nil, err
	}
	if refusal != nil { // a clock that went back was put right, and no more
		return nil, refusal
	}
	return s.granted(rows, taken, now, same)
}

// grantAll grants within a transaction. What is held is no error of the
// transaction when it mends a row whose end is further off than its TTL.
func (s *Service) grantAll(
	ctx context.Context, tx *store.Tx, p *headgate.Principal, r *Request, nonces []byte, now time.Time,
	rows, taken *[]store.Lease, refusal **headgate.Error, same *bool,
) error {
	var old []store.Lease
	var standing []headgate.HeldLease
	repeats := 0
	for _, resource := range r.Resources {
		l, err := tx.Leases.Get(ctx, resource)
		if headgate.CodeOf(err) == headgate.CodeNotFound {
			l, err = store.Lease{Resource: resource}, nil
		}
		if err != nil {
			return err
		}
		switch {
		case reused(&l, p, r):
			return errOther()
		case again(&l, p, r):
			if l.Holder == "" || l.Closing || !l.Expires.After(now) {
				return errEnded()
			}
			repeats++
		case !free(&l, now):
			if l.Expires.After(now.Add(l.TTL)) { // the store's clock went back
				if err := tx.Leases.Touch(ctx, resource, l.Epoch, now.Add(l.TTL), now, l.Closing); err != nil {
					return err
				}
				l.Expires = now.Add(l.TTL)
			}
			standing = append(standing, heldOf(&l, now))
		}
		old = append(old, l)
	}
	if len(standing) > 0 {
		*refusal = held(standing)
		return nil
	}
	if repeats == len(old) {
		*rows, *same = old, true
		return nil
	}
	if repeats > 0 {
		return headgate.NewError(headgate.CodeConflict, "The grant of this request id has ended in part.")
	}
	if s.cfg.May != nil {
		if err := s.cfg.May(); err != nil {
			return err
		}
	}
	// Between the first look and this transaction it may have been granted and
	// have ended.
	if err := unasked(ctx, tx, p, r); err != nil {
		return err
	}
	if err := remember(ctx, tx, p, r, old, now); err != nil {
		return err
	}
	for i := range old {
		if old[i].Holder != "" {
			*taken = append(*taken, old[i])
		}
		l := s.grantOf(&old[i], p, r, nonces[i*nonceSize:(i+1)*nonceSize], now)
		if err := tx.Leases.Grant(ctx, l); err != nil {
			return err
		}
		*rows = append(*rows, l)
	}
	return nil
}

// free: nobody holds it, or it ran out.
func free(l *store.Lease, now time.Time) bool { return l.Holder == "" || !l.Expires.After(now) }

func (s *Service) grantOf(old *store.Lease, p *headgate.Principal, r *Request, nonce []byte, now time.Time) store.Lease {
	audience, _ := s.audience(r) // which was checked
	l := store.Lease{
		Resource: old.Resource, Epoch: nextEpoch(old.Epoch, now), Nonce: nonce, Holder: p.Name, Worker: r.Worker,
		Audience: audience, Sealed: r.Seal, TTL: r.TTL, Acquired: now, Expires: now.Add(r.TTL), Changed: now,
	}
	if r.RequestID != "" {
		l.Request = requestKey(p, r)
	} else if r.OfNode {
		l.Request = ofNode
	}
	if r.MaxHold > 0 {
		l.Until = now.Add(r.MaxHold)
		if l.Expires.After(l.Until) {
			l.Expires = l.Until
		}
	}
	return l
}

// granted is what was committed, with tokens. The targets of leases that were
// taken over are told of their end.
func (s *Service) granted(rows, taken []store.Lease, now time.Time, same bool) ([]Grant, error) {
	if !same {
		s.stats.Granted.Add(uint64(len(rows)))
		s.stats.Takeovers.Add(uint64(len(taken)))
	}
	for i := range taken {
		s.over(&taken[i])
	}
	out := make([]Grant, len(rows))
	for i := range rows {
		l := &rows[i]
		s.changed(l)
		s.queue.granted(l.Resource, l.Request)
		token, err := s.token(l, now)
		if err != nil {
			return nil, err
		}
		out[i] = Grant{
			Resource: l.Resource, Epoch: l.Epoch, Token: token, Holder: l.Holder, TTL: l.TTL, ExpiresIn: l.Expires.Sub(now), Again: same,
		}
	}
	return out, nil
}

// token signs the token of a row.
func (s *Service) token(l *store.Lease, now time.Time) (string, error) {
	r := s.ring.Load()
	key := r.signer(now)
	token, err := sign(&Fence{
		Resource: l.Resource, Epoch: l.Epoch, Nonce: l.Nonce, Holder: l.Holder, Audience: l.Audience, Issuer: r.issuer, KeyID: key.id,
	}, key.private)
	if err != nil {
		return "", headgate.NewError(headgate.CodeInternal, "a lease token cannot be written: %v", err)
	}
	return token, nil
}

// changed tells all of this node who look at the lease of a committed row.
func (s *Service) changed(l *store.Lease) {
	s.seen.raise(l.Resource, l.Epoch)
	s.queue.notify(l.Resource, time.Now())
	s.watch.notify(l.Resource)
	if tell := s.follower.Load(); tell != nil {
		(*tell)(l.Resource, l.Epoch)
	}
}
