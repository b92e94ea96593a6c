package pgrelay_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
)

// emit writes the events from..to in one transaction, over seven keys.
func (r *rig) emit(from, to int) {
	r.t.Helper()
	r.exec(`SELECT headgate.emit('order.placed', jsonb_build_object('n', i), 'k' || i % 7) FROM generate_series($1::int, $2::int) i`, from, to)
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

func (r *rig) mute(c *relay.Config) {
	c.Source = relaytest.Mute(r.source())
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
	x.Stop()
	must(t, tx.Commit(ctx))
	x = r.run(nil)
	x.Wait(t, 1)
	r.Verify(1)
}

func TestTrap07IdlePublicationHoldsNoLog(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.run(nil)
	here, there := 48, 32 // MB
	if relaytest.Campaign() {
		here, there = 1000, 1000
	}
	r.noise(here)
	other := database(t, pgtest.URL(t))
	pgtest.Exec(t, other, fmt.Sprintf(`CREATE TABLE noise AS SELECT repeat('x', 1000) AS x FROM generate_series(1, %d)`, there*1000))
	r.exec(`CHECKPOINT`)
	r.until("the slot lets the log go", func() bool { _, held := r.slot(); return held < 32<<20 })
}

// Transactions begin, write and commit in orders of their own, with and without
// a relay that ends between their commits.
func TestTrap10InterleavedTransactionsAtRestart(t *testing.T) {
	for name, stops := range map[string]bool{"relay ends between": true, "relay goes on": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			ctx := context.Background()
			var txs []pgx.Tx
			for n := 1; n <= 3; n++ {
				tx, err := r.connect().Begin(ctx)
				must(t, err)
				txs = append(txs, tx)
			}
			for i, tx := range txs {
				_, err := tx.Exec(ctx, `SELECT headgate.emit('order.placed', jsonb_build_object('n', $1::int), 'own' || $1)`, i+1)
				must(t, err)
			}
			x := r.run(nil)
			for k, i := range []int{1, 0, 2} {
				must(t, txs[i].Commit(ctx))
				r.until("it is stored", func() bool { return len(r.Stored()) > k })
				if stops {
					x.Stop()
					x = r.run(func(c *relay.Config) {
						if k == 0 {
							r.mute(c) // the next comes twice
						}
					})
				}
			}
			r.emit(4, 10)
			r.until("all are stored", func() bool { return len(r.Stored()) >= 10 })
			r.Verify(10)
			x.Stop()
		})
	}
}

// A large transaction is relayed in bounded memory, by one session although the
// server's patience is short, and small ones behind it arrive.
func TestTrap11LargeTransactionInFlatMemory(t *testing.T) {
	t.Parallel() // it has a server of its own
	rows := 100_000
	if relaytest.Campaign() {
		rows = 1_000_000
	}
	const small = 100
	server := pgtest.Start(t, "wal_level=logical", "wal_sender_timeout=5s")
	r := newRig(t, server.URL())
	r.exec(`SELECT headgate.emit('order.placed', jsonb_build_object('n', i, 'pad', repeat('x', 400)), 'k' || i % 97) FROM generate_series(1, $1::int) i`, rows)
	c := r.connect()
	for range small {
		_, err := c.Exec(t.Context(), `SELECT headgate.emit('order.placed', '{"n":0}', 'small')`)
		must(t, err)
	}
	var done, late, worst atomic.Int64
	x := r.Run(r.sourceOf(pgrelay.Config{Beat: 5 * time.Second}), func(cfg *relay.Config) {
		cfg.Admit = countOnly{}
		cfg.Done = func(d relay.Done) {
			if d.Row.Event.Key == "small" {
				late.Add(1)
			}
			if done.Add(1)%20_000 == 0 {
				var m runtime.MemStats
				runtime.GC() // what is retained counts, not how busy the machine is
				runtime.ReadMemStats(&m)
				worst.Store(max(worst.Load(), int64(m.HeapAlloc)))
			}
		}
	})
	r.until("all rows are done", func() bool { return done.Load() == int64(rows+small) })
	t.Logf("%d rows in one transaction; the heap had at most %d MiB", rows, worst.Load()>>20)
	if w := worst.Load(); w > 64<<20 {
		t.Errorf("the heap grew to %d MiB", w>>20)
	}
	if s := x.Status(); s.Sessions != 1 || late.Load() != small {
		t.Errorf("%d sessions, %d small transactions", s.Sessions, late.Load())
	}
	x.Stop()
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
	g := newGate(r.Door)
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
	x.Wait(t, 5000)
	r.Verify(5000)
}

func TestTrap15SlotInvalidated(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "max_slot_wal_keep_size=16MB", "min_wal_size=32MB", "max_wal_size=32MB", "wal_keep_size=0")
	r := newRig(t, server.URL())
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
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
	r.until("all are stored", func() bool { return len(r.Stored()) == 60 })
	r.Verify(60)
	r.until("the repair ended", func() bool {
		s, err := pgrelay.Inspect(context.Background(), r.db)
		must(t, err)
		return s.Repair == "" && s.SlotStatus == "reserved"
	})
	r.emit(61, 61)
	r.until("the stream goes on", func() bool { return len(r.Stored()) == 61 })
	x.Stop()
}

func TestTrap14ReliefValve(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	g := newGate(r.Door)
	r.emit(1, 5)
	src := r.sourceOf(pgrelay.Config{Beat: 300 * time.Millisecond, WALBudget: 20 << 20})
	x := r.run(func(c *relay.Config) { c.Source = src; c.Admit = g })
	r.noise(40)
	r.until("the slot lets the log go while the broker is away", func() bool {
		r.exec(`CHECKPOINT`) // as the server does; what a slot holds back is told anew then
		s, err := pgrelay.Inspect(context.Background(), r.db)
		must(t, err)
		return s.Repair != "" && s.Held < 20<<20
	})
	r.emit(6, 10)
	g.lift()
	r.until("all are stored", func() bool { return len(r.Stored()) == 10 })
	r.Verify(10)
	r.until("the stream is back", func() bool {
		s, err := pgrelay.Inspect(context.Background(), r.db)
		must(t, err)
		return s.Repair == "" && s.Active
	})
	x.Stop()
}

func TestTrap17OneRelayLeads(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	first := r.run(nil)
	r.emit(1, 5)
	first.Wait(t, 5)
	second := r.run(nil)
	r.emit(6, 10)
	first.Wait(t, 10)
	if second.Status().Leads {
		t.Error("two relays lead")
	}
	first.Stop()
	r.emit(11, 15)
	second.Wait(t, 5)
	r.Verify(15)
}

func TestTrap17SupersededEpochSubmitsNothing(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 5)
	x.Wait(t, 5)
	r.exec(`UPDATE headgate.relay_state SET epoch = epoch + 1`)
	r.until("the session ends and leads again by a higher epoch", func() bool {
		return pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0] == "3" && x.Status().Leads
	})
	r.emit(6, 10)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 10 })
	r.Verify(10)
}

// A leader that was stopped, and goes on when others may lead, must not submit.
func TestTrap17StoppedLeaderSubmitsNothing(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	var ahead atomic.Int64
	src := r.sourceOf(pgrelay.Config{Beat: 5 * time.Second, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	x := r.run(func(c *relay.Config) { c.Source = src })
	r.emit(1, 5)
	x.Wait(t, 5)
	ahead.Store(int64(time.Hour)) // the process was stopped for an hour
	r.emit(6, 10)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 10 })
	if e := pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0]; e != "2" {
		t.Errorf("the rows went out under epoch %s; the lead had to be taken anew", e)
	}
	r.Verify(10)
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
	x.Wait(t, 3)
	if err := gone.Ping(ctx); err == nil {
		t.Error("two sessions hold the lock")
	}
	r.Verify(3)
}

func TestTrap21IDReuse(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	for _, n := range []int{1, 1, 2} { // the same twice, then another under the same id
		r.exec(`SELECT headgate.emit_event('one', 'order.placed', '/s', NULL, 'k1', NULL, convert_to($1, 'UTF8'))`, fmt.Sprintf(`{"n":%d}`, n))
	}
	rows := x.Wait(t, 3)
	if !rows[1].Result.Duplicate || rows[1].QID != "" {
		t.Errorf("the repetition ended as %+v", rows[1].Result)
	}
	if rows[2].QID == "" || rows[2].Result.Err.Code != headgate.CodeConflict {
		t.Errorf("the reuse ended as %+v", rows[2].Result)
	}
	r.Verify(1)
	if kept := r.Kept(); len(kept) != 1 || string(kept[0].Body) != `{"n":2}` {
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
	x.Wait(t, 4)
	r.Verify(1)
	if kept := r.Kept(); len(kept) != 3 {
		t.Errorf("%d records are kept, want 3", len(kept))
	}
}

// None of it writes the partitions anew, which would be read from the table: see
// sending.
func TestTrap23DDLInMidStream(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 1)
	r.exec(`ALTER TABLE headgate.outbox ADD COLUMN later text DEFAULT 'x'`)
	r.emit(2, 2)
	r.exec(`ALTER TABLE headgate.outbox RENAME COLUMN later TO after`)
	r.emit(3, 3)
	r.exec(`ALTER TABLE headgate.outbox ALTER COLUMN after TYPE varchar`)
	r.emit(4, 4)
	c := r.connect()
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	must(t, err)
	for _, sql := range []string{
		`SELECT headgate.emit('order.placed', '{"n":5}', 'k5')`,
		`ALTER TABLE headgate.outbox RENAME COLUMN after TO other`,
		`ALTER TABLE headgate.outbox ADD COLUMN more int`,
		`SELECT headgate.emit('order.placed', '{"n":6}', 'k6')`,
		`ALTER TABLE headgate.outbox DROP COLUMN other`,
		`ALTER TABLE headgate.outbox ALTER COLUMN subject TYPE varchar`,
		`SELECT headgate.emit('order.placed', '{"n":7}', 'k0')`,
	} {
		_, err := tx.Exec(ctx, sql)
		must(t, err)
	}
	must(t, tx.Commit(ctx))
	r.exec(`CREATE TABLE headgate.outbox_19990101 PARTITION OF headgate.outbox FOR VALUES FROM ('1999-01-01') TO ('1999-01-02')`)
	r.emit(8, 8)
	r.exec(`DROP TABLE headgate.outbox_19990101`)
	r.emit(9, 9)
	x.Wait(t, 9)
	r.Verify(9)
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
	x.Wait(t, 8)
	r.Verify(8)
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
	x.Wait(t, 3)
	if got := len(r.Stored()); got != 3 {
		t.Errorf("%d events are stored before COMMIT PREPARED, want 3", got)
	}
	_, err := c.Exec(ctx, `COMMIT PREPARED 'p'`)
	must(t, err)
	x.Wait(t, 4)
	r.Verify(4)
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
	q := &shut{Keeper: r.Quarantine}
	q.broken.Store(true)
	// A lane has one worker: keys that share one with the poison do wait.
	x := r.run(func(c *relay.Config) { c.Keep, c.Lanes = q, 1<<16 })
	r.exec(`SELECT headgate.emit('order.placed', '{"n":"bad"}', 'k1')`)
	behind := pgtest.Exec(t, r.db, `SELECT pg_current_wal_insert_lsn()`)[0][0]
	r.emit(1, 14) // over seven keys
	x.Wait(t, 12)
	tried := q.tried.Load()
	r.until("it is tried again and again", func() bool { return q.tried.Load() > tried+3 })
	for _, d := range x.Wait(t, 12) {
		if d.Row.Event.Key == "k1" {
			t.Errorf("row %d is done before what its key waits for", d.Row.Seq)
		}
	}
	if got := len(r.Stored()); got != 12 {
		t.Errorf("%d events are stored, want those of six keys", got)
	}
	if past := pgtest.Exec(t, r.db, `SELECT confirmed_flush_lsn >= '`+behind+`' FROM pg_replication_slots WHERE database = current_database()`)[0][0]; past != "f" {
		t.Error("the row is confirmed and kept nowhere")
	}
	q.broken.Store(false)
	x.Wait(t, 15)
	if len(r.Kept()) != 1 {
		t.Error("the row is lost")
	}
	r.Verify(14)
}

// A broker that throttles, loses answers and stores without saying so changes
// neither the order of a key nor the number of events.
func TestTrap29OrderWhenPublishesFail(t *testing.T) {
	r := newRigOn(t, database(t, pgtest.URL(t)), membroker.New(membroker.Config{Faults: &membroker.Faults{Seed: 3, Throttle: 0.2, UnknownStored: 0.1, UnknownLost: 0.1}}))
	must(t, pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{}))
	x := r.run(nil)
	for i := range 20 {
		r.emit(i*50+1, i*50+50)
	}
	x.Wait(t, 1000)
	r.Verify(1000)
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
			x.Wait(t, 10)
			x.Stop()
			r.exec(sql)
			r.emit(11, 20)
			r.run(nil)
			r.until("all are stored, and the stream is back", func() bool {
				s, err := pgrelay.Inspect(context.Background(), r.db)
				must(t, err)
				return len(r.Stored()) == 20 && s.Repair == "" && s.Active
			})
			r.Verify(20)
		})
	}
}
