package unit_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/inbox/inboxpgx"
	"github.com/headgate/headgate/inbox/inboxsqlite"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/lease/fencesqlite"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/unitpgx"
	"github.com/headgate/headgate/unit/unitsql"
	"github.com/headgate/headgate/unit/unitsqlite"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, what string, err error, code headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != code {
		t.Errorf("%s: got %v, want %q", what, err, code)
	}
}

// writer executes a statement in the unit's transaction.
type writer func(sql string) error

// world is one database behind one adapter.
type world struct {
	name     string
	postgres string  // URL, or empty
	raw      *sql.DB // with SQLite
	do       func(ctx context.Context, d unit.Delivery, fn func(context.Context, writer, outbox.Tx) error) (unit.Result, error)
	batch    func(ctx context.Context, ds []unit.Delivery, fn func(context.Context, writer, outbox.Tx, int) error) ([]unit.Result, error)
	once     func(ctx context.Context, d unit.Delivery, ttl time.Duration, do func(context.Context, string) ([]byte, error)) (unit.Result, error)
	claim    func(ctx context.Context, d unit.Delivery, fn func(inbox.Tx) error) error
	seal     func(ctx context.Context, f fence.Fence) error
	maintain func(ctx context.Context) error
	// exec runs a script outside of units; number returns what it selects.
	exec   func(sql string)
	number func(sql string) int
}

func newWorld[T any](name string, db unit.DB[T], maintain func(context.Context) error, exec func(context.Context, T, string) error) *world {
	return &world{
		name: name, seal: db.Seal, maintain: maintain,
		do: func(ctx context.Context, d unit.Delivery, fn func(context.Context, writer, outbox.Tx) error) (unit.Result, error) {
			return unit.Do(ctx, db, d, func(ctx context.Context, tx T, out outbox.Tx) error {
				return fn(ctx, func(sql string) error { return exec(ctx, tx, sql) }, out)
			})
		},
		batch: func(ctx context.Context, ds []unit.Delivery, fn func(context.Context, writer, outbox.Tx, int) error) ([]unit.Result, error) {
			return unit.DoBatch(ctx, db, ds, func(ctx context.Context, tx T, out outbox.Tx, i int) error {
				return fn(ctx, func(sql string) error { return exec(ctx, tx, sql) }, out, i)
			})
		},
		once: func(ctx context.Context, d unit.Delivery, ttl time.Duration, do func(context.Context, string) ([]byte, error)) (unit.Result, error) {
			return unit.Once(ctx, db, d, unit.Effect[T]{TTL: ttl, Do: do})
		},
		claim: func(ctx context.Context, d unit.Delivery, fn func(inbox.Tx) error) error {
			return db.Begin(ctx, unit.Opening{}, func(tx T) error {
				in, _ := db.Ports(tx)
				return fn(in)
			})
		},
	}
}

const effects = `CREATE TABLE effects (id text NOT NULL, n integer NOT NULL DEFAULT 1)`

var databases atomic.Int64

// newDatabase makes a database of the test's own.
func newDatabase(t testing.TB) string {
	t.Helper()
	server := pgtest.URL(t)
	name := fmt.Sprintf("unit_%x_%d", time.Now().UnixNano(), databases.Add(1))
	pgtest.Exec(t, server, `CREATE DATABASE `+name)
	t.Cleanup(func() { pgtest.Exec(t, server, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`) })
	u, err := url.Parse(server)
	must(t, err)
	u.Path = "/" + name
	return u.String()
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func prepared(t testing.TB) string {
	t.Helper()
	url := newDatabase(t)
	conn := connect(t, url)
	must(t, inboxpgx.Install(t.Context(), conn, inboxpgx.InstallOptions{}))
	must(t, fencepg.Install(t.Context(), conn, fencepg.Config{}))
	pgtest.Exec(t, url, effects)
	return url
}

func (w *world) on(t testing.TB, url string) *world {
	w.postgres = url
	w.exec = func(sql string) { t.Helper(); pgtest.Exec(t, url, sql) }
	w.number = func(sql string) (n int) {
		t.Helper()
		if _, err := fmt.Sscan(pgtest.Exec(t, url, sql)[0][0], &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return w
}

func poolOf(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	must(t, err)
	cfg.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func pgxWorld(t testing.TB, url string, iso pgx.TxIsoLevel) *world {
	db := unitpgx.New(poolOf(t, url))
	db.Options.IsoLevel = iso
	return newWorld("pgx "+string(iso), db, db.Maintain, func(ctx context.Context, tx pgx.Tx, sql string) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}).on(t, url)
}

func sqlWorld(t testing.TB, url string) *world {
	db := unitsql.New(stdlib.OpenDBFromPool(poolOf(t, url)))
	t.Cleanup(func() { _ = db.SQL.Close() })
	return newWorld("database/sql", db, db.Maintain, func(ctx context.Context, tx *sql.Tx, script string) error {
		_, err := tx.ExecContext(ctx, script)
		return err
	}).on(t, url)
}

func openSQLite(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := driver.Open("file:" + path + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func sqliteWorld(t testing.TB) *world {
	raw := openSQLite(t, filepath.Join(t.TempDir(), "user.db"))
	must(t, inboxsqlite.Install(t.Context(), raw, 0))
	must(t, fencesqlite.Install(t.Context(), raw))
	db := unitsqlite.New(raw)
	w := newWorld("SQLite", db, db.Maintain, func(ctx context.Context, conn *sql.Conn, script string) error {
		_, err := conn.ExecContext(ctx, script)
		return err
	})
	w.raw = raw
	w.exec = func(script string) {
		t.Helper()
		_, err := raw.ExecContext(context.Background(), script)
		must(t, err)
	}
	w.number = func(query string) (n int) {
		t.Helper()
		must(t, raw.QueryRowContext(context.Background(), query).Scan(&n))
		return n
	}
	w.exec(effects)
	return w
}

// everywhere runs a test over every adapter.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); test(t, sqliteWorld(t)) })
	t.Run("sql", func(t *testing.T) { t.Parallel(); test(t, sqlWorld(t, prepared(t))) })
	t.Run("pgx", func(t *testing.T) { t.Parallel(); test(t, pgxWorld(t, prepared(t), "")) })
}

// everyLevel does so at the higher isolation levels, too.
func everyLevel(t *testing.T, test func(t *testing.T, w *world)) {
	everywhere(t, test)
	for _, iso := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(iso), func(t *testing.T) { t.Parallel(); test(t, pgxWorld(t, prepared(t), iso)) })
	}
}

// delivery is one of the event with the id.
func delivery(id string) unit.Delivery {
	return unit.Delivery{Receipt: inbox.Receipt{Consumer: "billing", Source: "/shop", ID: id, Recorded: time.Now()}}
}

func grant(resource string, epoch int64) *fence.Fence {
	return &fence.Fence{Resource: resource, Epoch: epoch, Nonce: []byte(fmt.Sprintf("nonce%011d", epoch))}
}

// effect is a handler that writes one row.
func effect(id string) func(context.Context, writer, outbox.Tx) error {
	return func(_ context.Context, exec writer, _ outbox.Tx) error {
		return exec(`INSERT INTO effects (id) VALUES ('` + id + `')`)
	}
}

// forget makes the inbox forget what it has seen so far.
func (w *world) forget(t testing.TB) {
	t.Helper()
	if w.postgres == "" {
		w.exec(`UPDATE headgate_inbox_state SET retain = 0`)
		must(t, w.maintain(t.Context()))
		w.exec(`UPDATE headgate_inbox_state SET retain = 2592000000`)
		return
	}
	w.exec(`UPDATE headgate_inbox.state SET length = '0', retain = '0'`)
	must(t, w.maintain(t.Context())) // closes the generation and drops it
	w.exec(`UPDATE headgate_inbox.state SET length = '1 day', retain = '30 days'`)
}
