package storetest

import (
	"context"
	"sync"
	"testing"

	"github.com/headgate/headgate/store"
)

var identityCases = map[string]func(*testing.T, store.Store){
	"is drawn once": func(t *testing.T, s store.Store) {
		const nodes = 8
		var ids [nodes]string
		var all sync.WaitGroup
		for i := range nodes {
			all.Go(func() {
				var err error
				if ids[i], err = store.Identity(context.Background(), s); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, id := range ids {
			if id != ids[0] || len(id) != 32 {
				t.Fatalf("identities %q and %q", ids[0], id)
			}
		}
	},
	"that is damaged is refused": func(t *testing.T, s store.Store) {
		err := s.Update(context.Background(), func(ctx context.Context, tx *store.Tx) error {
			return tx.Settings.Put(ctx, "store/identity", []byte("short"))
		})
		if err != nil {
			t.Fatal(err)
		}
		if id, err := store.Identity(context.Background(), s); err == nil {
			t.Errorf("identity %q", id)
		}
	},
}

// identityKept fails unless a store that is opened again has the identity that
// it had, and another store another.
func identityKept(t *testing.T, d Driver) {
	dir := t.TempDir()
	identity := func(dir string) string {
		s := d.Open(t, dir)
		defer s.Close()
		id, err := store.Identity(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := identity(dir)
	if again := identity(dir); (again == first) == d.Volatile {
		t.Errorf("identity %s, and %s when it is opened again", first, again)
	}
	if other := identity(t.TempDir()); other == first {
		t.Errorf("two stores have identity %s", other)
	}
}
