package perimeter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

// The contracts of the tests: what each type's payload must be.
var schemas = map[string]string{
	"ticket.opened":  `{"type":"object","properties":{"n":{"type":"integer"},"key":{"type":"string"}},"required":["n"]}`,
	"ticket.answer":  `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`,
	"order.placed":   `{"type":"object"}`,
	"note.keyed":     `{"type":"object","properties":{"key":{}}}`,
	"note.signal":    `{"type":"null"}`,
	"note.brief":     `true`,
	"note.timer":     `true`,
	"audit.tick":     `true`,
	"other.contract": `{"type":"string"}`,
	"note.mended": `{"type":"object","x-headgate-repair":"apply-lossless","properties":{"sub_path":{"type":"string"},"n":{"type":"integer"}},
		"required":["sub_path"],"additionalProperties":false}`,
	"ticket.avro": `{"type":"record","name":"T","fields":[{"name":"n","type":"int"}]}`,
	"note.avro":   `{"type":"record","name":"N","fields":[{"name":"key","type":"string"},{"name":"n","type":"int"}]}`,
}

// contracts is a set of compiled contracts.
type contracts map[string]*contract.Contract

func (c contracts) Lookup(subject string) *contract.Contract { return c[subject] }

// Broken knows one subject whose contract does not compile.
func (contracts) Broken(subject string) error {
	if subject == "note.broken" {
		return headgate.NewError(headgate.CodeContractInvalid, "version 1 of note.broken no longer compiles")
	}
	return nil
}

// Named knows every contract by the id 1 and by its fingerprint.
func (c contracts) Named(_ context.Context, subject string, f contract.Frame) (*contract.Contract, error) {
	named := c[subject]
	if f.Kind == contract.FrameConfluent && f.ID == 1 || f.Kind == contract.FrameSingleObject && f.Fingerprint == named.AvroFingerprint() {
		return named, nil
	}
	return nil, nil
}

func compile(t testing.TB, subject, schema string) *contract.Contract {
	t.Helper()
	opts := &contract.CompileOpts{}
	if strings.HasSuffix(subject, ".avro") {
		opts.Type = contract.TypeAvro
	}
	c, _, err := contract.Compile(subject, 1, []byte(schema), opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// recorder keeps what the observer was told.
type recorder struct {
	mu       sync.Mutex
	admitted []headgate.AdmittedInfo
	refused  []headgate.RefusedInfo
	ignored  []string
}

func (r *recorder) observer() *headgate.Observer {
	return &headgate.Observer{
		Admitted: func(i headgate.AdmittedInfo) { r.mu.Lock(); r.admitted = append(r.admitted, i); r.mu.Unlock() },
		Refused:  func(i headgate.RefusedInfo) { r.mu.Lock(); r.refused = append(r.refused, i); r.mu.Unlock() },
		Ignored:  func(i headgate.IgnoredInfo) { r.mu.Lock(); r.ignored = append(r.ignored, i.String()); r.mu.Unlock() },
	}
}

// gate is a perimeter with everything that it needs.
type gate struct {
	*perimeter.Perimeter
	t          testing.TB
	broker     *membroker.Broker
	causal     *causal.Engine
	quarantine *quarantine.Quarantine
	seen       *recorder
	contracts  contracts
	cfg        perimeter.Config
}

type setup struct {
	drafter perimeter.Drafter
	types   []topology.Type // before the usual ones
	now     func() time.Time
	records int // that quarantine keeps of a kind; 0: its default
}

func open(t testing.TB, s setup) *gate {
	t.Helper()
	st, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	if s.now == nil {
		s.now = time.Now
	}
	table, err := topology.New(
		[]topology.Stream{{Name: "tickets", Types: []string{"ticket.*"}}, {Name: "orders", Types: []string{"order.*"}, Partitions: 1}},
		append(s.types,
			topology.Type{Pattern: "note.keyed", Key: "data.key"},
			topology.Type{Pattern: "note.avro", Key: "data.key"},
			topology.Type{Pattern: "ticket.avro", Fence: "ticket/{data.n}"},
			topology.Type{Pattern: "note.brief", Expire: time.Hour, PayloadMax: 100},
			topology.Type{Pattern: "note.timer", Origins: []headgate.Origin{headgate.OriginTimer}},
		), topology.Defaults{Gas: 40})
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{
		t: t, broker: membroker.New(membroker.Config{Now: s.now}), seen: &recorder{}, contracts: contracts{},
	}
	var specs []broker.StreamSpec
	for _, x := range table.Streams() {
		specs = append(specs, broker.StreamSpec{Name: x.Name, Partitions: x.Partitions})
	}
	if _, err := g.broker.Ensure(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	if g.causal, err = causal.Open(t.Context(), causal.Config{Store: st, Now: s.now}); err != nil {
		t.Fatal(err)
	}
	if g.quarantine, err = quarantine.Open(t.Context(), quarantine.Config{Store: st, Now: s.now, RefusalWait: time.Minute, MaxRecords: s.records}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(g.quarantine.Close(ctx), g.broker.Close(ctx), st.Close()); err != nil {
			t.Error(err)
		}
	})
	for subject, schema := range schemas {
		g.contracts[subject] = compile(t, subject, schema)
	}
	g.cfg = perimeter.Config{
		Broker: g.broker, Contracts: g.contracts, Drafter: s.drafter, Causal: g.causal, Quarantine: g.quarantine,
		Topology: table, Observer: g.seen.observer(), Now: s.now,
	}
	g.Perimeter, err = perimeter.New(g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The principals of the tests.
func helpdesk() *headgate.Principal {
	return &headgate.Principal{
		Name: "helpdesk", Kind: headgate.KindSystem, Emit: []string{"ticket.*", "order.*", "note.*"},
		Roots: headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6},
	}
}

func agent(name string) *headgate.Principal {
	return &headgate.Principal{Name: name, Kind: headgate.KindAgent, Emit: []string{"ticket.*"}}
}

func event(eventType, id, data string) *headgate.Event {
	return &headgate.Event{Type: eventType, ID: id, Source: "/test", Data: []byte(data)}
}

func items(events ...*headgate.Event) []perimeter.Item {
	out := make([]perimeter.Item, len(events))
	for i, e := range events {
		out[i].Event = e
	}
	return out
}

func (g *gate) admit(p *headgate.Principal, events ...*headgate.Event) []perimeter.Result {
	g.t.Helper()
	return g.Admit(g.t.Context(), perimeter.Submission{Principal: p, Door: "test", Items: items(events...)})
}

// root admits a root and returns it with a token for a principal.
func (g *gate) root(id, forWhom string) (e *headgate.Event, token string) {
	g.t.Helper()
	res := g.admit(helpdesk(), event("ticket.opened", id, `{"n":1}`))[0]
	if res.Err != nil {
		g.t.Fatal(res.Err)
	}
	return res.Event, g.mintFor(res.Event, forWhom)
}

// mintFor mints the token of a delivery to the principal.
func (g *gate) mintFor(e *headgate.Event, principal string) string {
	return g.causal.Mint(causal.Delivered{Event: e, Stream: "tickets", Subscription: "s-" + principal, Principal: principal, Attempt: 1})
}

// with returns a perimeter over the same broker, which now misbehaves.
func (g *gate) with(o *odd) *perimeter.Perimeter {
	g.t.Helper()
	o.Broker, o.rng = g.broker, rand.New(rand.NewPCG(o.seed, 0))
	cfg := g.cfg
	cfg.Broker = o
	p, err := perimeter.New(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	return p
}

// odd is a broker whose publishes fail, each event with a probability.
type odd struct {
	broker.Broker
	seed                                 uint64
	throttle, unknownStored, unknownLost float64
	rng                                  *rand.Rand
}

func (o *odd) Publish(ctx context.Context, stream string, events []*headgate.Event) ([]broker.Result, error) {
	results := make([]broker.Result, len(events))
	for i, e := range events {
		switch x := o.rng.Float64(); {
		case x < o.throttle:
			results[i] = broker.Throttled(headgate.CodeOverloaded, "drawn")
		case x < o.throttle+o.unknownLost:
			results[i] = broker.Unknown(errors.New("drawn"))
		default:
			stored, err := o.Broker.Publish(ctx, stream, []*headgate.Event{e})
			if err != nil {
				return nil, err
			}
			results[i] = stored[0]
			if x >= 1-o.unknownStored && stored[0].Outcome == broker.OutcomeStored {
				results[i] = broker.Unknown(errors.New("drawn"))
			}
		}
	}
	return results, nil
}

// left returns how much gas the root has left.
func (g *gate) left(root *headgate.Event) int {
	g.t.Helper()
	acc, err := g.causal.Gas(g.t.Context(), root)
	if err != nil {
		g.t.Fatal(err)
	}
	return acc.Left()
}

// count returns how many events a stream ever took.
func (g *gate) count(stream string) (n int) {
	g.t.Helper()
	stats, err := g.broker.Stat(g.t.Context(), stream)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, s := range stats {
		n += int(s.Next)
	}
	return n
}

// stored returns every event of a stream.
func (g *gate) stored(stream string) (all []broker.Stored) {
	g.t.Helper()
	stats, err := g.broker.Stat(g.t.Context(), stream)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, s := range stats {
		got, err := g.broker.Browse(g.t.Context(), stream, headgate.Position{Partition: s.Partition}, int(s.Next)+1)
		if err != nil {
			g.t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}

func (g *gate) record(qid string) store.QuarantineRecord {
	g.t.Helper()
	rec, err := g.quarantine.Show(g.t.Context(), qid)
	if err != nil {
		g.t.Fatalf("record %q: %v", qid, err)
	}
	return rec
}

// checkStored fails for every stored event that lacks a verdict or a header.
func (g *gate) checkStored() (n int) {
	g.t.Helper()
	for _, stream := range []string{"tickets", "orders", topology.DefaultStream} {
		ids := map[string]bool{}
		for _, s := range g.stored(stream) {
			n++
			e := s.Event
			c := g.contracts[e.Type]
			if c == nil || e.DataSchema != c.Ref().String() {
				g.t.Errorf("%s %s was stored under contract %q", e.Type, e.ID, e.DataSchema)
				continue
			}
			check := c.Check
			if headgate.IsAvro(e.DataContentType) {
				check = c.CheckAvro
			}
			if v := check(e.Data); v != nil && !v.Valid {
				g.t.Errorf("%s %s was stored against its contract", e.Type, e.ID)
			}
			h := e.Header
			if h.RootID == "" || h.TTL < 1 || h.Principal == "" || h.Actor == "" || h.Origin == "" || h.RecordedTime.IsZero() || len(h.Lineage) == 0 {
				g.t.Errorf("%s %s was stored with header %+v", e.Type, e.ID, h)
			}
			if key := e.Source + " " + e.ID; ids[key] {
				g.t.Errorf("%s was stored twice", key)
			} else {
				ids[key] = true
			}
		}
	}
	return n
}

func codes(results []perimeter.Result) (out []string) {
	for _, r := range results {
		switch {
		case r.Err != nil:
			out = append(out, fmt.Sprintf("%s@%s", r.Err.Code, r.Stage))
		case r.Duplicate:
			out = append(out, "duplicate")
		default:
			out = append(out, "ok")
		}
	}
	return out
}

func wantCodes(t testing.TB, results []perimeter.Result, want ...string) {
	t.Helper()
	if got := codes(results); !slices.Equal(got, want) {
		for _, r := range results {
			if r.Err != nil {
				t.Log(r.Err)
			}
		}
		t.Fatalf("results = %v, want %v", got, want)
	}
}
