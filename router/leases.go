package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/store"
)

// DeliveryLease is the lease that a delivery is worked on under. It lasts as
// long as the claim, and is released with its settlement.
type DeliveryLease struct {
	Resource string
	Epoch    int64
	// Token is to be sent with everything that the consumer writes for the
	// delivery. It is a secret.
	Token string
}

// heldLease is the lease behind an open claim.
type heldLease struct {
	fence lease.Fence
	token string
}

const (
	// leaseSlack is how much longer the lease lasts than the claim, so that a
	// claim settled in its last moment is not refused for its lease.
	leaseSlack = 2 * time.Second
	// leasePause is how long a delivery waits at most before it asks again for
	// a lease that another has.
	leasePause = time.Second
	// leaseTrouble is how long it waits when the lease cannot be had at all
	// now: the store is down, or the principal has not the right.
	leaseTrouble = 5 * time.Second
)

// leased is an item with its lease, nil where the subscription wants none.
type leased struct {
	it   *item
	held *heldLease
}

// leaseItems acquires the lease of each prepared item for the principal that
// is to work on it. Items whose lease another has go back to their queue,
// without an attempt; those that name no resource are parked.
func (s *sub) leaseItems(ctx context.Context, items []*item, p *headgate.Principal) []leased {
	all := make([]leased, len(items))
	for i, it := range items {
		all[i].it = it
	}
	if s.plan.leaseOf == nil {
		return all
	}
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i].held, errs[i] = s.leaseOne(ctx, all[i].it, p) })
	}
	wg.Wait()
	out := all[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, err := range errs {
		it := all[i].it
		switch code := headgate.CodeOf(err); code {
		case "":
			it.live.waits = ""
			out = append(out, all[i])
		case headgate.CodeLeaseHeld:
			it.live.waits = waitsFor(headgate.AsError(err))
			s.postpone(it, max(min(headgate.AsError(err).RetryAfter, leasePause), time.Millisecond))
		case headgate.CodeInvalidArgument:
			s.end(it, ender{
				kind: store.KindParked, end: endParked, reason: reasonLease, text: errText(err), internal: true, outcome: "parked",
			})
		default:
			if s.warn("lease", s.r.now()) {
				s.r.log.Error("lease of a delivery not acquired", "subscription", s.name, "position", it.pos().String(), "err", err)
			}
			it.live.waits = "waits for a lease that cannot be had: " + errText(err)
			s.postpone(it, leaseTrouble)
		}
	}
	return out
}

// waitsFor says in words whose lease a delivery waits for.
func waitsFor(refusal *headgate.Error) string {
	if len(refusal.Held) == 0 {
		return "waits for a lease: " + errText(refusal)
	}
	h := &refusal.Held[0]
	who := h.Holder
	if h.Worker != "" {
		who += " (" + h.Worker + ")"
	}
	return fmt.Sprintf("waits for the lease on %q, which %s holds, for %s at most unless it is renewed",
		h.Resource, clip(who, 200), h.ExpiresIn.Round(time.Millisecond))
}

// reasonLease parks an event that names no resource that could be leased.
const reasonLease = "lease_unreadable"

func (s *sub) leaseOne(ctx context.Context, it *item, p *headgate.Principal) (*heldLease, error) {
	resource, err := s.plan.leaseOf.EvalOver(s.plan.scope(it.live.ev))
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "the resource to lease cannot be read from the event: %s", errText(err))
	}
	grants, err := s.r.leases.Acquire(ctx, p, lease.Request{
		Resources: []string{resource}, TTL: s.plan.claim + leaseSlack, Worker: clip("subscription "+s.name, 120),
		OfNode: true,
	})
	if err != nil {
		return nil, err
	}
	f, err := s.r.leases.Read(ctx, grants[0].Token, "")
	if err != nil {
		return nil, err
	}
	return &heldLease{fence: f, token: grants[0].Token}, nil
}

// endLeftLeases ends the leases of deliveries that were out when the node
// ended without a drain: their claims ended with it.
func (r *Router) endLeftLeases(ctx context.Context) {
	if r.leases == nil {
		return
	}
	n, err := r.leases.EndLeft(ctx)
	if err != nil {
		r.log.Warn("leases of deliveries before the restart not ended, they run out", "err", err)
	}
	if n > 0 {
		r.log.Info("leases of deliveries before the restart ended", "count", n)
	}
}

// dropLease gives back the lease of a claim that ended without a settlement.
// Should that fail, the lease runs out. The caller holds mu.
func (s *sub) dropLease(held *heldLease, principal string) {
	if held == nil {
		return
	}
	leases, log, name := s.r.leases, s.r.log, s.name
	s.r.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaseTrouble)
		defer cancel()
		err := leases.Release(ctx, &headgate.Principal{Name: principal}, "", held.token)
		if err != nil && headgate.CodeOf(err) != headgate.CodeLeaseLost {
			log.Warn("lease of a delivery not released, it will run out", "subscription", name, "resource", held.fence.Resource, "err", err)
		}
	})
}

// leasedBy is the fence that the end of a claim is guarded by.
func (c *claim) leasedBy() *lease.Fence {
	if c.held == nil {
		return nil
	}
	return &c.held.fence
}

// heldBy are the fences that a claim's children are written under.
func heldBy(c *claim) []*lease.Fence {
	if f := c.leasedBy(); f != nil {
		return []*lease.Fence{f}
	}
	return nil
}

// fenced reports whether an operation failed because its worker's lease is not
// current: only it does, and repeating it is no use.
func fenced(err error) bool {
	switch headgate.CodeOf(err) {
	case headgate.CodeStaleFence, headgate.CodeFenceConflict, headgate.CodeLeaseClosing, headgate.CodeLeaseExpired, headgate.CodeLeaseLost:
		return true
	}
	return false
}

// leasedClaims are the open claims under leases, by resource. A lease is of one
// claim at a time; of the one before, which lost it, only until it has ended.
type leasedClaims struct {
	mu  sync.Mutex
	all map[string][]leasedClaim
}

type leasedClaim struct {
	s     *sub
	c     *claim
	epoch int64
}

func (l *leasedClaims) add(s *sub, c *claim, f *lease.Fence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string][]leasedClaim{}
	}
	l.all[f.Resource] = append(l.all[f.Resource], leasedClaim{s, c, f.Epoch})
}

func (l *leasedClaims) drop(c *claim, resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := slices.DeleteFunc(l.all[resource], func(o leasedClaim) bool { return o.c == c })
	if len(left) == 0 {
		delete(l.all, resource)
		return
	}
	l.all[resource] = left
}

// superseded ends the claims whose lease has a lower epoch. What is being
// settled is left to its settlement.
func (l *leasedClaims) superseded(resource string, epoch int64) {
	l.mu.Lock()
	all := slices.Clone(l.all[resource])
	l.mu.Unlock()
	for _, x := range all {
		if x.epoch < epoch {
			x.s.mu.Lock()
			// A place that was given up before it was opened may have another
			// claim now.
			same := x.c.held != nil && x.c.held.fence.Resource == resource && x.c.held.fence.Epoch == x.epoch
			if same && !x.c.busy && !x.c.ended {
				x.s.supersede(x.c)
			}
			x.s.mu.Unlock()
		}
	}
}

// enterLeased makes a claim that is about to be opened end with its lease, and
// reports whether that has not ended already. The caller holds mu.
func (s *sub) enterLeased(c *claim, held *heldLease) bool {
	s.r.leased.add(s, c, &held.fence)
	// Whatever ended the lease before was noted before it looked for claims.
	if s.r.leases.Superseded(&held.fence) == nil {
		return true
	}
	s.r.leased.drop(c, held.fence.Resource)
	return false
}

// outcomeSuperseded ends an attempt whose lease was taken from its worker. It
// does not use up the subscription's attempts, like one that the node's end cut
// short.
const outcomeSuperseded = "lease_superseded"

// supersede ends a claim whose lease is superseded, and gives its delivery
// back to the queue. The caller holds mu.
func (s *sub) supersede(c *claim) {
	s.claims.end(c, outcomeSuperseded, Settled{})
	if c.interrupt != nil {
		c.interrupt(errSuperseded(c))
	}
	s.observe(s.r.observer.Settled, c.it, c.it.live.ev, outcomeSuperseded, "", 0)
	s.retryFree(c.it, s.r.now(), outcomeSuperseded, "the lease was taken from the worker")
}

func errSuperseded(c *claim) *headgate.Error {
	return headgate.NewError(headgate.CodeStaleFence, "The lease of the delivery, epoch %d of %q, was superseded.", c.held.fence.Epoch, c.held.fence.Resource)
}

// lostLease reports whether a claim's lease is known to be superseded.
func (s *sub) lostLease(c *claim) bool {
	return c.held != nil && (c.lost || s.r.leases.Superseded(&c.held.fence) != nil)
}

const (
	// inFlightWait is how long a settlement waits for transactions of its own
	// worker's, under the same lease, that are open in the store's database.
	inFlightWait = 5 * time.Second
	// inFlightPause is how long until it tries again.
	inFlightPause = 20 * time.Millisecond
)

// outwait repeats an operation that waits for a guarded write in flight, and
// reports whether it does. It does not hold others up. The caller holds mu.
func (s *sub) outwait(o *op, err error) bool {
	if !errors.Is(err, store.ErrGuarded) || s.stopped {
		return false
	}
	now := s.r.now()
	if o.until.IsZero() {
		o.until = now.Add(inFlightWait)
	}
	if !o.internal && (s.draining || !now.Before(o.until)) {
		return false
	}
	s.r.background.Go(func() {
		t := time.NewTimer(inFlightPause)
		defer t.Stop()
		<-t.C
		s.mu.Lock()
		defer s.mu.Unlock()
		s.submit(o)
	})
	return true
}

// errInFlight is what a settlement is told that waited for long enough.
func errInFlight(err error) error {
	return &headgate.Error{
		Code: headgate.CodeUnavailable, Outcome: headgate.NotApplied, RetryAfter: inFlightPause, Err: err,
		Detail: "A transaction under the delivery's lease is still open in the database of the node.",
		Fix:    "Commit it or roll it back, then settle again.",
	}
}
