package fencesqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

func open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := driver.Open("file:" + filepath.Join(t.TempDir(), "user.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := Install(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	must(t, db, "CREATE TABLE tickets (id INTEGER PRIMARY KEY, ticket TEXT NOT NULL, slot INTEGER UNIQUE, epoch INTEGER)")
	return db
}

func must(t testing.TB, db *sql.DB, script string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), script); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
}

func grant(resource string, epoch int64) fence.Fence {
	return fence.Fence{Resource: resource, Epoch: epoch, Nonce: []byte(fmt.Sprintf("nonce%011d", epoch))}
}

func want(t testing.TB, what string, err error, code headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != code || code == "" && err != nil {
		t.Errorf("%s: got %v, want %q", what, err, code)
	}
}

func insert(resource string) func(*sql.Conn) error {
	return func(c *sql.Conn) error {
		_, err := c.ExecContext(context.Background(), "INSERT INTO tickets (ticket) VALUES (?)", resource)
		return err
	}
}

// The guard accepts the newest grant and refuses every other.
func TestGuard(t *testing.T) {
	ctx, db := t.Context(), open(t)
	d := func() *DB { return &DB{} } // that remembers nothing
	one, two := grant("t/1", 10), grant("t/1", 20)
	want(t, "not sealed", d().Tx(ctx, db, one, insert("t/1")), headgate.CodeInvalidArgument)
	want(t, "seal", d().Seal(ctx, db, one), "")
	want(t, "seal again", d().Seal(ctx, db, one), "")
	want(t, "write", d().Tx(ctx, db, one, insert("t/1")), "")
	other := one
	other.Nonce = []byte("another nonce 16")
	want(t, "other nonce", d().Tx(ctx, db, other, insert("t/1")), headgate.CodeFenceConflict)
	want(t, "other nonce seals", d().Seal(ctx, db, other), headgate.CodeFenceConflict)
	want(t, "next", d().Seal(ctx, db, two), "")
	want(t, "stale", d().Tx(ctx, db, one, insert("t/1")), headgate.CodeStaleFence)
	want(t, "stale seal", d().Seal(ctx, db, one), headgate.CodeStaleFence)
	late := two
	late.Deadline = time.Now().Add(-time.Second)
	want(t, "own deadline", d().Tx(ctx, db, late, insert("t/1")), headgate.CodeLeaseExpired)
	if n, err := CloseAll(ctx, db); n != 1 || err != nil {
		t.Errorf("closed %d: %v", n, err)
	}
	want(t, "after a restore", d().Tx(ctx, db, two, insert("t/1")), headgate.CodeLeaseClosing)
	want(t, "the same grant after a restore", d().Seal(ctx, db, two), headgate.CodeLeaseClosing)
	want(t, "a new grant after a restore", d().Seal(ctx, db, grant("t/1", 30)), "")
	for _, sql := range []string{"DELETE FROM headgate_fences", "UPDATE headgate_fences SET epoch = epoch - 1", "INSERT INTO headgate_never VALUES (1)"} {
		if _, err := db.ExecContext(ctx, sql); err == nil {
			t.Errorf("%s was accepted", sql)
		}
	}
}

// A table under fences refuses whoever has none, or another.
func TestFencedTable(t *testing.T) {
	ctx, db := t.Context(), open(t)
	if _, err := FenceTable(ctx, db, "tickets", "t/{ticket}", false); err != nil {
		t.Fatal(err)
	}
	d := &DB{}
	one, other := grant("t/1", 1), grant("t/2", 1)
	for _, f := range []fence.Fence{one, other} {
		want(t, "seal", d.Seal(ctx, db, f), "")
		want(t, "row", d.Tx(ctx, db, f, func(c *sql.Conn) error {
			_, err := c.ExecContext(ctx, "INSERT INTO tickets (ticket, slot) VALUES (?, ?)", strings.TrimPrefix(f.Resource, "t/"), len(f.Resource)+int(f.Resource[2]))
			return err
		}), "")
	}
	for _, sql := range []string{
		"INSERT INTO tickets (ticket) VALUES ('1')", "UPDATE tickets SET epoch = 9", "DELETE FROM tickets", "REPLACE INTO tickets (id, ticket) VALUES (1, '1')",
		"INSERT INTO tickets (id, ticket) VALUES (1, '1') ON CONFLICT DO UPDATE SET epoch = 1",
	} {
		_, err := db.ExecContext(ctx, sql)
		want(t, sql, d.refused(one, err), headgate.CodeFenceMissing)
	}
	for _, sql := range []string{
		"INSERT INTO tickets (ticket) VALUES ('2')", "UPDATE tickets SET ticket = '2' WHERE ticket = '1'", "UPDATE tickets SET ticket = '1' WHERE ticket = '2'",
		"DELETE FROM tickets WHERE ticket = '2'", "REPLACE INTO tickets (ticket, slot) SELECT '1', slot FROM tickets WHERE ticket = '2'",
	} {
		want(t, sql, d.Tx(ctx, db, one, statement(ctx, sql)), headgate.CodeFenceForeign)
	}
	var set int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM headgate_fence").Scan(&set); err != nil || set != 0 {
		t.Errorf("%d fences are set outside of any transaction: %v", set, err)
	}
	if _, err := UnfenceTable(ctx, db, "tickets", false); err != nil {
		t.Fatal(err)
	}
	must(t, db, "INSERT INTO tickets (ticket) VALUES ('free')")
}

func statement(ctx context.Context, text string) func(*sql.Conn) error {
	return func(c *sql.Conn) error {
		_, err := c.ExecContext(ctx, text)
		return err
	}
}

// A fence cannot be left behind for whoever comes next.
func TestFenceCannotStay(t *testing.T) {
	ctx, db := t.Context(), open(t)
	d := &DB{}
	f := grant("t/1", 1)
	want(t, "seal", d.Seal(ctx, db, f), "")
	err := d.Tx(ctx, db, f, func(c *sql.Conn) error {
		_, err := c.ExecContext(ctx, "COMMIT")
		return err
	})
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "foreign key") {
		t.Errorf("a commit with a set fence: %v", err)
	}
	err = d.Tx(ctx, db, f, func(c *sql.Conn) error {
		_, err := c.ExecContext(ctx, "DELETE FROM headgate_fence")
		return err
	})
	want(t, "a function that takes its fence away", err, headgate.CodeInvalidArgument)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = d.Tx(ctx, db, f, func(*sql.Conn) error { panic("on purpose") })
	}()
	want(t, "the next one", d.Tx(ctx, db, f, insert("t/1")), "")
}

// Whoever is superseded is told without waiting for a writer that is busy.
func TestStaleDoesNotQueue(t *testing.T) {
	ctx, db := t.Context(), open(t)
	one, two := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", new(DB).Seal(ctx, db, one), "")
	want(t, "seal", new(DB).Seal(ctx, db, two), "")
	err := new(DB).Tx(ctx, db, two, func(*sql.Conn) error {
		want(t, "beside a busy writer", new(DB).Tx(ctx, db, one, insert("t/1")), headgate.CodeStaleFence)
		return nil
	})
	want(t, "the writer", err, "")
}

// Under takeovers no write commits after its epoch was superseded, in the
// order in which the database committed. The control reads the fence before
// it begins to write, and must be caught.
func TestStress(t *testing.T) {
	d := 2 * time.Second
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		d = time.Minute
	}
	writes, stale, violations := storm(t, d, func(ctx context.Context, db *sql.DB, f fence.Fence, pause time.Duration) error {
		return new(DB).Tx(ctx, db, f, record(ctx, f, pause))
	})
	if violations != 0 || writes < 100 || stale < 100 {
		t.Errorf("%d writes, %d refused, %d stale commits", writes, stale, violations)
	}
	writes, _, violations = storm(t, d, func(ctx context.Context, db *sql.DB, f fence.Fence, pause time.Duration) error {
		if err := current(ctx, db, f); err != nil {
			return err
		}
		return write(ctx, db, record(ctx, f, pause))
	})
	if violations == 0 {
		t.Errorf("the control was not caught in %d writes", writes)
	}
}

func record(ctx context.Context, f fence.Fence, pause time.Duration) func(*sql.Conn) error {
	return func(c *sql.Conn) error {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		<-timer.C
		_, err := c.ExecContext(ctx, "INSERT INTO log (resource, epoch) VALUES (?, ?)", f.Resource, f.Epoch)
		return err
	}
}

func storm(t *testing.T, d time.Duration, do func(context.Context, *sql.DB, fence.Fence, time.Duration) error) (writes, stale, violations int) {
	t.Helper()
	ctx, db := t.Context(), open(t)
	must(t, db, `CREATE TABLE log (n INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT, epoch INTEGER, raised INTEGER NOT NULL DEFAULT 0);
		CREATE TRIGGER first AFTER INSERT ON headgate_fences BEGIN INSERT INTO log (resource, epoch, raised) VALUES (new.resource, new.epoch, 1); END;
		CREATE TRIGGER later AFTER UPDATE ON headgate_fences BEGIN INSERT INTO log (resource, epoch, raised) VALUES (new.resource, new.epoch, 1); END`)
	var epoch, accepted, refused atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for who := range 6 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(who), 3))
			few := func() bool {
				return (accepted.Load() < 200 || refused.Load() < 200) && time.Since(begun) < 30*time.Second
			} // a busy machine
			for time.Since(begun) < d || few() {
				f := grant(fmt.Sprint("r/", random.IntN(2)), epoch.Add(1))
				if err := new(DB).Seal(ctx, db, f); err != nil {
					continue // somebody newer was faster, or the writer was busy
				}
				for range 30 {
					err := do(ctx, db, f, time.Duration(random.IntN(2))*time.Millisecond)
					switch {
					case err == nil:
						accepted.Add(1)
					case headgate.CodeOf(err) == headgate.CodeStaleFence:
						refused.Add(1)
					case !strings.Contains(err.Error(), "locked"):
						t.Errorf("%s: %v", f, err)
					}
				}
			}
		})
	}
	wg.Wait()
	rows, err := db.QueryContext(ctx, "SELECT resource, epoch, raised FROM log ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	now := map[string]int64{}
	for rows.Next() {
		var resource string
		var e int64
		var raised bool
		if err := rows.Scan(&resource, &e, &raised); err != nil {
			t.Fatal(err)
		}
		switch {
		case raised:
			now[resource] = e
		case now[resource] != e:
			violations++
			fallthrough
		default:
			writes++
		}
	}
	if err := errors.Join(rows.Err()); err != nil {
		t.Fatal(err)
	}
	if int64(writes) != accepted.Load() {
		t.Errorf("%d writes are there, %d were acknowledged", writes, accepted.Load())
	}
	t.Logf("%d writes, %d refused as stale, %d stale commits", writes, refused.Load(), violations)
	return writes, int(refused.Load()), violations
}

// What cannot be fenced is told as that, and a table is one however its name
// is written.
func TestNamesOfTables(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	must(t, db, "CREATE VIEW seen AS SELECT 1 AS ticket")
	for name, code := range map[string]headgate.Code{
		"": headgate.CodeNotFound, "nope": headgate.CodeNotFound, "a\x00b": headgate.CodeNotFound, `"`: headgate.CodeNotFound, "tickets; DROP": headgate.CodeNotFound, strings.Repeat("n", 100000): headgate.CodeNotFound,
		"seen": headgate.CodeInvalidArgument, "sqlite_master": headgate.CodeInvalidArgument, "headgate_fences": headgate.CodeInvalidArgument, "TICKETS": "",
	} {
		_, err := FenceTable(ctx, db, name, "t/{ticket}", false)
		want(t, fmt.Sprintf("%.20q", name), err, code)
	}
	if _, err := FenceTable(ctx, db, "tickets", "t/{ticket}", false); err != nil {
		t.Fatal(err)
	}
	if _, err := UnfenceTable(ctx, db, "Tickets", false); err != nil {
		t.Fatal(err)
	}
	must(t, db, "INSERT INTO tickets (ticket) VALUES ('free')")
}
