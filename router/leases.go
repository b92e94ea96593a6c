package router

import (
	"context"
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
			out = append(out, all[i])
		case headgate.CodeLeaseHeld:
			s.postpone(it, max(min(headgate.AsError(err).RetryAfter, leasePause), time.Millisecond))
		case headgate.CodeInvalidArgument:
			s.end(it, ender{
				kind: store.KindParked, end: endParked, reason: reasonLease, text: errText(err), internal: true, outcome: "parked",
			})
		default:
			if s.warn("lease", s.r.now()) {
				s.r.log.Error("lease of a delivery not acquired", "subscription", s.name, "position", it.pos().String(), "err", err)
			}
			s.postpone(it, leaseTrouble)
		}
	}
	return out
}

// reasonLease parks an event that names no resource that could be leased.
const reasonLease = "lease_unreadable"

func (s *sub) leaseOne(ctx context.Context, it *item, p *headgate.Principal) (*heldLease, error) {
	resource, err := s.plan.leaseOf.Eval(it.live.ev)
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "the resource to lease cannot be read from the event: %s", errText(err))
	}
	grants, err := s.r.leases.Acquire(ctx, p, lease.Request{
		Resources: []string{resource}, TTL: s.plan.claim + leaseSlack, Worker: clip("subscription "+s.name, 120),
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

// guardSettlement passes only while the settling worker's lease is current,
// and ends the lease in the same transaction.
func (s *sub) guardSettlement(ctx context.Context, tx *store.Tx, f *lease.Fence) (store.Lease, error) {
	if err := s.r.leases.Guard(ctx, tx, f); err != nil {
		return store.Lease{}, err
	}
	return s.r.leases.End(ctx, tx, f)
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
