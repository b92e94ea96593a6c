package pgstore

import (
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// onServer opens the store of a folder: each folder is a schema of its own.
func onServer(t testing.TB, dir string) store.Store {
	t.Helper()
	url := pgtest.URL(t)
	s, err := Open(t.Context(), Config{URL: url, Schema: pgtest.Schema(t, url, dir)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOutsideStore(t *testing.T) {
	pgtest.URL(t)
	storetest.Run(t, storetest.Driver{Open: onServer})
}

func TestOutsideCrash(t *testing.T) {
	pgtest.URL(t)
	storetest.Crash(t, storetest.Driver{Open: onServer})
}
