package fencesqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
)

// The disk under the file fills up, has room again, and is then mounted for
// reading only. What was acknowledged is there, what failed is not, and the
// superseded holder is refused all the while.
func TestFullDisk(t *testing.T) {
	ctx := t.Context()
	disk, err := os.MkdirTemp("", "headgate-disk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		_ = os.Remove(disk) // empty
		if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
			t.Fatalf("file systems cannot be mounted: %v", err)
		}
		t.Skipf("file systems cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(disk, syscall.MNT_DETACH), os.Remove(disk)); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	name := "file:" + filepath.Join(disk, "user.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"
	db, err := driver.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	must(t, db, "CREATE TABLE tickets (id INTEGER PRIMARY KEY, ticket TEXT NOT NULL, body BLOB)")
	if _, err := FenceTable(ctx, db, "tickets", "t/{ticket}", false); err != nil {
		t.Fatal(err)
	}
	old, now := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", new(DB).Seal(ctx, db, old), "")
	want(t, "seal", new(DB).Seal(ctx, db, now), "")
	body := make([]byte, 20<<10)
	if _, err := rand.Read(body); err != nil {
		t.Fatal(err)
	}
	write := func(id int) func(*sql.Conn) error {
		return func(c *sql.Conn) error {
			_, err := c.ExecContext(context.WithoutCancel(ctx), "INSERT INTO tickets VALUES (?, '1', ?)", id, body)
			return err
		}
	}
	acked, failed := map[int]bool{}, map[int]bool{}
	for id := 1; len(failed) < 10 && id < 1000; id++ {
		if err := new(DB).Tx(ctx, db, now, write(id)); err != nil {
			failed[id] = true
			want(t, "stale, on a full disk", new(DB).Tx(ctx, db, old, write(0)), headgate.CodeStaleFence)
		} else {
			acked[id] = true
		}
	}
	if len(failed) < 10 {
		t.Fatalf("the disk did not fill up in %d writes", len(acked))
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	want(t, "the holder goes on", new(DB).Tx(ctx, db, now, write(5000)), "")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = driver.Open(name); err != nil {
		t.Fatal(err)
	}
	rows, err := db.QueryContext(ctx, "SELECT id FROM tickets WHERE length(body) = ?", len(body))
	if err != nil {
		t.Fatal(err)
	}
	there := map[int]bool{}
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		there[id] = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	for id := range acked {
		if !there[id] {
			t.Errorf("write %d was acknowledged and is gone", id)
		}
	}
	for id := range failed {
		if there[id] {
			t.Errorf("write %d failed and is there", id)
		}
	}
	want(t, "stale, after", new(DB).Tx(ctx, db, old, write(0)), headgate.CodeStaleFence)
	t.Logf("%d acknowledged, %d failed", len(acked), len(failed))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	readOnly(t, disk, name, func(db *sql.DB) {
		if err := new(DB).Tx(ctx, db, now, write(6000)); err == nil {
			t.Error("a write was acknowledged on a file system that is for reading")
		}
		if err := new(DB).Tx(ctx, db, old, write(0)); err == nil {
			t.Error("a superseded write was acknowledged")
		}
		if err := new(DB).Seal(ctx, db, grant("t/1", 3)); err == nil {
			t.Error("a seal was acknowledged on a file system that is for reading")
		}
	})
}

// readOnly runs fn on a file system that takes no writes.
func readOnly(t *testing.T, disk, name string, fn func(*sql.DB)) {
	t.Helper()
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	db, err := driver.Open(name)
	if err == nil { // it may notice already
		fn(db)
		err = db.Close()
	}
	if err != nil {
		t.Logf("opened for reading: %v", err)
	}
}
