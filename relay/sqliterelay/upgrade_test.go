package sqliterelay

import (
	"context"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/fts5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/relaytest"
)

// revision1 is the DDL of the first version of Headgate that had outboxes in
// SQLite.
//
//go:embed testdata/revision1.sql
var revision1 string

// olderRig is a rig over a database as the first version prepared it.
func olderRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Rig: relaytest.New(t, membroker.New(membroker.Config{})), t: t, path: t.TempDir() + "/app.db"}
	r.db = open(t, r.path)
	run(t, r.db, "PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; "+revision1+"COMMIT;")
	return r
}

func (r *rig) older() bool {
	r.t.Helper()
	found, err := Doctor(context.Background(), r.db, time.Now())
	must(r.t, err)
	for _, f := range found {
		if strings.Contains(f.What, "prepared by an older version") {
			return strings.Contains(f.Fix, "headgate outbox init")
		}
	}
	return false
}

// A relay and writers of this version work with a database of the first one, and
// those of the first one with a database of this version. While it is brought up
// to date writers go on, the relay goes on, and no event is missing, doubled or
// out of order.
func TestUpgradeBesideWritersAndRelay(t *testing.T) {
	r := olderRig(t)
	x := r.run(nil)
	emit(t, r.db, 1, 20, "k")
	x.Wait(t, 20)
	if !r.older() {
		t.Error("the doctor does not say that the database is older")
	}
	epoch := value[int](t, r.db, `SELECT epoch FROM headgate_outbox_state`)
	stop, counts := make(chan struct{}), make([]int, 3)
	var writers sync.WaitGroup
	for w := range counts {
		db := open(t, r.path)
		writers.Go(func() {
			for n := 1; ; n++ {
				_, err := db.ExecContext(context.Background(), `INSERT INTO headgate_outbox (type, key, data) VALUES ('order.placed', ?, ?)`, fmt.Sprintf("w%d", w), fmt.Sprintf(`{"n":%d}`, n))
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
				counts[w] = n
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var installs sync.WaitGroup
	for range 3 { // all but one find nothing to do
		installs.Go(func() {
			db, err := connect(r.path)
			if err == nil {
				err = Install(context.Background(), db)
			}
			if err != nil {
				t.Error(err)
			}
			_ = db.Close()
		})
	}
	installs.Wait()
	close(stop)
	writers.Wait()
	total := 20
	for _, n := range counts {
		total += n
	}
	until(t, "all are stored", func() bool { return len(r.Stored()) >= total })
	next := map[string]int{}
	for _, s := range r.Stored() {
		next[s.Event.Key]++
		if want := fmt.Sprintf(`{"n":%d}`, next[s.Event.Key]); string(s.Event.Data) != want {
			t.Fatalf("event %d of key %s is %s", next[s.Event.Key], s.Event.Key, s.Event.Data)
		}
	}
	for w, n := range counts {
		if got := next[fmt.Sprintf("w%d", w)]; got != n {
			t.Errorf("writer %d wrote %d, and %d are stored", w, n, got)
		}
	}
	if now := value[int](t, r.db, `SELECT epoch FROM headgate_outbox_state`); now != epoch {
		t.Errorf("the relay's session did not outlast it: epoch %d, then %d", epoch, now)
	}
	if r.older() {
		t.Error("the doctor still says that the database is older")
	}
	_, err := r.db.ExecContext(t.Context(), `INSERT INTO headgate_outbox_rows (id, type, data) VALUES ('x', 'order.placed', zeroblob(7000000))`)
	if err == nil || !strings.Contains(err.Error(), "HG102") {
		t.Errorf("what is new does not hold: %v", err)
	}
	x.Stop()
}

// Watched tables go on making events after an upgrade, each change one; what a
// program keeps beside the outbox stays. A table that cannot be watched any more
// stops the upgrade as a whole.
func TestUpgradeMakesWatchesAnew(t *testing.T) {
	db := open(t, t.TempDir()+"/app.db")
	must(t, Install(t.Context(), db))
	run(t, db, `CREATE TABLE orders (id INTEGER PRIMARY KEY, number TEXT UNIQUE, note TEXT);
		CREATE TABLE gone (id INTEGER PRIMARY KEY);
		CREATE TABLE audit (id INTEGER PRIMARY KEY);
		CREATE TRIGGER mine AFTER INSERT ON audit BEGIN INSERT INTO headgate_outbox (type, data) VALUES ('audit.made', '{}'); END;
		CREATE VIEW pending AS SELECT type FROM headgate_outbox`)
	must(t, Watch(t.Context(), db, "orders", "orders"))
	must(t, Watch(t.Context(), db, "gone", "gone"))
	run(t, db, `DROP TABLE gone`)
	run(t, db, `INSERT INTO orders VALUES (1, 'a', 'x')`)
	// As an older version left it: with other triggers and another table.
	run(t, db, `UPDATE headgate_outbox_state SET revision = 1; DROP TABLE headgate_outbox_replaced;
		CREATE TABLE headgate_outbox_replaced (name TEXT NOT NULL, keys TEXT NOT NULL, before TEXT NOT NULL, PRIMARY KEY (name, keys)) WITHOUT ROWID`)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO orders VALUES (2, 'b', 'x')`); err == nil {
		t.Fatal("this test's older triggers are not older")
	}
	run(t, db, `CREATE UNIQUE INDEX partly ON orders (note) WHERE number IS NULL`)
	err := Install(t.Context(), db)
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidArgument || !strings.Contains(e.Detail, "partly") {
		t.Errorf("a table that cannot be watched any more: %v", err)
	}
	if got := value[int](t, db, `SELECT revision FROM headgate_outbox_state`); got != 1 {
		t.Errorf("revision %d after an upgrade that failed", got)
	}
	run(t, db, `DROP INDEX partly`)
	script, err := Preview(t.Context(), db)
	must(t, err)
	run(t, db, script)
	if script, err = Preview(t.Context(), db); script != "" || err != nil {
		t.Errorf("then there is still %q to do, %v", script, err)
	}
	run(t, db, `INSERT INTO orders VALUES (2, 'b', 'x'); INSERT OR REPLACE INTO orders VALUES (3, 'b', 'y'); INSERT INTO audit VALUES (1)`)
	var got []string
	rows, err := list(t.Context(), only(t, db), `SELECT type FROM pending`)
	must(t, err)
	got = append(got, rows...)
	if want := "orders.inserted orders.inserted orders.deleted orders.inserted audit.made"; strings.Join(got, " ") != want {
		t.Errorf("events %v, want %s", got, want)
	}
}

func only(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Older views and triggers are never put in place of newer ones; a relay goes on
// beside those, and says what it cannot read.
func TestDowngradeIsRefused(t *testing.T) {
	r := newRig(t)
	run(t, r.db, `UPDATE headgate_outbox_state SET revision = revision + 1`)
	for _, err := range []error{Install(t.Context(), r.db), func() error { _, err := Preview(t.Context(), r.db); return err }()} {
		if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeConflict || !strings.Contains(e.Detail, "newer version") || e.Fix == "" {
			t.Errorf("an older init: %v", err)
		}
	}
	x := r.run(nil)
	emit(t, r.db, 1, 5, "k")
	x.Wait(t, 5)
	x.Stop()
	run(t, r.db, `UPDATE headgate_outbox_state SET version = 2`)
	src, err := New(r.config())
	must(t, err)
	_, err = src.Open(t.Context())
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeConflict || !strings.Contains(e.Fix, "newer Headgate") {
		t.Errorf("a relay that does not know the tables: %v", err)
	}
}

// Whoever changes what Install or Watch make raises the revision, or databases
// that are prepared already never get it; and adds here what it is made of then.
func TestRevisionIsRaisedWithTheStatements(t *testing.T) {
	sums := map[int]string{2: "726fadcc1827821f", 3: "2fb65ca01dc85897"}
	like := table{name: "t", columns: []string{"a", "b"}, key: []string{"a"}, rowid: true, uniques: []unique{{columns: []string{"b"}, collations: []string{"BINARY"}}}}
	sum := sha256.Sum256([]byte(fresh() + strings.Join(like.triggers("p"), "")))
	if got := hex.EncodeToString(sum[:8]); sums[Revision] != got {
		t.Errorf("the statements of revision %d have the sum %s, not %s", Revision, got, sums[Revision])
	}
}

// A virtual table has no triggers: it is refused, also where its module is not
// at hand, and the tables behind it and beside it are none of its kind.
func TestWatchRefusesVirtualTables(t *testing.T) {
	path := t.TempDir() + "/app.db"
	searching, err := driver.Open("file:"+path, fts5.Register)
	must(t, err)
	t.Cleanup(func() { _ = searching.Close() })
	must(t, Install(t.Context(), searching))
	for name, ddl := range map[string]string{
		"docs": `CREATE VIRTUAL TABLE docs USING fts5(title, body)`,
		"odd":  "\n/* a comment */ create\tvirtual -- and another\n table if not exists odd using fts5(a)",
	} {
		run(t, searching, ddl)
		for which, db := range map[string]*sql.DB{"with the module": searching, "without the module": open(t, path)} {
			err := Watch(t.Context(), db, name, name)
			if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidArgument || !strings.Contains(e.Detail, "virtual") {
				t.Errorf("%s, %s: got %v", name, which, err)
			}
		}
	}
	run(t, searching, `INSERT INTO docs VALUES ('a', 'b')`)
	if n := value[int](t, searching, `SELECT count(*) FROM headgate_outbox`); n != 0 {
		t.Errorf("%d events of tables that are not watched", n)
	}
}
