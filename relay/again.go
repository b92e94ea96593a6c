package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
)

// What is read again at once, and how often.
const (
	readAgainRows  = 512
	readAgainBytes = 4 << 20
	readAgainSpan  = 20_000          // numbers in one query: those of others lie between
	saveEvery      = time.Second     // what was done meanwhile is repeated after a crash
	adoptEvery     = time.Second     // that long rows that wait may keep the log from being confirmed
	unseenPause    = time.Second     // for rows that cannot be seen yet
	keepPause      = 5 * time.Second // when the quarantine does not take what is gone
	owedAtMost     = 4096
	// unseenAtMost is how many rows in a row are passed one by one that cannot be
	// seen when a session begins.
	unseenAtMost = 64
)

// personal reports whether a class waits for something that is its own matter,
// so that others do not have to wait with it.
func personal(why headgate.Code) bool {
	return why == headgate.CodeRateLimited || why == headgate.CodeQuarantineFull
}

// load is what one class has in the lanes.
type load struct {
	rows, bytes int
	held        int // lanes that hold it for a personal reason
}

// loads counts by class.
type loads struct {
	mu   sync.Mutex
	by   map[class]load
	held chan struct{} // a class came to be held: for the reader
	kept chan struct{} // the same, for whoever reads again
}

func newLoads() *loads {
	return &loads{by: map[class]load{}, held: make(chan struct{}, 1), kept: make(chan struct{}, 1)}
}

func (l *loads) add(c class, rows, bytes, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.by[c]
	of.rows, of.bytes, of.held = of.rows+rows, of.bytes+bytes, of.held+held
	if of == (load{}) {
		delete(l.by, c)
	} else {
		l.by[c] = of
	}
	if held > 0 {
		for _, c := range [...]chan struct{}{l.held, l.kept} {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}

func (l *loads) of(c class) load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[c]
}

// heaviest returns the classes that are held, those with most rows first.
func (l *loads) heaviest() []class {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []class
	for c, of := range l.by {
		if of.held > 0 && of.rows > 0 {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b class) int {
		return max(l.by[b].rows, l.by[b].bytes>>13) - max(l.by[a].rows, l.by[a].bytes>>13)
	})
	return all
}

// insert brings a row that was read from the log on its way: into its lane, or
// aside. When there is no room it makes some of what waits, or waits itself.
func (n *run) insert(ctx context.Context, row *Row) error {
	it := item{row: row, size: row.size(), read: n.r.cfg.Now(), key: n.keyOf(row)}
	n.past.saw(row)
	n.mu.Lock()
	it.entry = n.tracker.row(row.Committed)
	n.mu.Unlock()
	for {
		freed := n.budget.change()
		way := toLane
		if n.shelf != nil {
			of := n.loads.of(classOf(row))
			way = n.shelf.arrives(&it, of.held > 0 && (of.rows >= n.r.cfg.InFlight/8 || of.bytes >= n.r.cfg.InFlightBytes/8))
		}
		switch {
		case way == toShelf:
			if n.shelf.owes() >= owedAtMost {
				return n.saveAside(ctx)
			}
			return nil
		case way == toLane && n.budget.try(it.size):
			n.dispatch(ctx, it)
			return nil
		case way == toLane && n.spill(false):
			continue
		}
		if err := n.saveAside(ctx); err != nil {
			return err
		}
		if err := n.waitRoom(ctx, freed, way == toWait); err != nil {
			return err
		}
	}
}

// waitRoom waits until something ended or has to wait. A row that stands behind
// one that is set aside looks again by itself.
func (n *run) waitRoom(ctx context.Context, freed <-chan struct{}, soon bool) error {
	var later <-chan time.Time
	if soon {
		t := time.NewTimer(20 * time.Millisecond)
		defer t.Stop()
		later = t.C
	}
	select {
	case <-freed:
	case <-n.loads.held:
	case <-later:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// spill sets rows aside of the class that holds most of what is in flight while
// it waits, and reports whether there is more room now. All of them go when
// the session ends, so that nothing has to wait for them.
func (n *run) spill(all bool) (freed bool) {
	if n.shelf == nil {
		return false
	}
	for _, c := range n.loads.heaviest() {
		keep := 0
		if !all {
			keep = min(n.r.cfg.InFlight/8, n.loads.of(c).rows/2) / len(n.lanes)
		}
		for i := range n.lanes {
			freed = n.spillLane(&n.lanes[i], c, keep) || freed
		}
		if freed && !all {
			return true
		}
	}
	return freed
}

// spillLane sets aside what a lane has of a class but for some rows, with what
// stands behind them of the same keys. Keys of which something is being
// submitted, or may have been stored, stay whole.
func (n *run) spillLane(l *lane, c class, keep int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stuck := map[string]bool{}
	for i := range l.queue {
		if it := &l.queue[i]; it.busy || !movable(it) {
			stuck[it.key] = true
		}
	}
	gone := map[string]bool{}
	rows, bytes, had := 0, 0, len(l.queue)
	l.queue = slices.DeleteFunc(l.queue, func(it item) bool {
		mine := classOf(it.row) == c
		if stuck[it.key] || !mine && !gone[it.key] {
			return false
		}
		if mine && keep > 0 && !gone[it.key] {
			keep--
			return false
		}
		if !n.shelf.put(&it, c, gone[it.key]) {
			stuck[it.key] = true
			return false
		}
		gone[it.key] = true
		n.loads.add(classOf(it.row), -1, -it.size, 0)
		if it.from == nil {
			rows++
			bytes += it.size
		} else {
			n.outRows.Add(-1)
			n.outBytes.Add(-int64(it.size))
		}
		return true
	})
	if rows > 0 {
		n.budget.give(rows, bytes)
	}
	if len(l.queue) < had {
		l.spills++
	}
	return len(l.queue) < had
}

// adopt sets aside what classes have in the lanes while they wait, and what
// stands behind that of the same keys, but leaves it there: the log can be
// confirmed without it.
func (n *run) adopt(held []class) {
	for _, c := range held {
		for i := range n.lanes {
			n.adoptLane(&n.lanes[i], c)
		}
	}
}

func (n *run) adoptLane(l *lane, c class) {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind := map[string]bool{}
	rows, bytes := 0, 0
	for i := range l.queue {
		it := &l.queue[i]
		if classOf(it.row) != c && !behind[it.key] {
			continue
		}
		behind[it.key] = true
		if it.from == nil && !it.busy && n.shelf.adopt(it, c) {
			rows++
			bytes += it.size
		}
	}
	if rows > 0 {
		n.outRows.Add(int64(rows))
		n.outBytes.Add(int64(bytes))
		n.budget.give(rows, bytes)
	}
}

// saveAside makes durable what was set aside, and tells the tracker.
func (n *run) saveAside(ctx context.Context) error {
	if n.shelf.owes() == 0 {
		return nil
	}
	return n.saveAll(ctx)
}

func (n *run) saveAll(ctx context.Context) error {
	n.r.cfg.Fault("before aside")
	done, err := n.shelf.save(ctx)
	if err != nil {
		return err
	}
	n.r.cfg.Fault("after aside")
	now := n.r.cfg.Now()
	n.mu.Lock()
	for entry, rows := range done {
		n.tracker.finish(entry, rows, now)
	}
	n.mu.Unlock()
	if len(done) > 0 {
		n.signal()
	}
	return nil
}

// saveDone makes durable, as the session ends, that nothing of what was read
// again is repeated.
func (n *run) saveDone(ctx context.Context) error {
	if n.shelf == nil {
		return nil
	}
	if dirty, _ := n.shelf.settle(); !dirty {
		return nil
	}
	return n.saveAll(ctx)
}

// readAgain brings what was set aside back into the lanes, as their rows there
// come to their end, and saves what is done.
func (n *run) readAgain(ctx context.Context) error {
	saved, adopted := time.Now(), time.Now()
	for {
		pause, err := n.refill(ctx)
		if err != nil {
			return err
		}
		if held := n.loads.heaviest(); len(held) > 0 {
			if time.Since(adopted) >= adoptEvery {
				adopted = time.Now()
				n.adopt(held)
				if err := n.saveAside(ctx); err != nil {
					return err
				}
			}
			pause = shorter(pause, max(adoptEvery-time.Since(adopted), time.Millisecond))
		}
		dirty, rest := n.shelf.settle()
		if dirty {
			due := saveEvery - time.Since(saved)
			if due <= 0 {
				if err := n.saveAll(ctx); err != nil {
					return err
				}
				saved = time.Now()
				continue
			}
			rest = shorter(rest, due)
		}
		var later <-chan time.Time
		if pause = shorter(pause, rest); pause > 0 {
			later = time.After(pause)
		}
		select {
		case <-n.shelf.woken:
		case <-n.loads.kept:
		case <-later:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// shorter is the shorter of two pauses, of which 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// refill reads again what there is room for: each group may have its part of
// as many rows as are read at once. pause is when to try again; 0 when there is
// nothing to wait for but what is on its way.
func (n *run) refill(ctx context.Context) (pause time.Duration, err error) {
	spills := n.spills() // before it is asked what waits
	for _, w := range n.shelf.wants() {
		rows, gone, err := n.shelf.src.ReadAside(ctx, w.numbers, w.bytes)
		if err != nil {
			return 0, err
		}
		n.shelf.twins(w.group, rows)
		for _, row := range rows {
			it := item{row: row, size: row.size(), read: n.r.cfg.Now(), key: n.keyOf(row), from: w.group}
			n.past.saw(row)
			n.bringBack(ctx, it, spills)
		}
		switch {
		case len(gone) > 0:
			if err := n.recordGone(ctx, w.group, gone); err != nil {
				n.r.cfg.Log.WarnContext(ctx, "outbox rows that are gone cannot be recorded; it is tried again", "outbox", n.r.cfg.Name, "error", err)
				pause = shorter(pause, keepPause)
			}
		case len(rows) == 0:
			pause = shorter(pause, unseenPause)
		}
	}
	return pause, nil
}

// spills returns of each lane how often rows of it were set aside.
func (n *run) spills() []uint64 {
	all := make([]uint64, len(n.lanes))
	for i := range n.lanes {
		l := &n.lanes[i]
		l.mu.Lock()
		all[i] = l.spills
		l.mu.Unlock()
	}
	return all
}

// bringBack puts a row that was read again into its lane, unless rows of the
// lane were set aside since it was asked for: they may stand before it, and both
// are read in their order the next time.
func (n *run) bringBack(ctx context.Context, it item, spills []uint64) {
	at := n.laneOf(it.key)
	l := &n.lanes[at]
	l.mu.Lock()
	if l.spills != spills[at] {
		l.mu.Unlock()
		n.shelf.wake()
		return
	}
	n.shelf.take(it.from, it.row.Seq)
	n.outRows.Add(1)
	n.outBytes.Add(int64(it.size))
	n.shelf.leave(&it) // what comes behind it needs the lock to pass
	n.enqueue(ctx, l, it)
}

// recordGone keeps in quarantine that rows were deleted that had been set
// aside. Nobody but the owner of the table can do that.
func (n *run) recordGone(ctx context.Context, g *group, numbers []int64) error {
	for part := range slices.Chunk(numbers, groupRows) {
		items := make([]item, len(part))
		results := make([]perimeter.Result, len(part))
		which := make([]int, len(part))
		for i, number := range part {
			items[i].from, items[i].row = g, &Row{Seq: number, Role: g.class.role, Written: n.r.cfg.Now(), Raw: fmt.Appendf(nil, `{"seq":%d}`, number)}
			results[i] = perimeter.Result{Stage: perimeter.StageEnvelope, Err: headgate.NewError(headgate.CodeNotFound, "row %d of the outbox was set aside and is gone from the table", number)}
			which[i] = i
		}
		if err := n.keep(ctx, g.class.role, items, results, which); err != nil {
			return err
		}
		n.r.cfg.Log.ErrorContext(ctx, "outbox rows that waited were deleted from the table; their numbers are in quarantine", "outbox", n.r.cfg.Name, "role", g.class.role, "rows", len(part), "first", part[0])
		for i := range items {
			n.shelf.done(&items[i], n.r.cfg.Now())
		}
		n.r.note(func(s *Status) { s.Parked += uint64(len(part)) })
	}
	return nil
}

// want is what one group would read again.
type want struct {
	group   *group
	numbers []int64
	bytes   int
}

// wants returns what there is room for in the lanes. Memory stays bounded with
// many groups, since the part of each is smaller then.
func (s *shelf) wants() []want {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []want
	if !s.ready {
		return nil
	}
	for _, g := range s.groups {
		part := max(readAgainRows/len(s.groups), 8)
		if !g.waits() || g.out > part/2 {
			continue
		}
		all = append(all, want{g, g.next(-1, part-g.out, readAgainSpan), max(readAgainBytes/len(s.groups), 1<<16)})
	}
	return all
}

// twins notes numbers that more than one row bears: each is done when all are.
func (s *shelf) twins(g *group, rows []*Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(rows); i++ {
		if rows[i].Seq == rows[i-1].Seq {
			n := 2
			for n <= i && rows[i-n].Seq == rows[i].Seq {
				n++
			}
			g.twice[rows[i].Seq] = n
		}
	}
}

func (s *shelf) take(g *group, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.take(number)
}
