package pgrelay_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
)

// rig is a node's inside over a database with an outbox.
type rig struct {
	*relaytest.Rig
	t  testing.TB
	db string // URL of the test's own database
}

// database makes a database of the test's own on a server and drops it, with
// the slots in it, when the test ends.
func database(t testing.TB, server string) string { return databaseWith(t, server, "") }

func databaseWith(t testing.TB, server, options string) string {
	t.Helper()
	name := fmt.Sprintf("t_%x", time.Now().UnixNano())
	pgtest.Exec(t, server, `CREATE DATABASE `+name+options)
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
	return newRigOn(t, database(t, server), membroker.New(membroker.Config{}))
}

// newRigOn prepares a database and makes a rig over it and a broker.
func newRigOn(t testing.TB, db string, br broker.Broker) *rig {
	t.Helper()
	r := &rig{Rig: relaytest.New(t, br), t: t, db: db}
	must(t, pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{}))
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	relaytest.Must(t, err)
}

// source is the test's source; beats are short.
func (r *rig) source() *pgrelay.Source {
	r.t.Helper()
	return r.sourceOf(pgrelay.Config{})
}

// sourceOf fills in what the test leaves open.
func (r *rig) sourceOf(cfg pgrelay.Config) *pgrelay.Source {
	r.t.Helper()
	if cfg.URL == "" {
		cfg.URL = r.db
	}
	if cfg.Beat == 0 {
		cfg.Beat = 500 * time.Millisecond
	}
	cfg.Log = r.Log()
	s, err := pgrelay.New(cfg)
	must(r.t, err)
	return s
}

// run starts a relay; Stop ends it in good order.
func (r *rig) run(change func(*relay.Config)) *relaytest.Running {
	r.t.Helper()
	return r.Run(r.source(), change)
}

// until waits until a condition holds.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	relaytest.Until(r.t, what, ok)
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
