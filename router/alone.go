package router

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/broker"
)

const (
	// receiveBatch bounds what one Receive returns.
	receiveBatch = 512
	// joinSlack is how many events a subscription that reads by itself may be
	// behind the feed to become a member: it reads them while the feed hands
	// out what comes next.
	joinSlack = 4 * receiveBatch
	// startSlack is how many events behind the end of a stream a feed may
	// begin, so that subscriptions that stand there read them once together.
	startSlack = 1 << 18
	// lookMin and lookMax are how often a reader at the end of its stream
	// looks whether it can join.
	lookMin, lookMax = 100 * time.Millisecond, 5 * time.Second
)

// attach makes subscriptions read a stream: as members of its feed those that
// stand near its end, by themselves all others.
func (r *Router) attach(ctx context.Context, stream string, subs []*sub) {
	ends := map[uint32]uint64{}
	stats, err := r.broker.Stat(ctx, stream)
	for _, st := range stats {
		ends[st.Partition] = st.Next
	}
	var near []*sub
	from := map[uint32]uint64{}
	for _, s := range subs {
		heads := s.heads(stream)
		if err != nil || behind(heads, ends) > startSlack {
			continue
		}
		for p := range ends {
			if at, ok := from[p]; !ok || heads[p] < at {
				from[p] = heads[p]
			}
		}
		near = append(near, s)
	}
	if len(near) > 0 {
		defer r.feeds.begin(r, stream, from)()
	}
	for _, s := range subs {
		m, _ := r.feeds.join(s, stream, s.heads(stream), 0)
		if m != nil {
			s.member(stream, m)
		}
		s.spawn(func(ctx context.Context) { s.runStream(ctx, stream, m) })
	}
}

// heads returns how far a subscription has read the partitions of a stream.
func (s *sub) heads(stream string) map[uint32]uint64 {
	heads := map[uint32]uint64{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.parts {
		if id.stream == stream {
			heads[id.partition] = p.head
		}
	}
	return heads
}

// relaxed reports whether little of a stream is in memory.
func (s *sub) relaxed(stream string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.parts {
		if id.stream == stream && p.mem > s.r.buffer/2 {
			return false
		}
	}
	return true
}

// member notes which feed a subscription is in; nil: it reads by itself.
func (s *sub) member(stream string, m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m == nil {
		delete(s.members, stream)
		return
	}
	s.members[stream] = m
}

// runStream reads a stream until ctx ends: by itself without a member, and
// again whenever the member's queue was full. It returns when there is nothing
// to take in; the member starts it again.
func (s *sub) runStream(ctx context.Context, stream string, m *member) {
	for {
		if m == nil {
			if m = s.alone(ctx, stream); m == nil {
				return
			}
		}
		for {
			h, ok, out := m.first()
			if !ok && !out {
				return
			}
			if !ok {
				break
			}
			if s.takeIn(ctx, stream, h) != nil {
				m.breakOff()
				return
			}
			m.done()
		}
		s.r.log.Debug("subscription falls behind and reads by itself", "subscription", s.name, "stream", stream)
		s.r.went.alone.Add(1)
		s.member(stream, nil)
		m = nil
	}
}

// alone reads one stream until the subscription can join the feed, and returns
// the member; nil when ctx ends. When the broker fails it subscribes again, from
// where it was: what is in memory stays there.
func (s *sub) alone(ctx context.Context, stream string) *member {
	j := joining{s: s, stream: stream, look: lookMin}
	backoff := time.Duration(0)
	for ctx.Err() == nil {
		joined, err := s.readAlone(ctx, &j, func() { backoff = 0 })
		if joined {
			s.r.went.joined.Add(1)
			return j.m
		}
		if ctx.Err() != nil {
			break
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
	if j.m != nil {
		s.r.feeds.leave(j.m)
	}
	return nil
}

func (s *sub) readAlone(ctx context.Context, j *joining, good func()) (joined bool, err error) {
	stream := j.stream
	own, err := s.r.broker.Subscribe(ctx, broker.SubscribeSpec{Name: s.name, Stream: stream, From: s.heads(stream), Buffer: s.r.buffer})
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.own[stream] = own
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.own, stream)
		s.mu.Unlock()
		err = errors.Join(err, own.Close())
	}()
	m := matcher{plan: s.plan, types: map[string]bool{}}
	for {
		batch, err := j.receive(ctx, own)
		var gap *broker.GapError
		if errors.As(err, &gap) {
			s.lost(gap)
			continue
		}
		if err != nil {
			return false, err
		}
		good()
		if err := s.accept(ctx, own, stream, batch, m.wants(batch)); err != nil {
			return false, err
		}
		if j.try(ctx, len(batch)) {
			return true, nil
		}
	}
}

// joining is the way of a subscription that reads by itself into the feed.
type joining struct {
	s      *sub
	stream string
	m      *member           // handed to already, not taken in yet
	at     map[uint32]uint64 // where what the member is handed begins
	short  bool              // the last batch: the end is near
	look   time.Duration     // how long to wait for the next one
	asked  time.Time         // when the broker was asked for the end
}

// receive is Receive; at the end of the stream it returns nothing after a
// while.
func (j *joining) receive(ctx context.Context, own broker.Subscription) ([]broker.Delivery, error) {
	if !j.short {
		return own.Receive(ctx, receiveBatch)
	}
	bound, cancel := context.WithTimeout(ctx, j.look)
	defer cancel()
	batch, err := own.Receive(bound, receiveBatch)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		j.look = min(2*j.look, lookMax)
		return nil, nil
	}
	j.look = lookMin
	return batch, err
}

// try reports whether the subscription has read up to where its member begins.
// It makes it one when it is near enough, and has room.
func (j *joining) try(ctx context.Context, n int) bool {
	j.short = n < receiveBatch
	if j.m != nil && j.m.isOut() {
		j.m = nil
	}
	if j.m == nil {
		if !j.s.relaxed(j.stream) {
			return false
		}
		if !j.s.r.feeds.exists(j.stream) {
			start := j.begin(ctx)
			if start == nil {
				return false
			}
			defer start()
		}
		if j.m, j.at = j.s.r.feeds.join(j.s, j.stream, j.s.heads(j.stream), joinSlack); j.m == nil {
			return false
		}
	}
	if behind(j.s.heads(j.stream), j.at) > 0 && !j.s.r.joinEarly {
		return false
	}
	j.s.member(j.stream, j.m)
	return true
}

// begin makes a feed that begins where the subscription stands, when that is
// near the end of the stream; see [feeds.begin]. Else it returns nil.
func (j *joining) begin(ctx context.Context) (start func()) {
	now := j.s.r.now()
	if !j.short || now.Sub(j.asked) < lookMin {
		return nil
	}
	j.asked = now
	stats, err := j.s.r.broker.Stat(ctx, j.stream)
	if err != nil {
		return nil // Receive will tell
	}
	ends := map[uint32]uint64{}
	for _, st := range stats {
		ends[st.Partition] = st.Next
	}
	heads := j.s.heads(j.stream)
	if behind(heads, ends) > joinSlack {
		return nil
	}
	return j.s.r.feeds.begin(j.s.r, j.stream, heads)
}
