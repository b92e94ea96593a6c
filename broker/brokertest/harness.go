package brokertest

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// Harness tells the suite how to run one driver.
type Harness struct {
	// Open opens the driver on the store that dir names: an existing folder,
	// empty at first. Opening it again after Close must find what was stored,
	// unless Caps.Durability is memory. The suite closes what it opens.
	Open func(t testing.TB, dir string, o Options) broker.Broker
	// Child returns a command that opens the driver on the store and calls
	// [ChildMain], usually the test binary itself. Nil when nothing survives
	// the process.
	Child func(t testing.TB, dir string) *exec.Cmd
	// Cut breaks the connection of b to its server once; the driver connects
	// again by itself. Nil when there is no connection to lose.
	Cut func(t testing.TB, b broker.Broker)
}

// Options are what the suite varies. Zero values mean the driver's defaults.
type Options struct {
	MaxEventBytes int
	DedupeWindow  time.Duration
	DedupeIDs     int
	Now           func() time.Time
}

// stream is the stream that most tests use.
const stream = "tests"

// patience bounds every wait for something that must come.
const patience = 30 * time.Second

// quiet is how long the suite watches for something that must not come.
const quiet = 100 * time.Millisecond

// Run runs the suite. The names of the subtests are part of the interface:
// `-run TestConformance/publish` selects a part.
func Run(t *testing.T, h Harness) {
	for name, part := range map[string]func(*testing.T, Harness){
		"publish":   testPublish,
		"subscribe": testSubscribe,
		"keep":      testKeep,
		"restart":   testRestart,
		"crash":     testCrash,
		"caps":      testCaps,
		"own":       testOwn,
	} {
		t.Run(name, func(t *testing.T) { part(t, h) })
	}
}

// cases runs each function as a subtest with a fresh store.
func cases(t *testing.T, h Harness, tests map[string]func(*testing.T, *bench)) {
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			b := &bench{t: t, h: h, dir: t.TempDir()}
			defer b.close()
			f(t, b)
		})
	}
}

// bench is one store under test with the driver that is open on it.
type bench struct {
	t   *testing.T
	h   Harness
	dir string
	b   broker.Broker
}

// open opens the driver and ensures the stream with the given number of
// partitions. An open driver is closed first.
func (b *bench) open(partitions int) broker.Broker {
	return b.openWith(Options{}, broker.StreamSpec{Name: stream, Partitions: partitions})
}

func (b *bench) openWith(o Options, specs ...broker.StreamSpec) broker.Broker {
	b.t.Helper()
	b.close()
	b.b = b.h.Open(b.t, b.dir, o)
	drift, err := b.b.Ensure(b.ctx(), specs)
	if err != nil {
		b.t.Fatalf("ensure: %v", err)
	}
	if len(drift) != 0 {
		b.t.Fatalf("ensure: unexpected drift %+v", drift)
	}
	return b.b
}

func (b *bench) close() {
	b.t.Helper()
	if b.b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.b.Close(ctx); err != nil {
		b.t.Errorf("close: %v", err)
	}
	b.b = nil
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// store publishes events that must all be Stored, and returns their positions.
func (b *bench) store(events ...*headgate.Event) []headgate.Position {
	b.t.Helper()
	results, err := b.b.Publish(b.ctx(), stream, events)
	if err != nil {
		b.t.Fatalf("publish: %v", err)
	}
	if len(results) != len(events) {
		b.t.Fatalf("publish: %d results for %d events", len(results), len(events))
	}
	at := make([]headgate.Position, len(events))
	for i, r := range results {
		if r.Outcome != broker.OutcomeStored || r.Err != nil {
			b.t.Fatalf("publish: event %d of %d is %s: %v", i, len(events), r.Outcome, r.Err)
		}
		at[i] = r.Position
	}
	return at
}

func (b *bench) subscribe(spec broker.SubscribeSpec) *reader {
	b.t.Helper()
	spec.Stream, spec.Name = stream, "suite"
	sub, err := b.b.Subscribe(b.ctx(), spec)
	if err != nil {
		b.t.Fatalf("subscribe: %v", err)
	}
	b.t.Cleanup(func() { _ = sub.Close() })
	return &reader{b: b, sub: sub}
}

// stored returns everything that is kept, by partition, checking that offsets
// have no gaps and that no id is there twice.
func (b *bench) stored() [][]broker.Stored {
	b.t.Helper()
	all, err := readAll(b.ctx(), b.b)
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

func readAll(ctx context.Context, b broker.Broker) ([][]broker.Stored, error) {
	stats, err := b.Stat(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stat: %w", err)
	}
	seen := map[string]headgate.Position{}
	all := make([][]broker.Stored, len(stats))
	for i, st := range stats {
		at := headgate.Position{Partition: st.Partition, Offset: st.First}
		for {
			got, err := b.Browse(ctx, stream, at, 500)
			if err != nil {
				return nil, fmt.Errorf("browse from %s: %w", at, err)
			}
			if len(got) == 0 {
				break
			}
			for _, s := range got {
				if s.Position != at {
					return nil, fmt.Errorf("gap: event at %s where %s was expected", s.Position, at)
				}
				key := s.Event.Source + " " + s.Event.ID
				if first, ok := seen[key]; ok {
					return nil, fmt.Errorf("%s is stored twice, at %s and %s", key, first, s.Position)
				}
				seen[key] = s.Position
				at.Offset++
			}
			all[i] = append(all[i], got...)
		}
		if at.Offset != st.Next {
			return nil, fmt.Errorf("partition %d ends at %d, its next offset is %d", i, at.Offset, st.Next)
		}
	}
	return all, nil
}

// reader wraps a subscription with the checks that every test wants.
type reader struct {
	b   *bench
	sub broker.Subscription
}

// receive returns exactly n deliveries.
func (r *reader) receive(n int) []broker.Delivery {
	r.b.t.Helper()
	var all []broker.Delivery
	for len(all) < n {
		got, err := r.sub.Receive(r.b.ctx(), n-len(all))
		if err != nil {
			r.b.t.Fatalf("receive after %d of %d: %v", len(all), n, err)
		}
		if len(got) == 0 || len(got) > n-len(all) {
			r.b.t.Fatalf("receive answered %d deliveries for a limit of %d", len(got), n-len(all))
		}
		all = append(all, got...)
	}
	return all
}

// silent fails if anything is delivered for a while.
func (r *reader) silent() {
	r.b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), quiet)
	defer cancel()
	if got, err := r.sub.Receive(ctx, 1); err == nil {
		r.b.t.Fatalf("unexpected delivery of %s at %s, attempt %d", got[0].Event.ID, got[0].Position, got[0].Attempt)
	}
}

func (r *reader) settle(act broker.Act, after time.Duration, ds ...broker.Delivery) {
	r.b.t.Helper()
	ss := make([]broker.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = broker.Settlement{Position: d.Position, Act: act, After: after}
	}
	if err := r.sub.Settle(r.b.ctx(), ss); err != nil {
		r.b.t.Fatalf("settle: %v", err)
	}
}

// event returns an event whose content follows from id and key.
func event(id, key string) *headgate.Event {
	e := &headgate.Event{
		ID: id, Source: "/brokertest", Type: "suite.event", Key: key,
		DataContentType: "application/json",
		Data:            fmt.Appendf(nil, `{"id":%q,"key":%q}`, id, key),
	}
	e.Header = headgate.Header{RootID: id, TTL: 16, Origin: headgate.OriginSystem, Principal: "suite", Actor: headgate.KindSystem}
	return e
}

// eventsOf returns n events of one key with ids prefix-0 and up.
func eventsOf(n int, prefix, key string) []*headgate.Event {
	events := make([]*headgate.Event, n)
	for i := range events {
		events[i] = event(fmt.Sprintf("%s-%d", prefix, i), key)
	}
	return events
}
