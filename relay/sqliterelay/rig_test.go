package sqliterelay

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

const orderSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"required":["n"],"properties":{"n":{"type":"integer"},"k":{"type":"integer"},"pad":{"type":"string"}}}`

// connect opens a database with what users' programs set: a busy timeout, and
// no more.
func connect(path string, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": append([]string{"busy_timeout(20000)"}, pragmas...)}
	return driver.Open((&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string, pragmas ...string) *sql.DB {
	t.Helper()
	db, err := connect(path, pragmas...)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// rig is a node's inside without HTTP: the real parts, over the reference broker.
type rig struct {
	t          testing.TB
	path       string // of the test's own database
	db         *sql.DB
	store      store.Store
	broker     *membroker.Broker
	causal     *causal.Engine
	quarantine *quarantine.Quarantine
	door       *perimeter.Perimeter
	who        *headgate.Principal
}

func newRig(t testing.TB) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	r := rigOver(t, path)
	r.db = open(t, path)
	must(t, Install(context.Background(), r.db))
	return r
}

func rigOver(t testing.TB, path string) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{
		t: t, path: path,
		who: &headgate.Principal{
			Name: "orders", Kind: headgate.KindSystem, Emit: []string{"order.*", "orders.*"}, Roots: headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6},
		},
	}
	var err error
	r.store, err = sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
	must(t, err)
	t.Cleanup(func() { _ = r.store.Close() })
	r.broker = membroker.New(membroker.Config{})
	top, err := topology.New(nil, nil, topology.Defaults{Gas: 1 << 20, Breadth: 1 << 20})
	must(t, err)
	_, err = r.broker.Ensure(ctx, []broker.StreamSpec{{Name: topology.DefaultStream, Partitions: 2}})
	must(t, err)
	reg, err := registry.Open(ctx, registry.Config{Store: r.store})
	must(t, err)
	_, err = reg.Register(ctx, "order.placed", contract.TypeJSON, []byte(orderSchema), "admin")
	must(t, err)
	for _, subject := range []string{"orders.inserted", "orders.updated", "orders.deleted"} {
		_, err = reg.Register(ctx, subject, contract.TypeJSON, []byte(`{"type":"object"}`), "admin")
		must(t, err)
	}
	r.quarantine, err = quarantine.Open(ctx, quarantine.Config{Store: r.store})
	must(t, err)
	t.Cleanup(func() { _ = r.quarantine.Close(context.Background()) })
	r.causal, err = causal.Open(ctx, causal.Config{Store: r.store, RootRate: headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6}})
	must(t, err)
	r.door, err = perimeter.New(perimeter.Config{Broker: r.broker, Contracts: reg, Causal: r.causal, Quarantine: r.quarantine, Topology: top})
	must(t, err)
	return r
}

func (r *rig) principal(string) (*headgate.Principal, error) { return r.who, nil }

func (r *rig) config() Config {
	return Config{Path: r.path, Connect: func() (*sql.DB, error) { return connect(r.path) }, Log: r.log()}
}

func (r *rig) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{r.t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// running is a relay that runs.
type running struct {
	*relay.Relay
	src  *Source
	mu   sync.Mutex
	rows []relay.Done
	more chan struct{}
	stop func()
}

// run starts a relay; stop ends it in good order.
func (r *rig) run(change func(*relay.Config, *Config)) *running {
	r.t.Helper()
	x := &running{more: make(chan struct{}, 1)}
	cfg := relay.Config{Name: "orders", Admit: r.door, Keep: r.quarantine, Principal: r.principal, Log: r.log(), Done: x.done}
	from := r.config()
	if change != nil {
		change(&cfg, &from)
	}
	var err error
	x.src, err = New(from)
	must(r.t, err)
	if cfg.Source == nil {
		cfg.Source = x.src
	}
	x.Relay, err = relay.New(cfg)
	must(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := x.Run(ctx); err != nil {
			r.t.Errorf("the relay ended: %v", err)
		}
	}()
	x.stop = sync.OnceFunc(func() { cancel(); <-ended })
	r.t.Cleanup(x.stop)
	return x
}

func (x *running) done(d relay.Done) {
	x.mu.Lock()
	x.rows = append(x.rows, d)
	x.mu.Unlock()
	select {
	case x.more <- struct{}{}:
	default:
	}
}

// wait waits until n rows are done and returns them.
func (x *running) wait(t testing.TB, n int) []relay.Done {
	t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		x.mu.Lock()
		rows := x.rows[:len(x.rows):len(x.rows)]
		x.mu.Unlock()
		if len(rows) >= n {
			return rows
		}
		select {
		case <-x.more:
		case <-timeout:
			t.Fatalf("%d of %d rows were relayed; status %+v", len(rows), n, x.Status())
		}
	}
}

// until waits until a condition that nobody signals holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(60 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("it never comes to this: %s", what)
		}
	}
}

// stored returns all events of the stream, in the order of each partition.
func (r *rig) stored() []broker.Stored {
	r.t.Helper()
	var all []broker.Stored
	for p := range uint32(2) {
		from := headgate.Position{Partition: p}
		for {
			got, err := r.broker.Browse(context.Background(), topology.DefaultStream, from, 1000)
			must(r.t, err)
			if len(got) == 0 {
				break
			}
			all = append(all, got...)
			from.Offset = got[len(got)-1].Position.Offset + 1
		}
	}
	return all
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
