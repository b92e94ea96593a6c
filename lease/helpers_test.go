package lease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
	"github.com/headgate/headgate/store/sqlitestore"
)

func worker(name string) *headgate.Principal {
	return &headgate.Principal{Name: name, Kind: headgate.KindAgent, Lease: []string{"*"}}
}

// postgresTests makes memory open stores on the outside server.
const postgresTests = "HEADGATE_LEASE_TESTS_ON_POSTGRES"

// schemas numbers the schemas of this process.
var schemas atomic.Int64

func memory(t testing.TB) store.Store {
	t.Helper()
	open := func() (store.Store, error) { return sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true}) }
	if os.Getenv(postgresTests) != "" {
		open = func() (store.Store, error) {
			schema := fmt.Sprintf("lease_%d_%d", os.Getpid(), schemas.Add(1))
			t.Cleanup(func() { dropSchema(t, schema) })
			return pgstore.Open(t.Context(), pgstore.Config{URL: os.Getenv("HEADGATE_TEST_POSTGRES"), Schema: schema})
		}
	}
	s, err := open()
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

// dropSchema removes what a test left on the outside server.
func dropSchema(t testing.TB, schema string) {
	db, err := sql.Open("pgx", os.Getenv("HEADGATE_TEST_POSTGRES"))
	if err == nil {
		_, err = db.ExecContext(context.Background(), "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

func service(t testing.TB, st store.Store) *Service {
	t.Helper()
	s, err := Open(t.Context(), Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clocked is a store whose clock the test moves.
type clocked struct {
	store.Store
	now time.Time
}

type clockedLeases struct {
	store.Leases
	at *time.Time
}

func (c clockedLeases) Now(context.Context) (time.Time, error) { return *c.at, nil }

func (c *clocked) with(run func(context.Context, func(context.Context, *store.Tx) error) error, ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return run(ctx, func(ctx context.Context, tx *store.Tx) error {
		other := *tx
		other.Leases = clockedLeases{tx.Leases, &c.now}
		return fn(ctx, &other)
	})
}

func (c *clocked) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return c.with(c.Store.Update, ctx, fn)
}

func (c *clocked) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return c.with(c.Store.View, ctx, fn)
}

// rig is a service with a clock of its own.
type rig struct {
	*Service
	t  testing.TB
	st *clocked
}

func newRig(t testing.TB, base store.Store) *rig {
	c := &clocked{Store: base, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	return &rig{Service: service(t, c), t: t, st: c}
}

func (r *rig) pass(d time.Duration) { r.st.now = r.st.now.Add(d) }

func (r *rig) acquire(who, resource string) Grant {
	r.t.Helper()
	g, err := r.Acquire(r.t.Context(), worker(who), Request{Resources: []string{resource}, TTL: 10 * time.Second})
	if err != nil {
		r.t.Fatal(err)
	}
	return g[0]
}

// write commits one event under a token, or says why not.
func write(ctx context.Context, s *Service, st store.Store, token string) error {
	f, err := s.Read(ctx, token, "")
	if err != nil {
		return err
	}
	return st.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := s.Guard(ctx, tx, &f); err != nil {
			return err
		}
		return tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "s", Event: []byte(f.String())}})
	})
}

func (r *rig) write(token string) error { return write(r.t.Context(), r.Service, r.st, token) }

func want(t testing.TB, what string, err error, code headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != code {
		t.Errorf("%s: %v, want %q", what, err, code)
	}
}

// jumps are what a clock does between two calls.
var jumps = []time.Duration{0, 1, time.Microsecond, time.Second, time.Hour, -time.Microsecond, -time.Second, -time.Hour, 365 * 24 * time.Hour}

// newRigOver is newRig for property tests, which have no end of their own.
func newRigOver(t *rapid.T) *rig {
	base, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = base.Close() })
	c := &clocked{Store: base, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s, err := Open(t.Context(), Config{Store: c})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Service: s, st: c}
}

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
