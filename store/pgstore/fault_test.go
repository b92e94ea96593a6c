package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
)

// wire is a connection that fails on demand.
type wire struct {
	net.Conn
	fault *atomic.Int32
	cut   atomic.Bool
}

// What a wire does with what is sent next. Each strikes once.
const (
	wireSound     = iota
	loseRequest   // it is never sent, and the sender knows
	swallow       // it is never sent, and the sender does not know
	loseAnswer    // it is sent, and the answer does not come
	cutBeforeSend // the connection is closed before anything is sent
)

var errCut = errors.New("the wire is cut")

func (w *wire) Write(p []byte) (int, error) {
	switch w.fault.Swap(wireSound) {
	case loseRequest, cutBeforeSend:
		w.cut.Store(true)
		return 0, errors.Join(errCut, w.Conn.Close())
	case swallow:
		w.cut.Store(true)
		return len(p), w.Conn.Close()
	case loseAnswer:
		n, err := w.Conn.Write(p)
		if err == nil {
			_, err = w.Conn.Read(make([]byte, 1)) // the server has answered
		}
		w.cut.Store(true)
		return n, errors.Join(err, w.Conn.Close())
	}
	return w.Conn.Write(p)
}

func (w *wire) Read(p []byte) (int, error) {
	if w.cut.Load() {
		return 0, errCut
	}
	return w.Conn.Read(p)
}

// TestOutsideCutWires cuts the writer's connection around COMMIT.
func TestOutsideCutWires(t *testing.T) {
	for name, c := range map[string]struct {
		fault int32
		code  headgate.Code // empty: it succeeds
		runs  int
		keys  int // afterwards, beside the first
	}{
		"the request is lost":   {loseRequest, "", 2, 1},
		"the request vanishes":  {swallow, headgate.CodeUnknownOutcome, 1, 0},
		"the answer is lost":    {loseAnswer, headgate.CodeUnknownOutcome, 1, 1},
		"it is cut before that": {cutBeforeSend, "", 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var fault atomic.Int32
			s := openTest(t, Config{wrap: func(n net.Conn) net.Conn { return &wire{Conn: n, fault: &fault} }})
			if err := s.Update(t.Context(), put("first")); err != nil {
				t.Fatal(err)
			}
			runs := 0
			err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				runs++
				if _, err := tx.Outbox.Count(ctx); err != nil { // sends what came before
					return err
				}
				if err := tx.Settings.Put(ctx, "second", nil); err != nil {
					return err
				}
				if runs == 1 {
					fault.Store(c.fault)
				}
				return nil
			})
			if headgate.CodeOf(err) != c.code || runs != c.runs {
				t.Errorf("Update after %d runs: %v", runs, err)
			}
			if e := headgate.AsError(err); e != nil && e.Info().Outcome != headgate.Unknown {
				t.Errorf("outcome %s", e.Info().Outcome)
			}
			if n := keys(t, s); n != 1+c.keys {
				t.Errorf("%d settings, want %d", n, 1+c.keys)
			}
			if err := s.Update(t.Context(), put("third")); err != nil {
				t.Errorf("Update after the cut: %v", err)
			}
		})
	}
}

// TestOutsideCutsAnywhere cuts at random moments: what was answered is there,
// what was refused is not, and what is unknown may be either.
func TestOutsideCutsAnywhere(t *testing.T) {
	var fault atomic.Int32
	s := openTest(t, Config{wrap: func(n net.Conn) net.Conn { return &wire{Conn: n, fault: &fault} }})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	answers := map[string]error{}
	var wg sync.WaitGroup
	var left atomic.Int32
	left.Store(8)
	for w := range 8 {
		wg.Go(func() {
			defer left.Add(-1)
			for i := range 60 {
				key := fmt.Sprint(w, "-", i)
				err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					if err := tx.Settings.Put(ctx, key+"a", nil); err != nil {
						return err
					}
					if i%2 == 0 {
						if _, err := tx.Outbox.Count(ctx); err != nil {
							return err
						}
					}
					return tx.Settings.Put(ctx, key+"b", nil)
				})
				mu.Lock()
				answers[key] = err
				mu.Unlock()
				if i%6 == 0 {
					mu.Lock()
					fault.Store(1 + rnd.Int32N(4))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	fault.Store(wireSound)
	var present map[string][]byte
	if err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		present, err = tx.Settings.List(ctx, "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	unknown := 0
	for key, err := range answers {
		_, a := present[key+"a"]
		_, b := present[key+"b"]
		outcome := headgate.Outcome("")
		if err != nil {
			outcome = headgate.AsError(err).Info().Outcome
		}
		switch {
		case a != b:
			t.Errorf("%s is half there", key)
		case err == nil && !a:
			t.Errorf("%s was answered and is not there", key)
		case outcome == headgate.NotApplied && a:
			t.Errorf("%s is there, although: %v", key, err)
		case outcome == headgate.Unknown:
			unknown++
		}
	}
	t.Logf("%d updates, %d unknown", len(answers), unknown)
}

// sessions returns the condition that selects the sessions of a store.
func sessions(s *Store) string { return "application_name = '" + s.cfg.Schema + "'" }

// named opens a store whose sessions can be told apart.
func named(t *testing.T, cfg Config) *Store {
	t.Helper()
	url := pgtest.URL(t)
	cfg.Schema = pgtest.Schema(t, url, t.TempDir())
	cfg.URL = url + "&application_name=" + cfg.Schema
	return openTest(t, cfg)
}

// TestOutsideEndedSessions: sessions that the server ended are replaced
// without anybody noticing, idle ones and one in the middle of a function.
func TestOutsideEndedSessions(t *testing.T) {
	s := named(t, Config{})
	url := pgtest.URL(t)
	end := func() {
		pgtest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "+sessions(s))
	}
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		keys(t, s)
		end()
		if n := keys(t, s); n != 1 {
			t.Errorf("%d settings", n)
		}
	}
	end()
	if err := s.Update(t.Context(), put("b")); err != nil {
		t.Errorf("Update over an ended session: %v", err)
	}
	runs := 0
	if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.Outbox.Count(ctx); err != nil {
			return err
		}
		if runs++; runs == 1 {
			end()
		}
		return tx.Settings.Put(ctx, "c", nil)
	}); err != nil || runs != 2 {
		t.Errorf("Update whose session ended after %d runs: %v", runs, err)
	}
	if n := keys(t, s); n != 3 {
		t.Errorf("%d settings, want 3", n)
	}
	// One whose session ends each time is given up.
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.Outbox.Count(ctx); err != nil {
			return err
		}
		end()
		return tx.Settings.Put(ctx, "d", nil)
	})
	wantCode(t, err, headgate.CodeUnavailable, "")
	if o := headgate.AsError(err).Info().Outcome; o != headgate.NotApplied {
		t.Errorf("outcome %s", o)
	}
}

// TestOutsideForeignLock: whoever keeps the writers' lock delays them for
// LockTimeout, and Views not at all.
func TestOutsideForeignLock(t *testing.T) {
	s := openTest(t, Config{LockTimeout: 100 * time.Millisecond})
	other, err := s.connect(t.Context(), writerSession)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	m := migrator{pg: other.pg, schema: s.cfg.Schema}
	for _, sql := range []string{"BEGIN", s.lock} {
		if _, err := m.query(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	err = s.Update(t.Context(), put("a"))
	wantCode(t, err, headgate.CodeUnavailable, "55P03")
	if o := headgate.AsError(err).Info().Outcome; o != headgate.NotApplied {
		t.Errorf("outcome %s", o)
	}
	if n := keys(t, s); n != 0 {
		t.Errorf("%d settings", n)
	}
	if _, err := m.query(t.Context(), sqlRollback); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Error(err)
	}
}

// TestOutsideStuckNode: a node that stops in the middle of a function loses
// its session, so that the others go on; its function runs again.
func TestOutsideStuckNode(t *testing.T) {
	stuck := named(t, Config{IdleTimeout: 200 * time.Millisecond, Shared: true})
	other := openTest(t, Config{Schema: stuck.cfg.Schema, Shared: true})
	entered, free := make(chan struct{}), make(chan struct{})
	result := make(chan error, 1)
	runs := 0
	go func() {
		result <- stuck.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if _, err := tx.Outbox.Count(ctx); err != nil {
				return err
			}
			if runs++; runs == 1 {
				close(entered)
				<-free
			}
			return tx.Settings.Put(ctx, "stuck", nil)
		})
	}()
	<-entered
	if err := other.Update(t.Context(), put("other")); err != nil {
		t.Errorf("beside a stuck node: %v", err)
	}
	close(free)
	if err := <-result; err != nil || runs != 2 {
		t.Errorf("the stuck node's function after %d runs: %v", runs, err)
	}
	if n := keys(t, other); n != 2 {
		t.Errorf("%d settings, want 2", n)
	}
}

// occupy keeps the writer busy until free is called, so that what comes
// meanwhile makes one group. It gives one result.
func occupy(t *testing.T, s *Store, results chan<- error) (free func()) {
	t.Helper()
	block, entered := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) }) // it may run more than once
	go func() {
		results <- s.Update(t.Context(), func(context.Context, *store.Tx) error { enter(); <-block; return nil })
	}()
	<-entered
	return func() { close(block) }
}

// TestOutsideRefusedStatement: a statement that the server refuses ends the
// transaction; the neighbours run again.
func TestOutsideRefusedStatement(t *testing.T) {
	s := openTest(t, Config{})
	long := make([]byte, 9000) // no index takes it, and it cannot be compressed
	rnd := rand.NewChaCha8([32]byte{})
	_, _ = rnd.Read(long)
	results := make(chan error, 31)
	free := occupy(t, s, results)
	for i := range 30 {
		go func() {
			if i%10 != 3 {
				results <- s.Update(t.Context(), put(fmt.Sprint("small", i)))
				return
			}
			err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				if err := tx.Settings.Put(ctx, "first", nil); err != nil {
					return err
				}
				return tx.Settings.Put(ctx, string(long), nil)
			})
			if headgate.CodeOf(err) != headgate.CodeInvalidArgument || headgate.AsError(err).Info().Outcome != headgate.NotApplied {
				results <- fmt.Errorf("large key: %w", errors.Join(err, errors.New("want invalid_argument")))
				return
			}
			results <- nil
		}()
	}
	free()
	for range 31 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := keys(t, s); n != 27 {
		t.Errorf("%d settings, want 27", n)
	}
}

// TestOutsideSwallowedFailure: a function that hides a refusal does not
// succeed.
func TestOutsideSwallowedFailure(t *testing.T) {
	s := openTest(t, Config{})
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_ = tx.Quarantine.AddOverflow(ctx, []store.QuarantineOverflow{{Count: 1 << 62}, {Count: 1 << 62}})
		_, _ = tx.Outbox.Count(ctx)
		return nil
	})
	wantCode(t, err, headgate.CodeInvalidArgument, "22003")
	if err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		wantCode(t, tx.Settings.Put(ctx, "a", nil), headgate.CodeInternal, "View")
		wantCode(t, tx.Outbox.Append(ctx, make([]store.OutboxRow, 1)), headgate.CodeInternal, "View")
		_, err := tx.Contracts.Delete(ctx, "a", 0)
		wantCode(t, err, headgate.CodeInternal, "View")
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestOutsideCancelledView closes its connection; the pool has others.
func TestOutsideCancelledView(t *testing.T) {
	s := openTest(t, Config{Readers: 2})
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.View(ctx, func(ctx context.Context, tx *store.Tx) error {
			if _, err := tx.Outbox.Count(ctx); err != nil {
				return err
			}
			cancel()
			_, err := tx.Outbox.Count(ctx)
			return err
		})
		wantCode(t, err, headgate.CodeCanceled, "")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not wrap context.Canceled", err)
		}
	}
	if n := keys(t, s); n != 0 {
		t.Errorf("%d settings", n)
	}
}

// TestOutsideGrantBesideAGuard: a fenced write in flight keeps the epoch, and
// nobody else waits for it.
func TestOutsideGrantBesideAGuard(t *testing.T) {
	s := openTest(t, Config{})
	l := store.Lease{Resource: "r", Epoch: 1, Holder: "a"}
	grant := func() error {
		return s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Leases.Grant(ctx, l) })
	}
	if err := grant(); err != nil {
		t.Fatal(err)
	}
	guard, err := s.connect(t.Context(), writerSession)
	if err != nil {
		t.Fatal(err)
	}
	defer guard.close()
	m := migrator{pg: guard.pg, schema: s.cfg.Schema}
	for _, sql := range []string{"BEGIN", "SELECT 1 FROM @leases WHERE resource = 'r' AND epoch = 1 FOR KEY SHARE"} {
		if _, err := m.query(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	l.Epoch = 2
	err = grant()
	wantCode(t, err, headgate.CodeUnavailable, "in flight")
	if headgate.AsError(err).RetryAfter <= 0 {
		t.Error("no time to wait is named")
	}
	if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { // a heartbeat
		return tx.Leases.Touch(ctx, "r", 1, time.Now(), time.Now(), false)
	}); err != nil {
		t.Errorf("a renewal beside the guard: %v", err)
	}
	if _, err := m.query(t.Context(), sqlCommit); err != nil {
		t.Fatal(err)
	}
	if err := grant(); err != nil {
		t.Error(err)
	}
	for _, sql := range []string{"DELETE FROM @leases", "TRUNCATE @leases", "UPDATE @leases SET epoch = 1"} {
		if _, err := m.query(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "never") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
