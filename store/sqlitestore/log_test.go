package sqlitestore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// shortLog bounds the log to so many pages, or the tests would write
// gigabytes. What belongs to the writer is changed on its goroutine.
func shortLog(t *testing.T, s *Store, pages int, wait time.Duration) {
	t.Helper()
	if err := s.Update(t.Context(), func(context.Context, *store.Tx) error {
		s.watch.most, s.watch.limit, s.watch.wait = pages, pages, wait
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// noise returns n bytes that differ from those of another seed in every page:
// SQLite does not write a page that would stay as it is.
func noise(n, seed int) []byte {
	return bytes.Repeat(fmt.Append(nil, seed, "-"), n/2)[:n]
}

// TestLogIsBounded writes several times the bound while Views overlap without
// a pause, so that the log never finds a moment without readers by itself.
func TestLogIsBounded(t *testing.T) {
	s := openTest(t, Config{Relaxed: true, Readers: 6})
	const limit = 1500
	shortLog(t, s, limit, time.Minute)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 6 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					for range 20 {
						if _, err := tx.Settings.List(ctx, "none"); err != nil {
							return err
						}
						runtime.Gosched()
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var largest int64
	for i := range 200 { // a quarter of a megabyte each
		if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return tx.Settings.Put(ctx, string(rune('a'+i%20)), noise(1<<18, i))
		}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(s.file + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, info.Size())
	}
	close(stop)
	readers.Wait()
	t.Logf("largest log %.1f MiB", float64(largest)/(1<<20))
	if most := int64(limit+2*64+10) * 4120; largest > most { // the limit, and the group that passed it
		t.Errorf("the log came to %d bytes, want at most %d", largest, most)
	}
}

// TestCheckpointsHappen writes more small updates than the log may hold.
func TestCheckpointsHappen(t *testing.T) {
	s := openTest(t, Config{Relaxed: true})
	const n = 3 * maxLogPages / 2 // a page each, at least
	for i := range n {
		if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return tx.Deliveries.SaveProgress(ctx, []store.Progress{{Subscription: "s", Stream: "s", Floor: uint64(i)}})
		}); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(s.file + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("log after %d updates: %.1f MiB", n, float64(info.Size())/(1<<20))
	if info.Size() > (maxLogPages+100)*4120 {
		t.Errorf("the log has %d bytes: it was never emptied", info.Size())
	}
}

// TestPinnedLogIsEmptiedLater: a View that does not end holds the log, and
// writers go on meanwhile.
func TestPinnedLogIsEmptiedLater(t *testing.T) {
	s := openTest(t, Config{Relaxed: true})
	shortLog(t, s, 200, 10*time.Millisecond)
	fill := func(n int) {
		t.Helper()
		for i := range n {
			if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				return tx.Settings.Put(ctx, "k", noise(100_000, i))
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.Settings.List(ctx, ""); err != nil {
			return err
		}
		fill(20)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var limit int
	if err := s.Update(t.Context(), func(context.Context, *store.Tx) error { limit = s.watch.limit; return nil }); err != nil {
		t.Fatal(err)
	}
	if limit < 200+100 {
		t.Errorf("the writer waits for the pinned log again at %d pages", limit)
	}
	shortLog(t, s, 200, 10*time.Millisecond)
	fill(1)
	if err := s.Update(t.Context(), put("a")); err != nil { // after the writer came to it
		t.Fatal(err)
	}
	if info, err := os.Stat(s.file + "-wal"); err != nil || info.Size() > 100*4120 {
		t.Errorf("the log is not emptied after the View ended: %v, %v", info.Size(), err)
	}
}
