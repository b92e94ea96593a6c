package index

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

// declared is a list of streams.
type declared []topology.Stream

func (d declared) Streams() []topology.Stream { return d }

// bench is an index over a broker and a store of its own.
type bench struct {
	*Index
	broker broker.Broker
	store  store.Store
	causal *causal.Engine
	quar   *quarantine.Quarantine
	serial int
	clock  time.Time
}

var streamsOfBench = declared{{Name: "alpha", Partitions: 3}, {Name: "beta", Partitions: 1}, {Name: "bulk", Partitions: 2, NoIndex: true}}

func newBench(t testing.TB, faults *membroker.Faults) *bench {
	t.Helper()
	return benchOn(t, membroker.New(membroker.Config{Faults: faults}))
}

func benchOn(t testing.TB, over broker.Broker) *bench {
	t.Helper()
	ctx := context.Background()
	b := &bench{broker: over, clock: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
	declare(t, over)
	s, err := sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	b.store = s
	t.Cleanup(func() {
		if err := b.broker.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if b.causal, err = causal.Open(ctx, causal.Config{Store: s}); err != nil {
		t.Fatal(err)
	}
	if b.quar, err = quarantine.Open(ctx, quarantine.Config{Store: s}); err != nil {
		t.Fatal(err)
	}
	b.Index = New(b.config())
	return b
}

// declare makes the streams, as a node does at every start.
func declare(t testing.TB, over broker.Broker) {
	t.Helper()
	var specs []broker.StreamSpec
	for _, s := range streamsOfBench {
		specs = append(specs, broker.StreamSpec{Name: s.Name, Partitions: s.Partitions})
	}
	if _, err := over.Ensure(context.Background(), specs); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) config() Config {
	return Config{Store: b.store, Broker: b.broker, Topology: streamsOfBench, Causal: b.causal, Quarantine: b.quar, Router: explains{}}
}

// explains answers for one subscription that took everything.
type explains struct{}

func (explains) Explain(_ context.Context, e *headgate.Event, stream string, pos headgate.Position) ([]router.State, error) {
	return []router.State{{Subscription: "all", Matched: true, Why: fmt.Sprint(e.ID, " at ", stream, "/", pos), State: "settled"}}, nil
}

// run follows until the returned function is called.
func (b *bench) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// publish stores an event with the header as it is, and a rising time.
func (b *bench) publish(t testing.TB, stream string, e *headgate.Event) headgate.Position {
	t.Helper()
	b.clock = b.clock.Add(time.Millisecond)
	if e.Source == "" {
		e.Source = "/test"
	}
	e.Header.RecordedTime = b.clock
	for {
		r, err := b.broker.Publish(context.Background(), stream, []*headgate.Event{e})
		if err != nil {
			t.Fatal(err)
		}
		switch r[0].Outcome {
		case broker.OutcomeStored, broker.OutcomeDuplicate:
			return r[0].Position
		case broker.OutcomeRejected:
			t.Fatal(r[0].Err)
		}
	}
}

// admit stores an event as the perimeter would: with causes judged and gas
// taken. A refusal is recorded in quarantine and returned.
func (b *bench) admit(t testing.TB, p *headgate.Principal, eventType, id string, r causal.Request, parents ...*headgate.Event) (*headgate.Event, error) {
	t.Helper()
	r.Principal, r.Type, r.EventID = p, eventType, id
	for _, parent := range parents {
		b.serial++
		r.Causes = append(r.Causes, b.causal.CauseOf(causal.Delivered{
			Event: parent, Stream: "alpha", Position: headgate.Position{Offset: uint64(b.serial)}, Subscription: "s", Principal: p.Name,
		}))
	}
	res, err := b.causal.Reserve(context.Background(), r)
	e := &headgate.Event{ID: id, Source: "/test", Type: eventType}
	if err != nil {
		refusal := quarantine.Refusal{Principal: p.Name, Door: "http", Stage: "cause", Event: e, Err: headgate.AsError(err)}
		if len(parents) > 0 {
			refusal.Cause, refusal.Root = parents[0].ID, parents[0].Header.RootID
		}
		b.quar.Refused(context.Background(), refusal)
		return nil, err
	}
	e.Header = res.Header
	e.Header.Principal = p.Name
	b.publish(t, "alpha", e)
	res.Commit()
	return e, nil
}

func (b *bench) wait(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.Wait(ctx); err != nil {
		t.Fatalf("Wait: %v", err)
	}
}

func wantCode(t testing.TB, err error, want headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != want {
		t.Fatalf("code %q, want %q (%v)", got, want, err)
	}
}
