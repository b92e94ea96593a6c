package pgrelay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/headgate/headgate/store"
)

// emit writes the events from..to in one transaction, over seven keys.
func (r *rig) emit(from, to int) {
	r.t.Helper()
	r.exec(`SELECT headgate.emit('order.placed', jsonb_build_object('n', i), 'k' || i % 7) FROM generate_series($1::int, $2::int) i`, from, to)
}

// verify fails unless exactly the events 1..n are stored, each once, those of
// each key in order.
func (r *rig) verify(n int) {
	r.t.Helper()
	last := map[string]int{}
	seen := map[int]bool{}
	for _, s := range r.stored() {
		var d struct{ N int }
		if err := json.Unmarshal(s.Event.Data, &d); err != nil {
			r.t.Fatal(err)
		}
		if seen[d.N] {
			r.t.Errorf("event %d is stored twice, again at %s", d.N, s.Position)
		}
		seen[d.N] = true
		if d.N < last[s.Event.Key] {
			r.t.Errorf("event %d of key %s is stored after %d", d.N, s.Event.Key, last[s.Event.Key])
		}
		last[s.Event.Key] = d.N
	}
	for i := 1; i <= n; i++ {
		if !seen[i] {
			r.t.Errorf("event %d is missing", i)
		}
	}
	if len(seen) != n {
		r.t.Errorf("%d events are stored, want %d", len(seen), n)
	}
}

// kept returns the quarantine's records with their bodies, newest first.
func (r *rig) kept() []store.QuarantineRecord {
	r.t.Helper()
	var all []store.QuarantineRecord
	must(r.t, r.store.View(context.Background(), func(ctx context.Context, tx *store.Tx) error {
		var err error
		if all, err = tx.Quarantine.List(ctx, store.QuarantineFilter{Limit: 1000}); err != nil {
			return err
		}
		for i := range all {
			if all[i], err = tx.Quarantine.Get(ctx, all[i].QID); err != nil {
				return err
			}
		}
		return nil
	}))
	return all
}

func (r *rig) slot() (confirmed string, held int) {
	r.t.Helper()
	rows := pgtest.Exec(r.t, r.db, `SELECT confirmed_flush_lsn, (pg_current_wal_lsn() - restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = (SELECT slot FROM headgate.installation)`)
	if len(rows) == 0 {
		return "", 0
	}
	_, err := fmt.Sscan(rows[0][1], &held)
	must(r.t, err)
	return rows[0][0], held
}

// until waits until a condition holds.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	within := time.Minute
	if campaign() {
		within = 20 * time.Minute
	}
	for deadline := time.Now().Add(within); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			r.t.Fatalf("in vain: %s", what)
		}
	}
}

// faulty changes sessions of a source.
type faulty struct {
	relay.Source
	wrap func(relay.Session) relay.Session
}

func (f faulty) Open(ctx context.Context) (relay.Session, error) {
	s, err := f.Source.Open(ctx)
	if err != nil {
		return nil, err
	}
	return f.wrap(s), nil
}

// mute never confirms, and ends without handing over: as if the process died
// after the broker's acknowledgement.
type mute struct{ relay.Session }

func (mute) Confirm(relay.Position) {}

func (m mute) Close(context.Context) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.Session.Close(ended) // the handover fails, which is the point
	return nil
}

func (r *rig) mute(c *relay.Config) {
	c.Source = faulty{r.source(), func(s relay.Session) relay.Session { return mute{s} }}
}

// gate is a perimeter that can be shut.
type gate struct {
	relay.Admitter
	open    chan struct{}
	entered chan struct{} // closed by the first submission
	once    sync.Once
}

func newGate(a relay.Admitter) *gate {
	return &gate{Admitter: a, open: make(chan struct{}), entered: make(chan struct{})}
}

func (g *gate) lift() { close(g.open) }

func (g *gate) Admit(ctx context.Context, s perimeter.Submission) []perimeter.Result {
	g.once.Do(func() { close(g.entered) })
	select {
	case <-g.open:
	case <-ctx.Done():
	}
	return g.Admitter.Admit(ctx, s)
}

// noise writes WAL that is not ours.
func (r *rig) noise(megabytes int) {
	r.t.Helper()
	r.exec(`CREATE TABLE IF NOT EXISTS noise (x text)`)
	for range megabytes {
		r.exec(`INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 1000)`)
	}
}

func TestTrap02KilledBetweenAckAndConfirm(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.emit(1, 2000)
	x := r.run(r.mute)
	x.wait(t, 2000)
	x.stop()
	x = r.run(nil)
	for _, d := range x.wait(t, 2000) {
		if !d.Result.Duplicate {
			t.Fatalf("event %s was stored again", d.Row.Event.ID)
		}
	}
	r.verify(2000)
}

func TestTrap05KeepaliveWhileInFlight(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	g := newGate(r.door)
	x := r.run(func(c *relay.Config) { c.Admit = g; c.Drain = time.Millisecond })
	r.emit(1, 1)
	<-g.entered
	beats := func() string { return pgtest.Exec(t, r.db, `SELECT beat FROM headgate.relay_state`)[0][0] }
	beat := func() {
		first := beats()
		r.until("heartbeats go on", func() bool { return beats() > first })
	}
	beat() // what stood before the event is confirmed by then
	beat()
	before, _ := r.slot()
	r.noise(5)
	beat() // the server has told of the later log when a heartbeat came by
	if after, _ := r.slot(); after != before {
		t.Errorf("the slot moved from %s to %s while the event was in flight", before, after)
	}
	x.stop()
	x = r.run(nil)
	x.wait(t, 1)
	r.verify(1)
}

func TestTrap06KeepalivePastAnOpenTransaction(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	c := r.connect()
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, `SELECT headgate.emit('order.placed', '{"n":1}', 'k1')`)
	must(t, err)
	r.noise(2)
	confirmed, _ := r.slot()
	r.until("the position passes the open transaction", func() bool { now, _ := r.slot(); return now != confirmed })
	x.stop()
	must(t, tx.Commit(ctx))
	x = r.run(nil)
	x.wait(t, 1)
	r.verify(1)
}

func TestTrap07IdlePublicationHoldsNoLog(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.run(nil)
	r.noise(48)
	other := database(t, pgtest.URL(t))
	pgtest.Exec(t, other, `CREATE TABLE noise AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 32000)`)
	r.exec(`CHECKPOINT`)
	r.until("the slot lets the log go", func() bool { _, held := r.slot(); return held < 32<<20 })
}

func TestTrap09RowsThatShareOnePosition(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`CREATE TABLE public.orders (id int PRIMARY KEY)`)
	must(t, pgrelay.Watch(context.Background(), r.db, "public.orders", "orders"))
	c := r.connect()
	var csv strings.Builder
	for i := range 5000 {
		fmt.Fprintln(&csv, i)
	}
	_, err := c.PgConn().CopyFrom(context.Background(), strings.NewReader(csv.String()), `COPY public.orders FROM STDIN`)
	must(t, err)
	// The first relay ends in the middle of the transaction.
	var n atomic.Int64
	var x *running
	half := make(chan struct{})
	x = r.run(func(c *relay.Config) {
		r.mute(c)
		done := c.Done
		c.InFlight = 16
		c.Done = func(d relay.Done) {
			done(d)
			if n.Add(1) == 1777 {
				close(half)
			}
		}
	})
	<-half
	x.stop()
	first := len(x.wait(t, 1777))
	x = r.run(nil)
	x.wait(t, 5000)
	got := r.stored()
	if len(got) != 5000 {
		t.Errorf("%d events are stored; the first relay had done %d", len(got), first)
	}
	ids, rows := map[string]bool{}, map[int]bool{}
	for _, s := range got {
		var c struct{ Key struct{ ID int } }
		must(t, json.Unmarshal(s.Event.Data, &c))
		if ids[s.Event.ID] || rows[c.Key.ID] {
			t.Errorf("event %s of row %d is stored again at %s", s.Event.ID, c.Key.ID, s.Position)
		}
		ids[s.Event.ID], rows[c.Key.ID] = true, true
	}
	for _, row := range pgtest.Exec(t, r.db, `SELECT id FROM headgate.outbox`) {
		if !ids[row[0]] {
			t.Errorf("event %s is missing", row[0])
		}
	}
	for i := range 5000 {
		if !rows[i] {
			t.Errorf("row %d is not told", i)
		}
	}
}

func TestTrap10InterleavedTransactionsAtRestart(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	ctx := context.Background()
	var txs []interface {
		Commit(context.Context) error
	}
	emit := func(n int) func() {
		tx, err := r.connect().Begin(ctx)
		must(t, err)
		txs = append(txs, tx)
		return func() {
			_, err := tx.Exec(ctx, `SELECT headgate.emit('order.placed', jsonb_build_object('n', $1::int), 'own' || $1)`, n)
			must(t, err)
		}
	}
	a, b, c := emit(1), emit(2), emit(3)
	a()
	b()
	c()
	must(t, txs[1].Commit(ctx))
	x := r.run(nil)
	x.wait(t, 1)
	x.stop()
	must(t, txs[0].Commit(ctx))
	x = r.run(r.mute)
	x.wait(t, 1)
	x.stop()
	must(t, txs[2].Commit(ctx))
	x = r.run(nil)
	x.wait(t, 2)
	r.verify(3)
}

func TestTrap11LargeTransactionInFlatMemory(t *testing.T) {
	rows := 100_000
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rows = 1_000_000
	}
	r := newRig(t, pgtest.URL(t))
	c := r.connect()
	_, err := c.Exec(context.Background(), `SELECT headgate.emit('order.placed', jsonb_build_object('n', i, 'pad', repeat('x', 400)), 'k' || i % 97) FROM generate_series(1, $1::int) i`, rows)
	must(t, err)
	var done, worst atomic.Int64
	admit := countOnly{}
	src, err := pgrelay.New(pgrelay.Config{URL: r.db, Beat: 5 * time.Second, Log: r.log()})
	must(t, err)
	x := r.run(func(cfg *relay.Config) {
		cfg.Admit, cfg.Source = admit, src
		cfg.Done = func(relay.Done) {
			if done.Add(1)%20_000 == 0 {
				var m runtime.MemStats
				runtime.GC() // what is retained counts, not how busy the machine is
				runtime.ReadMemStats(&m)
				worst.Store(max(worst.Load(), int64(m.HeapAlloc)))
			}
		}
	})
	r.until("all rows are done", func() bool { return done.Load() == int64(rows) })
	t.Logf("%d rows in one transaction; the heap had at most %d MiB", rows, worst.Load()>>20)
	if w := worst.Load(); w > 64<<20 {
		t.Errorf("the heap grew to %d MiB", w>>20)
	}
	x.stop()
}

// countOnly admits everything and keeps nothing.
type countOnly struct{}

func (countOnly) Admit(_ context.Context, s perimeter.Submission) []perimeter.Result {
	return make([]perimeter.Result, len(s.Items))
}

func TestTrap12SlowSinkKeepsTheSession(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "wal_sender_timeout=1s")
	r := newRig(t, server.URL())
	g := newGate(r.door)
	x := r.run(func(c *relay.Config) { c.Admit = g; c.InFlight = 4 })
	r.emit(1, 5000)
	<-g.entered
	epoch := func() (epoch, beat int) {
		row := pgtest.Exec(t, r.db, `SELECT epoch, beat FROM headgate.relay_state`)[0]
		_, err := fmt.Sscan(row[0]+" "+row[1], &epoch, &beat)
		must(t, err)
		return epoch, beat
	}
	_, first := epoch()
	r.until("six heartbeats pass", func() bool { _, beat := epoch(); return beat >= first+6 })
	if n, _ := epoch(); n != 1 {
		t.Errorf("the session was opened anew: epoch %d", n)
	}
	g.lift()
	x.wait(t, 5000)
	r.verify(5000)
}

func TestTrap15SlotInvalidated(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "max_slot_wal_keep_size=16MB", "min_wal_size=32MB", "max_wal_size=32MB", "wal_keep_size=0")
	r := newRig(t, server.URL())
	x := r.run(nil)
	r.emit(1, 10)
	x.wait(t, 10)
	x.stop()
	r.emit(11, 50)
	for i := 0; ; i++ {
		r.noise(8)
		r.exec(`SELECT pg_switch_wal()`)
		r.exec(`CHECKPOINT`)
		if s := pgtest.Exec(t, r.db, `SELECT wal_status FROM pg_replication_slots`); s[0][0] == "lost" {
			break
		}
		if i == 20 {
			t.Fatal("the slot is not lost")
		}
	}
	r.emit(51, 60)
	x = r.run(nil)
	r.until("all are stored", func() bool { return len(r.stored()) == 60 })
	r.verify(60)
	r.until("the repair ended", func() bool {
		s, err := pgrelay.Inspect(context.Background(), r.db)
		must(t, err)
		return s.Repair == "" && s.SlotStatus == "reserved"
	})
	r.emit(61, 61)
	r.until("the stream goes on", func() bool { return len(r.stored()) == 61 })
	x.stop()
}

func TestTrap16SlotDroppedOrMadeAnew(t *testing.T) {
	for name, recreate := range map[string]bool{"dropped": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			x := r.run(nil)
			r.emit(1, 10)
			x.wait(t, 10)
			x.stop()
			r.emit(11, 20)
			slot := pgtest.Exec(t, r.db, `SELECT slot FROM headgate.installation`)[0][0]
			r.exec(`SELECT pg_drop_replication_slot($1)`, slot)
			if recreate {
				r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
			}
			r.emit(21, 30)
			r.run(nil)
			r.until("all are stored", func() bool { return len(r.stored()) == 30 })
			r.verify(30)
		})
	}
}

func TestTrap14ReliefValve(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	g := newGate(r.door)
	r.emit(1, 5)
	src, err := pgrelay.New(pgrelay.Config{URL: r.db, Beat: 300 * time.Millisecond, WALBudget: 20 << 20, Log: r.log()})
	must(t, err)
	x := r.run(func(c *relay.Config) { c.Source = src; c.Admit = g })
	r.noise(40)
	r.until("the slot lets the log go while the broker is away", func() bool {
		s, err := pgrelay.Inspect(context.Background(), r.db)
		must(t, err)
		return s.Repair != "" && s.Held < 20<<20
	})
	r.emit(6, 10)
	g.lift()
	r.until("all are stored", func() bool { return len(r.stored()) == 10 })
	r.verify(10)
	r.until("the stream is back", func() bool {
		s, err := pgrelay.Inspect(context.Background(), r.db)
		must(t, err)
		return s.Repair == "" && s.Active
	})
	x.stop()
}

func TestTrap17OneRelayLeads(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	first := r.run(nil)
	r.emit(1, 5)
	first.wait(t, 5)
	second := r.run(nil)
	r.emit(6, 10)
	first.wait(t, 10)
	if second.Status().Leads {
		t.Error("two relays lead")
	}
	first.stop()
	r.emit(11, 15)
	second.wait(t, 5)
	r.verify(15)
}

func TestTrap17SupersededEpochSubmitsNothing(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 5)
	x.wait(t, 5)
	r.exec(`UPDATE headgate.relay_state SET epoch = epoch + 1`)
	r.until("the session ends and leads again by a higher epoch", func() bool {
		return pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0] == "3" && x.Status().Leads
	})
	r.emit(6, 10)
	r.until("all are stored", func() bool { return len(r.stored()) >= 10 })
	r.verify(10)
}

// A leader that was stopped, and goes on when others may lead, must not submit.
func TestTrap17StoppedLeaderSubmitsNothing(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	var ahead atomic.Int64
	src, err := pgrelay.New(pgrelay.Config{URL: r.db, Beat: 5 * time.Second, Log: r.log(), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	must(t, err)
	x := r.run(func(c *relay.Config) { c.Source = src })
	r.emit(1, 5)
	x.wait(t, 5)
	ahead.Store(int64(time.Hour)) // the process was stopped for an hour
	r.emit(6, 10)
	r.until("all are stored", func() bool { return len(r.stored()) >= 10 })
	if e := pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0]; e != "2" {
		t.Errorf("the rows went out under epoch %s; the lead had to be taken anew", e)
	}
	r.verify(10)
}

// A leader whose host vanished holds the lock until the server notices; the
// standby does not wait for that.
func TestTrap18VanishedLeaderIsEnded(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.emit(1, 3)
	slot := pgtest.Exec(t, r.db, `SELECT slot FROM headgate.installation`)[0][0]
	gone := r.connect()
	ctx := context.Background()
	_, err := gone.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('headgate relay ' || $1, 0))`, slot)
	must(t, err)
	_, err = gone.Exec(ctx, `UPDATE headgate.relay_state SET epoch = 1, renewed = clock_timestamp() + interval '1 second'`)
	must(t, err)
	x := r.run(nil)
	x.wait(t, 3)
	if err := gone.Ping(ctx); err == nil {
		t.Error("two sessions hold the lock")
	}
	r.verify(3)
}

func TestTrap21IDReuse(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	for _, n := range []int{1, 1, 2} { // the same twice, then another under the same id
		r.exec(`SELECT headgate.emit_event('one', 'order.placed', '/s', NULL, 'k1', NULL, convert_to($1, 'UTF8'))`, fmt.Sprintf(`{"n":%d}`, n))
	}
	rows := x.wait(t, 3)
	if !rows[1].Result.Duplicate || rows[1].QID != "" {
		t.Errorf("the repetition ended as %+v", rows[1].Result)
	}
	if rows[2].QID == "" || rows[2].Result.Err.Code != headgate.CodeConflict {
		t.Errorf("the reuse ended as %+v", rows[2].Result)
	}
	r.verify(1)
	if kept := r.kept(); len(kept) != 1 || string(kept[0].Body) != `{"n":2}` {
		t.Errorf("kept: %+v", kept)
	}
}

func TestTrap22RowsByRawSQL(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, data) VALUES ('', 'headgate', 'order.placed', '{"n":1}')`)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, attributes, data) VALUES ('a', 'headgate', 'order.placed', '[1]', '{"n":2}')`)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, data) VALUES ('b', 'headgate', 'Order Placed', '{"n":3}')`)
	r.emit(1, 1)
	x.wait(t, 4)
	r.verify(1)
	if kept := r.kept(); len(kept) != 3 {
		t.Errorf("%d records are kept, want 3", len(kept))
	}
}

func TestTrap23DDLInMidStream(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 1)
	r.exec(`ALTER TABLE headgate.outbox ADD COLUMN later text DEFAULT 'x'`)
	r.emit(2, 2)
	r.exec(`BEGIN`)
	c := r.connect()
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	must(t, err)
	for _, sql := range []string{
		`SELECT headgate.emit('order.placed', '{"n":3}', 'k3')`,
		`ALTER TABLE headgate.outbox DROP COLUMN later`,
		`ALTER TABLE headgate.outbox ALTER COLUMN subject TYPE varchar(5000)`,
		`SELECT headgate.emit('order.placed', '{"n":4}', 'k4')`,
	} {
		_, err := tx.Exec(ctx, sql)
		must(t, err)
	}
	must(t, tx.Commit(ctx))
	r.exec(`CREATE TABLE headgate.outbox_19990101 PARTITION OF headgate.outbox FOR VALUES FROM ('1999-01-01') TO ('1999-01-02')`)
	r.emit(5, 5)
	r.exec(`DROP TABLE headgate.outbox_19990101`)
	r.emit(6, 6)
	x.wait(t, 6)
	r.verify(6)
	if e := pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0]; e != "1" {
		t.Errorf("the session was opened anew: epoch %s", e)
	}
}

func TestTrap24RowsGoneBeforeTheyAreRead(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.emit(1, 5)
	r.exec(`TRUNCATE headgate.outbox`)
	r.exec(`WITH e AS (SELECT headgate.emit('order.placed', '{"n":6}', 'k6')) SELECT * FROM e`)
	r.exec(`DELETE FROM headgate.outbox`)
	name := pgtest.Exec(t, r.db, `SELECT to_char(now() AT TIME ZONE 'UTC', '"headgate.outbox_"YYYYMMDD')`)[0][0]
	r.emit(7, 8)
	r.exec(`DROP TABLE ` + name)
	x := r.run(nil)
	x.wait(t, 8)
	r.verify(8)
}

func TestTrap25PartitionsWaitForTheProof(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`CREATE TABLE headgate.outbox_20200101 PARTITION OF headgate.outbox FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, key, data, created) VALUES ('old', 'headgate', 'order.placed', 'k1', '{"n":1}', '2020-01-01 12:00+00')`)
	r.exec(`SELECT headgate.maintain('1 day')`)
	if n := pgtest.Exec(t, r.db, `SELECT count(*) FROM headgate.outbox`)[0][0]; n != "1" {
		t.Fatal("a row that nobody has published was dropped")
	}
	x := r.run(nil)
	x.wait(t, 1)
	r.until("the published partition is dropped", func() bool {
		r.exec(`SELECT headgate.maintain('1 day')`)
		return pgtest.Exec(t, r.db, `SELECT count(*) FROM headgate.outbox`)[0][0] == "0"
	})
	r.verify(1)
}

func TestTrap26OnlyCommittedRows(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "max_prepared_transactions=4")
	r := newRig(t, server.URL())
	x := r.run(nil)
	c := r.connect()
	ctx := context.Background()
	for _, sql := range []string{
		`BEGIN`, `SELECT headgate.emit('order.placed', '{"n":1}', 'k1')`, `SAVEPOINT s`, `SELECT headgate.emit('order.placed', '{"n":99}', 'k1')`,
		`ROLLBACK TO s`, `SELECT headgate.emit('order.placed', '{"n":2}', 'k2')`, `COMMIT`,
		`BEGIN`, `SELECT headgate.emit('order.placed', '{"n":98}', 'k1')`, `ROLLBACK`,
		`BEGIN`, `SELECT headgate.emit('order.placed', '{"n":3}', 'k3')`, `PREPARE TRANSACTION 'p'`,
		`BEGIN`, `SELECT headgate.emit('order.placed', '{"n":4}', 'k4')`, `COMMIT`,
	} {
		_, err := c.Exec(ctx, sql)
		must(t, err)
	}
	x.wait(t, 3)
	if got := len(r.stored()); got != 3 {
		t.Errorf("%d events are stored before COMMIT PREPARED, want 3", got)
	}
	_, err := c.Exec(ctx, `COMMIT PREPARED 'p'`)
	must(t, err)
	x.wait(t, 4)
	r.verify(4)
}

func TestTrap27PoisonIsKeptWholeAndPassed(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	big := `{"n":1,"pad":"` + strings.Repeat("x", 2<<20) + `"}`
	r.exec(`SELECT headgate.emit_event('big', 'order.placed', NULL, NULL, 'k1', NULL, convert_to($1, 'UTF8'))`, big)
	r.exec(`SELECT headgate.emit_event('bytes', 'order.placed', NULL, NULL, 'k1', NULL, '\xff00fe')`)
	r.exec(`SELECT headgate.emit('order.unheard', '{"n":1}', 'k1')`)
	r.exec(`SELECT headgate.emit('order.placed', '{"n":"one"}', 'k1')`)
	r.emit(1, 3)
	x.wait(t, 7)
	r.verify(3)
	kept := r.kept()
	if len(kept) != 4 {
		t.Fatalf("%d records are kept, want 4", len(kept))
	}
	for _, k := range kept {
		if k.ID == "big" && string(k.Body) != big {
			t.Error("the large event is not kept whole")
		}
		if k.ID == "bytes" && string(k.Body) != "\xff\x00\xfe" {
			t.Errorf("the bytes are kept as %q", k.Body)
		}
	}
	// The same rows again make no second record.
	x.stop()
	r.exec(`UPDATE headgate.relay_state SET repair = 'a test', proven_snapshot = NULL`)
	x = r.run(nil)
	x.wait(t, 7)
	if again := r.kept(); len(again) != 4 {
		t.Errorf("%d records are kept after the rows came again", len(again))
	}
}

// shut is a quarantine that cannot keep.
type shut struct {
	relay.Keeper
	broken atomic.Bool
	tried  atomic.Int64
}

func (s *shut) Keep(ctx context.Context, rs []quarantine.Refusal, at []time.Time, keys []string) ([]string, error) {
	s.tried.Add(1)
	if s.broken.Load() {
		return nil, headgate.NewError(headgate.CodeQuarantineFull, "full")
	}
	return s.Keeper.Keep(ctx, rs, at, keys)
}

// What cannot be kept stays, and its key behind it; other keys go on.
func TestTrap28QuarantineDownBlocksItsLane(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	q := &shut{Keeper: r.quarantine}
	q.broken.Store(true)
	x := r.run(func(c *relay.Config) { c.Keep = q })
	r.exec(`SELECT headgate.emit('order.placed', '{"n":"bad"}', 'k1')`)
	behind := pgtest.Exec(t, r.db, `SELECT pg_current_wal_insert_lsn()`)[0][0]
	r.emit(1, 14) // over seven keys
	x.wait(t, 12)
	tried := q.tried.Load()
	r.until("it is tried again and again", func() bool { return q.tried.Load() > tried+3 })
	for _, d := range x.wait(t, 12) {
		if d.Row.Event.Key == "k1" {
			t.Errorf("row %d is done before what its key waits for", d.Row.Seq)
		}
	}
	if got := len(r.stored()); got != 12 {
		t.Errorf("%d events are stored, want those of six keys", got)
	}
	if past := pgtest.Exec(t, r.db, `SELECT confirmed_flush_lsn >= '`+behind+`' FROM pg_replication_slots WHERE database = current_database()`)[0][0]; past != "f" {
		t.Error("the row is confirmed and kept nowhere")
	}
	q.broken.Store(false)
	x.wait(t, 15)
	if len(r.kept()) != 1 {
		t.Error("the row is lost")
	}
	r.verify(14)
}

func TestTrap31DoctorNamesWhatIsWrong(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`DROP PUBLICATION headgate_outbox`)
	slot := pgtest.Exec(t, r.db, `SELECT slot FROM headgate.installation`)[0][0]
	r.exec(`SELECT pg_drop_replication_slot($1)`, slot)
	found, err := pgrelay.Doctor(context.Background(), r.db)
	must(t, err)
	text := fmt.Sprint(found)
	for _, want := range []string{"publication headgate_outbox is missing", "slot " + slot + " is missing", "max_slot_wal_keep_size is unlimited"} {
		if !strings.Contains(text, want) {
			t.Errorf("the doctor does not say %q: %s", want, text)
		}
	}
}

func TestTrap37GracefulStopRepeatsNothing(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	n := 0
	var stored, duplicates uint64
	for range 10 {
		x := r.run(nil)
		for range 5 {
			r.emit(n+1, n+20)
			n += 20
		}
		x.wait(t, 1)
		x.stop()
		s := x.Status()
		stored += s.Stored
		duplicates += s.Duplicate
	}
	x := r.run(nil)
	r.until("all are stored", func() bool { return len(r.stored()) == n })
	x.stop()
	if d := duplicates + x.Status().Duplicate; d != 0 {
		t.Errorf("%d rows were submitted twice", d)
	}
	if e := pgtest.Exec(t, r.db, `SELECT coalesce(repair, '') FROM headgate.relay_state`)[0][0]; e != "" {
		t.Errorf("a repair is due: %s", e)
	}
	r.verify(n)
}

// A broker that throttles, loses answers and stores without saying so changes
// neither the order of a key nor the number of events.
func TestTrap29OrderWhenPublishesFail(t *testing.T) {
	r := bareRigWith(t, database(t, pgtest.URL(t)), membroker.Config{Faults: &membroker.Faults{Seed: 3, Throttle: 0.2, UnknownStored: 0.1, UnknownLost: 0.1}})
	must(t, pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{}))
	x := r.run(nil)
	for i := range 20 {
		r.emit(i*50+1, i*50+50)
	}
	x.wait(t, 1000)
	r.verify(1000)
	if x.Status().Retried == 0 {
		t.Error("the broker did not fail")
	}
}

// What the database's identity says against the stream is repaired from the
// table, without a doubled event.
func TestTrap32And33PromotedMovedOrRestored(t *testing.T) {
	for name, sql := range map[string]string{
		"promoted": `UPDATE headgate.relay_state SET timeline = timeline + 1`,
		"moved":    `UPDATE headgate.relay_state SET system_id = 'another', proven_snapshot = '1:1:'`,
		"rewound":  `UPDATE headgate.relay_state SET stopped_lsn = '0/1'`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			x := r.run(nil)
			r.emit(1, 10)
			x.wait(t, 10)
			x.stop()
			r.exec(sql)
			r.emit(11, 20)
			r.run(nil)
			r.until("all are stored, and the stream is back", func() bool {
				s, err := pgrelay.Inspect(context.Background(), r.db)
				must(t, err)
				return len(r.stored()) == 20 && s.Repair == "" && s.Active
			})
			r.verify(20)
		})
	}
}
