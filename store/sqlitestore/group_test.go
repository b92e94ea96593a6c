package sqlitestore

import (
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/headgate/headgate/store"
)

// openTest opens a store on disk that the test's end closes.
func openTest(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.Path == "" && !cfg.Memory {
		cfg.Path = filepath.Join(t.TempDir(), "data", "state.db")
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestGroupsShareCommits(t *testing.T) {
	s := openTest(t, Config{})
	commits := 0
	s.writer.conn.db.CommitHook(func() bool { commits++; return true })
	const n = 100
	block, entered := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Update(t.Context(), func(context.Context, *store.Tx) error {
			close(entered)
			<-block
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-entered
	for range n {
		wg.Go(func() {
			if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				return tx.Settings.Put(ctx, "k", []byte("v"))
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for s.queue.Len() < n { // until all wait in the queue
		runtime.Gosched()
	}
	close(block)
	wg.Wait()
	if commits > 2 {
		t.Errorf("%d functions took %d commits", n, commits)
	}
}
