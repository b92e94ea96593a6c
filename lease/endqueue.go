package lease

import (
	"container/heap"
	"time"
)

const (
	// endsAtOnce bounds the ends that one target is told of beside each other.
	endsAtOnce = 4
	// endFails is after how many failures in a row a target counts as failing:
	// it is then told of one end at a time, with pauses that begin at endEvery
	// and double up to endPause. What fails for one lease alone, such as an open
	// transaction under it, does not hold up the others.
	endFails = 3
	endPause = 8 * time.Second
	// endFor is how long a target is told of an end again and again.
	endFor = time.Minute
)

// untoldEnd is the end of a lease that a target is to be told of.
type untoldEnd struct {
	resource string
	epoch    int64
	since    time.Time
	tries    int
	due      time.Time // of the next try
	telling  bool
	place    int // in the heap of retries
}

// endQueue is what one target has not heard of: the latest end of each resource.
// Ends that were never tried come first, in their order. It is guarded by the
// lock of its endings.
type endQueue struct {
	ends    map[string]*untoldEnd
	fresh   []*untoldEnd // never tried
	retries endHeap      // by when they are due
	busy    int
	fails   int       // in a row
	probe   time.Time // while the target fails: when it is tried again
	wake    chan struct{}
}

func newEndQueues[T any](targets map[string]T) map[string]*endQueue {
	all := make(map[string]*endQueue, len(targets))
	for name := range targets {
		all[name] = &endQueue{ends: map[string]*untoldEnd{}, wake: make(chan struct{}, 1)}
	}
	return all
}

// add notes an end, in place of an earlier one of the resource. It reports
// whether there was room.
func (q *endQueue) add(resource string, epoch int64, now time.Time) bool {
	at := q.ends[resource]
	switch {
	case at != nil && at.epoch >= epoch:
		return true
	case at == nil && len(q.ends) >= maxEndings:
		return false
	case at == nil:
		at = &untoldEnd{resource: resource}
		q.ends[resource] = at
		q.fresh = append(q.fresh, at)
	case !at.telling && at.tries > 0:
		heap.Remove(&q.retries, at.place)
		q.fresh = append(q.fresh, at)
	}
	at.epoch, at.since, at.tries = epoch, now, 0
	q.stir()
	return true
}

// stir has whoever tells look again.
func (q *endQueue) stir() {
	select {
	case q.wake <- struct{}{}:
	default: // it is awake already
	}
}

// failing reports whether the target is told of one end at a time.
func (q *endQueue) failing() bool { return q.fails >= endFails }

// next returns the end to tell of now, or nil and how long there is none for
// sure; 0: until something else happens.
func (q *endQueue) next(now time.Time) (at *untoldEnd, epoch int64, wait time.Duration) {
	switch {
	case q.failing() && q.busy > 0 || q.busy >= endsAtOnce:
		return nil, 0, 0
	case q.failing() && q.probe.After(now) && len(q.ends) > 0:
		return nil, 0, q.probe.Sub(now)
	case len(q.fresh) > 0:
		at = q.fresh[0]
		q.fresh[0], q.fresh = nil, q.fresh[1:]
	case len(q.retries) == 0:
		return nil, 0, 0
	case q.retries[0].due.After(now):
		return nil, 0, q.retries[0].due.Sub(now)
	default:
		at = heap.Pop(&q.retries).(*untoldEnd)
	}
	at.telling = true
	q.busy++
	return at, at.epoch, 0
}

// how an attempt to tell went.
type outcomeOfEnd int

const (
	endTold       outcomeOfEnd = iota
	endRefused                 // the target failed
	endUnreadable              // it was not asked
	endBrokenOff               // the service ends
)

// settle notes how telling of an end went, and returns the ends that are given
// up: this one, and, while the target fails, all that are as old.
func (q *endQueue) settle(at *untoldEnd, epoch int64, how outcomeOfEnd, now time.Time) (gaveUp []*untoldEnd) {
	q.busy--
	at.telling = false
	switch how {
	case endTold:
		q.fails = 0
	case endRefused:
		if q.fails++; q.failing() {
			q.probe = now.Add(pauseAfter(q.fails - endFails))
		}
	}
	switch {
	case at.epoch != epoch || how == endBrokenOff: // a later end took its place, or it counts as never tried
		at.tries = 0
		q.fresh = append(q.fresh, at)
	case how == endTold:
		delete(q.ends, at.resource)
	case now.Sub(at.since) >= endFor:
		delete(q.ends, at.resource)
		gaveUp = append(gaveUp, at)
	default:
		at.due = now.Add(pauseAfter(at.tries))
		at.tries++
		heap.Push(&q.retries, at)
	}
	if how == endRefused && q.failing() {
		gaveUp = append(gaveUp, q.old(now)...)
	}
	return gaveUp
}

// old takes out the ends that a failing target is not told of any more.
func (q *endQueue) old(now time.Time) (gaveUp []*untoldEnd) {
	drop := func(at *untoldEnd) bool {
		gone := now.Sub(at.since) >= endFor
		if gone {
			delete(q.ends, at.resource)
			gaveUp = append(gaveUp, at)
		}
		return gone
	}
	keep := func(all []*untoldEnd) []*untoldEnd {
		left := make([]*untoldEnd, 0, len(all))
		for _, at := range all {
			if !drop(at) {
				left = append(left, at)
			}
		}
		return left
	}
	q.fresh, q.retries = keep(q.fresh), keep(q.retries)
	for i, at := range q.retries {
		at.place = i
	}
	heap.Init(&q.retries)
	return gaveUp
}

// last makes every end due, and gives the target another chance.
func (q *endQueue) last() {
	q.fails = 0
	q.fresh = append(q.fresh, q.retries...)
	q.retries = nil
	for _, at := range q.fresh {
		at.tries = 0
	}
}

// pauseAfter is how long to pause after n earlier failures.
func pauseAfter(n int) time.Duration { return min(endEvery<<min(n, 10), endPause) }

// endHeap is a heap of ends by when they are due.
type endHeap []*untoldEnd

func (h endHeap) Len() int           { return len(h) }
func (h endHeap) Less(i, k int) bool { return h[i].due.Before(h[k].due) }
func (h endHeap) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].place, h[k].place = i, k
}

// Push implements heap.Interface.
func (h *endHeap) Push(x any) {
	at := x.(*untoldEnd)
	at.place = len(*h)
	*h = append(*h, at)
}

// Pop implements heap.Interface.
func (h *endHeap) Pop() any {
	last := len(*h) - 1
	at := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return at
}
