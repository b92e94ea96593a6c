package window

import (
	"container/heap"
	"time"

	"github.com/headgate/headgate/broker"
)

// retry is a delivery that waits to be handed out again.
type retry struct {
	due      time.Time
	delivery broker.Delivery
}

// retries is a heap, the earliest first; equal times keep the order of
// partitions and offsets, so that a batch retried at once comes back in order.
type retries []retry

func (h *retries) push(r retry) { heap.Push(h, r) }

func (h *retries) pop() retry { return heap.Pop(h).(retry) }

// Len implements [heap.Interface].
func (h retries) Len() int { return len(h) }

// Less implements [heap.Interface].
func (h retries) Less(i, j int) bool {
	a, b := h[i], h[j]
	if !a.due.Equal(b.due) {
		return a.due.Before(b.due)
	}
	if a.delivery.Position.Partition != b.delivery.Position.Partition {
		return a.delivery.Position.Partition < b.delivery.Position.Partition
	}
	return a.delivery.Position.Offset < b.delivery.Position.Offset
}

// Swap implements [heap.Interface].
func (h retries) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *retries) Push(x any) { *h = append(*h, x.(retry)) }

// Pop implements [heap.Interface].
func (h *retries) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = retry{}
	*h = old[:len(old)-1]
	return last
}

// due makes everything ready whose time has come, and arms the timer for what
// is next.
func (w *Window) due() {
	now := time.Now()
	w.mu.Lock()
	if w.closed != nil {
		w.mu.Unlock()
		return
	}
	for len(w.wait) > 0 && !w.wait[0].due.After(now) {
		r := w.wait.pop()
		l := w.lanes[r.delivery.Position.Partition]
		l.again = append(l.again, r.delivery)
		w.ready++
	}
	w.arm(now)
	w.mu.Unlock()
	w.signal()
}

// arm sets the timer to the earliest retry. The caller holds the lock.
func (w *Window) arm(now time.Time) {
	if len(w.wait) == 0 {
		return
	}
	delay := max(0, w.wait[0].due.Sub(now))
	if w.timer == nil {
		w.timer = time.AfterFunc(delay, w.due)
		return
	}
	w.timer.Reset(delay)
}
