package sqliterelay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/store"
)

func (r *rig) numbers() (all []int) {
	for _, s := range r.Stored() {
		all = append(all, relaytest.Number(r.t, s))
	}
	return all
}

func confirmed(t testing.TB, r *rig) int64 {
	t.Helper()
	return value[int64](t, r.db, `SELECT confirmed FROM headgate_outbox_state`)
}

func (r *rig) settled(seq int64) {
	r.t.Helper()
	until(r.t, fmt.Sprint("row ", seq, " is confirmed"), func() bool { return confirmed(r.t, r) == seq })
}

// Trap 2: what was acknowledged and not confirmed comes again under its ids.
func TestTrap02DeathBetweenAckAndConfirm(t *testing.T) {
	r := newRig(t)
	const n = 3000
	emit(t, r.db, 1, n, "k")
	x := r.run(func(c *relay.Config, from *Config) {
		src, err := New(*from)
		must(t, err)
		c.Source = relaytest.Mute(src)
	})
	x.Wait(t, n)
	x.Stop()
	if got := confirmed(t, r); got != 0 {
		t.Fatalf("%d rows are confirmed", got)
	}
	y := r.run(nil)
	y.Wait(t, n)
	r.settled(n)
	if s := y.Status(); s.Duplicate != n || len(r.Stored()) != n {
		t.Errorf("%d are stored; %+v", len(r.Stored()), s)
	}
}

// Trap 22: raw SQL cannot leave an id out, and one that was forced in without
// any is kept, not passed on.
func TestTrap22MissingIDs(t *testing.T) {
	r := newRig(t)
	run(t, r.db, `INSERT INTO headgate_outbox (id, type, data) VALUES ('', 'order.placed', '{"n":1}'), (NULL, 'order.placed', '{"n":2}')`)
	run(t, r.db, `INSERT INTO headgate_outbox_rows (id, type, data) VALUES ('', 'order.placed', '{"n":3}')`)
	done := r.run(nil).Wait(t, 3)
	var parked []relay.Done
	for _, d := range done {
		if d.QID != "" {
			parked = append(parked, d)
		}
	}
	if len(parked) != 1 || parked[0].Row.Seq != 3 || !strings.Contains(string(parked[0].Row.Raw), `"seq":3`) || len(r.Stored()) != 2 {
		t.Errorf("%+v; %d are stored", parked, len(r.Stored()))
	}
}

// Trap 27: an event that is refused for good is kept whole, once, and the
// others go on.
func TestTrap27PoisonIsKept(t *testing.T) {
	r := newRig(t)
	for _, sql := range []string{
		`INSERT INTO headgate_outbox (id, type, key, data) VALUES ('bad', 'order.placed', 'k', '{"n":"x"}')`,
		`INSERT INTO headgate_outbox (id, type, key, data) VALUES ('unknown', 'order.unheard', 'k', '{"n":1}')`,
		`INSERT INTO headgate_outbox (id, type, key, data) VALUES ('utf8', 'order.placed', 'k', x'ff')`,
		`INSERT INTO headgate_outbox (id, type, key, attributes, data) VALUES ('own', 'order.placed', 'k', '{"id":"x"}', '{"n":1}')`,
		`INSERT INTO headgate_outbox (id, type, key, data) VALUES ('right', 'stranger.came', 'k', '{"n":1}')`,
		`INSERT INTO headgate_outbox (id, type, key, cause, data) VALUES ('cause', 'order.placed', 'k', 'forged', '{"n":1}')`,
		`INSERT INTO headgate_outbox (id, type, key, data) VALUES ('good', 'order.placed', 'k', '{"n":9}')`,
	} {
		run(t, r.db, sql)
	}
	x := r.run(nil)
	x.Wait(t, 7)
	r.settled(7)
	if s := x.Status(); s.Parked != 6 || s.Stored != 1 {
		t.Errorf("%+v", s)
	}
	if got := r.Stored(); len(got) != 1 || got[0].Event.ID != "good" {
		t.Errorf("%+v", got)
	}
	list, err := r.Quarantine.List(context.Background(), store.QuarantineFilter{})
	must(t, err)
	if len(list) != 6 {
		t.Errorf("%d records are kept", len(list))
	}
}

// Trap 35, first part: numbers do not come again when the table was emptied.
func TestTrap35NumbersDoNotComeAgain(t *testing.T) {
	r := newRig(t)
	x := r.run(func(_ *relay.Config, from *Config) { from.Retain = time.Millisecond })
	emit(t, r.db, 1, 10, "k")
	x.Wait(t, 10)
	r.settled(10)
	until(t, "published rows are deleted", func() bool { return value[int](t, r.db, `SELECT count(*) FROM headgate_outbox_rows`) == 1 })
	if seq := value[int](t, r.db, `SELECT seq FROM headgate_outbox_rows`); seq != 10 {
		t.Errorf("row %d is left", seq)
	}
	emit(t, r.db, 11, 5, "k")
	x.Wait(t, 15)
	r.settled(15)
	if n := len(r.Stored()); n != 15 {
		t.Errorf("%d events are stored", n)
	}
}

// Trap 35: even somebody who takes the guards away and starts the numbers anew
// does not make the relay blind: what is kept is published again.
func TestTrap35NumbersThatWereResetAreNoticed(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprint("running=", running), func(t *testing.T) {
			r := newRig(t)
			x := r.run(nil)
			emit(t, r.db, 1, 10, "k")
			x.Wait(t, 10)
			r.settled(10)
			if !running {
				x.Stop()
			}
			run(t, r.db, `BEGIN IMMEDIATE; DROP TRIGGER headgate_outbox_rows_stay; DELETE FROM headgate_outbox_rows; DELETE FROM sqlite_sequence;
				INSERT INTO headgate_outbox (type, key, data) SELECT 'order.placed', 'k', '{"n":' || (value + 100) || '}' FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12]'); COMMIT`)
			if !running {
				r.run(nil)
			}
			r.settled(12)
			seen := map[int]bool{}
			for _, n := range r.numbers() {
				seen[n] = true
			}
			for n := 101; n <= 112; n++ {
				if !seen[n] {
					t.Errorf("event %d was skipped", n)
				}
			}
			if repair := value[sql.NullString](t, r.db, `SELECT repair FROM headgate_outbox_state`); repair.Valid {
				t.Errorf("the repair does not end: %s", repair.String)
			}
		})
	}
}

// Trap 33: an old backup takes back rows and cursor together; the numbers come
// again for other events, and none of those is skipped.
func TestTrap33RestoredBackup(t *testing.T) {
	for _, how := range []string{"in place", "replaced", "replaced while down"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			x := r.run(nil)
			emit(t, r.db, 1, 10, "k")
			x.Wait(t, 10)
			r.settled(10)
			backup := t.TempDir() + "/backup.db"
			run(t, r.db, `VACUUM INTO ?`, backup)
			emit(t, r.db, 11, 10, "k")
			x.Wait(t, 20)
			r.settled(20)
			switch how {
			case "in place":
				raw(t, r.db, func(c *sqlite3.Conn) error { return c.Restore("main", backup) })
			case "replaced while down":
				x.Stop()
				fallthrough
			case "replaced":
				must(t, r.db.Close())
				must(t, os.Remove(r.path))
				_ = os.Remove(r.path + "-wal") // they may be gone already
				_ = os.Remove(r.path + "-shm")
				must(t, os.Rename(backup, r.path))
				r.db = open(t, r.path)
				run(t, r.db, `PRAGMA journal_mode = WAL`) // a copy has none
			}
			emit(t, r.db, 101, 12, "k") // under the numbers 11 to 22
			if how == "replaced while down" {
				r.run(nil)
			}
			r.settled(22)
			seen := map[int]int{}
			for _, n := range r.numbers() {
				seen[n]++
			}
			for n := 101; n <= 112; n++ {
				if seen[n] != 1 {
					t.Errorf("event %d is stored %d times", n, seen[n])
				}
			}
		})
	}
}

// raw runs fn with SQLite's own connection.
func raw(t *testing.T, db *sql.DB, fn func(*sqlite3.Conn) error) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	must(t, conn.Raw(func(c any) error { return fn(c.(driver.Conn).Raw()) }))
}

// Trap 37: an orderly stop repeats nothing.
func TestTrap37OrderlyStopRepeatsNothing(t *testing.T) {
	r := newRig(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	written := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			<-time.After(5 * time.Millisecond)
			emit(t, r.db, n+1, 5, fmt.Sprint(n%7))
			n += 5
		}
		written <- n
	}()
	times := 20
	if relaytest.Campaign() {
		times = 200
	}
	var duplicates, relayed uint64
	for range times {
		x := r.run(nil)
		x.Wait(t, 20)
		x.Stop()
		s := x.Status()
		duplicates, relayed = duplicates+s.Duplicate, relayed+s.Stored
	}
	stop()
	n := <-written
	x := r.run(nil)
	r.settled(int64(n))
	x.Stop()
	relayed += x.Status().Stored
	if duplicates += x.Status().Duplicate; duplicates > 0 || relayed != uint64(n) || len(r.Stored()) != n {
		t.Errorf("%d duplicates, %d relayed, %d stored of %d", duplicates, relayed, len(r.Stored()), n)
	}
}

// Trap 17: one relay reads a database. The next one waits, and takes over.
func TestTrap17SecondRelayWaits(t *testing.T) {
	r := newRig(t)
	x := r.run(nil)
	emit(t, r.db, 1, 1, "k")
	x.Wait(t, 1)
	y := r.run(nil)
	emit(t, r.db, 2, 20, "k")
	x.Wait(t, 21)
	if y.Status().Leads {
		t.Error("two relays lead")
	}
	s, err := Inspect(t.Context(), r.db)
	if err != nil || !s.Active {
		t.Errorf("%+v, %v", s, err)
	}
	x.Stop()
	emit(t, r.db, 22, 1, "k")
	y.Wait(t, 1)
	if n := len(r.Stored()); n != 22 {
		t.Errorf("%d events are stored", n)
	}
}

// Trap 17: a lock file that somebody removed lets two relays in. The older one
// finds a higher epoch and submits nothing more.
func TestTrap17SupersededRelayStops(t *testing.T) {
	r := newRig(t)
	src, err := New(r.config())
	must(t, err)
	old, err := src.Open(t.Context())
	must(t, err)
	must(t, os.Remove(r.path+LockSuffix))
	x := r.run(nil)
	emit(t, r.db, 1, 5, "k")
	x.Wait(t, 5)
	if changes, err := old.Receive(t.Context()); !errors.Is(err, errSuperseded) {
		t.Errorf("got %d changes and %v", len(changes), err)
	}
	_ = old.Close(t.Context()) // it has nothing to say
	r.settled(5)
}

// Trap 28: while the quarantine cannot keep it, a refused row is not passed
// over.
func TestTrap28QuarantineIsAway(t *testing.T) {
	r := newRig(t)
	var away atomic.Bool
	away.Store(true)
	x := r.run(func(c *relay.Config, _ *Config) { c.Keep = keeper{r.Quarantine, &away} })
	run(t, r.db, `INSERT INTO headgate_outbox (type, key, data) VALUES ('order.placed', 'bad', '{}')`)
	emit(t, r.db, 1, 5, "k")
	x.Wait(t, 5)
	if n := confirmed(t, r); n != 0 {
		t.Errorf("%d rows are confirmed", n)
	}
	away.Store(false)
	x.Wait(t, 6)
	r.settled(6)
}

type keeper struct {
	relay.Keeper
	away *atomic.Bool
}

func (k keeper) Keep(ctx context.Context, rs []quarantine.Refusal, at []time.Time, keys []string) ([]string, error) {
	if k.away.Load() {
		return nil, headgate.NewError(headgate.CodeUnavailable, "away")
	}
	return k.Keeper.Keep(ctx, rs, at, keys)
}

// sink takes everything and keeps nothing.
type sink struct{ pause chan struct{} }

func (s sink) Admit(_ context.Context, sub perimeter.Submission) []perimeter.Result {
	if s.pause != nil {
		<-s.pause
	}
	results := make([]perimeter.Result, len(sub.Items))
	for i := range results {
		results[i].Event = sub.Items[i].Event
	}
	return results
}

// Trap 11: memory does not grow with the backlog.
func TestTrap11BacklogInFlatMemory(t *testing.T) {
	rows := 20_000
	if relaytest.Campaign() {
		rows = 200_000
	}
	r := newRig(t)
	run(t, r.db, fmt.Sprintf(`INSERT INTO headgate_outbox_rows (id, type, key, data)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		SELECT 'e' || i, 'order.placed', 'k' || (i %% 100), CAST('{"n":' || i || ',"pad":"' || hex(zeroblob(2000)) || '"}' AS BLOB) FROM n`, rows))
	before := heap()
	var peak atomic.Uint64
	var done atomic.Int64
	finished := make(chan struct{})
	r.run(func(c *relay.Config, _ *Config) {
		c.Admit, c.InFlightBytes = sink{}, 4<<20
		c.Done = func(relay.Done) {
			n := done.Add(1)
			if n%2000 == 0 {
				peak.Store(max(peak.Load(), heap()))
			}
			if n == int64(rows) {
				close(finished)
			}
		}
	})
	<-finished
	r.settled(int64(rows))
	grown := int64(peak.Load()) - int64(before)
	t.Logf("%d MiB of backlog, the heap grew by %d MiB", rows*4000>>20, grown>>20)
	if grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A program that writes without a pause leaves the relay its turns.
func TestBusyWriterDoesNotStarveTheRelay(t *testing.T) {
	r := newRig(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			emit(t, r.db, n, 1, "k")
		}
		ended <- n
	}()
	for range 5 {
		x := r.run(nil)
		before := confirmed(t, r)
		until(t, "the cursor moves", func() bool { return confirmed(t, r) > before })
		x.Stop()
		if s := x.Status(); s.Error != "" {
			t.Errorf("%+v", s)
		}
	}
	stop()
	n := <-ended
	r.run(nil)
	r.settled(int64(n))
}

// A writer that does not end its turn keeps the cursor, not the events.
func TestLongWriterDoesNotStopPublishing(t *testing.T) {
	r := newRig(t)
	x := r.run(nil)
	emit(t, r.db, 1, 1, "k")
	x.Wait(t, 1)
	r.settled(1)
	emit(t, r.db, 2, 100, "k")
	tx, err := r.db.BeginTx(t.Context(), nil) // immediate, with this driver
	must(t, err)
	run(t, tx, `CREATE TABLE mine (a)`)
	x.Wait(t, 101)
	must(t, tx.Commit())
	r.settled(101)
	if s := x.Status(); s.Duplicate != 0 || s.Error != "" {
		t.Errorf("%+v", s)
	}
}

// Rows that are not published are not deleted, by nobody; old ones that are, go.
func TestRetention(t *testing.T) {
	r := newRig(t)
	emit(t, r.db, 1, 1200, "k")
	run(t, r.db, `DROP TRIGGER headgate_outbox_rows_fixed; UPDATE headgate_outbox_rows SET created = created - 7200000 WHERE seq <= 1100`)
	gate := make(chan struct{})
	x := r.run(func(c *relay.Config, from *Config) { c.Admit, from.Retain = sink{gate}, time.Hour })
	until(t, "the relay reads", func() bool { return x.Status().Leads })
	if _, err := r.db.ExecContext(t.Context(), `DELETE FROM headgate_outbox_rows WHERE seq = 1`); err == nil {
		t.Error("a row was deleted that is not published")
	}
	close(gate)
	r.settled(1200)
	until(t, "old rows are deleted", func() bool { return value[int](t, r.db, `SELECT min(seq) FROM headgate_outbox_rows`) == 1101 })
	n, err := Replay(t.Context(), r.db, relay.ReplayFilter{Key: "k"}, true)
	if err != nil || n != 100 {
		t.Errorf("%d rows would be replayed: %v", n, err)
	}
}

func TestReplayWritesNewEvents(t *testing.T) {
	r := newRig(t)
	x := r.run(nil)
	run(t, r.db, `INSERT INTO headgate_outbox (id, type, key, attributes, data) VALUES ('a', 'order.placed', 'k', '{"count":1}', '{"n":1}'), ('b', 'order.placed', 'k', NULL, '{"n":2}'), ('c', 'order.placed', 'l', NULL, '{"n":3}')`)
	x.Wait(t, 3)
	if _, err := Replay(t.Context(), r.db, relay.ReplayFilter{}, false); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Errorf("got %v", err)
	}
	n, err := Replay(t.Context(), r.db, relay.ReplayFilter{IDs: []string{"a", "b"}, Type: "order.placed", Key: "k", Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}, false)
	if err != nil || n != 2 {
		t.Fatalf("%d rows: %v", n, err)
	}
	x.Wait(t, 5)
	if n, err := Replay(t.Context(), r.db, relay.ReplayFilter{Type: "order.placed"}, true); err != nil || n != 3 {
		t.Errorf("%d rows would be replayed next, with the replays: %v", n, err)
	}
	again := map[string]string{}
	for _, s := range r.Stored() {
		for _, e := range s.Event.Extensions {
			if e.Name == "replayof" {
				again[e.Value] = s.Event.ID
			}
		}
	}
	if len(again) != 2 || again["a"] == "" || again["a"] == again["b"] || again["a"] == "a" {
		t.Errorf("%v", again)
	}
}

func TestUnfitDatabasesAreRefused(t *testing.T) {
	r := newRig(t)
	openErr := func(change func(*Config)) error {
		cfg := r.config()
		change(&cfg)
		src, err := New(cfg)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s, err := src.Open(ctx)
		if err == nil {
			must(t, s.Close(t.Context()))
		}
		return err
	}
	other := t.TempDir() + "/other.db"
	plain := open(t, other)
	run(t, plain, `CREATE TABLE a (b)`)
	for name, c := range map[string]struct {
		change func(*Config)
		code   headgate.Code
	}{
		"missing":        {func(c *Config) { c.Path = other + ".nowhere" }, headgate.CodeNotFound},
		"another file":   {func(c *Config) { c.Path = other }, headgate.CodeInvalidConfig},
		"journal":        {func(c *Config) { c.Path, c.Connect = other, func() (*sql.DB, error) { return connect(other) } }, headgate.CodeInvalidConfig},
		"no connections": {func(c *Config) { c.Connect = func() (*sql.DB, error) { return nil, errors.New("no") } }, headgate.CodeUnavailable},
	} {
		if err := openErr(c.change); headgate.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	run(t, plain, `PRAGMA journal_mode = WAL`)
	err := openErr(func(c *Config) { c.Path, c.Connect = other, func() (*sql.DB, error) { return connect(other) } })
	if headgate.CodeOf(err) != headgate.CodeNotFound {
		t.Errorf("without an outbox: %v", err)
	}
	must(t, os.Symlink(r.path, other+".link"))
	if err := openErr(func(c *Config) { c.Path = other + ".link" }); err != nil {
		t.Errorf("by a link: %v", err)
	}
	run(t, r.db, `UPDATE headgate_outbox_state SET version = 99`)
	if err := openErr(func(*Config) {}); headgate.CodeOf(err) != headgate.CodeConflict {
		t.Errorf("another version: %v", err)
	}
}
