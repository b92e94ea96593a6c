package router

import "github.com/headgate/headgate/broker"

// ack is the plain end of an attempt: acknowledged, and nothing else to be
// saved with it than that it is done. Most events end so; those that end at the
// same time are one operation.
type ack struct {
	c *claim
	// then runs with mu held when the claim is settled, or with the error;
	// nil for a handler, which is not told.
	then func(error)
}

// plain reports whether nothing but the progress row changes when the claim is
// acknowledged without children.
func (c *claim) plain() bool { return !c.it.row && c.held == nil }

// maxAcks bounds the acks of one operation.
const maxAcks = 1024

// ack queues the end of a locked claim. Internal ones, of handlers, give their
// place among the deliveries in flight back at once; the caller signals.
func (s *sub) ack(a ack, internal bool) {
	a.c.it.state = stSettling
	if internal {
		s.inFlight--
		s.uncommit++
	}
	if n := len(s.ops); n > 0 && !s.stopped {
		if o := s.ops[n-1]; len(o.acks) > 0 && len(o.acks) < maxAcks && o.internal == internal {
			o.acks = append(o.acks, a)
			return
		}
	}
	o := &op{acks: append(make([]ack, 0, 64), a), internal: internal, durable: s.plan.Dedupe == DedupeDurable}
	o.done = func(err error) { s.afterAcks(o.acks, internal, err) }
	s.submit(o)
}

// applyAcks makes progress in memory follow what was saved, and gathers what
// the broker is to be told. Without saved it is ahead of the store.
func (s *sub) applyAcks(acks []ack, saved bool, acts map[string][]broker.Settlement) {
	stream, list := "", []broker.Settlement(nil)
	for _, a := range acks {
		it := a.c.it
		it.part.mark(it.off)
		it.part.counts.Settled++
		if !saved {
			s.dirty(it.part)
		}
		if it.part.stream != stream {
			if list != nil {
				acts[stream] = list
			}
			stream, list = it.part.stream, acts[it.part.stream]
		}
		if s.own[stream] != nil {
			list = append(list, broker.Settlement{Position: it.pos(), Act: broker.Ack})
		}
	}
	if list != nil {
		acts[stream] = list
	}
}

// afterAcks makes memory follow the end of the attempts, or its failure.
func (s *sub) afterAcks(acks []ack, internal bool, err error) {
	for _, a := range acks {
		it := a.c.it
		if internal {
			s.uncommit--
		}
		switch {
		case err != nil && internal:
			s.inFlight++
			it.state = stInFlight
			s.reopen(a.c)
		case err != nil:
			it.state = stInFlight
			a.then(err)
		default:
			if !internal {
				s.inFlight--
			}
			s.observe(s.r.observer.Settled, it, it.live.ev, OutcomeAck, "", 0)
			s.dropItem(it)
			if a.then != nil {
				a.then(nil)
				continue
			}
			a.c.unlock()
			s.claims.end(a.c, OutcomeAck, Settled{})
		}
	}
	s.signal()
}
