package node

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
)

// postgresNode is the configuration of a node on a database, over a broker that
// others share.
func postgresNode(t *testing.T, url string, b broker.Broker) (*Loaded, Options) {
	t.Helper()
	drivers := Drivers{
		Stores: map[string]func(context.Context, StoreOptions) (store.Store, error){
			"postgres": func(ctx context.Context, o StoreOptions) (store.Store, error) {
				return pgstore.Open(ctx, pgstore.Config{URL: o.URL, Logger: o.Log})
			},
		},
		Brokers: map[string]func(context.Context, BrokerOptions) (broker.Broker, error){
			"nats": func(context.Context, BrokerOptions) (broker.Broker, error) { return b, nil },
		},
	}
	cfg, problems := Parse([]byte("store: {driver: postgres, url: '" + url + "'}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	cfg.Data, cfg.Listen = t.TempDir(), "127.0.0.1:0"
	return cfg, Options{Drivers: drivers}
}

// starts opens a node and closes it again.
func starts(t *testing.T, url string, b broker.Broker) error {
	t.Helper()
	cfg, opts := postgresNode(t, url, b)
	n, err := Open(t.Context(), cfg, opts)
	if err != nil {
		return err
	}
	return n.Close(t.Context())
}

// TestCopiedDatabaseIsAnotherStore: a copy of the node's database in another
// place, as a dump that was restored beside its origin is, has the identity of
// the origin and none of its rights; a physical copy that took over has both.
func TestCopiedDatabaseIsAnotherStore(t *testing.T) {
	b := shared{membroker.New(membroker.Config{})}
	defer b.Broker.Close(context.Background())
	server := pgtest.Start(t)
	origin := server.URL()
	restored := strings.Replace(origin, "/postgres?", "/restored?", 1)
	if err := starts(t, origin, b); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, strings.Replace(origin, "/postgres?", "/template1?", 1), "CREATE DATABASE restored TEMPLATE postgres")
	err := starts(t, restored, b)
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeStreamsForeign || !strings.Contains(e.Detail, "copy of this store") || !strings.Contains(e.Fix, "adopt") {
		t.Fatalf("a node on the copy: %v", err)
	}
	if err := starts(t, origin, b); err != nil {
		t.Errorf("the origin afterwards: %v", err)
	}

	cfg, opts := postgresNode(t, restored, b)
	o, err := OwnerOfStreams(t.Context(), cfg, opts, true)
	if err != nil || o.Ours() {
		t.Fatalf("adopting: %+v, %v", o, err)
	}
	if err := starts(t, restored, b); err != nil {
		t.Errorf("the copy that adopted the streams: %v", err)
	}
	if err := starts(t, origin, b); headgate.CodeOf(err) != headgate.CodeStreamsForeign {
		t.Errorf("the origin, whose streams were adopted: %v", err)
	}

	server.Stop()
	standby := server.Clone(true)
	standby.Demote()
	standby.Restart()
	promoted := strings.Replace(standby.URL(), "/postgres?", "/restored?", 1)
	pgtest.Exec(t, standby.URL(), "SELECT pg_promote()")
	if err := starts(t, promoted, b); err != nil {
		t.Errorf("the standby that took over: %v", err)
	}
}

// TestOwnerOfEarlierVersion: streams whose owner is recorded without a place go
// on, and are recorded with it.
func TestOwnerOfEarlierVersion(t *testing.T) {
	b := shared{membroker.New(membroker.Config{})}
	defer b.Broker.Close(context.Background())
	server := pgtest.Start(t)
	cfg, opts := postgresNode(t, server.URL(), b)
	n, err := Open(t.Context(), cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	id, owner := n.owned.store, n.owned.owner
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Own(t.Context(), id, owner); err != nil {
		t.Fatal(err)
	}
	if err := starts(t, server.URL(), b); err != nil {
		t.Fatal(err)
	}
	have, err := b.Own(t.Context(), "", "")
	if err != nil || !strings.HasPrefix(have.Owner, id+placeSeparator) {
		t.Errorf("recorded as %+v, %v", have, err)
	}
}
