package sqlitestore

import (
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

func onDisk(t testing.TB, dir string) store.Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: filepath.Join(dir, "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Driver{Open: onDisk})
}

func TestStoreInMemory(t *testing.T) {
	storetest.Run(t, storetest.Driver{Volatile: true, Open: func(t testing.TB, _ string) store.Store {
		t.Helper()
		s, err := Open(t.Context(), Config{Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}})
}

func TestCrash(t *testing.T) {
	storetest.Crash(t, storetest.Driver{Open: onDisk})
}
