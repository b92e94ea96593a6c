package pgrelay_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
	"github.com/jackc/pgx/v5"
)

const orderSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"required":["n"],"properties":{"n":{"type":"integer"},"order":{"type":"string"},"pad":{"type":"string"}}}`

// rig is a node's inside without HTTP: the real parts, over the reference broker.
type rig struct {
	t          testing.TB
	db         string // URL of the test's own database
	store      store.Store
	broker     broker.Broker
	causal     *causal.Engine
	quarantine *quarantine.Quarantine
	door       *perimeter.Perimeter
	who        map[string]*headgate.Principal
	mints      atomic.Int64 // how far off the clock of the causal engine is
}

// database makes a database of the test's own on a server and drops it, with
// the slots in it, when the test ends.
func database(t testing.TB, server string) string {
	t.Helper()
	name := fmt.Sprintf("t_%x", time.Now().UnixNano())
	pgtest.Exec(t, server, `CREATE DATABASE `+name)
	t.Cleanup(func() {
		pgtest.Exec(t, server, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '`+name+`'`)
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
			if len(pgtest.Exec(t, server, `SELECT 1 FROM pg_replication_slots WHERE database = '`+name+`' AND active`)) == 0 {
				break
			}
		}
		pgtest.Exec(t, server, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '`+name+`'`)
		pgtest.Exec(t, server, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
	})
	return withDatabase(t, server, name)
}

func withDatabase(t testing.TB, server, name string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func newRig(t testing.TB, server string) *rig {
	t.Helper()
	r := bareRig(t, database(t, server))
	must(t, pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{}))
	return r
}

func bareRig(t testing.TB, db string) *rig {
	t.Helper()
	return bareRigWith(t, db, membroker.Config{})
}

func bareRigWith(t testing.TB, db string, cfg membroker.Config) *rig {
	t.Helper()
	return bareRigOn(t, db, membroker.New(cfg))
}

func bareRigOn(t testing.TB, db string, br broker.Broker) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{t: t, db: db, broker: br, who: map[string]*headgate.Principal{
		"headgate": {Name: "orders", Kind: headgate.KindSystem, Emit: []string{"order.*", "orders.*"}, Roots: headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6}},
	}}
	var err error
	r.store, err = sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
	must(t, err)
	t.Cleanup(func() { _ = r.store.Close() })
	top, err := topology.New(nil, nil, topology.Defaults{Gas: 1 << 20, Breadth: 1 << 20})
	must(t, err)
	_, err = r.broker.Ensure(ctx, []broker.StreamSpec{{Name: topology.DefaultStream, Partitions: 2}})
	must(t, err)
	reg, err := registry.Open(ctx, registry.Config{Store: r.store})
	must(t, err)
	for _, subject := range []string{"order.placed", "order.paid"} {
		_, err = reg.Register(ctx, subject, "", []byte(orderSchema), "admin")
		must(t, err)
	}
	for _, subject := range []string{"orders.inserted", "orders.updated", "orders.deleted"} {
		_, err = reg.Register(ctx, subject, "", []byte(`{"type":"object"}`), "admin")
		must(t, err)
	}
	r.quarantine, err = quarantine.Open(ctx, quarantine.Config{Store: r.store})
	must(t, err)
	t.Cleanup(func() { _ = r.quarantine.Close(context.Background()) })
	r.causal, err = causal.Open(ctx, causal.Config{Store: r.store, Now: func() time.Time { return time.Now().Add(time.Duration(r.mints.Load())) }, RootRate: headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6}})
	must(t, err)
	r.door, err = perimeter.New(perimeter.Config{Broker: r.broker, Contracts: reg, Causal: r.causal, Quarantine: r.quarantine, Topology: top})
	must(t, err)
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) principal(role string) (*headgate.Principal, error) {
	if p := r.who[role]; p != nil {
		return p, nil
	}
	return nil, headgate.NewError(headgate.CodeForbidden, "database role %s maps to no principal", role)
}

// source is the test's source; beats are short.
func (r *rig) source() *pgrelay.Source {
	r.t.Helper()
	s, err := pgrelay.New(pgrelay.Config{URL: r.db, Beat: 500 * time.Millisecond, Log: r.log()})
	must(r.t, err)
	return s
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
	mu   sync.Mutex
	rows []relay.Done
	more chan struct{}
	stop func()
}

// run starts a relay; stop ends it in good order.
func (r *rig) run(change func(*relay.Config)) *running {
	r.t.Helper()
	x := &running{more: make(chan struct{}, 1)}
	cfg := relay.Config{
		Name: "orders", Source: r.source(), Admit: r.door, Keep: r.quarantine, Principal: r.principal, Log: r.log(), Done: x.done,
		Broker: r.broker, Streams: []string{topology.DefaultStream},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
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

func (r *rig) connect() *pgx.Conn {
	r.t.Helper()
	c, err := pgx.Connect(context.Background(), r.db)
	must(r.t, err)
	r.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.connect().Exec(context.Background(), sql, args...)
	must(r.t, err)
}
