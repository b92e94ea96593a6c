package router

import (
	"context"
	"sync"

	"github.com/headgate/headgate/broker"
)

// handout is what a feed tells a member, in order: events that its types take,
// or that there was none up to some offsets, or that offsets do not exist.
type handout struct {
	events []broker.Delivery // shared: do not modify
	// upto holds offsets, per partition, below which nothing is left for the
	// member but what it was handed before. Shared: do not modify.
	upto map[uint32]uint64
	gone *stretch         // removed before it was ever met
	lost *broker.GapError // unreadable
}

// stretch is a range of offsets of a partition, without to.
type stretch struct {
	partition uint32
	from, to  uint64
}

// maxHandouts bounds the handouts that wait, beside the bound of the events.
const maxHandouts = 4096

// member is one subscription in the feed of one stream. Its queue is what the
// feed handed out and the subscription did not take in yet. When it is full
// the member is out: what it was handed before is whole, and the subscription
// reads on by itself from there.
type member struct {
	s      *sub
	stream string
	feed   *feed
	picked []int32 // the feed's scratch

	mu      sync.Mutex
	queue   []handout
	held    int  // events in queue
	running bool // somebody takes in; who sets it does, until it is unset
	out     bool // gets nothing any more
}

// offer queues a handout. It reports false when the member is out, also when
// that is because its queue is full. It never waits for the subscription.
func (m *member) offer(h handout) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.out {
		return false
	}
	if m.held > 0 && m.held+len(h.events) > m.s.r.inbox || len(m.queue) >= maxHandouts {
		m.out = !m.s.r.dropWhenFull
		return !m.out
	}
	if n := len(m.queue); h.upto != nil && n > 1 && m.queue[n-1].upto != nil {
		m.queue[n-1] = h // the first may be in work
	} else {
		m.queue = append(m.queue, h)
		m.held += len(h.events)
	}
	m.wake()
	return true
}

// wake makes somebody take in what is queued. The caller holds mu.
func (m *member) wake() {
	if !m.running && (len(m.queue) > 0 || m.out) {
		m.running = m.s.spawn(func(ctx context.Context) { m.s.runStream(ctx, m.stream, m) })
	}
}

// first returns the oldest handout; ok is false when there is none. Then the
// caller does not run any more, unless the member is out.
func (m *member) first() (h handout, ok, out bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) > 0 {
		return m.queue[0], true, false
	}
	m.running = m.out
	return handout{}, false, m.out
}

// done removes the oldest handout, which was taken in.
func (m *member) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= len(m.queue[0].events)
	m.queue[0] = handout{}
	if m.queue = m.queue[1:]; len(m.queue) == 0 {
		m.queue = nil
	}
}

// begin makes the caller the one who takes in, if nothing is queued and nobody
// does. It ends with [member.rest].
func (m *member) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running || m.out || len(m.queue) > 0 {
		return false
	}
	m.running = true
	return true
}

// rest ends what begin began.
func (m *member) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = false
	m.wake()
}

// breakOff ends taking in before the queue is empty, when the subscription
// ends.
func (m *member) breakOff() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = false
}

func (m *member) isOut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out
}

// tell makes the subscription know that nothing else is for it below some
// offsets, which the feed has passed: at once if it can, else behind what is
// queued.
func (m *member) tell(upto map[uint32]uint64) {
	if !m.s.team.enter() {
		return
	}
	defer m.s.team.leave()
	if !m.begin() {
		m.offer(handout{upto: upto})
		return
	}
	if !m.s.passAll(m.stream, upto) {
		m.offer(handout{upto: upto})
	}
	m.rest()
}

// team counts goroutines that begin at any time, until it is closed.
type team struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// enter counts the caller, who calls leave; false when it is closed.
func (c *team) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Add(1)
	return true
}

func (c *team) leave() { c.wg.Done() }

// close lets nobody enter any more, and waits for those who did.
func (c *team) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}
