package pgstore

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
)

// openNodes opens stores that share a schema, as several nodes do.
func openNodes(t testing.TB, n int, cfg Config) []*Store {
	t.Helper()
	cfg.URL = pgtest.URL(t)
	cfg.Schema, cfg.Shared = pgtest.Schema(t, cfg.URL, t.TempDir()), true
	nodes := make([]*Store, n)
	for i := range nodes {
		nodes[i] = openTest(t, cfg)
	}
	return nodes
}

// TestOutsideNodesAreSerialisable: functions of several nodes that read and
// then write what they read lose no update, and gas is never handed out twice.
func TestOutsideNodesAreSerialisable(t *testing.T) {
	nodes := openNodes(t, 3, Config{})
	const workers, each, units = 4, 40, 300
	var got [3]int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, s := range nodes {
		for range workers {
			wg.Go(func() {
				for range each {
					taken := 0
					if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
						a, err := tx.Gas.Get(ctx, "counter")
						if headgate.CodeOf(err) != headgate.CodeNotFound && err != nil {
							return err
						}
						if err := tx.Settings.Put(ctx, fmt.Sprint("n", a.Total), nil); err != nil {
							return err
						}
						if _, err := tx.Gas.Raise(ctx, "counter", 0, 0, 1, a.Updated); err != nil {
							return err
						}
						taken, err = tx.Gas.Debit(ctx, "root", units, 0, 1, a.Updated)
						return err
					}); err != nil {
						t.Errorf("Update: %v", err)
						return
					}
					mu.Lock()
					got[n] += taken
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	const all = 3 * workers * each
	if n := keys(t, nodes[0]); n != all {
		t.Errorf("%d different counts seen by %d functions", n, all)
	}
	if sum := got[0] + got[1] + got[2]; sum != units {
		t.Errorf("%d units of %d were handed out: %v", sum, units, got)
	}
}

// TestOutsideOutboxOrder: a reader that goes on behind the last number that it
// saw meets every row, whichever node wrote it and however long its group took.
func TestOutsideOutboxOrder(t *testing.T) {
	nodes := openNodes(t, 3, Config{})
	const workers, each = 3, 60
	ctx, stop := context.WithCancel(t.Context())
	seen := map[int64]bool{}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		after := int64(0)
		for last := false; ; {
			var rows []store.OutboxRow
			if err := nodes[0].View(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
				rows, err = tx.Outbox.Pending(ctx, after, 50)
				return err
			}); err != nil {
				t.Errorf("View: %v", err)
				return
			}
			for _, r := range rows {
				seen[r.Seq], after = true, r.Seq
			}
			if last && len(rows) == 0 {
				return
			}
			last = ctx.Err() != nil
		}
	}()
	var wg sync.WaitGroup
	for _, s := range nodes {
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
						if err := tx.Outbox.Append(ctx, make([]store.OutboxRow, 1+(w+i)%3)); err != nil {
							return err
						}
						_, err := tx.Outbox.Count(ctx) // takes a while between the number and the commit
						return err
					}); err != nil {
						t.Errorf("Update: %v", err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	stop()
	<-reading
	if n := len(seen); n != 3*workers*each*2 {
		t.Errorf("the reader met %d rows of %d", n, 3*workers*each*2)
	}
}

// TestOutsideTemporaryTables: what a foreign session puts before our tables
// does not come before them, nor does an operator of another schema.
func TestOutsideTemporaryTables(t *testing.T) {
	s := openTest(t, Config{})
	c := s.writer.conn
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.pg.Exec(t.Context(), "CREATE TEMPORARY TABLE settings (key bytea PRIMARY KEY, value bytea)").ReadAll(); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), put("b")); err != nil {
		t.Fatal(err)
	}
	if n := keys(t, s); n != 2 {
		t.Errorf("%d settings, want 2", n)
	}
}

// TestOutsideSecondNode is refused while the first lives.
func TestOutsideSecondNode(t *testing.T) {
	first := openTest(t, Config{})
	cfg := first.cfg
	cfg.LockTimeout = 50 * time.Millisecond
	wantCode(t, tryOpen(t, cfg), headgate.CodeUnavailable, "another node")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tryOpen(t, cfg); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// silent is a connection that breaks without the other side knowing.
type silent struct {
	net.Conn
	broken *atomic.Bool
}

func (s *silent) Write(p []byte) (int, error) {
	if s.broken.Load() {
		return 0, errCut
	}
	return s.Conn.Write(p)
}

func (s *silent) Close() error {
	if s.broken.Load() {
		return nil
	}
	return s.Conn.Close()
}

// TestOutsideOwnGhost: a session that the server still believes in does not
// lock out the node that it belonged to.
func TestOutsideOwnGhost(t *testing.T) {
	var broken atomic.Bool
	var mu sync.Mutex
	var all []net.Conn
	s := named(t, Config{wrap: func(n net.Conn) net.Conn {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, n)
		if len(all) > 1 {
			return n
		}
		return &silent{Conn: n, broken: &broken}
	}})
	t.Cleanup(func() { _ = all[0].Close() }) // the server ended it
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if err := s.Update(t.Context(), put("b")); err != nil {
		t.Errorf("beside its own ghost: %v", err)
	}
	if n := pgtest.Exec(t, s.cfg.URL, "SELECT count(*) FROM pg_stat_activity WHERE "+sessions(s)+" AND query NOT LIKE '%count%'")[0][0]; n != "1" {
		t.Errorf("%s sessions, want 1", n)
	}
}
