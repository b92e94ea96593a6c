package inboxsqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := driver.Open("file:" + filepath.Join(t.TempDir(), "user.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func receipt(id string) inbox.Receipt {
	return inbox.Receipt{Consumer: "billing", Source: "/shop", ID: id, Recorded: time.Now()}
}

func receive(t testing.TB, db *sql.DB, r inbox.Receipt) (bool, error) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	fresh, err := Tx(tx).Receive(t.Context(), r)
	if err != nil {
		return false, err
	}
	return fresh, tx.Commit()
}

// Old rows go in bounded steps, and never before their time; what is kept is
// not changed.
func TestMaintenanceIsBounded(t *testing.T) {
	db := open(t)
	ctx := t.Context()
	if _, err := receive(t, db, receipt("a")); headgate.CodeOf(err) != headgate.CodeInvalidConfig {
		t.Errorf("without an inbox: %v", err)
	}
	if _, err := Inspect(ctx, db); headgate.CodeOf(err) != headgate.CodeNotFound {
		t.Error(err)
	}
	for range 2 {
		must(t, Install(ctx, db, 48*time.Hour))
	}
	old := time.Now().Add(-72 * time.Hour)
	var b strings.Builder
	for i := range MaintainLimit + 10 {
		fmt.Fprintf(&b, "INSERT INTO headgate_inbox (consumer, source, id, seen) VALUES ('billing', '/shop', 'old%d', %d);", i, old.UnixMilli())
	}
	_, err := db.ExecContext(ctx, b.String())
	must(t, err)
	if fresh, err := receive(t, db, receipt("young")); err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	for _, script := range []string{
		`DELETE FROM headgate_inbox WHERE id = 'young'`, `DELETE FROM headgate_inbox`, `UPDATE headgate_inbox SET id = 'other' WHERE id = 'young'`,
		`UPDATE headgate_inbox SET result = x'00' WHERE id = 'young'`,
	} {
		if _, err := db.ExecContext(ctx, script); err == nil || !strings.Contains(err.Error(), "HG206") {
			t.Errorf("%s: %v", script, err)
		}
	}
	for _, want := range []int64{MaintainLimit, 10, 0} {
		if n, err := Maintain(ctx, db); err != nil || n != want {
			t.Errorf("%d are deleted, want %d; %v", n, want, err)
		}
	}
	s, err := Inspect(ctx, db)
	must(t, err)
	if s.Rows != 1 || s.Retain != 48*time.Hour || s.Forgotten.UnixMilli() != old.UnixMilli() || s.Claims != 0 {
		t.Errorf("%+v", s)
	}
	r := receipt("old1")
	r.Recorded = old
	if _, err := receive(t, db, r); headgate.CodeOf(err) != headgate.CodeTooOld {
		t.Errorf("what is forgotten: %v", err)
	}
	if fresh, err := receive(t, db, receipt("young")); err != nil || fresh {
		t.Errorf("what is kept: %v, %v", fresh, err)
	}
	if err := Install(ctx, db, time.Minute); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Error(err)
	}
}

// The recipe of the docs is written by hand, in any unit.
func TestTimesInOtherUnitsAreRefused(t *testing.T) {
	db := open(t)
	ctx := t.Context()
	must(t, Install(ctx, db, 48*time.Hour))
	if _, err := db.ExecContext(ctx, `DROP TRIGGER headgate_inbox_time`); err != nil {
		t.Fatal(err)
	}
	must(t, Install(ctx, db, 0)) // an inbox of before gets it
	for _, seen := range []string{
		`unixepoch()`, `CAST(unixepoch() AS TEXT)`, `datetime('now')`, `unixepoch() * 1000000`, `unixepoch() * 1000 + 0.5`, `0`, `-1`, `NULL`, `x'00'`,
	} {
		_, err := db.ExecContext(ctx, `INSERT INTO headgate_inbox (consumer, source, id, seen) VALUES ('billing', '/shop', 'a', `+seen+`) ON CONFLICT DO NOTHING`)
		if err == nil || !strings.Contains(err.Error(), "HG201") {
			t.Errorf("%s: %v", seen, err)
		}
	}
	for i, seen := range []string{now, `unixepoch() * 1000`, `CAST(unixepoch() * 1000 AS TEXT)`} { // a column of integers takes the last as one
		if _, err := db.ExecContext(ctx, `INSERT INTO headgate_inbox (consumer, source, id, seen) VALUES ('billing', '/shop', ?, `+seen+`)`, fmt.Sprint(i)); err != nil {
			t.Errorf("%s: %v", seen, err)
		}
	}
}
