package router

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/broker"
)

// feeds are the shared feeds of a router, one for each stream that has members.
// Locks are taken in this order: of feeds, of a feed, of a member, of a sub.
type feeds struct {
	mu       sync.Mutex
	byStream map[string]*feed
	running  sync.WaitGroup
	life     func() context.Context // of the router's run
}

// feed reads one stream once for all members: it finds those that take an
// event by its type, hands it to them, and does nothing for the others.
type feed struct {
	r      *Router
	stream string
	cancel context.CancelFunc

	mu      sync.Mutex
	next    map[uint32]uint64 // per partition, the offset that comes next
	index   typeIndex
	members map[*member]struct{}
	touched []*member // scratch of hand
	moved   uint64    // events since the last tide
	warned  time.Time
}

// join makes a subscription a member of a stream's feed, if the feed is not
// more than slack events ahead of the heads. It returns the member, which the
// caller runs, and the offsets that the subscription must have read to by
// itself before it takes in what the feed hands out; nil if it cannot join.
func (fs *feeds) join(s *sub, stream string, heads map[uint32]uint64, slack uint64) (*member, map[uint32]uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.byStream[stream]
	if f == nil {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if behind(heads, f.next) > slack {
		return nil, nil
	}
	m := &member{s: s, stream: stream, feed: f, running: true}
	f.members[m] = struct{}{}
	f.index.add(m)
	return m, maps.Clone(f.next)
}

// behind returns how many events heads are behind ends.
func behind(heads, ends map[uint32]uint64) (n uint64) {
	for p, end := range ends {
		n += max(end, heads[p]) - heads[p]
	}
	return n
}

// exists reports whether a stream has a feed.
func (fs *feeds) exists(stream string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.byStream[stream] != nil
}

// begin makes the feed of a stream that has none, at the given offsets. It
// reads once start is called, when its first members have joined, and ends when
// the last one leaves.
func (fs *feeds) begin(r *Router, stream string, from map[uint32]uint64) (start func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.byStream[stream] != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(fs.life())
	f := &feed{r: r, stream: stream, cancel: cancel, next: maps.Clone(from), members: map[*member]struct{}{}}
	fs.byStream[stream] = f
	began := make(chan struct{})
	fs.running.Go(func() {
		defer cancel()
		<-began
		if !fs.retireIdle(f) {
			f.run(ctx)
		}
	})
	return func() { close(began) }
}

// leave takes a member out. What it was handed, and up to where the feed came,
// stays in its queue.
func (fs *feeds) leave(m *member) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := m.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.members[m]; ok {
		m.offer(handout{upto: maps.Clone(f.next)})
		f.drop(m)
	}
	fs.retire(f)
}

// retire ends a feed without members. The caller holds both locks.
func (fs *feeds) retire(f *feed) {
	if len(f.members) == 0 && fs.byStream[f.stream] == f {
		delete(fs.byStream, f.stream)
		f.cancel()
	}
}

// all returns the feeds there are.
func (fs *feeds) all() []*feed {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Collect(maps.Values(fs.byStream))
}

func (f *feed) drop(m *member) {
	delete(f.members, m)
	f.index.remove(m)
}

// run reads until ctx ends. When the broker fails it subscribes again, from
// where it was.
func (f *feed) run(ctx context.Context) {
	backoff := time.Duration(0)
	for ctx.Err() == nil {
		err := f.read(ctx, func() { backoff = 0 })
		if ctx.Err() != nil {
			return
		}
		backoff = min(max(2*backoff, 50*time.Millisecond), 10*time.Second)
		if now := f.r.now(); now.Sub(f.warned) >= time.Minute {
			f.warned = now
			f.r.log.Error("stream not readable, trying again", "stream", f.stream, "err", err)
		}
		sleep(ctx, backoff)
	}
}

func (f *feed) read(ctx context.Context, good func()) error {
	f.mu.Lock()
	from := maps.Clone(f.next)
	f.mu.Unlock()
	sub, err := f.r.broker.Subscribe(ctx, broker.SubscribeSpec{Name: "feed", Stream: f.stream, From: from})
	if err != nil {
		return err
	}
	defer sub.Close()
	var acks []broker.Settlement
	for {
		batch, err := sub.Receive(ctx, receiveBatch)
		var gap *broker.GapError
		if errors.As(err, &gap) {
			f.lost(gap)
			continue
		}
		if err != nil {
			return err
		}
		good()
		if f.hand(batch) && f.r.feeds.retireIdle(f) {
			return nil
		}
		acks = acks[:0]
		for i := range batch {
			acks = append(acks, broker.Settlement{Position: batch[i].Position, Act: broker.Ack})
		}
		// Progress is the store's. When this is lost the broker would keep its
		// buffer full for ever: a new subscription begins where this one is.
		if err := sub.Settle(ctx, acks); err != nil {
			return err
		}
	}
}

// retireIdle ends a feed that has no members, and reports whether it did.
func (fs *feeds) retireIdle(f *feed) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	fs.retire(f)
	return len(f.members) == 0
}

// hand gives each event to the members that take its type. It reports whether
// no member is left.
func (f *feed) hand(batch []broker.Delivery) (empty bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lastType, list := "", []*member(nil)
	for i := range batch {
		at := batch[i].Position
		next := f.next[at.Partition]
		if at.Offset < next {
			continue // handed out before
		}
		if at.Offset > next {
			f.flush(batch)
			list = nil
			f.tellAll(handout{gone: &stretch{at.Partition, next, at.Offset}})
		}
		f.next[at.Partition] = at.Offset + 1
		if t := batch[i].Event.Type; list == nil || t != lastType {
			lastType, list = t, f.index.of(t)
		}
		for _, m := range list {
			if len(m.picked) == 0 {
				f.touched = append(f.touched, m)
			}
			m.picked = append(m.picked, int32(i))
		}
	}
	f.flush(batch)
	f.movedOn(uint64(len(batch)))
	return len(f.members) == 0
}

// movedOn sees to it that a tide comes.
func (f *feed) movedOn(n uint64) {
	if f.moved == 0 {
		f.r.tideDue()
	}
	f.moved += n
}

// flush hands out what was picked from a batch. A member that takes all of it
// shares it; another one would keep the rest in memory.
func (f *feed) flush(batch []broker.Delivery) {
	for i, m := range f.touched {
		f.touched[i] = nil
		events := batch
		if len(m.picked) < len(batch) {
			events = make([]broker.Delivery, len(m.picked))
			for k, at := range m.picked {
				events[k] = batch[at]
			}
		}
		m.picked = m.picked[:0]
		if !m.offer(handout{events: events}) {
			f.drop(m)
		}
	}
	f.touched = f.touched[:0]
}

// tellAll gives the same handout to every member.
func (f *feed) tellAll(h handout) {
	for m := range f.members {
		if !m.offer(h) {
			f.drop(m)
		}
	}
}

// lost steps over events that the broker cannot read any more.
func (f *feed) lost(gap *broker.GapError) {
	f.r.log.Error("stored events cannot be read and are lost", "stream", gap.Stream,
		"partition", gap.Partition, "from", gap.From, "to", gap.To, "err", gap.Err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if next := f.next[gap.Partition]; next >= gap.From && next < gap.To {
		f.next[gap.Partition] = gap.To
	}
	f.tellAll(handout{lost: gap})
	f.movedOn(1)
}

// turn returns up to where the feed came, and who its members are; none when it
// has passed fewer events than least since the last turn.
func (f *feed) turn(least uint64) (map[uint32]uint64, []*member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moved < least {
		return nil, nil
	}
	f.moved = 0
	return maps.Clone(f.next), slices.Collect(maps.Keys(f.members))
}

// passed returns up to where the feed came.
func (f *feed) passed() map[uint32]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.next)
}
