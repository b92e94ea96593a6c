package lease

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// acquire waits for its turn and grants.
func (s *Service) acquire(ctx context.Context, p *headgate.Principal, r *Request, end time.Time) ([]Grant, error) {
	request := ""
	if r.RequestID != "" {
		request = requestKey(p, r)
	}
	t, repeats, err := s.queue.join(p.Name, request, r.Resources, r.Wait > 0, time.Now())
	if err != nil {
		return nil, err
	}
	if t == nil { // others come first, and this call would not wait
		return s.outOfTime(ctx, p, r, nil)
	}
	if repeats { // what it repeats is answered soon
		end = later(end, time.Now().Add(repeatTime))
	}
	defer func() { s.queue.leave(t, time.Now()) }()
	for {
		wait := time.Until(end)
		var refusal *headgate.Error
		may, lookAgain := s.queue.first(t, time.Now())
		if may {
			grants, err := s.try(ctx, p, r)
			if err == nil {
				return grants, nil
			}
			if refusal = s.passing(t, err); refusal == nil {
				return nil, err
			}
			wait = min(wait, pollEvery, max(refusal.RetryAfter, time.Millisecond))
		} else if lookAgain {
			wait = min(wait, pollEvery)
		}
		if time.Until(end) <= 0 {
			return s.outOfTime(ctx, p, r, refusal)
		}
		if err := pause(ctx, t.wake, wait); err != nil {
			return nil, &headgate.Error{Code: headgate.CodeCanceled, Outcome: headgate.NotApplied, Err: err, Detail: "The caller went away."}
		}
	}
}

// repeatTime is how long a call that does not wait does so for another call of
// the same request that is at work.
const repeatTime = 2 * time.Second

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// outOfTime answers a call that waited for its turn in vain. Its request may
// have been granted to another call, also on another node, meanwhile.
func (s *Service) outOfTime(ctx context.Context, p *headgate.Principal, r *Request, refusal *headgate.Error) ([]Grant, error) {
	mine, err := s.askedBefore(ctx, p, r)
	switch {
	case err != nil:
		return nil, err
	case mine:
		return s.try(ctx, p, r)
	case refusal != nil:
		return nil, refusal
	}
	return nil, s.heldNow(ctx, r.Resources)
}

// passing returns the refusal that a waiting call may outlast, nil for any
// other error.
func (s *Service) passing(t *ticket, err error) *headgate.Error {
	if errors.Is(err, store.ErrGuarded) {
		refusal := headgate.NewError(headgate.CodeLeaseHeld, "A write under the lease before is still in flight.")
		refusal.RetryAfter = guardedPause
		return refusal
	}
	refusal := headgate.AsError(err)
	if refusal == nil || refusal.Code != headgate.CodeLeaseHeld {
		return nil
	}
	if len(refusal.Held) > 0 {
		s.queue.denied(t, refusal.Held[0].Resource, time.Now())
	}
	return refusal
}

// heldNow is the refusal of a call that others came before.
func (s *Service) heldNow(ctx context.Context, resources []string) error {
	var refusal *headgate.Error
	err := s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		refusal, err = standing(ctx, tx, resources, func(*store.Lease, time.Time) bool { return false })
		return err
	})
	if err != nil {
		return err
	}
	if refusal == nil {
		refusal = &headgate.Error{
			Code: headgate.CodeLeaseHeld, Detail: "Others wait for the lease on " + strings.Join(resources, " or ") + ".", RetryAfter: time.Second,
		}
	}
	return refusal
}

// standing returns the refusal for those of the resources that another holds,
// nil when there are none. Except leaves leases out.
func standing(ctx context.Context, tx *store.Tx, resources []string, except func(*store.Lease, time.Time) bool) (*headgate.Error, error) {
	now, err := tx.Leases.Now(ctx)
	if err != nil {
		return nil, err
	}
	var all []headgate.HeldLease
	for _, resource := range resources {
		l, err := tx.Leases.Get(ctx, resource)
		if headgate.CodeOf(err) == headgate.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !free(&l, now) && !except(&l, now) {
			all = append(all, heldOf(&l, now))
		}
	}
	return held(all), nil
}

// held is the refusal for leases that others hold, nil when there are none.
// All of them must have ended before the request can be granted.
func held(all []headgate.HeldLease) *headgate.Error {
	if len(all) == 0 {
		return nil
	}
	text := make([]string, 0, len(all))
	var left time.Duration
	for i := range all {
		left = max(left, all[i].ExpiresIn)
		if i < heldInText {
			text = append(text, all[i].Resource+" is held by "+heldBy(&all[i]))
		}
	}
	if more := len(all) - heldInText; more > 0 {
		text = append(text, strconv.Itoa(more)+" more are held")
	}
	return &headgate.Error{
		Code: headgate.CodeLeaseHeld, Detail: "The lease on " + strings.Join(text, ", ") + ".", RetryAfter: left, Held: all,
	}
}

// heldInText bounds how many leases the text of a refusal names.
const heldInText = 4

func heldOf(l *store.Lease, now time.Time) headgate.HeldLease {
	return headgate.HeldLease{Resource: l.Resource, Holder: l.Holder, Worker: l.Worker, ExpiresIn: l.Expires.Sub(now)}
}

func heldBy(l *headgate.HeldLease) string {
	if l.Worker != "" {
		return l.Holder + " (" + l.Worker + ")"
	}
	return l.Holder
}
