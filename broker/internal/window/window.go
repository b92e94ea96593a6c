package window

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// DefaultBuffer is the bound for a subscription that names none.
const DefaultBuffer = 1024

// Window holds the deliveries of one subscription. Create it with [New].
type Window struct {
	buffer int

	mu     sync.Mutex
	lanes  []*lane
	turn   int // the lane that Receive looks at first
	ready  int // deliveries ready over all lanes
	wait   retries
	timer  *time.Timer
	closed error
	faults []error // reported, not yet returned by Receive

	// arrived wakes one waiting Receive. It holds one token: a woken caller
	// that leaves deliveries behind puts it back.
	arrived chan struct{}
	done    chan struct{}
}

// lane is one partition: runs of offered events, the oldest first.
type lane struct {
	runs  []*run
	next  int               // index of the first run with events not handed out
	again []broker.Delivery // due again, before anything new
	held  int               // ready, open and waiting
	room  chan struct{}     // holds a token when held may have sunk
	tries map[uint64]int    // attempts of positions that were retried
}

// run is a stretch of consecutive offsets that was offered at once.
type run struct {
	base   uint64
	events []broker.Stored
	given  int // events[:given] were handed out
	left   int // events not gone
	state  []state
}

type state uint8

const (
	ready state = iota
	open
	waiting
	gone
)

// New returns a window over the partitions. A buffer below 1 means
// [DefaultBuffer].
func New(partitions, buffer int) *Window {
	if buffer < 1 {
		buffer = DefaultBuffer
	}
	w := &Window{
		buffer:  buffer,
		lanes:   make([]*lane, partitions),
		arrived: make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	for i := range w.lanes {
		w.lanes[i] = &lane{room: make(chan struct{}, 1), tries: map[uint64]int{}}
	}
	return w
}

// Done is closed when the window is.
func (w *Window) Done() <-chan struct{} { return w.done }

// Room waits until the partition can take at least one event and returns how
// many it can take. It returns the closing error after [Window.Close], and
// ctx's error when ctx ends.
func (w *Window) Room(ctx context.Context, partition uint32) (int, error) {
	l := w.lanes[partition]
	for {
		w.mu.Lock()
		n, err := w.buffer-l.held, w.closed
		w.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if n > 0 {
			return n, nil
		}
		select {
		case <-l.room:
		case <-w.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// Offer makes consecutive events of one partition ready, waiting for room as
// often as needed. The events are kept until they are settled. It returns an
// error like [Window.Room]; events not yet taken are then dropped.
func (w *Window) Offer(ctx context.Context, events []broker.Stored) error {
	for len(events) > 0 {
		partition := events[0].Position.Partition
		n, err := w.Room(ctx, partition)
		if err != nil {
			return err
		}
		n = min(n, len(events))
		w.mu.Lock()
		l := w.lanes[partition]
		l.runs = append(l.runs, &run{
			base:   events[0].Position.Offset,
			events: events[:n:n],
			left:   n,
			state:  make([]state, n),
		})
		l.held += n
		w.ready += n
		w.mu.Unlock()
		w.signal()
		events = events[n:]
	}
	return nil
}

// maxFaults bounds the reports that are kept for a slow caller.
const maxFaults = 64

// Report makes one call of Receive return the error, before anything else.
// Beyond [maxFaults] waiting reports, further ones are dropped.
func (w *Window) Report(err error) {
	w.mu.Lock()
	if w.closed == nil && len(w.faults) < maxFaults {
		w.faults = append(w.faults, err)
	}
	w.mu.Unlock()
	w.signal()
}

// Receive implements [broker.Subscription].
func (w *Window) Receive(ctx context.Context, limit int) ([]broker.Delivery, error) {
	if limit < 1 {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "limit %d: want at least 1", limit)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w.mu.Lock()
		if w.closed != nil {
			w.mu.Unlock()
			return nil, w.closed
		}
		if len(w.faults) > 0 {
			err := w.faults[0]
			w.faults = w.faults[1:]
			w.mu.Unlock()
			w.signal()
			return nil, err
		}
		if w.ready > 0 {
			out := w.take(limit)
			more := w.ready > 0
			w.mu.Unlock()
			if more {
				w.signal()
			}
			return out, nil
		}
		w.mu.Unlock()
		select {
		case <-w.arrived:
		case <-w.done:
		case <-ctx.Done():
		}
	}
}

// take hands out up to limit deliveries, beginning with the lane whose turn it
// is, so that no partition starves another.
func (w *Window) take(limit int) []broker.Delivery {
	out := make([]broker.Delivery, 0, min(limit, w.ready))
	for range w.lanes {
		l := w.lanes[w.turn]
		w.turn = (w.turn + 1) % len(w.lanes)
		out = l.take(out, limit)
		if len(out) == limit {
			break
		}
	}
	w.ready -= len(out)
	return out
}

func (l *lane) take(out []broker.Delivery, limit int) []broker.Delivery {
	for len(l.again) > 0 && len(out) < limit {
		d := l.again[0]
		l.again = l.again[1:]
		if r, i := l.find(d.Position.Offset); r != nil {
			r.state[i] = open
		}
		out = append(out, d)
	}
	for l.next < len(l.runs) && len(out) < limit {
		r := l.runs[l.next]
		for r.given < len(r.events) && len(out) < limit {
			out = append(out, broker.Delivery{Stored: r.events[r.given], Attempt: 1})
			r.state[r.given] = open
			r.given++
		}
		if r.given == len(r.events) {
			l.next++
		}
	}
	return out
}

// Settle implements [broker.Subscription]. It never blocks.
func (w *Window) Settle(settlements []broker.Settlement) error {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed != nil {
		return w.closed
	}
	for _, s := range settlements {
		if int64(s.Position.Partition) >= int64(len(w.lanes)) {
			continue
		}
		l := w.lanes[s.Position.Partition]
		r, i := l.find(s.Position.Offset)
		if r == nil || r.state[i] != open {
			continue
		}
		switch s.Act {
		case broker.Ack, broker.Drop:
			w.finish(l, r, i)
		case broker.Retry:
			r.state[i] = waiting
			w.wait.push(retry{due: now.Add(max(0, s.After)), delivery: l.retried(r.events[i])})
		default:
			return headgate.NewError(headgate.CodeInvalidArgument, "act %d of position %s is unknown", s.Act, s.Position)
		}
	}
	w.arm(now)
	return nil
}

func (l *lane) retried(s broker.Stored) broker.Delivery {
	n := max(1, l.tries[s.Position.Offset]) + 1
	l.tries[s.Position.Offset] = n
	return broker.Delivery{Stored: s, Attempt: n}
}

func (w *Window) finish(l *lane, r *run, i int) {
	r.state[i] = gone
	offset := r.base + uint64(i)
	r.events[i].Event = nil // the log holds it; keep no memory for it
	delete(l.tries, offset)
	r.left--
	l.held--
	if r.left == 0 {
		at, _ := l.search(r.base)
		l.runs = slices.Delete(l.runs, at, at+1)
		l.next--
	}
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// find returns the run that holds the offset and its index in it.
func (l *lane) find(offset uint64) (*run, int) {
	at, ok := l.search(offset)
	if !ok {
		return nil, 0
	}
	r := l.runs[at]
	return r, int(offset - r.base)
}

// search returns the index of the run that holds the offset. Most settlements
// concern the oldest run, so that one is tried first.
func (l *lane) search(offset uint64) (int, bool) {
	if len(l.runs) > 0 && l.runs[0].holds(offset) {
		return 0, true
	}
	at, ok := slices.BinarySearchFunc(l.runs, offset, func(r *run, o uint64) int {
		switch {
		case r.holds(o):
			return 0
		case r.base > o:
			return 1
		default:
			return -1
		}
	})
	return at, ok
}

func (r *run) holds(offset uint64) bool {
	return offset >= r.base && offset-r.base < uint64(len(r.events))
}

// Close ends the window: waiting and later calls return err wrapping
// [broker.ErrClosed]. A second call changes nothing.
func (w *Window) Close(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed != nil {
		return
	}
	w.closed = fmt.Errorf("subscription: %w", broker.ErrClosed)
	if cause != nil {
		w.closed = fmt.Errorf("subscription: %w: %w", broker.ErrClosed, cause)
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	for _, l := range w.lanes {
		l.runs, l.again, l.next = nil, nil, 0
	}
	w.ready, w.wait = 0, nil
	close(w.done)
}

func (w *Window) signal() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}
