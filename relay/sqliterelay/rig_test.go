package sqliterelay

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
)

// connect opens a database with what users' programs set: a busy timeout, and
// no more.
func connect(path string, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": append([]string{"busy_timeout(20000)"}, pragmas...)}
	return driver.Open((&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String())
}

func must(t testing.TB, err error) {
	t.Helper()
	relaytest.Must(t, err)
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	relaytest.Until(t, what, holds)
}

func open(t testing.TB, path string, pragmas ...string) *sql.DB {
	t.Helper()
	db, err := connect(path, pragmas...)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// rig is a node's inside over a database with an outbox.
type rig struct {
	*relaytest.Rig
	t    testing.TB
	path string // of the test's own database
	db   *sql.DB
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{Rig: relaytest.New(t, membroker.New(membroker.Config{})), t: t, path: filepath.Join(t.TempDir(), "app.db")}
	r.db = open(t, r.path)
	must(t, Install(context.Background(), r.db))
	return r
}

func (r *rig) config() Config {
	return Config{Path: r.path, Connect: connector(r.path), Log: r.Log()}
}

func connector(path string) func() (*sql.DB, error) {
	return func() (*sql.DB, error) { return connect(path) }
}

// run starts a relay; Stop ends it in good order. What from is changed to counts
// only if the source is not.
func (r *rig) run(change func(*relay.Config, *Config)) *relaytest.Running {
	r.t.Helper()
	from := r.config()
	return r.Run(nil, func(c *relay.Config) {
		if change != nil {
			change(c, &from)
		}
		if c.Source == nil {
			src, err := New(from)
			must(r.t, err)
			c.Source = src
		}
	})
}

func run(t testing.TB, db querying, sql string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

type querying interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func value[T any](t testing.TB, db querying, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRowContext(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// emit writes n events in one transaction.
func emit(t testing.TB, db *sql.DB, from, n int, key string) {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	must(t, err)
	for i := range n {
		run(t, tx, `INSERT INTO headgate_outbox (type, key, data) VALUES ('order.placed', ?, ?)`, key, fmt.Sprintf(`{"n":%d}`, from+i))
	}
	must(t, tx.Commit())
}
