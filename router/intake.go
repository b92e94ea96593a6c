package router

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store"
)

// lost tells of events that the broker cannot read any more, and steps over
// them.
func (s *sub) lost(gap *broker.GapError) {
	s.r.log.Error("stored events cannot be read and are lost", "subscription", s.name, "stream", gap.Stream,
		"partition", gap.Partition, "from", gap.From, "to", gap.To, "err", gap.Err)
	s.stepOver(gap)
}

// stepOver counts unreadable events as trimmed, so that the floor can pass
// them. The report may come before events that stand ahead of the gap, and
// again after a new subscription.
func (s *sub) stepOver(gap *broker.GapError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partOf(gap.Stream, gap.Partition)
	p.counts.Trimmed += p.fill(gap.From, gap.To)
	if p.head >= gap.From && p.head < gap.To {
		s.advanceHead(p, gap.To)
	}
	s.dirty(p)
}

// accept takes deliveries of the broker in: what matches is queued, all else
// is done at once, in memory; the store learns of it with the next save. Own is
// the subscription's own reader, which is told; nil: they come from the shared
// feed, so that every offset that is left out is unmatched.
func (s *sub) accept(ctx context.Context, own broker.Subscription, stream string, batch []broker.Delivery, want []bool) error {
	for len(batch) > 0 {
		taken, acks, moved := s.acceptSome(stream, batch, want, own == nil)
		s.tellBroker(own, acks)
		batch, want = batch[taken:], want[taken:]
		if len(batch) == 0 {
			return nil
		}
		if err := stall(ctx, moved); err != nil {
			return err
		}
	}
	return nil
}

// stall waits until there may be room: too far ahead of the stored floor, too
// many exceptions, or too much in memory.
func stall(ctx context.Context, moved <-chan struct{}) error {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-moved:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// acceptSome takes as many deliveries as it may now. Moved is closed when more
// may be possible.
func (s *sub) acceptSome(stream string, batch []broker.Delivery, want []bool, shared bool) (taken int, acks []broker.Settlement, moved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathering = true
	defer s.gathered()
	room := 2 * s.r.buffer // the broker lost its subscription several times
	if shared {
		room = s.r.buffer
	}
	for i := range batch {
		d := &batch[i]
		p := s.partOf(stream, d.Position.Partition)
		if shared && !s.pass(p, d.Position.Offset) || !s.roomFor(p, d.Position.Offset, room) {
			return i, acks, s.floorMoved
		}
		if ack := s.acceptOne(p, d, want[i]); ack != 0 && !shared {
			acks = append(acks, broker.Settlement{Position: d.Position, Act: ack})
		}
	}
	return len(batch), acks, nil
}

// partOf returns a partition. One that was added to the stream starts at its
// first event.
func (s *sub) partOf(stream string, partition uint32) *part {
	p := s.parts[partID{stream, partition}]
	if p == nil {
		p = s.addPart(store.Progress{Subscription: s.name, Stream: stream, Partition: partition})
		s.dirty(p)
	}
	return p
}

// takeIn takes what a feed handed out in, waiting for room.
func (s *sub) takeIn(ctx context.Context, stream string, h handout) error {
	if h.lost != nil {
		s.stepOver(h.lost)
		return nil
	}
	for h.gone != nil || h.upto != nil {
		ok, moved := s.takeWord(stream, h, true)
		if ok {
			return nil
		}
		if err := stall(ctx, moved); err != nil {
			return err
		}
	}
	return s.accept(ctx, nil, stream, h.events, s.wants(h.events))
}

// takeWord takes in what a feed says of offsets, as far as it may now. With
// save the subscription saves it by itself.
func (s *sub) takeWord(stream string, h handout, save bool) (ok bool, moved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok = true
	for partition, to := range h.upto {
		ok = s.pass(s.partOf(stream, partition), to) && ok
	}
	if g := h.gone; g != nil {
		p := s.partOf(stream, g.partition)
		if ok = s.pass(p, g.from); ok && p.head < g.to {
			p.counts.Trimmed += p.fill(p.head, g.to)
			s.advanceHead(p, g.to)
			s.dirty(p)
		}
	}
	if save {
		s.dirtyAll()
	}
	return ok, s.floorMoved
}

// passAll is takeWord for a tide, which saves the progress of many
// subscriptions at once.
func (s *sub) passAll(stream string, upto map[uint32]uint64) bool {
	ok, _ := s.takeWord(stream, handout{upto: upto}, false)
	return ok
}

// pass steps over events that are not for the subscription, as far as it may
// now. Where nothing before them is open the floor follows, whatever the
// distance; else they are bits, of which there must not be too many.
func (s *sub) pass(p *part, to uint64) bool {
	if p.head >= to {
		return true
	}
	end := to
	if p.floor < p.head && !s.spanFor(p, to-1) {
		end = max(p.head, min(to, p.saved+dispatchSpan))
	}
	if p.head < end {
		p.counts.Unmatched += p.fill(p.head, end)
		s.advanceHead(p, end)
		p.dirty = true // a tide saves it, or what comes next
	}
	return end == to
}

// roomFor reports whether an event may be taken in now, of which room are in
// memory at most.
func (s *sub) roomFor(p *part, off uint64, room int) bool {
	if s.rows >= maxRows {
		if s.warn("rows", s.r.now()) {
			s.r.log.Error("too many events wait for a retry or behind a blocked key, reading stopped", "subscription", s.name, "exceptions", s.rows)
		}
		return false
	}
	return p.mem < room && s.spanFor(p, off)
}

// spanFor reports whether an offset is close enough to the stored floor. When
// it is not, what holds the floor back is moved on.
func (s *sub) spanFor(p *part, off uint64) bool {
	if p.floor > p.saved && off >= p.saved+dispatchSpan/2 {
		s.checkpoint() // early enough that reading need not wait for it
	}
	if off < p.saved+dispatchSpan {
		return true
	}
	if p.floor > p.saved {
		return false
	}
	s.evict(p, off)
	return false
}

// evict moves deliveries that have been in flight for long to the store, so
// that the floor can pass them.
func (s *sub) evict(p *part, off uint64) {
	for _, it := range p.items {
		if it.row || it.off+dispatchSpan/2 > off {
			continue
		}
		switch {
		case it.state == stWaiting:
			s.hold(it)
		case it.state == stInFlight && it.claim != nil && !it.claim.busy && !it.recorded:
			s.evictClaim(it)
		}
	}
}

// evictClaim records an attempt that is in progress, without ending it.
func (s *sub) evictClaim(it *item) {
	c := it.claim
	c.lock() // nothing else may end it meanwhile
	s.submit(&op{
		it: it, mark: true, put: s.row(it, store.ExceptionAttempt, int(it.attempts), c.deadline),
		act: broker.Drop, durable: true, internal: true,
		done: func(err error) {
			if err == nil {
				s.toRow(it)
			}
			s.reopen(c)
		},
	})
}

func (s *sub) acceptOne(p *part, d *broker.Delivery, want bool) broker.Act {
	off, ev := d.Position.Offset, d.Event
	if off < p.head {
		// Handed out again, by a new subscription or after a lost settlement.
		if it := p.items[off]; it != nil && !it.row {
			return 0
		}
		return broker.Ack
	}
	if n := p.fill(p.head, off); n > 0 { // removed before it was ever met
		p.counts.Trimmed += n
		s.dirty(p)
	}
	s.advanceHead(p, off+1)
	if p.isDone(off) {
		return broker.Ack
	}
	if !want {
		p.mark(off)
		p.counts.Unmatched++
		s.dirty(p)
		return broker.Ack
	}
	it := &item{part: p, off: off, state: stWaiting, live: &live{ev: ev}}
	s.addItem(it, ev.Key)
	s.place(it)
	return 0
}

// advanceHead moves the reading position. When it passes the last stored item
// of before the start, lanes that waited for unread predecessors may go.
func (s *sub) advanceHead(p *part, head uint64) {
	before := p.head
	p.head = head
	if before < p.catchUp && head >= p.catchUp {
		for _, it := range p.items {
			if it.row && it.isHead() {
				s.release(it)
			}
		}
	}
}

// place decides where a new item waits.
func (s *sub) place(it *item) {
	l := it.lane
	if l == nil {
		s.enqueue(it)
		return
	}
	if it.isHead() && !l.blocked {
		s.enqueue(it)
		return
	}
	n := len(l.queue)
	full := it.part.mem > s.r.buffer/2
	behind := false // a follower before it is in the store, so that it goes there too
	if n > 2 && l.queue[n-1] == it {
		prev := l.queue[n-2]
		behind = prev.row || prev.state == stSettling
	}
	if l.blocked || (l.failing() && (behind || n > laneMemory+1 || full)) {
		s.hold(it)
		return
	}
	if it.part.mem >= s.r.buffer*3/4 {
		s.arm(s.r.now().Add(time.Second)) // see relieve
	}
}

// relieve moves followers of keys whose head has been in flight for a second
// or more to the store, when they fill the memory of a partition, so that one
// slow key does not stop the others. Only followers of slow keys go: a key
// that is merely busy drains by itself.
func (s *sub) relieve(now time.Time) {
	for _, p := range s.parts {
		if p.mem < s.r.buffer*3/4 {
			continue
		}
		for _, it := range p.items {
			l := it.lane
			if l == nil || it.state != stWaiting || it.row {
				continue
			}
			if c := l.queue[0].claim; c != nil && now.Sub(c.start) >= time.Second {
				s.spill(l, 8)
			}
		}
	}
}

// maxMatches bounds a matcher's cache.
const maxMatches = 4096

// matcher decides what a subscription wants: by the type first, from a cache,
// and by the condition only for types that match. For one goroutine.
type matcher struct {
	plan  *plan
	types map[string]bool
}

func (m *matcher) wants(batch []broker.Delivery) []bool {
	out := make([]bool, len(batch))
	for i := range batch {
		out[i] = m.want(batch[i].Event)
	}
	return out
}

func (m *matcher) want(ev *headgate.Event) bool {
	ok, known := m.types[ev.Type]
	if !known {
		if len(m.types) >= maxMatches {
			clear(m.types)
		}
		ok = m.plan.takes(ev.Type)
		m.types[ev.Type] = ok
	}
	return ok && m.plan.meets(ev)
}

// wants decides on events whose types match.
func (s *sub) wants(batch []broker.Delivery) []bool {
	out := make([]bool, len(batch))
	for i := range batch {
		out[i] = s.plan.meets(batch[i].Event)
	}
	return out
}

// meets reports whether an event fulfils the condition.
func (p *plan) meets(ev *headgate.Event) bool {
	if p.when == nil {
		return true
	}
	matched, err := p.when.MatchOver(p.scope(ev))
	return matched && err == nil // an explanation evaluates it again
}
