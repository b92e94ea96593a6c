package router

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/internal/eventcodec"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/store"
)

// Bounds of one call.
const (
	// MaxPull is the largest number of deliveries of one Pull.
	MaxPull = 1000
	// MaxWait is the longest wait of one Pull.
	MaxWait = 5 * time.Minute
	// MaxSettle is the largest number of settlements of one Settle.
	MaxSettle = 1000
)

// Settle outcomes.
const (
	OutcomeAck    = "ack"
	OutcomeRetry  = "retry"
	OutcomeReject = "reject"
)

// Delivery is one event handed to a consumer under a claim.
type Delivery struct {
	Event    *headgate.Event // shared: do not modify
	Stream   string
	Position headgate.Position
	// Claim is unguessable; who holds it and may use the subscription may
	// settle it.
	Claim   string
	Attempt int // from 1
	// Deadline is when the claim ends; unsettled by then, the attempt failed.
	Deadline time.Time
	// Lease is what the delivery is worked on under; nil when the subscription
	// asks for none.
	Lease *DeliveryLease

	sub       *sub
	principal string
}

// Cause returns a causal token of the delivery. It is minted at each call and
// lives from then on.
func (d *Delivery) Cause() string { return d.sub.r.mint(d.sub.delivered(d, d.principal)) }

// Settlement is what a consumer says of one claim.
type Settlement struct {
	Claim   string
	Outcome string           // ack, retry or reject
	Delay   time.Duration    // with retry; 0: by the subscription's backoff
	Reason  string           // kept in the history, clipped
	Emit    []perimeter.Item // children, with ack only
}

// Settled is the answer to one settlement.
type Settled struct {
	Claim string
	// Err is nil when the claim is settled. With a refusal of emitted events
	// that can be mended, the claim stays open and Emitted has the reports.
	Err     *headgate.Error
	Emitted []perimeter.Result
}

// Pull returns up to limit deliveries, waiting up to wait for the first. It
// returns none when nothing came. The principal must be the subscription's and
// allowed to listen to all its types, or hold the role developer. Errors:
// not_found, forbidden, type_not_allowed, invalid_argument, draining,
// unavailable.
func (r *Router) Pull(ctx context.Context, p *headgate.Principal, name string, limit int, wait time.Duration) ([]Delivery, error) {
	s, err := r.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.background.Done()
	if err := s.mayConsume(p); err != nil {
		return nil, err
	}
	if s.plan.Deliver.Handler != nil {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "subscription %s delivers to a handler of the node, not by pull", name)
	}
	if limit < 1 || limit > MaxPull || wait < 0 {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "max must be 1 to %d and wait not negative", MaxPull)
	}
	s.active(1)
	defer s.active(-1)
	waiting, cancel := context.WithTimeout(ctx, max(min(wait, MaxWait), time.Millisecond))
	defer cancel()
	for {
		items := s.next(waiting, limit)
		if len(items) == 0 {
			if s.isDraining() {
				return nil, headgate.NewError(headgate.CodeDraining, "subscription %s is stopping", name)
			}
			return nil, nil
		}
		out, err := s.dispatch(ctx, items, p)
		if len(out) > 0 || err != nil {
			return out, err
		}
	}
}

// dispatch prepares and claims items that were taken. When the caller goes
// away meanwhile, they are given back.
func (s *sub) dispatch(ctx context.Context, items []*item, p *headgate.Principal) ([]Delivery, error) {
	ready := make(chan []leased, 1)
	s.r.background.Go(func() {
		ctx := context.WithoutCancel(ctx)
		ready <- s.leaseItems(ctx, s.prepare(ctx, items), p)
	})
	var got []leased
	select {
	case got = <-ready:
	case <-ctx.Done():
		s.r.background.Go(func() { s.giveBackLeased(<-ready, p.Name) })
		return nil, headgate.NewError(headgate.CodeCanceled, "the caller went away: %v", ctx.Err())
	}
	if ctx.Err() != nil {
		s.giveBackLeased(got, p.Name)
		return nil, headgate.NewError(headgate.CodeCanceled, "the caller went away: %v", ctx.Err())
	}
	out, _ := s.claimItems(got, p.Name, true)
	return out, nil
}

// giveBackLeased returns items that were taken but not dispatched, and their
// leases.
func (s *sub) giveBackLeased(all []leased, principal string) {
	items := make([]*item, len(all))
	s.mu.Lock()
	for i, l := range all {
		items[i] = l.it
		s.dropLease(l.held, principal)
	}
	s.mu.Unlock()
	s.giveBack(items)
}

// mayConsume checks the right to pull and settle.
func (s *sub) mayConsume(p *headgate.Principal) error {
	switch {
	case p == nil:
		return headgate.NewError(headgate.CodeForbidden, "no principal")
	case p.Can(headgate.RoleDeveloper):
		return nil
	case p.Disabled || p.Name != s.plan.As:
		return &headgate.Error{
			Code: headgate.CodeForbidden, Detail: "subscription " + s.name + " belongs to another principal",
			Fix: "Use a subscription of your own, or ask for the role developer.",
		}
	}
	for _, t := range s.plan.Types {
		if !p.MayListen(t) {
			return headgate.NewError(headgate.CodeTypeNotAllowed, "principal %s may not listen to %s", p.Name, t)
		}
	}
	return nil
}

// settling is one settlement on its way.
type settling struct {
	index int
	c     *claim
	in    Settlement
	batch *perimeter.Batch
	out   Settled
}

// Settle ends claims. Each is settled with its emitted children in one store
// transaction, or not at all. The answers come in input order. Repeating a
// settlement whose answer was lost gives the same answer. The error is about
// the call as a whole: not_found, forbidden, type_not_allowed,
// invalid_argument, unavailable.
func (r *Router) Settle(ctx context.Context, p *headgate.Principal, name string, settle []Settlement) ([]Settled, error) {
	s, err := r.open(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.mayConsume(p); err != nil {
		return nil, err
	}
	if len(settle) > MaxSettle {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "%d settlements, at most %d at once", len(settle), MaxSettle)
	}
	if s.plan.Deliver.Handler != nil {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "subscription %s delivers to a handler of the node, which settles by returning", name)
	}
	out := make([]Settled, len(settle))
	var open []*settling
	named := make(map[string]bool, len(settle))
	for i, in := range settle {
		bad := checkSettlement(in)
		if bad == nil && named[in.Claim] {
			bad = headgate.NewError(headgate.CodeInvalidArgument, "the claim is named twice in one call")
		}
		named[in.Claim] = true
		if bad != nil {
			out[i] = Settled{Claim: in.Claim, Err: bad}
			continue
		}
		c, answer, err := s.lockClaim(ctx, in.Claim, in.Outcome)
		if err != nil {
			answer = Settled{Claim: in.Claim, Err: err}
		}
		if c == nil {
			out[i] = answer
			continue
		}
		x := &settling{index: i, c: c, in: in, out: Settled{Claim: in.Claim}}
		if s.admit(ctx, p, x) {
			open = append(open, x)
		} else {
			out[i] = x.out
		}
	}
	s.settleAll(ctx, p.Name, open)
	for _, x := range open {
		out[x.index] = x.out
	}
	return out, nil
}

func checkSettlement(in Settlement) *headgate.Error {
	switch {
	case in.Outcome != OutcomeAck && in.Outcome != OutcomeRetry && in.Outcome != OutcomeReject:
		return headgate.NewError(headgate.CodeInvalidArgument, "outcome %.40q, want ack, retry or reject", in.Outcome)
	case in.Outcome != OutcomeAck && len(in.Emit) > 0:
		return headgate.NewError(headgate.CodeInvalidArgument, "emit goes with the outcome ack only")
	case in.Delay < 0 || (in.Delay > 0 && in.Outcome != OutcomeRetry):
		return headgate.NewError(headgate.CodeInvalidArgument, "delay must not be negative and goes with the outcome retry only")
	}
	return nil
}

// lockClaim finds an open claim and keeps it from ending otherwise. When it is
// not open, the answer is what its settlement is told.
func (s *sub) lockClaim(ctx context.Context, id, outcome string) (*claim, Settled, *headgate.Error) {
	for {
		s.mu.Lock()
		c := s.claims.byID[id]
		if c == nil {
			answer := s.answer(id, outcome)
			s.mu.Unlock()
			return nil, answer, nil
		}
		if !c.busy {
			now := s.r.now()
			if !c.deadline.After(now) {
				s.expireClaim(c, now)
				s.mu.Unlock()
				continue
			}
			c.lock()
			s.mu.Unlock()
			return c, Settled{}, nil
		}
		busy := c.whenIdle()
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, Settled{}, headgate.NewError(headgate.CodeCanceled, "the caller went away: %v", ctx.Err())
		}
	}
}

// admit passes the emitted children through the perimeter. It reports false
// when the settlement ends here: a refusal that can be mended leaves the claim
// open.
func (s *sub) admit(ctx context.Context, p *headgate.Principal, x *settling) bool {
	refusal := s.tryChildren(ctx, p, x)
	if refusal == nil {
		return true
	}
	x.out.Err = refusal
	s.mu.Lock()
	s.reopen(x.c)
	s.mu.Unlock()
	return false
}

// tryChildren prepares the children of a settlement. A causal refusal lets the
// settlement go on; the first of any other kind comes back, and nothing stays
// reserved.
func (s *sub) tryChildren(ctx context.Context, p *headgate.Principal, x *settling) *headgate.Error {
	if len(x.in.Emit) == 0 {
		return nil
	}
	it := x.c.it
	x.batch = s.r.prepare(ctx, perimeter.Submission{
		Principal: p, Door: "router", Items: x.in.Emit,
		Causes: []*causal.Cause{s.r.causeOf(causal.Delivered{
			Event: it.live.ev, Stream: it.part.stream, Position: it.pos(), Subscription: s.name, Principal: p.Name, Attempt: x.c.attempt,
		})},
		Held: heldBy(x.c),
	})
	x.out.Emitted = x.batch.Results
	for i := range x.batch.Results {
		if e := x.batch.Results[i].Err; e != nil && !perimeter.Causal(e.Code) {
			x.batch.Release()
			x.batch = nil
			return e
		}
	}
	return nil
}

// settleAll commits settlements whose claims are locked, and waits.
func (s *sub) settleAll(ctx context.Context, principal string, open []*settling) {
	if len(open) == 0 {
		return
	}
	left, all := len(open), make(chan struct{})
	s.mu.Lock()
	now := s.r.now()
	for _, x := range open {
		s.settleOne(x, principal, now, false, func() {
			if left--; left == 0 {
				close(all)
			}
		})
	}
	s.mu.Unlock()
	// The outcome is always waited for: the committer ends every operation,
	// and a caller who went away cannot take a commit back.
	<-all
}

// settleOne queues the end of one attempt. Then runs with mu held when the
// answer in x.out is final.
func (s *sub) settleOne(x *settling, principal string, now time.Time, internal bool, then func()) {
	it := x.c.it
	answered := func(err error) { s.answered(x, err); then() }
	switch x.in.Outcome {
	case OutcomeAck:
		if x.batch == nil && x.c.plain() {
			s.ack(ack{x.c, answered}, internal)
			return
		}
		e := ender{
			end: endSettled, outcome: OutcomeAck, outbox: childRows(x.batch), internal: internal, async: internal,
			answered: answered, fence: x.c.leasedBy(),
		}
		if it.row && it.live != nil { // its tombstone keeps the attempts
			e.undo = it.live.closing(now, principal, OutcomeAck, "")
		}
		s.end(it, e)
	default:
		text := clip(x.in.Reason, 1024)
		s.fail(it, failure{
			principal: principal, outcome: x.in.Outcome, text: text, delay: x.in.Delay, answered: answered, internal: internal, fence: x.c.leasedBy(),
		}, now)
	}
}

// answered ends the claim of a committed settlement, or opens it again.
func (s *sub) answered(x *settling, err error) {
	if err != nil {
		switch {
		case x.batch == nil:
		case uncertain(err): // gas may be stranded, never minted
			x.batch.Commit()
		default:
			x.batch.Release()
		}
		x.out.Emitted = nil
		switch headgate.CodeOf(err) {
		case headgate.CodeStaleFence, headgate.CodeFenceConflict:
			x.c.lost = true
		}
		if x.out.Err = headgate.AsError(err); x.out.Err == nil {
			x.out.Err = &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the settlement could not be stored", Err: err}
		}
		s.reopen(x.c)
		return
	}
	if x.batch != nil {
		x.batch.Commit()
	}
	x.c.unlock()
	s.claims.end(x.c, x.in.Outcome, x.out)
}

// childRows encodes the admitted children for the node outbox. Duplicates are
// in their stream already.
func childRows(b *perimeter.Batch) []store.OutboxRow {
	if b == nil {
		return nil
	}
	rows := make([]store.OutboxRow, 0, len(b.Results))
	for i := range b.Results {
		if res := &b.Results[i]; res.Err == nil && !res.Duplicate {
			rows = append(rows, store.OutboxRow{Stream: res.Stream, Event: eventcodec.Append(nil, res.Event)})
		}
	}
	return slices.Clip(rows)
}

func (s *sub) delivered(d *Delivery, principal string) causal.Delivered {
	return causal.Delivered{
		Event: d.Event, Stream: d.Stream, Position: d.Position, Subscription: s.name, Principal: principal, Attempt: d.Attempt,
	}
}

func (s *sub) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}
