package relay

import "time"

// tracker knows how far a log is done. It is the only owner of the confirmed
// position. The caller holds a lock.
//
// It is a queue of entries in the order of the log, one for each transaction,
// idle position and mark. An entry is done when it is closed and nothing of it
// is pending; the position of the longest prefix of done entries may be
// confirmed.
type tracker struct {
	entries []entry
	first   uint64 // number of entries[0]
	open    bool   // the last entry is a transaction that goes on
	reached Position
	horizon time.Duration
}

// entry is one step of the log.
type entry struct {
	pending int
	since   time.Time // when its first row was committed
	closed  bool
	pos     Position
	done    time.Time // when its last row was done
	mark    *Mark
}

// begin opens a transaction.
func (t *tracker) begin() {
	t.entries = append(t.entries, entry{})
	t.open = true
}

// row adds a row to the open transaction and returns the entry it belongs to.
func (t *tracker) row(committed time.Time) uint64 {
	if !t.open {
		t.begin()
	}
	e := &t.entries[len(t.entries)-1]
	if e.pending == 0 && e.since.IsZero() {
		e.since = committed
	}
	e.pending++
	return t.first + uint64(len(t.entries)-1)
}

// commit ends the open transaction.
func (t *tracker) commit(pos Position) {
	if !t.open {
		t.begin()
	}
	e := &t.entries[len(t.entries)-1]
	e.closed, e.pos = true, pos
	t.open = false
}

// idle notes a position that was read outside of any transaction. Inside one
// it says nothing.
func (t *tracker) idle(pos Position) {
	if t.open {
		return
	}
	if n := len(t.entries); n > 0 {
		if last := &t.entries[n-1]; last.closed && last.pending == 0 && last.mark == nil {
			last.pos = max(last.pos, pos)
			return
		}
	}
	t.entries = append(t.entries, entry{closed: true, pos: pos})
}

// beat notes a mark. Inside a transaction it is told when that ends, which is
// when its number counts: the mark's entry is the transaction's.
func (t *tracker) beat(m Mark) {
	if !t.open {
		t.begin()
		t.entries[len(t.entries)-1].closed = true
		t.open = false
	}
	e := &t.entries[len(t.entries)-1]
	e.mark = &m
}

// finish says that n rows of an entry are done.
func (t *tracker) finish(id uint64, n int, now time.Time) {
	e := &t.entries[id-t.first]
	e.pending -= n
	e.done = now
}

// advance drops the done prefix and returns the position that may be confirmed,
// and the mark at which it stopped because that is not proven yet. wait is how
// long until the horizon lets more through; 0 when it holds nothing.
func (t *tracker) advance(now time.Time) (pos Position, mark *Mark, wait time.Duration) {
	n := 0
	for ; n < len(t.entries); n++ {
		e := &t.entries[n]
		if !e.closed || e.pending > 0 {
			break
		}
		if !e.done.IsZero() && t.horizon > 0 {
			if left := t.horizon - now.Sub(e.done); left > 0 {
				wait = left
				break
			}
		}
		if e.mark != nil {
			mark = e.mark
			break
		}
		t.reached = max(t.reached, e.pos)
	}
	t.entries = t.entries[n:]
	t.first += uint64(n)
	if len(t.entries) == 0 {
		t.entries = nil // give the array back after a burst
	}
	return t.reached, mark, wait
}

// proven lets advance pass the mark at which it stopped.
func (t *tracker) proven() { t.entries[0].mark = nil }

// oldest returns when the first row that is not done was committed; zero when
// all are.
func (t *tracker) oldest() time.Time {
	for i := range t.entries {
		if t.entries[i].pending > 0 {
			return t.entries[i].since
		}
	}
	return time.Time{}
}

// empty reports whether everything that was read is done and confirmed.
func (t *tracker) empty() bool {
	return len(t.entries) == 0 || len(t.entries) == 1 && t.open && t.entries[0].pending == 0
}
