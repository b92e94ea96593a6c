package quarantine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// fakeClock is a clock that moves when told.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 11, 30, 10, 15, 0, 0, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	c.mu.Unlock()
}

func openStore(t testing.TB) store.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
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

// open opens a quarantine that is closed at the end of the test. On a machine
// that is busy, records may be late; the tests that are about waiting use
// virtual time.
func open(t testing.TB, cfg Config) *Quarantine {
	t.Helper()
	cfg.RefusalWait = time.Minute
	q, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(context.Background()); err != nil && !errors.Is(err, errBroken) {
			t.Error(err)
		}
	})
	return q
}

var errBroken = errors.New("the store is broken")

// flaky is a store whose writes can be made to fail or to hang.
type flaky struct {
	store.Store

	mu   sync.Mutex
	err  error
	hold chan struct{} // writes wait until it is closed
}

func (f *flaky) set(err error, hold chan struct{}) {
	f.mu.Lock()
	f.err, f.hold = err, hold
	f.mu.Unlock()
}

func (f *flaky) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	f.mu.Lock()
	err, hold := f.err, f.hold
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if err != nil {
		return err
	}
	return f.Store.Update(ctx, fn)
}

func refusal(principal string) Refusal {
	return Refusal{
		Principal: principal, Door: "http", Stage: "contract", RequestID: "req-1",
		Event: &headgate.Event{
			ID: "e-1", Source: "/test", Type: "ticket.opened", DataContentType: "application/json", Data: []byte(`{"count":"three"}`),
		},
		Err: headgate.NewError(headgate.CodeTypeNotAllowed, "the principal may not publish type ticket.opened"),
	}
}

func overflowOf(t testing.TB, q *Quarantine, principal string) uint64 {
	t.Helper()
	rows, err := q.Overflow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	for _, r := range rows {
		if r.Principal == principal {
			n += r.Count
		}
	}
	return n
}

func countKind(t testing.TB, s store.Store, kind store.QuarantineKind, principal string) (n int) {
	t.Helper()
	err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		n, err = tx.Quarantine.Count(ctx, kind, principal, time.Time{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
