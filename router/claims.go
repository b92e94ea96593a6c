package router

import (
	"container/heap"
	"context"
	"time"

	"github.com/headgate/headgate"
)

// claim is the right of one consumer to one attempt. Its id is unguessable.
type claim struct {
	id        string
	it        *item
	principal string
	attempt   int
	start     time.Time
	deadline  time.Time
	// busy is set while a settlement of it is being committed. Meanwhile the
	// claim cannot expire. Who waits for the end of that leaves a channel.
	busy  bool
	ended bool
	idle  chan struct{}
	held  *heldLease // nil: none
	// lost is set when the store refused its lease as superseded.
	lost bool
	// interrupt ends the context of the handler that works on it; nil: none.
	interrupt context.CancelCauseFunc
	// The neighbours in the table's order by deadline, while queued.
	prev, next *claim
	queued     bool
}

func (c *claim) lock() { c.busy = true }

func (c *claim) unlock() {
	c.busy = false
	if c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// whenIdle returns a channel that is closed when the claim is no longer busy.
func (c *claim) whenIdle() <-chan struct{} {
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

// claimTable holds the open claims of a subscription, and for a while the
// answers to the ended ones, so that a settlement repeated because its answer
// was lost gets the same answer.
type claimTable struct {
	leased *leasedClaims
	byID   map[string]*claim
	byTime claimList
	past   map[string]pastClaim
	order  []string // of past, oldest first; a ring once full
	oldest int
}

// pastClaim is how a claim ended.
type pastClaim struct {
	outcome string // ack, retry, reject, claim_expired or lease_superseded
	answer  Settled
	it      partID
	off     uint64
	attempt int
}

// maxPastClaims bounds the answers kept.
const maxPastClaims = 8192

func (t *claimTable) init(leased *leasedClaims) {
	t.leased = leased
	t.byID, t.past = map[string]*claim{}, map[string]pastClaim{}
}

// add opens a claim in the memory of c. One without an id belongs to a handler
// of this process: nobody else can settle it.
func (t *claimTable) add(c *claim, id string, it *item, principal string, now, deadline time.Time) {
	*c = claim{id: id, it: it, principal: principal, attempt: int(it.attempts), start: now, deadline: deadline}
	it.claim = c
	if id != "" {
		t.byID[id] = c
	}
	t.byTime.insert(c)
}

// end removes an open claim and remembers its answer.
func (t *claimTable) end(c *claim, outcome string, answer Settled) {
	t.byTime.remove(c)
	c.it.claim = nil
	c.ended = true
	if c.held != nil {
		t.leased.drop(c, c.held.fence.Resource)
	}
	if c.id == "" {
		return
	}
	delete(t.byID, c.id)
	if len(t.order) < maxPastClaims {
		t.order = append(t.order, c.id)
	} else {
		delete(t.past, t.order[t.oldest])
		t.order[t.oldest] = c.id
		t.oldest = (t.oldest + 1) % maxPastClaims
	}
	t.past[c.id] = pastClaim{
		outcome: outcome, answer: answer, it: partID{c.it.part.stream, c.it.part.partition}, off: c.it.off, attempt: c.attempt,
	}
}

// earliest returns the next deadline, zero when there is none.
func (t *claimTable) earliest() time.Time {
	if t.byTime.first == nil {
		return time.Time{}
	}
	return t.byTime.first.deadline
}

// answer returns what a settlement of a claim that is not open is told.
func (s *sub) answer(id, outcome string) Settled {
	past, ok := s.claims.past[id]
	switch {
	case !ok:
		return Settled{Claim: id, Err: headgate.NewError(headgate.CodeNotFound, "the claim is unknown: it never existed, ended long ago, or was given out before the node restarted")}
	case past.outcome == outcome:
		return past.answer
	case past.outcome == outcomeSuperseded:
		return Settled{Claim: id, Err: headgate.NewError(headgate.CodeStaleFence, "the lease of the delivery was taken away; the delivery is given out again")}
	case past.outcome != "claim_expired":
		return Settled{Claim: id, Err: headgate.NewError(headgate.CodeClaimSuperseded, "the claim was settled before as %s", past.outcome)}
	}
	if s.superseded(past.it.stream, headgate.Position{Partition: past.it.partition, Offset: past.off}, past.attempt) {
		return Settled{Claim: id, Err: headgate.NewError(headgate.CodeClaimSuperseded, "the claim ran out, and a newer one took the delivery over")}
	}
	return Settled{Claim: id, Err: headgate.NewError(headgate.CodeClaimExpired, "the claim ran out before it was settled")}
}

// expireClaims fails every attempt whose claim ran out.
func (s *sub) expireClaims(now time.Time) {
	for c := s.claims.byTime.first; c != nil && !c.deadline.After(now); c = s.claims.byTime.first {
		if c.busy { // reopen sees to it
			s.claims.byTime.remove(c)
			continue
		}
		s.expireClaim(c, now)
	}
}

// reopen returns a claim whose settlement did not take place. If its time ran
// out meanwhile it expires now.
func (s *sub) reopen(c *claim) {
	c.unlock()
	now := s.r.now()
	switch {
	case s.lostLease(c):
		s.supersede(c)
	case !c.deadline.After(now):
		s.expireClaim(c, now)
	case !c.queued:
		s.claims.byTime.insert(c)
		s.arm(c.deadline)
	}
}

func (s *sub) expireClaim(c *claim, now time.Time) {
	s.claims.end(c, "claim_expired", Settled{})
	s.dropLease(c.held, c.principal)
	s.observe(s.r.observer.Settled, c.it, c.it.live.ev, "claim_expired", "", 0)
	s.fail(c.it, failure{principal: c.principal, outcome: "claim_expired", text: "the claim ran out before it was settled"}, now)
}

// claimList orders claims by their deadline. All claims of a subscription last
// equally long, so that a new one belongs at the end.
type claimList struct{ first, last *claim }

func (l *claimList) insert(c *claim) {
	at := l.last
	for at != nil && at.deadline.After(c.deadline) {
		at = at.prev
	}
	c.queued, c.prev = true, at
	if at == nil {
		c.next, l.first = l.first, c
	} else {
		c.next, at.next = at.next, c
	}
	if c.next == nil {
		l.last = c
	} else {
		c.next.prev = c
	}
}

// remove takes a claim out, if it is in.
func (l *claimList) remove(c *claim) {
	if !c.queued {
		return
	}
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.queued, c.prev, c.next = false, nil, nil
}

// dueHeap orders stored items by when they are due.
type dueHeap []*item

func (h *dueHeap) push(it *item) {
	if it.heap < 0 {
		heap.Push((*dueOrder)(h), it)
	} else {
		heap.Fix((*dueOrder)(h), it.heap)
	}
}

func (h *dueHeap) remove(it *item) {
	if it.heap >= 0 {
		heap.Remove((*dueOrder)(h), it.heap)
	}
}

func (h dueHeap) earliest() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return h[0].due
}

type dueOrder []*item

func (h dueOrder) Len() int { return len(h) }
func (h dueOrder) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].off < h[j].off
	}
	return h[i].due.Before(h[j].due)
}

func (h dueOrder) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}

// Push implements heap.Interface.
func (h *dueOrder) Push(x any) {
	it := x.(*item)
	it.heap = len(*h)
	*h = append(*h, it)
}

// Pop implements heap.Interface.
func (h *dueOrder) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	it.heap = -1
	return it
}
