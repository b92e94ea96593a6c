package natsbroker

import (
	"context"
	"sync"

	"github.com/headgate/headgate/broker"
)

// queueBytes bounds the events that wait for one partition's writer. Publish
// waits beyond it.
const queueBytes = 8 << 20

// submission is the part of a Publish call that goes to the writers: events
// that no one else has stored or is storing.
type submission struct {
	mu      sync.Mutex
	results []broker.Result
	open    int
	gone    bool // the caller left: what is in no frame yet need not be stored
	done    chan struct{}
}

// leave marks the caller as gone and returns what is known; an open result has
// outcome 0.
func (s *submission) leave() []broker.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	return append([]broker.Result(nil), s.results...)
}

func (s *submission) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// item is the events of one submission that belong to one partition.
type item struct {
	sub   *submission
	index []int // of each event in the submission
	ids   []digest
	recs  [][]byte
	bytes int
	next  int // the first event that is in no frame yet
}

// settle gives results to the item's events from i to j.
func (it *item) settle(i, j int, result func(k int) broker.Result) {
	s := it.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := i; k < j; k++ {
		s.results[it.index[k]] = result(k)
	}
	if s.open -= j - i; s.open == 0 {
		close(s.done)
	}
}

// queue holds the items that wait for a partition's writer, in order.
type queue struct {
	mu    sync.Mutex
	items []*item
	bytes int
	work  chan struct{} // holds a token while there may be items
	room  chan struct{} // closed and replaced when bytes shrinks
}

func (q *queue) init() {
	q.work, q.room = make(chan struct{}, 1), make(chan struct{})
}

// push appends an item, waiting while the queue is full.
func (q *queue) push(ctx, life context.Context, it *item) error {
	for {
		q.mu.Lock()
		if q.bytes < queueBytes {
			q.items = append(q.items, it)
			q.bytes += it.bytes
			q.mu.Unlock()
			select {
			case q.work <- struct{}{}:
			default:
			}
			return nil
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return broker.ErrClosed
		}
	}
}

// chunk is a stretch of one item that goes into a frame.
type chunk struct {
	it       *item
	from, to int
}

// take removes events from the front for one frame: as many as the bounds
// allow, at least one. Events of callers that left come back as abandoned. A
// frame's regions are appended to ids and recs.
func (q *queue) take(maxEvents, maxBytes int, b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	freed := 0
	for len(q.items) > 0 {
		it := q.items[0]
		if it.sub.left() {
			b.abandoned = append(b.abandoned, chunk{it, it.next, len(it.recs)})
			it.next = len(it.recs)
		}
		from := it.next
		for it.next < len(it.recs) {
			size := len(it.recs[it.next])
			if len(b.recs) == maxEvents || (len(b.recs) > 0 && b.bytes+size > maxBytes) {
				break
			}
			b.ids = append(b.ids, it.ids[it.next])
			b.recs = append(b.recs, it.recs[it.next])
			b.bytes += size
			it.next++
		}
		if it.next > from {
			b.chunks = append(b.chunks, chunk{it, from, it.next})
		}
		if it.next < len(it.recs) {
			break
		}
		freed += it.bytes
		q.items[0] = nil
		q.items = q.items[1:]
	}
	if freed > 0 {
		q.bytes -= freed
		close(q.room)
		q.room = make(chan struct{})
	}
}

// skip removes what is left of the item, if it is the first.
func (q *queue) skip(it *item) (rest chunk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rest = chunk{it, it.next, len(it.recs)}
	if len(q.items) > 0 && q.items[0] == it {
		it.next = len(it.recs)
		q.items = q.items[1:]
		q.bytes -= it.bytes
		close(q.room)
		q.room = make(chan struct{})
	}
	return rest
}

// batch is what one frame is made of.
type batch struct {
	ids       []digest
	recs      [][]byte
	bytes     int
	chunks    []chunk
	abandoned []chunk
}

func (b *batch) reset() {
	clear(b.recs)
	*b = batch{ids: b.ids[:0], recs: b.recs[:0], chunks: b.chunks[:0], abandoned: b.abandoned[:0]}
}
