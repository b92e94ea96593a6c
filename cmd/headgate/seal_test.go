package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/lease/fencesqlite"
	"github.com/headgate/headgate/node"
)

// TestSealTargets: what the node's drivers seal refuses older grants.
func TestSealTargets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a?b%c.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := driver.Open(sqliteFile(file))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := fencesqlite.Install(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	createFenceTable(t, file, "fences")
	for _, table := range []string{"", "fences"} {
		seal, done, err := sealSQLite(node.SealOptions{URL: "sqlite:" + file, Table: table})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		sealTwice(t, seal)
	}
	if _, err := os.Stat(file + "-journal"); err == nil {
		t.Error("a journal is left behind")
	}
}

// TestSealPostgresTargets: the same on PostgreSQL, by functions and by table.
func TestSealPostgresTargets(t *testing.T) {
	url := pgtest.URL(t)
	functions := pgtest.Schema(t, url, t.TempDir())
	table := pgtest.Schema(t, url, t.TempDir()) // a name that nobody else has
	t.Cleanup(func() {
		pgtest.Exec(t, url, `DROP SCHEMA IF EXISTS "`+functions+`_fence" CASCADE; DROP TABLE IF EXISTS "`+table+`"`)
	})
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if err := fencepg.Install(t.Context(), conn, fencepg.Config{Schema: functions}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	createFenceTable(t, url, table)
	for _, o := range []node.SealOptions{{URL: url, Schema: functions}, {URL: url, Table: table}} {
		seal, done, err := sealPostgres(o)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		sealTwice(t, seal)
	}
	seal, done, err := sealPostgres(node.SealOptions{URL: url, Schema: "nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := seal.Seal(t.Context(), lease.Sealing{Fence: lease.Fence{Resource: "ticket/1", Epoch: 7, Nonce: make([]byte, 16)}}); err == nil {
		t.Error("a database without guards was sealed")
	}
}

// createFenceTable is lease fence-table DB TABLE --create, which may be repeated.
func createFenceTable(t *testing.T, db, table string) {
	t.Helper()
	for range 2 {
		root := (&app{streams: streams{out: io.Discard, err: io.Discard}}).root()
		root.SetArgs([]string{"lease", "fence-table", db, table, "--create"})
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// sealTwice seals with a grant and a newer one, after which the older is
// refused.
func sealTwice(t *testing.T, target lease.Target) {
	t.Helper()
	old := lease.Fence{Resource: "ticket/1", Epoch: 5, Nonce: make([]byte, 16)}
	fresh := lease.Fence{Resource: "ticket/1", Epoch: 6, Nonce: []byte("0123456789abcdef")}
	for _, f := range []lease.Fence{old, fresh, fresh} {
		if _, err := target.Seal(t.Context(), lease.Sealing{Fence: f}); err != nil {
			t.Errorf("%s: %v", f.String(), err)
		}
	}
	if _, err := target.Seal(t.Context(), lease.Sealing{Fence: old}); headgate.CodeOf(err) != headgate.CodeStaleFence {
		t.Errorf("an older grant: %v", err)
	}
}
