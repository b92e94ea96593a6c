package lease

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/sqlitestore"
)

// onFile runs fn with a service over a database file, as one life of a node.
func onFile(t testing.TB, path string, fn func(*Service)) {
	t.Helper()
	st, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	fn(service(t, st))
}

// TestRestoreOfAnOldBackup: epochs and nonces that the backup does not know are
// not given again, and their tokens do not pass.
func TestRestoreOfAnOldBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headgate.db")
	given := map[string]bool{}
	highest := map[string]int64{}
	var lost []string
	take := func(s *Service, resource string) string {
		t.Helper()
		g, err := s.Acquire(t.Context(), worker("a"), Request{Resources: []string{resource}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Read(t.Context(), g[0].Token, "")
		if err != nil {
			t.Fatal(err)
		}
		if f.Epoch <= highest[resource] {
			t.Errorf("epoch %d of %s was given although %d was", f.Epoch, resource, highest[resource])
		}
		highest[resource] = f.Epoch
		for _, id := range []string{fmt.Sprint(resource, "@", f.Epoch), string(f.Nonce)} {
			if given[id] {
				t.Errorf("%q was given twice", id)
			}
			given[id] = true
		}
		if err := s.Release(t.Context(), worker("a"), "", g[0].Token); err != nil {
			t.Fatal(err)
		}
		return g[0].Token
	}
	onFile(t, path, func(s *Service) { take(s, "known") })
	backup, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	onFile(t, path, func(s *Service) {
		for range 50 {
			lost = append(lost, take(s, "known"), take(s, "unknown to the backup"))
		}
	})
	if err := os.WriteFile(path, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	onFile(t, path, func(s *Service) {
		for _, token := range lost {
			want(t, "a lost token before anything was granted", write(t.Context(), s, s.cfg.Store, token), headgate.CodeStaleFence)
		}
		for range 20 {
			take(s, "known")
			take(s, "unknown to the backup")
		}
		for _, token := range lost {
			want(t, "a lost token", write(t.Context(), s, s.cfg.Store, token), headgate.CodeStaleFence)
		}
	})
}
