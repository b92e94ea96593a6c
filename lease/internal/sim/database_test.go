package sim

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// state is what a database holds.
type state struct {
	leases   map[string]store.Lease
	settings map[string][]byte
	asked    map[string]asked // requests that were granted, by id
	events   []string
}

// asked is a request that is remembered.
type asked struct {
	what string
	at   time.Time
}

func (s *state) clone() state {
	return state{maps.Clone(s.leases), maps.Clone(s.settings), maps.Clone(s.asked), s.events[:len(s.events):len(s.events)]}
}

// record is one committed transaction in the log.
type record struct {
	leases   []store.Lease
	settings map[string][]byte // nil: deleted
	asked    map[string]asked  // zero: deleted
	events   []string
}

func (r *record) empty() bool {
	return len(r.leases)+len(r.settings)+len(r.asked)+len(r.events) == 0
}

func (r *record) apply(s *state) {
	for _, l := range r.leases {
		s.leases[l.Resource] = l
	}
	for k, v := range r.settings {
		if v == nil {
			delete(s.settings, k)
		} else {
			s.settings[k] = v
		}
	}
	for k, v := range r.asked {
		if v == (asked{}) {
			delete(s.asked, k)
		} else {
			s.asked[k] = v
		}
	}
	s.events = append(s.events, r.events...)
}

// database is where the leases are: one writer, a log, and a disk that forgets
// what was not synced. What was committed is visible once it is synced.
type database struct {
	w     *world
	host  int
	clock *clock
	up    bool
	life  int
	busy  bool
	state state
	// synced is the log on the disk, pending what was written since.
	synced, pending []record
	// unsynced counts the commits that a broken variant did not sync.
	unsynced int
}

func newDatabase(w *world, host int) *database {
	d := &database{w: w, host: host, clock: newClock(), up: true}
	d.replay()
	return d
}

// replay makes the state anew from what is on the disk.
func (d *database) replay() {
	d.state = state{leases: map[string]store.Lease{}, settings: map[string][]byte{}, asked: map[string]asked{}}
	for i := range d.synced {
		d.synced[i].apply(&d.state)
	}
	if d.clock.level {
		recorded := time.Time{}
		for _, l := range d.state.leases {
			if l.Changed.After(recorded) {
				recorded = l.Changed
			}
		}
		d.clock.restart(recorded)
	}
}

// crash loses what was not synced, but for the first records, which the
// system may have written back.
func (d *database) crash(a *actor) {
	kept := a.rng.IntN(len(d.pending) + 1)
	a.say("the database crashes, %d of %d records are kept", kept, len(d.pending))
	d.synced = append(d.synced, d.pending[:kept]...)
	d.pending, d.busy, d.up = nil, false, false
	d.life++
	d.replay()
	d.w.judge.recovered(a, &d.state)
}

// session is a node's way to the database.
type session struct {
	*database
	life *life
}

var _ store.Store = (*session)(nil)

func unavailable(outcome headgate.Outcome, why string) error {
	return &headgate.Error{Code: headgate.CodeUnavailable, Outcome: outcome, Detail: why}
}

func (s *session) local() bool { return s.host == s.life.node.host }

// left notes that the actor is not at the database any more.
func (a *actor) left() {
	a.inStore.Store(false)
	a.w.beat.Add(1)
}

// enter goes to the database; an error means that it was not reached.
func (s *session) enter(ctx context.Context, a *actor) error {
	a.w.beat.Add(1)
	a.inStore.Store(true)
	if s.local() {
		a.some(10*time.Microsecond, 200*time.Microsecond)
	} else {
		a.some(100*time.Microsecond, pick[time.Duration](a, 1, 1, 1, 10)*2*time.Millisecond)
	}
	switch {
	case s.life.dead:
		return unavailable(headgate.NotApplied, "the node is gone")
	case ctx.Err() != nil:
		return &headgate.Error{Code: headgate.CodeCanceled, Outcome: headgate.NotApplied, Err: ctx.Err(), Detail: "abandoned"}
	case !s.up || s.w.faults.cut(s.life.node.host, s.host):
		a.some(20*time.Millisecond, 400*time.Millisecond)
		return unavailable(headgate.NotApplied, "the database cannot be reached")
	}
	return nil
}

// leave comes back with an answer; unknown is the error when that is lost.
func (s *session) leave(a *actor, answer, unknown error) error {
	switch {
	case s.local():
		a.wait(0)
	case s.w.faults.cut(s.host, s.life.node.host):
		a.some(20*time.Millisecond, 400*time.Millisecond)
		answer = unknown
	default:
		a.some(100*time.Microsecond, 2*time.Millisecond)
	}
	if s.life.dead {
		return unknown
	}
	return answer
}

func (s *session) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	a := actorOf(ctx)
	defer a.left()
	if err := s.enter(ctx, a); err != nil {
		return err
	}
	at := s.database.life
	refused := unavailable(headgate.NotApplied, "the database went away")
	for s.busy {
		a.some(20*time.Microsecond, 300*time.Microsecond)
		if s.database.life != at || s.life.dead {
			return s.leave(a, refused, refused)
		}
	}
	tx := &transaction{db: s.database, state: s.state.clone()}
	if err := fn(ctx, tx.roles()); err != nil {
		return s.leave(a, err, refused)
	}
	if tx.log.empty() {
		return s.leave(a, nil, refused)
	}
	s.w.judge.commits(a, s.database, tx)
	return s.commit(a, tx, at)
}

// commit writes the log, syncs it and answers.
func (s *session) commit(a *actor, tx *transaction, at int) error {
	unknown := unavailable(headgate.Unknown, "the connection broke within the commit")
	s.pending = append(s.pending, tx.log)
	if s.w.broken == ackBeforeSync {
		if s.unsynced++; s.unsynced%8 != 0 {
			tx.log.apply(&s.state)
			return s.leave(a, nil, unknown)
		}
	}
	s.busy = true
	a.some(50*time.Microsecond, pick[time.Duration](a, 1, 1, 1, 20)*time.Millisecond)
	if s.database.life != at {
		return s.leave(a, unknown, unknown)
	}
	s.synced, s.pending, s.busy = append(s.synced, s.pending...), nil, false
	tx.log.apply(&s.state)
	return s.leave(a, nil, unknown)
}

func (s *session) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	a := actorOf(ctx)
	defer a.left()
	if err := s.enter(ctx, a); err != nil {
		return err
	}
	tx := &transaction{db: s.database, state: s.state.clone(), readOnly: true}
	err := s.leave(a, fn(ctx, tx.roles()), unavailable(headgate.NotApplied, "the connection broke"))
	if ctx.Err() != nil {
		return &headgate.Error{Code: headgate.CodeCanceled, Outcome: headgate.NotApplied, Err: ctx.Err(), Detail: "abandoned"}
	}
	return err
}

func (s *session) Info() store.Info { return store.Info{Driver: "simulated", Durable: true} }
func (s *session) Close() error     { return nil }

// transaction is one transaction, on a copy of the state.
type transaction struct {
	db       *database
	state    state
	log      record
	readOnly bool
	// shut are the leases whose gate was asked to be closed.
	shut []store.Lease
}

func (tx *transaction) roles() *store.Tx {
	return &store.Tx{Leases: leases{tx}, Settings: settings{tx}, Outbox: outbox{tx: tx}}
}

type settings struct{ *transaction }

func (s settings) Get(_ context.Context, key string) ([]byte, error) {
	v, ok := s.state.settings[key]
	if !ok {
		return nil, headgate.NewError(headgate.CodeNotFound, "no setting %q", key)
	}
	return bytes.Clone(v), nil
}

func (s settings) put(key string, v []byte) {
	one := record{settings: map[string][]byte{key: v}}
	one.apply(&s.state)
	if s.log.settings == nil {
		s.log.settings = map[string][]byte{}
	}
	s.log.settings[key] = v
}

func (s settings) Put(_ context.Context, key string, value []byte) error {
	s.put(key, append([]byte{}, value...))
	return nil
}

func (s settings) Delete(_ context.Context, key string) error {
	s.put(key, nil)
	return nil
}

func (s settings) List(_ context.Context, prefix string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for k, v := range s.state.settings {
		if strings.HasPrefix(k, prefix) {
			out[k] = bytes.Clone(v)
		}
	}
	return out, nil
}

type outbox struct {
	store.Outbox // the rest is not used
	tx           *transaction
}

func (o outbox) Append(_ context.Context, rows []store.OutboxRow) error {
	for i := range rows {
		o.tx.state.events = append(o.tx.state.events, string(rows[i].Event))
		o.tx.log.events = append(o.tx.log.events, string(rows[i].Event))
	}
	return nil
}

type leases struct{ *transaction }

func (l leases) Now(context.Context) (time.Time, error) { return l.db.clock.now(), nil }

func (l leases) Get(_ context.Context, resource string) (store.Lease, error) {
	row, ok := l.state.leases[resource]
	if !ok {
		return row, headgate.NewError(headgate.CodeNotFound, "no lease %q", resource)
	}
	row.Nonce, row.Audience = bytes.Clone(row.Nonce), slices.Clone(row.Audience)
	return row, nil
}

func (l leases) List(_ context.Context, f store.LeaseFilter) ([]store.Lease, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	var out []store.Lease
	for _, name := range slices.Sorted(maps.Keys(l.state.leases)) {
		row := l.state.leases[name]
		switch {
		case !strings.HasPrefix(name, f.Prefix) || name <= f.After && f.After != "":
		case !f.HeldAt.IsZero() && (row.Holder == "" || !row.Expires.After(f.HeldAt)):
		case len(out) < min(limit, 1000):
			out = append(out, row)
		}
	}
	return out, nil
}

// force writes a row whatever is there.
func (l leases) force(row store.Lease) {
	row.Nonce, row.Audience = bytes.Clone(row.Nonce), slices.Clone(row.Audience)
	l.state.leases[row.Resource] = row
	l.log.leases = append(l.log.leases, row)
}

func (l leases) Grant(_ context.Context, row store.Lease) error {
	old, known := l.state.leases[row.Resource]
	switch {
	case l.db.w.broken == takeoverKeepsEpoch && old.Holder != "" && row.Holder != "":
		row.Epoch = old.Epoch
	case l.db.w.broken == endChangesNothing && row.Holder == "":
		row = old
	case known && row.Epoch <= old.Epoch:
		return headgate.NewError(headgate.CodeConflict, "epoch %d is not above %d", row.Epoch, old.Epoch)
	}
	l.force(row)
	return nil
}

func (l leases) Touch(_ context.Context, resource string, epoch int64, expires, changed time.Time, closing bool) error {
	row, known := l.state.leases[resource]
	if !known || row.Epoch != epoch {
		return headgate.NewError(headgate.CodeConflict, "epoch %d is not the stored one", epoch)
	}
	if closing && !row.Closing {
		l.shut = append(l.shut, row)
	}
	switch l.db.w.broken {
	case gateStaysOpen:
		closing = false
	case endsAreNotMended:
		if !closing && expires.Before(row.Expires) {
			return nil
		}
	}
	row.Expires, row.Changed, row.Closing = expires, changed, closing
	l.force(row)
	return nil
}

func (l leases) keep(id string, v asked) {
	one := record{asked: map[string]asked{id: v}}
	one.apply(&l.state)
	if l.log.asked == nil {
		l.log.asked = map[string]asked{}
	}
	l.log.asked[id] = v
}

func (l leases) Remember(_ context.Context, id, what []byte, at time.Time) error {
	l.keep(string(id), asked{string(what), at})
	return nil
}

func (l leases) Remembered(_ context.Context, id []byte) ([]byte, error) {
	if v, ok := l.state.asked[string(id)]; ok {
		return []byte(v.what), nil
	}
	return nil, nil
}

func (l leases) Forget(_ context.Context, before time.Time, most, limit int) (int, error) {
	ids := slices.SortedFunc(maps.Keys(l.state.asked), func(a, b string) int {
		if c := l.state.asked[a].at.Compare(l.state.asked[b].at); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	n := 0
	for i, id := range ids {
		if n < limit && (l.state.asked[id].at.Before(before) || i < len(ids)-most) {
			l.keep(id, asked{})
			n++
		}
	}
	return n, nil
}
