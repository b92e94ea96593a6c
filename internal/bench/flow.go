package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/internal/condition"
	"github.com/headgate/headgate/node"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/router"
)

// flow measures publish → router → in-process handler → settlement without
// HTTP, against the same flow written by hand on nats.go: the same embedded
// server and durability, one message an event, an acknowledgement for each.
func (r *run) flow(ctx context.Context) error {
	for _, c := range []struct {
		id, work     string
		batch, calls int
	}{
		{"flow-1", "one event a call", 1, 30_000},
		{"flow-100", "100 events a call", 100, 2000},
	} {
		calls := r.long(c.calls)
		hand, handCPU, err := r.byHand(ctx, c.id, c.batch, calls)
		if err != nil {
			return err
		}
		ours, cpu, took, err := r.ourFlow(ctx, c.id, c.batch, calls)
		if err != nil {
			return err
		}
		l := latency(took)
		r.add(Row{
			ID: c.id, Work: "publish → router → in-process handler → settle, 64 publishers, " + c.work, Ours: ours, Baseline: hand, Unit: "events/s",
			Against: "the same by hand on nats.go, without any check, root, index or progress", P50: l.P50, P99: l.P99, P999: l.P999, CPU: cpu,
			Note: fmt.Sprintf("the baseline spends %.1f µs of CPU per event", handCPU),
		})
	}
	return nil
}

// publishers is how many callers publish at once in a flow.
const publishers = 64

func orderEvent(i int) *headgate.Event {
	return &headgate.Event{ID: fmt.Sprintf("o-%d", i), Source: "/bench", Type: "order.placed", Data: payload(i, 400, "")}
}

// ourFlow returns events a second from the first publish to the last call of
// the handler, CPU in µs per event, and how long publishing took.
func (r *run) ourFlow(ctx context.Context, id string, batch, calls int) (rate, cpu float64, took []time.Duration, err error) {
	var seen counter
	t, err := r.start(ctx, id, 1000, nil, func(n *node.Node) error { return subscribe(ctx, n, "sink", router.DedupeDurable, seen.handle) })
	if err != nil {
		return 0, 0, nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	who, err := t.node.Principals.Get(ctx, "load")
	if err != nil {
		return 0, 0, nil, err
	}
	cpu0, begin := usage(), time.Now()
	took, _, _, err = load(publishers, calls, func(i int) error {
		items := make([]perimeter.Item, batch)
		for k := range items {
			items[k].Event = orderEvent(i*batch + k)
		}
		for _, res := range t.node.Perimeter.Admit(ctx, perimeter.Submission{Principal: &who.Principal, Door: "bench", Items: items}) {
			if res.Err != nil {
				return res.Err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, nil, err
	}
	n := calls * batch
	if err := seen.wait(ctx, n); err != nil {
		return 0, 0, nil, err
	}
	wall := time.Since(begin)
	if err := t.node.Index.Wait(ctx); err != nil {
		return 0, 0, nil, err
	}
	return float64(n) / wall.Seconds(), perEvent(usage()-cpu0, n), took, nil
}

// byHand is the flow as somebody writes it who has no Headgate.
func (r *run) byHand(ctx context.Context, id string, batch, calls int) (rate, cpu float64, err error) {
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: filepath.Join(r.dir, "hand-"+id), SyncAlways: true})
	if err != nil {
		return 0, 0, err
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return 0, 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1<<16))
	if err != nil {
		return 0, 0, err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}, Storage: jetstream.FileStorage}); err != nil {
		return 0, 0, err
	}
	consumer, err := js.CreateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "sink", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4096})
	if err != nil {
		return 0, 0, err
	}
	var seen counter
	var failed atomic.Pointer[error]
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		if err := m.Ack(); err != nil {
			failed.Store(&err)
		}
		seen.n.Add(1)
	})
	if err != nil {
		return 0, 0, err
	}
	defer consuming.Stop()
	n := calls * batch
	cpu0, begin := usage(), time.Now()
	_, _, _, err = load(publishers, calls, func(i int) error {
		acks := make([]jetstream.PubAckFuture, batch)
		for k := range acks {
			e := event(i*batch+k, 400, "")
			f, err := js.PublishAsync("orders", e, jetstream.WithMsgID(fmt.Sprintf("/bench o-%d", i*batch+k)))
			if err != nil {
				return err
			}
			acks[k] = f
		}
		for _, f := range acks {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err == nil {
		err = seen.wait(ctx, n)
	}
	if f := failed.Load(); f != nil {
		err = errors.Join(err, *f)
	}
	return float64(n) / time.Since(begin).Seconds(), perEvent(usage()-cpu0, n), err
}

// routes measures what one event costs beside 1,000 subscriptions, none of
// which it matches, with a condition each, against one evaluation of it.
func (r *run) routes(ctx context.Context) error {
	const when = `data.amount > 100.0 && data.currency == "EUR"`
	subs, events := 1000, 10_000
	if r.Short {
		subs, events = 50, 1000
	}
	alone, _, err := r.routed(ctx, "route-0", 0, events, when)
	if err != nil {
		return err
	}
	all, bytes, err := r.routed(ctx, "route-1000", subs, events, when)
	if err != nil {
		return err
	}
	cond, err := condition.Compile(when)
	if err != nil {
		return err
	}
	e := orderEvent(1)
	one, err := each(200_000, func() error { _, err := cond.Match(e); return err })
	if err != nil {
		return err
	}
	r.add(Row{
		ID: "route-1000", Work: fmt.Sprintf("routing one event against %d subscriptions to other types", subs), Ours: max(all-alone, 0), Baseline: one, Unit: "µs of CPU",
		Against: "one evaluation of the condition", CPU: all,
		Note: fmt.Sprintf("Each subscription takes %.1f KB of heap and stacks.", float64(bytes)/float64(subs)/1000),
	})
	return nil
}

// routed returns the CPU in µs that an event takes from its publication until
// nothing works any more, and the memory that the subscriptions take.
func (r *run) routed(ctx context.Context, id string, subs, events int, when string) (cpu float64, bytes int64, err error) {
	var seen counter
	t, err := r.start(ctx, id, 1000, nil, func(n *node.Node) error { return subscribe(ctx, n, "sink", router.DedupeDurable, seen.handle) })
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	admin := &headgate.Principal{Name: "load", Kind: headgate.KindSystem, Roles: []headgate.Role{headgate.RoleAdmin}, Listen: []string{"*"}}
	before := inUse()
	for i := range subs {
		if _, err := t.node.Router.Put(ctx, admin, fmt.Sprintf("other-%d", i), router.Spec{Types: []string{fmt.Sprintf("other.t%d", i)}, When: when}, "api"); err != nil {
			return 0, 0, err
		}
	}
	bytes = inUse() - before
	who, err := t.node.Principals.Get(ctx, "load")
	if err != nil {
		return 0, 0, err
	}
	cpu0 := quiet()
	for i := 0; i < events; i += 1000 {
		items := make([]perimeter.Item, 1000)
		for k := range items {
			items[k].Event = orderEvent(i + k)
		}
		for _, res := range t.node.Perimeter.Admit(ctx, perimeter.Submission{Principal: &who.Principal, Door: "bench", Items: items}) {
			if res.Err != nil {
				return 0, 0, res.Err
			}
		}
	}
	if err := seen.wait(ctx, events); err != nil {
		return 0, 0, err
	}
	return perEvent(quiet()-cpu0, events), bytes, nil
}

// inUse returns the memory that heap and stacks take after a collection.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// quiet waits until the process does next to nothing for a moment, and returns
// the CPU time that it spent so far.
func quiet() time.Duration {
	for {
		before := usage()
		time.Sleep(200 * time.Millisecond)
		if after := usage(); after-before < 20*time.Millisecond {
			return before
		}
	}
}

// causality measures what keeps a tree in bounds, for one event: a token is
// minted and verified, gas is debited, a condition evaluated; as a share of the
// CPU of a durable publish with a token.
func (r *run) causality(ctx context.Context) (err error) {
	t, err := r.start(ctx, "causality", 1000, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	who, err := t.node.Principals.Get(ctx, "load")
	if err != nil {
		return err
	}
	p := &who.Principal
	admit := func(token string, events ...*headgate.Event) ([]perimeter.Result, error) {
		s := perimeter.Submission{Principal: p, Door: "bench"}
		if token != "" {
			s.Tokens = []string{token}
		}
		for _, e := range events {
			s.Items = append(s.Items, perimeter.Item{Event: e})
		}
		results := t.node.Perimeter.Admit(ctx, s)
		for i := range results {
			if results[i].Err != nil {
				return nil, results[i].Err
			}
		}
		return results, nil
	}
	// A root has at most 64 children for each delivery.
	calls := r.long(30_000)
	roots := make([]*headgate.Event, 0, calls/32+1)
	for i := range cap(roots) {
		roots = append(roots, orderEvent(i))
	}
	stored, err := admit("", roots...)
	if err != nil {
		return err
	}
	delivered := func(i int) causal.Delivered {
		res := &stored[i]
		return causal.Delivered{Event: res.Event, Stream: res.Stream, Position: res.Position, Subscription: "bench", Principal: p.Name, Attempt: 1}
	}
	_, _, cpu, err := load(publishers, calls, func(i int) error {
		_, err := admit(t.node.Causal.Mint(delivered(i/32)), orderEvent(1_000_000+i))
		return err
	})
	if err != nil {
		return err
	}
	cond, err := condition.Compile(`data.amount > 100.0 && data.currency == "EUR"`)
	if err != nil {
		return err
	}
	d := delivered(len(stored) - 1)
	share, err := each(100_000, func() error {
		c, err := t.node.Causal.Verify(t.node.Causal.Mint(d), p.Name)
		if err != nil {
			return err
		}
		res, err := t.node.Causal.Reserve(ctx, causal.Request{Principal: p, Causes: []*causal.Cause{c}, Type: "order.placed", EventID: "x", Breadth: 1 << 20, Gas: 1000, Repeats: 4, TTL: 16})
		if err != nil {
			return err
		}
		res.Release()
		_, err = cond.Match(d.Event)
		return err
	})
	if err != nil {
		return err
	}
	r.add(Row{
		ID: "causal-share", Work: "token minted and verified, gas debited, condition evaluated, for one event", Ours: share, Baseline: perEvent(cpu, calls), Unit: "µs of CPU",
		Against: "one durable publish with a token, 64 callers, without HTTP", CPU: share,
	})
	return nil
}

// each returns the CPU in µs that one call takes on average.
func each(n int, fn func() error) (float64, error) {
	cpu0 := usage()
	for range n {
		if err := fn(); err != nil {
			return 0, err
		}
	}
	return perEvent(usage()-cpu0, n), nil
}

func perEvent(cpu time.Duration, n int) float64 { return float64(cpu.Nanoseconds()) / 1e3 / float64(n) }
