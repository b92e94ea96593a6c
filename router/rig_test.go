package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

// rig is a router with everything it needs, over one store and one broker
// that outlive it.
type rig struct {
	t       testing.TB
	store   store.Store
	gate    *gate // the store as the router sees it
	broker  *membroker.Broker
	streams []string
	people  people

	buffer     int
	maxRecords int
	broken     bool
	tune       func(*Router)           // before it runs
	quiet      bool                    // no observer
	clock      func() time.Time        // nil: time.Now
	leases     *lease.Service          // set by start
	seal       map[string]lease.Target // what they may be sealed at

	router *Router
	quar   *quarantine.Quarantine
	cancel context.CancelFunc
	ended  chan error

	mu     sync.Mutex
	lines  []string // of the observer
	logged []string
	claims int                                   // numbers the claims, so that scenarios can name them
	refuse func(*headgate.Event) *headgate.Error // what the door refuses
}

// people are the principals that subscriptions may consume as.
type people map[string]headgate.Principal

func (p people) Get(_ context.Context, name string) (store.Principal, error) {
	if x, ok := p[name]; ok {
		return store.Principal{Principal: x}, nil
	}
	return store.Principal{}, headgate.NewError(headgate.CodeNotFound, "no principal %s", name)
}

func (p people) get(name string) *headgate.Principal {
	x := p[name]
	return &x
}

// gate lets a test cut the store off, as a crash of the process does.
type gate struct {
	store.Store
	mu   sync.Mutex
	fail func(n int) error // asked before each update, with mu held
	n    int
	view error
}

func (g *gate) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	g.mu.Lock()
	g.n++
	var fault error
	if g.fail != nil {
		fault = g.fail(g.n)
	}
	g.mu.Unlock()
	if fault == nil || errors.Is(fault, errAfter) {
		if err := g.Store.Update(ctx, fn); err != nil {
			return err
		}
	}
	return fault // errAfter: committed, but nobody learns of it
}

func (g *gate) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	g.mu.Lock()
	err := g.view
	g.mu.Unlock()
	if err != nil {
		return err
	}
	return g.Store.View(ctx, fn)
}

func (g *gate) set(fail func(int) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = fail
}

// cut makes everything fail from now on.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = func(int) error { return errDown }
	g.view = errDown
}

// benchBroker remembers few ids, so that memory stays flat.
var benchBroker = membroker.Config{DedupeIDs: 1}

var (
	errDown  = headgate.NewError(headgate.CodeUnavailable, "the store is cut off")
	errAfter = &headgate.Error{Code: headgate.CodeUnavailable, Detail: "lost after the commit", Outcome: headgate.Unknown}
)

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigWith(t, membroker.Config{}, 2)
}

func newRigWith(t testing.TB, cfg membroker.Config, partitions int) *rig {
	t.Helper()
	st, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: st, broker: membroker.New(cfg), streams: []string{"events"}}
	r.people = people{}
	for _, p := range []headgate.Principal{
		{Name: "dev", Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleDeveloper}, Listen: []string{"*"}, Emit: []string{"*"}},
		{Name: "worker", Kind: headgate.KindAgent, Listen: []string{"*"}, Emit: []string{"*"}, Lease: []string{"*"}},
		{Name: "other", Kind: headgate.KindAgent, Listen: []string{"other.*"}},
	} {
		r.people[p.Name] = p
	}
	if _, err := r.broker.Ensure(t.Context(), []broker.StreamSpec{{Name: "events", Partitions: partitions}}); err != nil {
		t.Fatal(err)
	}
	return r
}

// start opens and runs a router over the rig's store and broker.
func (r *rig) start() {
	r.t.Helper()
	r.gate = &gate{Store: r.store}
	ctx := context.Background()
	eng, err := causal.Open(ctx, causal.Config{Store: r.store})
	if err != nil {
		r.t.Fatal(err)
	}
	r.quar, err = quarantine.Open(ctx, quarantine.Config{Store: r.store, MaxRecords: r.maxRecords})
	if err != nil {
		r.t.Fatal(err)
	}
	r.leases, err = lease.Open(ctx, lease.Config{Store: r.gate, Seal: r.seal})
	if err != nil {
		r.t.Fatal(err)
	}
	rt, err := New(Config{
		Leases: r.leases,
		Store:  r.gate, Broker: r.broker, Perimeter: &perimeter.Perimeter{}, Causal: eng, Quarantine: r.quar,
		Topology: &topology.Table{}, Principals: r.people, Observer: r.observer(), Buffer: r.buffer, Now: r.clock,
		Random: func() float64 { return 1 }, Log: slog.New(&capture{r: r}), Drain: 5 * time.Second,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	rt.streamsFor = func([]string) []string { return r.streams }
	rt.prepare = r.door
	rt.ackBeforeCommit = r.broken
	if r.tune != nil {
		r.tune(rt)
	}
	rt.newClaim = func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.claims++
		return fmt.Sprintf("c%d", r.claims)
	}
	eng.SetClaims(rt)
	run, cancel := context.WithCancel(ctx)
	r.router, r.cancel, r.ended = rt, cancel, make(chan error, 1)
	go func() { r.ended <- rt.Run(run) }()
	select {
	case <-rt.Started():
	case err := <-r.ended:
		r.t.Fatalf("the router did not start: %v", err)
	}
}

// stop drains the router.
func (r *rig) stop() error {
	r.cancel()
	err := <-r.ended
	r.ended <- nil // for who stops it again
	return err
}

// crash ends the router as SIGKILL would, as far as its store can tell.
func (r *rig) crash() {
	r.gate.cut()
	_ = r.stop()
}

// end stops everything.
func (r *rig) end() {
	r.t.Helper()
	if err := r.stop(); err != nil {
		r.t.Errorf("drain: %v", err)
	}
	r.close()
}

func (r *rig) close() {
	if err := r.broker.Close(context.Background()); err != nil {
		r.t.Error(err)
	}
	if err := r.store.Close(); err != nil {
		r.t.Error(err)
	}
}

// door stands in for the perimeter: it stamps what it lets pass.
func (r *rig) door(_ context.Context, s perimeter.Submission) *perimeter.Batch {
	b := &perimeter.Batch{}
	for _, item := range s.Items {
		ev := *item.Event
		res := perimeter.Result{Event: &ev, Stream: "events"}
		if r.refuse != nil {
			res.Err = r.refuse(&ev)
		}
		cause := s.Causes[0]
		ev.Header = headgate.Header{
			RootID: cause.Root, Causes: []string{cause.EventID}, TTL: cause.TTL - 1, Hop: cause.Hop + 1,
			Origin: cause.Origin, Principal: s.Principal.Name, Actor: s.Principal.Kind, RecordedTime: time.Now(),
		}
		b.Results = append(b.Results, res)
	}
	return b
}

func (r *rig) observer() *headgate.Observer {
	if r.quiet {
		return nil
	}
	return &headgate.Observer{
		Admitted:   func(i headgate.AdmittedInfo) { r.line(i.String()) },
		Dispatched: func(i headgate.DeliveryInfo) { r.line(i.String()) },
		Settled:    func(i headgate.DeliveryInfo) { r.line(i.String()) },
	}
}

func (r *rig) line(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, s)
}

// seen returns and forgets what the observer saw.
func (r *rig) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

// event returns an admitted event.
func event(id, eventType, key string) *headgate.Event {
	return &headgate.Event{
		ID: id, Source: "/test", Type: eventType, Key: key, Data: []byte(`{"n":1}`),
		Header: headgate.Header{
			RootID: id, TTL: 8, Origin: headgate.OriginSystem, Principal: "dev", Actor: headgate.KindHuman, RecordedTime: time.Now(),
		},
	}
}

// publish stores events as the perimeter would.
func (r *rig) publish(events ...*headgate.Event) {
	r.t.Helper()
	for {
		results, err := r.broker.Publish(context.Background(), "events", events)
		if err != nil {
			r.t.Fatal(err)
		}
		var again []*headgate.Event
		for i, res := range results {
			if res.Outcome != broker.OutcomeStored && res.Outcome != broker.OutcomeDuplicate {
				again = append(again, events[i])
			}
		}
		if len(again) == 0 {
			return
		}
		events = again
	}
}

func (r *rig) put(name string, spec Spec) {
	r.t.Helper()
	if spec.As == "" {
		spec.As = "worker"
	}
	if len(spec.Types) == 0 {
		spec.Types = []string{"*"}
	}
	if _, err := r.router.Put(context.Background(), r.people.get("dev"), name, spec, "api"); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) pull(name string, limit int, wait time.Duration) []Delivery {
	r.t.Helper()
	out, err := r.router.Pull(context.Background(), r.people.get("worker"), name, limit, wait)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) settle(name string, in ...Settlement) []Settled {
	r.t.Helper()
	out, err := r.router.Settle(context.Background(), r.people.get("worker"), name, in)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// balance asserts the conservation law and returns the first subscription's.
func (r *rig) balance() Balance {
	r.t.Helper()
	all, err := r.router.Conservation(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, b := range all {
		if !b.Holds {
			r.t.Fatalf("the conservation law is broken: %+v", b)
		}
	}
	if len(all) == 0 {
		return Balance{}
	}
	return all[0]
}

// capture keeps warnings and errors that the router logs.
type capture struct {
	r *rig
}

func (c *capture) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (c *capture) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	b.WriteString(rec.Message)
	rec.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.logged = append(c.r.logged, b.String())
	return nil
}

func (c *capture) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c *capture) WithGroup(string) slog.Handler      { return c }
