package router

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store"
)

// receiveBatch bounds what one Receive returns.
const receiveBatch = 512

// runFeed reads one stream until ctx ends. When the broker fails it subscribes
// again, from where it was: what is in memory stays there.
func (s *sub) runFeed(ctx context.Context, stream string) {
	backoff := time.Duration(0)
	for ctx.Err() == nil {
		err := s.feed(ctx, stream, func() { backoff = 0 })
		if ctx.Err() != nil {
			return
		}
		backoff = min(max(2*backoff, 50*time.Millisecond), 10*time.Second)
		s.mu.Lock()
		warn := s.warn("feed", s.r.now())
		s.mu.Unlock()
		if warn {
			s.r.log.Error("stream not readable, trying again", "subscription", s.name, "stream", stream, "err", err)
		}
		sleep(ctx, backoff)
	}
}

func (s *sub) feed(ctx context.Context, stream string, good func()) error {
	from := map[uint32]uint64{}
	s.mu.Lock()
	for id, p := range s.parts {
		if id.stream == stream {
			from[id.partition] = p.head
		}
	}
	s.mu.Unlock()
	sub, err := s.r.broker.Subscribe(ctx, broker.SubscribeSpec{Name: s.name, Stream: stream, From: from, Buffer: s.r.buffer})
	if err != nil {
		return err
	}
	defer sub.Close()
	s.mu.Lock()
	s.feeds[stream] = sub
	s.mu.Unlock()
	m := matcher{plan: s.plan, types: map[string]bool{}}
	for {
		batch, err := sub.Receive(ctx, receiveBatch)
		var gap *broker.GapError
		if errors.As(err, &gap) {
			s.lost(gap)
			continue
		}
		if err != nil {
			return err
		}
		good()
		if err := s.accept(ctx, sub, stream, batch, m.wants(batch)); err != nil {
			return err
		}
	}
}

// lost steps over events that the broker cannot read any more. They count as
// trimmed, so that the floor can pass them. The report may come before events
// that stand ahead of the gap, and again after a new subscription.
func (s *sub) lost(gap *broker.GapError) {
	s.r.log.Error("stored events cannot be read and are lost", "subscription", s.name, "stream", gap.Stream,
		"partition", gap.Partition, "from", gap.From, "to", gap.To, "err", gap.Err)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[partID{gap.Stream, gap.Partition}]
	if p == nil {
		p = s.addPart(store.Progress{Subscription: s.name, Stream: gap.Stream, Partition: gap.Partition})
	}
	for off := max(gap.From, p.floor); off < gap.To; off++ {
		if p.mark(off) {
			p.counts.Trimmed++
		}
	}
	if p.head >= gap.From && p.head < gap.To {
		s.advanceHead(p, gap.To)
	}
	s.dirty(p)
}

// accept takes deliveries of the broker in: what matches is queued, all else
// is done at once, in memory; the store learns of it with the next save.
func (s *sub) accept(ctx context.Context, feed broker.Subscription, stream string, batch []broker.Delivery, want []bool) error {
	for len(batch) > 0 {
		taken, acks, moved := s.acceptSome(stream, batch, want)
		s.tellBroker(feed, acks)
		batch, want = batch[taken:], want[taken:]
		if len(batch) == 0 {
			return nil
		}
		t := time.NewTimer(time.Second)
		select { // too far ahead of the stored floor, or too many exceptions
		case <-moved:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// acceptSome takes as many deliveries as it may now. Moved is closed when more
// may be possible.
func (s *sub) acceptSome(stream string, batch []broker.Delivery, want []bool) (taken int, acks []broker.Settlement, moved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathering = true
	defer s.gathered()
	for i := range batch {
		d := &batch[i]
		p := s.parts[partID{stream, d.Position.Partition}]
		if p == nil { // a partition added to the stream: it starts at its first event
			p = s.addPart(store.Progress{Subscription: s.name, Stream: stream, Partition: d.Position.Partition})
			s.dirty(p)
		}
		if !s.roomFor(p, d.Position.Offset) {
			return i, acks, s.floorMoved
		}
		if ack := s.acceptOne(p, d, want[i]); ack != 0 {
			acks = append(acks, broker.Settlement{Position: d.Position, Act: ack})
		}
	}
	return len(batch), acks, nil
}

// roomFor reports whether an event may be taken in now. When it may not, what
// holds the floor back is moved on.
func (s *sub) roomFor(p *part, off uint64) bool {
	if s.rows >= maxRows {
		if s.warn("rows", s.r.now()) {
			s.r.log.Error("too many events wait for a retry or behind a blocked key, reading stopped", "subscription", s.name, "exceptions", s.rows)
		}
		return false
	}
	if p.mem >= 2*s.r.buffer { // the broker lost its subscription several times
		return false
	}
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
	for gap := p.head; gap < off; gap++ { // removed before it was ever met
		if p.mark(gap) {
			p.counts.Trimmed++
			s.dirty(p)
		}
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
	if !ok || m.plan.when == nil {
		return ok
	}
	matched, err := m.plan.when.MatchOver(m.plan.scope(ev))
	return matched && err == nil // an explanation evaluates it again
}

// takes reports whether some pattern of the subscription takes the type.
func (p *plan) takes(eventType string) bool {
	for _, t := range p.Types {
		if headgate.MatchType(t, eventType) {
			return true
		}
	}
	return false
}
