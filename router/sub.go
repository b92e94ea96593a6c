package router

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store"
)

// Bounds of one subscription's memory.
const (
	// defaultBuffer bounds the unsettled events per partition.
	defaultBuffer = 1024
	// laneMemory is how many followers of a failing key wait in memory; more
	// go to the hold table.
	laneMemory = 64
	// dispatchSpan bounds how far beyond the stored floor of a partition
	// events are dispatched. It bounds the bitmap, and tells after an unclean
	// stop which events may have been dispatched before.
	dispatchSpan = 16384
	// maxRows bounds the exceptions of a subscription; at the bound it stops
	// reading, loudly, until some end.
	maxRows = 250_000
	// maxTombstones bounds the tombstones kept for superseded tokens.
	maxTombstones = 100_000
)

// sub is one subscription at work. All fields below mu are guarded by it.
// Nothing blocks while it is held.
type sub struct {
	r       *Router
	name    string
	created time.Time
	managed string
	plan    *plan
	// commitMu is held over each store transaction of this subscription and
	// the memory changes that follow it: whoever holds it sees both agree.
	// It is taken before mu.
	commitMu sync.Mutex

	mu       sync.Mutex
	paused   bool
	pulling  int       // calls that wait for deliveries
	pulled   time.Time // when the last one ended, or the subscription started
	draining bool      // no more dispatches
	stopped  bool      // no more operations
	parts    map[partID]*part
	lanes    map[laneID]*lane
	own      map[string]broker.Subscription // by stream, while it reads by itself
	members  map[string]*member             // by stream, while a feed hands to it
	ready    queue
	inFlight int
	uncommit int // handler completions that wait for their commit
	// gathering holds signal back, while more becomes ready under the same
	// lock: who waits is to get all of it at once.
	gathering bool
	waiters   []*waiter
	claims    claimTable
	due       dueHeap
	rows      int
	ended     tombstones
	ops       []*op
	// checkpointAt is when dirty progress is saved; zero: nothing is dirty.
	checkpointAt time.Time
	saving       bool // a checkpoint is queued
	timers       []timer
	armed        time.Time // when the clock wakes next
	warned       map[string]time.Time
	floorMoved   chan struct{} // closed and replaced when a stored floor moves

	opsWake   chan struct{}
	clockWake chan struct{}

	soft          <-chan struct{} // closed when a drain begins
	stop          context.CancelFunc
	interrupt     context.CancelFunc // of running handlers; nil without
	stopCommitter func()
	handled       bool // a handler was started
	// spawn runs what reads streams, until the subscription ends: false then.
	spawn func(fn func(context.Context)) bool
	team  team // of spawn
	// Drained in this order.
	feeding, handling, committing sync.WaitGroup
}

func newSub(r *Router, row store.Subscription, p *plan) *sub {
	s := &sub{
		r: r, name: row.Name, created: row.Created, managed: row.Managed, plan: p, paused: row.Paused, pulled: r.now(),
		parts: map[partID]*part{}, lanes: map[laneID]*lane{}, own: map[string]broker.Subscription{}, members: map[string]*member{},
		warned:     map[string]time.Time{},
		floorMoved: make(chan struct{}), opsWake: make(chan struct{}, 1), clockWake: make(chan struct{}, 1),
	}
	s.claims.init(&r.leased)
	s.ended.at = map[endedKey]int32{}
	return s
}

// addPart registers a partition with its progress.
func (s *sub) addPart(row store.Progress) *part {
	p := &part{
		progress: loadProgress(row), stream: row.Stream, partition: row.Partition,
		items: map[uint64]*item{}, saved: row.Floor,
	}
	p.head = p.floor
	s.parts[partID{row.Stream, row.Partition}] = p
	return p
}

// addItem registers an event that is not ended, in its lane if it has one.
func (s *sub) addItem(it *item, key string) {
	it.heap = -1
	it.part.items[it.off] = it
	if it.row {
		it.part.rows++
		s.rows++
	} else {
		it.part.mem++
	}
	if key == "" || s.plan.Order == OrderNone {
		return
	}
	id := laneID{it.part.stream, key}
	l := s.lanes[id]
	if l == nil {
		l = &lane{id: id}
		s.lanes[id] = l
	}
	it.lane = l
	l.insert(it)
}

// dropItem forgets an item that ended, and lets the next of its key go.
func (s *sub) dropItem(it *item) {
	delete(it.part.items, it.off)
	if it.row {
		it.part.rows--
		if s.rows--; s.rows == maxRows-1 {
			s.moved()
		}
	} else {
		s.leaveMemory(it.part)
	}
	s.due.remove(it)
	it.live, it.claim = nil, nil
	if l := it.lane; l != nil {
		l.remove(it)
		s.kick(l)
	}
}

// toRow notes that an item's exception row was committed.
func (s *sub) toRow(it *item) {
	if !it.row {
		it.row = true
		it.part.rows++
		s.rows++
		s.leaveMemory(it.part)
	}
}

// leaveMemory counts an item that is not in memory any more. Half empty, there
// is room again for who waits.
func (s *sub) leaveMemory(p *part) {
	if p.mem--; p.mem == s.r.buffer/2 {
		s.moved()
	}
}

// moved tells feeders that wait that they may be able to go on.
func (s *sub) moved() {
	close(s.floorMoved)
	s.floorMoved = make(chan struct{})
}

// kick lets the head of a lane go on if it only waited for its turn, and
// forgets an empty lane.
func (s *sub) kick(l *lane) {
	if len(l.queue) == 0 {
		if !l.blocked {
			delete(s.lanes, l.id)
		}
		return
	}
	if !l.blocked {
		s.release(l.queue[0])
	}
}

// release moves a waiting item towards dispatch: at once, or when it is due.
func (s *sub) release(it *item) {
	if it.row && it.lane != nil && it.off >= it.part.head && it.off < it.part.catchUp {
		return // an earlier event of its key may still be unread
	}
	switch it.state {
	case stWaiting, stHeld:
		s.enqueue(it)
	case stRetry:
		s.due.push(it)
		s.arm(it.due)
	case stReady, stInFlight, stSettling:
	}
}

func (s *sub) enqueue(it *item) {
	it.state = stReady
	s.ready.push(it)
	s.signal()
}

// isHead reports whether nothing of its key stands before the item.
func (it *item) isHead() bool {
	return it.lane == nil || (len(it.lane.queue) > 0 && it.lane.queue[0] == it && !it.lane.blocked)
}

// warn reports whether a warning of this kind is due: at most one a minute.
func (s *sub) warn(kind string, now time.Time) bool {
	if now.Sub(s.warned[kind]) < time.Minute {
		return false
	}
	s.warned[kind] = now
	return true
}

// observe tells the observer about one delivery.
func (s *sub) observe(fn func(headgate.DeliveryInfo), it *item, ev *headgate.Event, outcome, reason string, delay time.Duration) {
	if fn == nil {
		return
	}
	info := headgate.DeliveryInfo{
		Subscription: s.name, Position: it.pos(), Attempt: int(it.attempts), Outcome: outcome, Delay: delay, Reason: reason,
	}
	if ev != nil {
		info.Type, info.ID = ev.Type, ev.ID
	}
	fn(info)
}

// queue is a first-in first-out queue of items.
type queue struct {
	items []*item
	first int
}

func (q *queue) len() int { return len(q.items) - q.first }

func (q *queue) push(it *item) { q.items = append(q.items, it) }

func (q *queue) pop() *item {
	it := q.items[q.first]
	q.items[q.first] = nil
	q.first++
	if q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	} else if q.first > 1024 && q.first*2 > len(q.items) {
		q.items, q.first = append([]*item(nil), q.items[q.first:]...), 0
	}
	return it
}
