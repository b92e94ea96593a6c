package router

import (
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

// itemState is where an event that is not ended stands in memory.
type itemState uint8

const (
	stWaiting  itemState = iota // behind an earlier event of its key
	stReady                     // in the ready queue
	stInFlight                  // being prepared or under a claim
	stSettling                  // its end is being committed
	stRetry                     // in the store, waits until due
	stHeld                      // in the store, waits behind an earlier event
)

// item is one event that a subscription has not ended yet. An item whose row
// is true lives in the store's exception table and keeps only this stub in
// memory while it waits.
type item struct {
	part     *part
	off      uint64
	lane     *lane // nil: unordered
	state    itemState
	row      bool  // an exception row exists, and the event's bit is set
	recorded bool  // the coming attempt is in the store already
	freebie  bool  // the attempt that its row says is open was ended by a drain
	attempts int32 // begun so far, the present one included
	due      time.Time
	heap     int // index in the due heap, -1 outside
	live     *live
	claim    *claim
}

// live is what an item needs only while it is in memory whole.
type live struct {
	ev    *headgate.Event
	first time.Time
	history
	waits string                // for whose lease, in words; empty: for none
	room  [1]quarantine.Attempt // most events need no more
}

// history is the bounded list of attempts as it is kept in the store. Free
// counts attempts that do not use up the subscription's: those that a shutdown
// of the node ended, and one that may or may not have begun before a crash.
type history struct {
	Free     int                  `json:"free,omitempty"`
	Attempts []quarantine.Attempt `json:"attempts,omitempty"`
}

func (it *item) pos() headgate.Position {
	return headgate.Position{Partition: it.part.partition, Offset: it.off}
}

// part is one partition of one stream, as a subscription sees it.
type part struct {
	progress
	stream    string
	partition uint32
	// head is the next offset expected from the broker: everything below it
	// was met since the router started.
	head uint64
	// saved is the floor of the last stored row, dirty whether memory is ahead
	// of that row.
	saved uint64
	dirty bool
	// suspect is the offset below which an event without a row may have been
	// dispatched by an earlier life of the node that ended uncleanly.
	suspect uint64
	// catchUp is the offset to which the broker must have been read before
	// lanes may dispatch stored items of this partition in order.
	catchUp uint64
	items   map[uint64]*item
	mem     int // items without a row
	rows    int // items with a row
}

type partID struct {
	stream    string
	partition uint32
}

type laneID struct{ stream, key string }

// lane is the queue of one ordering key: its items in the order of their
// offsets, of which only the first may be dispatched.
type lane struct {
	id    laneID
	queue []*item
	// blocked: the head was parked under the order strict; followers stay
	// held until somebody unblocks the key.
	blocked bool
}

// insert adds an item in the order of offsets.
func (l *lane) insert(it *item) {
	n := len(l.queue)
	if n == 0 || l.queue[n-1].off < it.off {
		l.queue = append(l.queue, it)
		return
	}
	i, _ := slices.BinarySearchFunc(l.queue, it.off, func(q *item, off uint64) int {
		switch {
		case q.off < off:
			return -1
		case q.off > off:
			return 1
		}
		return 0
	})
	l.queue = slices.Insert(l.queue, i, it)
}

func (l *lane) remove(it *item) {
	if len(l.queue) > 0 && l.queue[0] == it {
		l.queue[0] = nil
		l.queue = l.queue[1:]
		return
	}
	if i := slices.Index(l.queue, it); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}

// failing reports whether the head cannot end soon, so that followers should
// not wait in memory.
func (l *lane) failing() bool {
	return l.blocked || (len(l.queue) > 0 && l.queue[0].row)
}

// Exception states that only the router knows, beside those of package store.
const (
	// exceptionEnded is a tombstone: the event ended at a second or later
	// attempt, and causal tokens of its earlier attempts may still live.
	exceptionEnded store.ExceptionState = "ended"
)

// ending is the counter that an event's end belongs to.
type ending uint8

const (
	endNone ending = iota
	endSettled
	endUnmatched
	endParked
	endExtinguished
	endExpired
	endDiscarded
	endTrimmed
)

func (e ending) add(c *store.Counts) {
	switch e {
	case endSettled:
		c.Settled++
	case endUnmatched:
		c.Unmatched++
	case endParked:
		c.Parked++
	case endExtinguished:
		c.Extinguished++
	case endExpired:
		c.Expired++
	case endDiscarded:
		c.Discarded++
	case endTrimmed:
		c.Trimmed++
	case endNone:
	}
}
