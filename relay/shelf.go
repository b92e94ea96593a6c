package relay

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Bounds of what is remembered of rows that are set aside. At them nothing more
// is, and what waits counts as in flight again.
const (
	maxGroups    = 250
	maxPages     = 1 << 14 // 64 M numbers in a row, 16 MiB
	maxAsideKeys = 1 << 20
	maxRole      = 200 // no database names a role by more
)

// shelf knows which rows are set aside. A row is in it once and in one group.
//
// The rows of one key that are set aside are all in one group, and what comes
// behind them of that key joins it, whoever wrote it: they are read again in
// the order of their numbers, and a row enters its lane behind all that came
// before it. Only the reader adds to it while the session reads.
type shelf struct {
	src     Aside
	opened  time.Time
	horizon time.Duration
	now     func() time.Time
	seed    maphash.Seed

	saving sync.Mutex // one SaveAside at a time

	mu      sync.Mutex
	groups  map[class]*group
	by      map[uint16]*group
	keys    map[uint64]asideKey
	pages   int
	full    bool           // a bound was reached
	ready   bool           // what the session before had in flight was read
	unsaved map[uint64]int // by entry of the tracker, rows whose setting aside is not durable yet
	owed    int            // their number
	resting []resting      // done, but the broker may still lose it
	woken   chan struct{}  // there may be something to read again
}

// asideKey counts the rows of a key that are set aside. Its group is the same
// for as long as any is: rows that were read again may go back.
type asideKey struct {
	rows  uint32 // that wait to be read again
	all   uint32 // with those that are in their lane and not done
	group uint16
}

// resting is a row that is done within the horizon.
type resting struct {
	group   *group
	number  int64
	key     uint64
	ordered bool // by that key
	at      time.Time
}

// openShelf loads what is set aside. It returns nil for a session that cannot
// keep it.
func openShelf(ctx context.Context, cfg *Config, src Session, keyOf func(*Row) string) (*shelf, error) {
	keeps, ok := src.(Aside)
	if !ok {
		return nil, nil
	}
	pages, err := keeps.LoadAside(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		cfg.Log.WarnContext(ctx, "the database is not prepared for setting rows aside, so that a principal beyond its rate delays every writer; headgate outbox init prepares it", "outbox", cfg.Name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &shelf{
		src: keeps, opened: cfg.Now(), horizon: cfg.Horizon, now: cfg.Now, seed: maphash.MakeSeed(),
		groups: map[class]*group{}, by: map[uint16]*group{}, keys: map[uint64]asideKey{}, unsaved: map[uint64]int{}, woken: make(chan struct{}, 1),
	}
	slices.SortFunc(pages, func(a, b AsidePage) int { return cmp.Compare(a.Number, b.Number) })
	for i := range pages {
		if err := s.load(&pages[i]); err != nil {
			return nil, err
		}
	}
	for _, g := range s.groups {
		if err := s.learnKeys(ctx, g, keyOf); err != nil {
			return nil, err
		}
	}
	s.wake()
	return s, nil
}

// load takes a page that was kept. No bound holds for it: it is there.
func (s *shelf) load(kept *AsidePage) error {
	c := class{kept.Role, kept.Roots}
	g := s.groups[c]
	if g == nil {
		g = s.open(c)
	}
	if g == nil || kept.Number < 0 || kept.Number > 1<<50 || len(kept.Bits) > PageRows/8 || len(g.pages) > 0 && g.pages[len(g.pages)-1].number == kept.Number {
		return headgate.NewError(headgate.CodeInternal, "what the outbox has set aside cannot be read: page %d of role %.64q", kept.Number, kept.Role)
	}
	p := &page{number: kept.Number}
	p.decode(kept.Bits)
	g.pages = append(g.pages, p)
	g.rows += kept.Count()
	g.old, g.oldTo = g.rows, (p.number+1)*PageRows
	s.pages++
	return nil
}

// open makes the group of a class; nil when there are more than can be told.
func (s *shelf) open(c class) *group {
	for i := range ^uint16(0) {
		if s.by[i] == nil {
			g := &group{class: c, index: i, twice: map[int64]int{}}
			s.groups[c], s.by[i] = g, g
			return g
		}
	}
	return nil
}

// learnKeys reads what was set aside before for its keys alone: what comes
// behind them has to wait.
func (s *shelf) learnKeys(ctx context.Context, g *group, keyOf func(*Row) string) error {
	unseen := 0
	for above := int64(-1); ; {
		numbers := g.next(above, readAgainRows, readAgainSpan)
		if len(numbers) == 0 {
			return nil
		}
		rows, gone, err := s.src.ReadAside(ctx, numbers, readAgainBytes)
		if err != nil {
			return err
		}
		switch {
		case len(rows) > 0:
			above, unseen = rows[len(rows)-1].Seq, 0
		case len(gone) > 0:
			above = gone[len(gone)-1]
		case unseen < unseenAtMost:
			above = numbers[0] // those behind it may be seen
			unseen++
		default:
			above = numbers[len(numbers)-1]
		}
		for _, row := range rows {
			if key := keyOf(row); ordered(row, key) {
				s.enter(g, s.hash(key), 1, 1)
			}
		}
	}
}

// ordered reports whether rows of the key have an order. Those without a key
// go by their id.
func ordered(row *Row, key string) bool {
	return row.Event != nil && key != "" && (row.Event.Key != "" || key != row.Event.ID)
}

func (s *shelf) hash(key string) uint64 { return maphash.String(s.seed, key) }

// enter counts rows of a key: how many more wait, and how many more there are.
func (s *shelf) enter(g *group, key uint64, rows, all uint32) {
	k := s.keys[key]
	if k.all == 0 {
		k.group = g.index
	}
	k.rows += rows
	k.all += all
	s.keys[key] = k
}

// exit counts a row of a key that is done. What was never read has no key.
func (s *shelf) exit(g *group, key uint64) {
	k, ok := s.keys[key]
	switch {
	case !ok || k.group != g.index:
	case k.all > 1:
		k.all--
		s.keys[key] = k
	default:
		delete(s.keys, key)
	}
}

// leave notes that a row was read again and is in its lane: what comes behind
// it may go there, too.
func (s *shelf) leave(it *item) {
	if !ordered(it.row, it.key) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hash(it.key); s.keys[h].rows > 0 {
		k := s.keys[h]
		k.rows--
		s.keys[h] = k
	} else { // at first it could not be seen
		s.enter(it.from, h, 0, 1)
	}
}

// holder returns the group of a key of which rows are set aside; nil when none
// are. waits is whether any is to be read again.
func (s *shelf) holder(it *item) (g *group, waits bool) {
	if len(s.keys) == 0 || !ordered(it.row, it.key) {
		return nil, false
	}
	if k, ok := s.keys[s.hash(it.key)]; ok {
		return s.by[k.group], k.rows > 0
	}
	return nil, false
}

// movable reports whether a row can be set aside at all: what the broker may
// have stored without saying so is known here alone.
func movable(it *item) bool { return it.row.Seq > 0 && !it.unsure && len(it.row.Role) <= maxRole }

// put sets a row aside because c waits, in the group in which its key waits if
// one does. Its entry of the tracker is done when that was saved. Beyond the
// bounds it does so only with force.
func (s *shelf) put(it *item, c class, force bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putLocked(it, c, force)
}

func (s *shelf) putLocked(it *item, c class, force bool) bool {
	if !movable(it) {
		return false
	}
	g := it.from // it goes back
	if g == nil {
		g, _ = s.holder(it)
	}
	if g == nil {
		g = s.groups[c]
	}
	if it.from == nil && !force {
		if g == nil && len(s.groups) >= maxGroups || s.pages >= maxPages || len(s.keys) >= maxAsideKeys {
			s.full = true
			return false
		}
	}
	if g == nil {
		if g = s.open(c); g == nil {
			return false
		}
	}
	if g.twice[it.row.Seq] > 0 {
		return false // another of that number is on its way
	}
	if g.add(it.row.Seq) {
		s.pages++
	}
	all := uint32(0)
	if it.from == nil {
		all = 1
	}
	if ordered(it.row, it.key) {
		s.enter(g, s.hash(it.key), 1, all)
	}
	if it.from == nil {
		s.owe(g, it)
	}
	s.wake()
	return true
}

// adopt sets a row aside that stays in its lane.
func (s *shelf) adopt(it *item, c class) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !movable(it) {
		return false
	}
	g, _ := s.holder(it)
	if g == nil {
		g = s.groups[c]
	}
	if g == nil {
		if len(s.groups) >= maxGroups || s.pages >= maxPages {
			return false
		}
		if g = s.open(c); g == nil {
			return false
		}
	}
	if set, _ := g.has(it.row.Seq); set || s.pages >= maxPages || len(s.keys) >= maxAsideKeys {
		return false
	}
	if g.add(it.row.Seq) {
		s.pages++
	}
	g.take(it.row.Seq)
	if ordered(it.row, it.key) {
		s.enter(g, s.hash(it.key), 0, 1)
	}
	s.owe(g, it)
	it.from = g
	return true
}

// owe notes what setting a row aside will settle once it is saved.
func (s *shelf) owe(g *group, it *item) {
	s.unsaved[it.entry]++
	s.owed++
	if it.row.Committed.Before(s.opened) {
		g.old++
		g.oldTo = max(g.oldTo, it.row.Seq)
	}
}

// where is what becomes of a row that was read from the log.
type where uint8

const (
	toLane  where = iota
	toShelf       // it is set aside
	toWait        // it stands behind one that is set aside, and cannot be itself
)

// arrives says what becomes of a row that was read from the log. over is
// whether its class has its share in the lanes and waits.
func (s *shelf) arrives(it *item, over bool) where {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) == 0 && !over {
		return toLane
	}
	for _, g := range s.groups {
		set, out := g.has(it.row.Seq)
		if set && it.row.Seq > 0 && (!out || it.row.Seq <= g.oldTo) {
			s.unsaved[it.entry]++ // that may not be saved yet
			s.owed++
			return toShelf
		}
		it.unsure = it.unsure || out // another of that number, which only the table's owner can make
	}
	c := classOf(it.row)
	_, behind := s.holder(it)
	if !behind && !over && !s.groups[c].waits() {
		return toLane
	}
	switch {
	case s.putLocked(it, c, false):
		return toShelf
	case behind:
		return toWait
	}
	return toLane
}

// done notes that a row that was read again is stored or kept.
func (s *shelf) done(it *item, now time.Time) {
	g, number := it.from, it.row.Seq
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := g.twice[number]; n > 1 {
		g.twice[number] = n - 1
		return
	}
	delete(g.twice, number)
	r := resting{group: g, number: number, at: now}
	if r.ordered = ordered(it.row, it.key); r.ordered {
		r.key = s.hash(it.key)
	}
	if s.horizon > 0 {
		s.resting = append(s.resting, r)
	} else {
		s.rested(r)
	}
	s.wake()
}

// rested removes a row that is done for good.
func (s *shelf) rested(r resting) {
	r.group.done(r.number)
	if r.ordered {
		s.exit(r.group, r.key)
	}
}

func (s *shelf) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// settle removes what is beyond the horizon. It says whether pages are to be
// saved, and when more will be beyond it; 0 when nothing is within.
func (s *shelf) settle() (dirty bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for len(s.resting) > 0 {
		r := s.resting[0]
		if wait = s.horizon - now.Sub(r.at); wait > 0 {
			break
		}
		wait = 0
		s.rested(r)
		s.resting = s.resting[1:]
	}
	for _, g := range s.groups {
		dirty = dirty || slices.ContainsFunc(g.pages, func(p *page) bool { return p.dirty })
	}
	return dirty, wait
}

// save makes durable what is set aside, and returns how many rows of each entry
// of the tracker are done by that.
func (s *shelf) save(ctx context.Context) (map[uint64]int, error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	var pages []AsidePage
	for c, g := range s.groups {
		dirty, dropped := g.dirtyPages()
		pages = append(pages, dirty...)
		s.pages -= dropped
		if g.rows == 0 {
			delete(s.groups, c)
			delete(s.by, g.index)
			maps.DeleteFunc(s.keys, func(_ uint64, k asideKey) bool { return k.group == g.index }) // of rows that are gone
		}
	}
	done := s.unsaved
	s.unsaved, s.owed = map[uint64]int{}, 0
	s.full = s.full && len(s.groups) > 0
	s.mu.Unlock()
	if len(pages) == 0 {
		return done, nil
	}
	return done, s.src.SaveAside(ctx, pages)
}

// present lets rows be read again. Until then what is read of their keys joins
// them, so that their numbers order it.
func (s *shelf) present() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		s.ready = true
		s.wake()
	}
}

// owes returns how many rows were set aside since the last save.
func (s *shelf) owes() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owed
}

// old reports whether rows are set aside that a session before may have
// submitted.
func (s *shelf) old() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if g.old > 0 {
			return true
		}
	}
	return false
}

// AsideStatus is what of one role is set aside.
type AsideStatus struct {
	Role string `json:"role"`
	// Roots is whether it waits for the rate of the principal's roots, or as
	// children of other events.
	Roots bool `json:"roots"`
	// Rows counts those that are not done, rows of others behind them of the same
	// key among them.
	Rows int `json:"rows"`
}

func (s *shelf) tell(to *Status) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, g := range s.groups {
		to.Aside = append(to.Aside, AsideStatus{c.role, c.root, g.rows})
	}
	slices.SortFunc(to.Aside, func(a, b AsideStatus) int { return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Role, b.Role)) })
	to.AsideFull = s.full
}
