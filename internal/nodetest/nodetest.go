// Package nodetest assembles the parts of a node behind its HTTP face, over
// the reference broker and a store that keeps nothing, for tests of the HTTP
// API and of its clients. The parts are the real ones.
package nodetest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/index"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/principal"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/telemetry"
	"github.com/headgate/headgate/topology"
)

// TicketSchema is the contract of ticket.opened.
const TicketSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"required":["ticket_id"],"properties":{"ticket_id":{"type":"string","minLength":1},"n":{"type":"integer"}},"additionalProperties":false}`

// TriagedSchema is the contract of ticket.triaged.
const TriagedSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"required":["ticket_id","team"],"properties":{"ticket_id":{"type":"string"},"team":{"enum":["billing","network"]}},"additionalProperties":false}`

// Opts change what [Start] assembles.
type Opts struct {
	Gateway func(*gateway.Config)
	Serve   gateway.ServeOpts
	Streams []topology.Stream
	Types   []topology.Type
	Broker  membroker.Config
	// Store wraps the store of the node; nil: nothing does.
	Store func(store.Store) store.Store
}

// Node is a running node with four principals: admin (a person with the role
// admin, all types, roots), desk (a system that opens tickets), triage (an
// agent that reacts to ticket.opened with ticket.triaged) and viewer.
type Node struct {
	URL        string
	Addr       string
	Tokens     map[string]string
	Gateway    *gateway.Gateway
	Broker     *membroker.Broker
	Router     *router.Router
	Registry   *registry.Registry
	Quarantine *quarantine.Quarantine
	Index      *index.Index
	Leases     *lease.Service
	Metrics    *telemetry.Metrics

	stop   context.CancelFunc
	served chan error
	once   sync.Once
	err    error
}

// Principals are what Start declares.
func Principals() []headgate.Principal {
	roots := headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6}
	return []headgate.Principal{
		{Name: "admin", Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleAdmin}, Emit: []string{"*"}, Listen: []string{"*"}, Roots: roots},
		{Name: "desk", Kind: headgate.KindSystem, Emit: []string{"ticket.opened"}, Roots: roots},
		{Name: "triage", Kind: headgate.KindAgent, Emit: []string{"ticket.triaged"}, Listen: []string{"ticket.opened"}, Lease: []string{"ticket/*"}},
		{Name: "viewer", Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleViewer}},
	}
}

// Start runs a node until the test ends.
func Start(t testing.TB, opts *Opts) *Node {
	t.Helper()
	if opts == nil {
		opts = &Opts{}
	}
	n := &Node{Tokens: map[string]string{}, Metrics: telemetry.New(telemetry.Config{Version: "test"}), served: make(chan error, 1)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	opened, err := sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
	must(err)
	t.Cleanup(func() { _ = opened.Close() })
	st := store.Store(opened)
	if opts.Store != nil {
		st = opts.Store(st)
	}
	n.Broker = membroker.New(opts.Broker)
	top, err := topology.New(opts.Streams, opts.Types, topology.Defaults{})
	must(err)
	var specs []broker.StreamSpec
	for _, s := range top.Streams() {
		specs = append(specs, broker.StreamSpec{Name: s.Name, Partitions: s.Partitions})
	}
	_, err = n.Broker.Ensure(ctx, specs)
	must(err)
	dir, err := principal.Open(ctx, principal.Config{Store: st})
	must(err)
	for _, p := range Principals() {
		must(dir.Put(ctx, p, "config"))
		n.Tokens[p.Name], err = dir.Issue(ctx, p.Name, false, 0)
		must(err)
	}
	n.Registry, err = registry.Open(ctx, registry.Config{Store: st})
	must(err)
	for subject, schema := range map[string]string{"ticket.opened": TicketSchema, "ticket.triaged": TriagedSchema} {
		_, err := n.Registry.Register(ctx, subject, "", []byte(schema), "admin")
		must(err)
	}
	n.Quarantine, err = quarantine.Open(ctx, quarantine.Config{Store: st})
	must(err)
	eng, err := causal.Open(ctx, causal.Config{Store: st})
	must(err)
	n.Leases, err = lease.Open(ctx, lease.Config{Store: st})
	must(err)
	obs := n.Metrics.Observer()
	door, err := perimeter.New(perimeter.Config{
		Broker: n.Broker, Contracts: n.Registry, Causal: eng, Quarantine: n.Quarantine, Topology: top, Observer: obs,
	})
	must(err)
	n.Router, err = router.New(router.Config{
		Store: st, Broker: n.Broker, Perimeter: door, Causal: eng, Quarantine: n.Quarantine, Topology: top, Principals: dir, Leases: n.Leases, Observer: obs,
		JSON: func(e *headgate.Event) ([]byte, error) { return n.Registry.JSON(ctx, e) },
	})
	must(err)
	door.SetFencing(perimeter.Fencing{Leases: n.Leases, Store: st, Outbox: n.Router})
	n.Index = index.New(index.Config{Store: st, Broker: n.Broker, Topology: top, Router: n.Router, Causal: eng, Quarantine: n.Quarantine})
	cfg := gateway.Config{
		Perimeter: door, Router: n.Router, Principals: dir, Broker: n.Broker, Topology: top, Leases: n.Leases, Registry: n.Registry, Metrics: n.Metrics.Handler(), SpoolDir: t.TempDir(),
		Requests: func(i gateway.RequestInfo) { n.Metrics.Request(i.Route, i.Status, i.Duration, i.BytesIn) },
	}
	if opts.Gateway != nil {
		opts.Gateway(&cfg)
	}
	n.Gateway, err = gateway.New(cfg)
	must(err)
	must(admin.Mount(n.Gateway, admin.Config{
		Registry: n.Registry, Router: n.Router, Quarantine: n.Quarantine, Principals: dir, Index: n.Index, Broker: n.Broker, Store: st,
		Topology: top, Version: "test",
	}))
	n.run(t, opts)
	return n
}

// run starts what runs, and sees to it that it ends with the test.
func (n *Node) run(t testing.TB, opts *Opts) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.Addr = ln.Addr().String()
	n.URL = "http://" + n.Addr
	back, stopBack := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	for name, run := range map[string]func(context.Context) error{
		"router": n.Router.Run, "index": n.Index.Run, "quarantine": n.Quarantine.Run,
	} {
		parts.Go(func() {
			if err := run(back); err != nil && back.Err() == nil {
				t.Errorf("%s ended: %v", name, err)
			}
		})
	}
	select {
	case <-n.Router.Started():
	case <-time.After(30 * time.Second):
		t.Fatal("the router did not start")
	}
	front, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() { n.served <- gateway.Serve(front, ln, n.Gateway, &opts.Serve) }()
	t.Cleanup(func() {
		_ = n.Stop()
		stopBack()
		parts.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = n.Broker.Close(ctx)
	})
}

// Stop drains the HTTP face and returns what Serve returned.
func (n *Node) Stop() error {
	n.once.Do(func() {
		n.stop()
		n.err = <-n.served
	})
	return n.err
}

// Client returns a client with a principal's token. It is closed with the test.
func (n *Node) Client(t testing.TB, who string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: n.URL, Token: n.Tokens[who], HTTP: &http.Client{Transport: &http.Transport{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
