package fencetable_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fencetable"
)

type target struct {
	db    *sql.DB
	table fencetable.Table
}

func each(t *testing.T, run func(*testing.T, target)) {
	t.Run("sqlite", func(t *testing.T) {
		db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "f.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
		start(t, db, err, fencetable.Table{Dialect: fencetable.SQLite}, run)
	})
	t.Run("postgres", func(t *testing.T) {
		url := os.Getenv("HEADGATE_TEST_POSTGRES")
		if url == "" {
			if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
				t.Fatal("HEADGATE_TEST_POSTGRES is not set")
			}
			t.Skip("HEADGATE_TEST_POSTGRES is not set")
		}
		db, err := sql.Open("pgx", url)
		name := "fences_" + strings.ToLower(strings.NewReplacer("/", "_", "#", "_").Replace(t.Name()))
		start(t, db, err, fencetable.Table{Dialect: fencetable.Postgres, Name: name[:min(len(name), 60)]}, run)
	})
}

func start(t *testing.T, db *sql.DB, err error, table fencetable.Table, run func(*testing.T, target)) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	name := table.Name
	if name == "" {
		name = fencetable.DefaultName
	}
	if _, err := db.ExecContext(t.Context(), "DROP TABLE IF EXISTS "+name); err != nil {
		t.Fatal(err)
	}
	if err := table.Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := table.Create(t.Context(), db); err != nil {
		t.Errorf("created twice: %v", err)
	}
	run(t, target{db, table})
	if _, err := db.ExecContext(context.Background(), "DROP TABLE IF EXISTS "+name); err != nil {
		t.Error(err)
	}
}

func fence(resource string, epoch int64, nonce byte) lease.Fence {
	return lease.Fence{Resource: resource, Epoch: epoch, Nonce: []byte(strings.Repeat(string(rune('a'+nonce)), 16))}
}

func TestOnlyTheHighestPasses(t *testing.T) {
	each(t, func(t *testing.T, g target) {
		for i, c := range []struct {
			f    lease.Fence
			want headgate.Code
		}{
			{fence("r", 5, 0), ""},
			{fence("r", 5, 0), ""},
			{fence("r", 5, 1), headgate.CodeFenceConflict},
			{fence("r", 4, 0), headgate.CodeStaleFence},
			{fence("other", 1, 0), ""},
			{fence("r", 1<<53, 2), headgate.CodeFenceInvalid},
			{fence("r", 0, 2), headgate.CodeFenceInvalid},
			{fence("a//b", 7, 2), headgate.CodeFenceInvalid},
			{lease.Fence{Resource: "r", Epoch: 7, Nonce: []byte("short")}, headgate.CodeFenceInvalid},
			{fence("r", 1<<53-1, 2), ""},
			{fence("r", 5, 0), headgate.CodeStaleFence},
		} {
			if err := g.table.Seal(t.Context(), g.db, c.f); headgate.CodeOf(err) != c.want {
				t.Errorf("step %d: %v, want %q", i, err, c.want)
			}
		}
	})
}

// TestRefusedWritesLeaveNothing: and a rolled back epoch was never seen.
func TestRefusedWritesLeaveNothing(t *testing.T) {
	each(t, func(t *testing.T, g target) {
		tx, err := g.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.table.Check(t.Context(), tx, fence("r", 9, 0)); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := g.table.Seal(t.Context(), g.db, fence("r", 3, 0)); err != nil {
			t.Error(err)
		}
	})
}

// TestSealWaitsForOlderTransactions: the takeover comes behind what the old
// holder commits, and before anything that it begins later.
func TestSealWaitsForOlderTransactions(t *testing.T) {
	each(t, func(t *testing.T, g target) {
		if err := g.table.Seal(t.Context(), g.db, fence("r", 1, 0)); err != nil {
			t.Fatal(err)
		}
		tx, err := g.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.table.Check(t.Context(), tx, fence("r", 1, 0)); err != nil {
			t.Fatal(err)
		}
		committed := make(chan struct{})
		sealed := make(chan error, 1)
		go func() {
			err := g.table.Seal(t.Context(), g.db, fence("r", 2, 1))
			select {
			case <-committed:
			default:
				t.Error("sealed while a transaction of the old epoch was open")
			}
			sealed <- err
		}()
		// Time for the other one to be wrong.
		select {
		case err := <-sealed:
			t.Fatalf("sealed early: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		close(committed)
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		if err := <-sealed; err != nil {
			t.Error(err)
		}
		if err := g.table.Seal(t.Context(), g.db, fence("r", 1, 0)); headgate.CodeOf(err) != headgate.CodeStaleFence {
			t.Error(err)
		}
	})
}

func TestNames(t *testing.T) {
	db, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, bad := range []fencetable.Table{{}, {Dialect: "mysql"}, {Dialect: fencetable.SQLite, Name: `x"; DROP TABLE y`}, {Dialect: fencetable.SQLite, Name: "1x"}} {
		if err := bad.Create(t.Context(), db); headgate.CodeOf(err) != headgate.CodeInvalidConfig {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
