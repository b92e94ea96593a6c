package natsbroker

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/eventcodec"
)

// Publish implements [broker.Publisher]. Whoever waits for the same partition
// shares a frame, and with it a sync of the disk.
func (b *Broker) Publish(ctx context.Context, name string, events []*headgate.Event) ([]broker.Result, error) {
	b.mu.RLock()
	closed, s := b.closed, b.streams[name]
	if !closed && s != nil {
		b.calls.Add(1)
	}
	b.mu.RUnlock()
	switch {
	case closed:
		return nil, broker.Closed()
	case s == nil:
		return nil, broker.NoStream(name)
	}
	defer b.calls.Done()
	c := newCall(s, events)
	select {
	case <-s.rebuilt:
	case <-ctx.Done():
	case <-b.life.Done():
	}
	if ctx.Err() == nil {
		c.run(ctx)
	}
	for i := range c.results {
		if c.results[i].Outcome == 0 {
			c.results[i] = broker.Unknown(cause(ctx, b.life))
		}
	}
	return c.results, nil
}

func cause(ctx, life context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if life.Err() != nil {
		return broker.ErrClosed
	}
	return fmt.Errorf("outcome unknown")
}

// call is one Publish call.
type call struct {
	s       *stream
	events  []*headgate.Event
	results []broker.Result
	ids     []digest
	recs    [][]byte
	open    []int // events without a result, in order
	// missing has, for each key, the first event that was not stored, or may
	// not have been: nothing behind it may be.
	missing map[string]int
}

// lacks notes that an event was not stored, or may not have been.
func (c *call) lacks(i int) {
	key := c.events[i].Key
	if key == "" {
		return
	}
	if first, ok := c.missing[key]; ok && first < i {
		return
	}
	if c.missing == nil {
		c.missing = map[string]int{}
	}
	c.missing[key] = i
}

// heldBack reports whether an event may not be stored any more by this call.
func (c *call) heldBack(i int) bool {
	first, ok := c.missing[c.events[i].Key]
	return ok && first < i
}

// twin is an event that somebody is storing already: its outcome follows.
type twin struct {
	event int
	place
}

func newCall(s *stream, events []*headgate.Event) *call {
	n := len(events)
	c := &call{
		s: s, events: events,
		results: make([]broker.Result, n), ids: make([]digest, n), recs: make([][]byte, n),
		open: make([]int, 0, n),
	}
	guess := 0
	for _, e := range events {
		guess += len(e.Data) + len(e.Header.Lineage) + 2*len(e.ID) + len(e.Source) + len(e.Type) + len(e.Subject) + len(e.DataSchema) + len(e.Key) + 128
	}
	limit := s.b.cfg.MaxEventBytes
	buf := make([]byte, 0, guess)
	for i, e := range events {
		start := len(buf)
		buf = eventcodec.Append(buf, e)
		if size := len(buf) - start; size > limit {
			c.results[i] = broker.TooLarge(size, limit)
			c.lacks(i)
			buf = buf[:start]
			continue
		}
		// When buf moves to a larger array, earlier records stay in the old
		// one, which lives as long as they do.
		c.recs[i] = buf[start:len(buf):len(buf)]
		c.ids[i] = digestOf(e.Source, e.ID)
		c.open = append(c.open, i)
	}
	return c
}

// run works until every event has a result, or ctx or the driver ends. An
// event whose twin failed is tried by itself, hence the loop.
func (c *call) run(ctx context.Context) {
	for len(c.open) > 0 {
		sub, mine, items, twins := c.register()
		if !c.submit(ctx, sub, mine, items) || !c.follow(ctx, sub, twins) {
			return
		}
	}
}

// register decides, for every open event, whether it is a duplicate, follows a
// twin, is ours to store, or has to wait for another round, since the outcome of
// a twin of its key comes first. mine lists the events of the submission.
func (c *call) register() (sub *submission, mine []int, items []*item, twins []twin) {
	b := c.s.b
	full, refuse := b.refusal()
	now := b.cfg.Now()
	m := c.s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	sub = &submission{done: make(chan struct{})}
	var later []int
	var waits map[string]struct{}
	for _, i := range c.open {
		d := c.ids[i]
		if at, ok := m.get(d, now); ok {
			c.results[i] = broker.Result{Outcome: broker.OutcomeDuplicate, Position: at}
			continue
		}
		if p, ok := m.pending[d]; ok {
			twins = append(twins, twin{i, p})
			// Behind a twin in the same frames order keeps itself.
			if key := c.events[i].Key; key != "" && (p.sub != sub || c.events[mine[p.i]].Key != key) {
				if waits == nil {
					waits = map[string]struct{}{}
				}
				waits[key] = struct{}{}
			}
			continue
		}
		if c.heldBack(i) {
			c.results[i] = broker.HeldBack()
			continue
		}
		if _, ok := waits[c.events[i].Key]; ok {
			later = append(later, i)
			continue
		}
		if refuse {
			c.results[i] = full
			c.lacks(i)
			continue
		}
		m.pending[d] = place{sub, len(mine)}
		mine = append(mine, i)
	}
	c.open = append(c.open[:0], later...)
	sub.results, sub.open = make([]broker.Result, len(mine)), len(mine)
	return sub, mine, c.s.deal(c, sub, mine), twins
}

// deal cuts a submission into one item for each partition. The caller holds
// the memory's lock.
func (s *stream) deal(c *call, sub *submission, mine []int) []*item {
	items := make([]*item, len(s.parts))
	keyless := 0
	for _, i := range mine {
		if c.events[i].Key == "" {
			keyless++
		}
	}
	if s.sticky.events+keyless > s.b.cfg.FrameEvents {
		s.turn()
	}
	for k, i := range mine {
		p := 0
		if key := c.events[i].Key; key != "" {
			p = int(broker.PartitionOf(key, len(s.parts)))
		} else {
			p = s.stick(len(c.recs[i]))
		}
		it := items[p]
		if it == nil {
			n := min(len(mine)-k, s.b.cfg.FrameEvents)
			it = &item{sub: sub, index: make([]int, 0, n), ids: make([]digest, 0, n), recs: make([][]byte, 0, n)}
			items[p] = it
		}
		it.index = append(it.index, k)
		it.ids = append(it.ids, c.ids[i])
		it.recs = append(it.recs, c.recs[i])
		it.bytes += len(c.recs[i])
	}
	return items
}

// stick returns the partition of an event without a key: the one that has its
// turn, until a frame is full. Frames fill, and partitions share the load.
func (s *stream) stick(size int) int {
	if s.sticky.events >= s.b.cfg.FrameEvents || s.sticky.bytes+size > s.b.cfg.FrameBytes {
		s.turn()
	}
	s.sticky.events++
	s.sticky.bytes += size
	return s.sticky.at
}

func (s *stream) turn() {
	s.sticky.at = (s.sticky.at + 1) % len(s.parts)
	s.sticky.events, s.sticky.bytes = 0, 0
}

// submit hands the items to the writers and waits for their outcomes. It
// reports whether all came.
func (c *call) submit(ctx context.Context, sub *submission, mine []int, items []*item) bool {
	if len(mine) == 0 {
		close(sub.done)
		return true
	}
	for p, it := range items {
		if it == nil {
			continue
		}
		part := c.s.parts[p]
		if err := part.queue.push(ctx, c.s.b.life, it); err != nil {
			part.refuse(chunk{it, 0, len(it.recs)}, broker.Throttled(headgate.CodeOverloaded, "the event waited for its turn to be stored until %v", err))
		}
	}
	var results []broker.Result
	select {
	case <-sub.done:
		results = sub.results
	case <-ctx.Done():
		results = sub.leave()
	case <-c.s.b.life.Done():
		results = sub.leave()
	}
	for k, i := range mine {
		if c.results[i] = results[k]; results[k].Outcome != broker.OutcomeStored && results[k].Outcome != broker.OutcomeDuplicate {
			c.lacks(i)
		}
	}
	select {
	case <-sub.done:
		return true
	default:
		return false
	}
}

// follow waits for the outcomes of twins. Those that were stored make
// duplicates; those that were not leave the event open, to be tried again, or
// share their failure when they are of this very call.
func (c *call) follow(ctx context.Context, sub *submission, twins []twin) bool {
	for _, t := range twins {
		select {
		case <-t.sub.done:
		case <-ctx.Done():
			return false
		case <-c.s.b.life.Done():
			return false
		}
		switch r := t.sub.results[t.i]; {
		case r.Outcome == broker.OutcomeStored || r.Outcome == broker.OutcomeDuplicate:
			c.results[t.event] = broker.Result{Outcome: broker.OutcomeDuplicate, Position: r.Position}
		case t.sub == sub || r.Outcome == broker.OutcomeUnknown:
			c.results[t.event] = r
			c.lacks(t.event)
		default:
			c.open = append(c.open, t.event)
		}
	}
	slices.Sort(c.open)
	return true
}
