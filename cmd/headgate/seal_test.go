package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fencesqlite"
	"github.com/headgate/headgate/lease/fencetable"
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
	if err := (fencetable.Table{Dialect: fencetable.SQLite, Name: "fences"}).Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"", "fences"} {
		seal, done, err := sealSQLite(node.SealOptions{URL: "sqlite:" + file, Table: table})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		old := lease.Fence{Resource: "ticket/1", Epoch: 5, Nonce: make([]byte, 16)}
		fresh := lease.Fence{Resource: "ticket/1", Epoch: 6, Nonce: []byte("0123456789abcdef")}
		for _, f := range []lease.Fence{old, fresh, fresh} {
			if err := seal(t.Context(), f); err != nil {
				t.Errorf("table %q: %s: %v", table, f.String(), err)
			}
		}
		if err := seal(t.Context(), old); headgate.CodeOf(err) != headgate.CodeStaleFence {
			t.Errorf("table %q: an older grant: %v", table, err)
		}
	}
	if _, err := os.Stat(file + "-journal"); err == nil {
		t.Error("a journal is left behind")
	}
}
