package brokertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// publishFit fills a stream with calls of several keys, whose events differ in
// size: behind one that found no room, a smaller one of its key would still
// find some.
func publishFit(t *testing.T, b *bench) {
	drv := b.openWith(Options{}, broker.StreamSpec{Name: stream, Partitions: 2, MaxBytes: 1 << 20})
	Order(t, drv, stream, 1, 400, 7)
}

// publishTogether has two publishers hand in the same events, as two relays do
// while one takes over from the other: what one of them finds under way may
// fail, and what is behind it has to wait for that.
func publishTogether(t *testing.T, b *bench) {
	drv := b.openWith(Options{}, broker.StreamSpec{Name: stream, Partitions: 2, MaxBytes: 1 << 20})
	Order(t, drv, stream, 3, 400, 8)
}

// Order lets publishers hand in the same sequences of events, one of each of a
// few keys, many of a key in one call. Each goes back, for each key, to the
// first event that was not stored. It fails if the stream holds a key's events
// in another order, or if a call answers what package broker rules out. The
// stream should have a MaxBytes of about 1 MiB, and is made room in when it is
// full.
func Order(t testing.TB, b broker.Broker, stream string, publishers, each int, seed uint64) {
	t.Helper()
	const keys = 4
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o := &order{t: t, b: b, stream: stream, next: make([]int, keys)}
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(p)))
			o.publish(ctx, rng, keys, each)
		})
	}
	wg.Wait()
	o.drain(ctx)
	for k, n := range o.next {
		if n != each && !t.Failed() {
			t.Errorf("key %d: %d of %d events are stored", k, n, each)
		}
	}
}

type order struct {
	t      testing.TB
	b      broker.Broker
	stream string

	mu   sync.Mutex
	from [8]uint64 // of each partition, what was looked at
	next []int     // of each key, the event that has to come next
}

// publish hands in every event, until all are stored or the test failed.
func (o *order) publish(ctx context.Context, rng *rand.Rand, keys, each int) {
	at := make([]int, keys)
	for open := true; open && !o.t.Failed(); {
		var events []*headgate.Event
		var of []int
		ends := append([]int(nil), at...)
		for range rng.IntN(40) + 1 {
			if k := rng.IntN(keys); ends[k] < each {
				events, of = append(events, sequenced(k, ends[k])), append(of, k)
				ends[k]++
			}
		}
		results, err := o.b.Publish(ctx, o.stream, events)
		if err != nil || ctx.Err() != nil {
			o.t.Errorf("publish: %v, %v", err, ctx.Err())
			return
		}
		if o.advance(at, of, results) {
			o.drain(ctx)
		}
		open = false
		for _, n := range at {
			open = open || n < each
		}
	}
}

// sequenced returns a key's event of a number. Every seventh is large.
func sequenced(k, n int) *headgate.Event {
	e := event(fmt.Sprintf("%d-%d", k, n), fmt.Sprintf("key-%d", k))
	size := 64
	if (n+k)%7 == 3 {
		size = 30 << 10
	}
	e.Data = make([]byte, size)
	return e
}

// advance moves each key to its first event that was not stored, and checks
// what the call answered. It reports whether the stream is full.
func (o *order) advance(at, of []int, results []broker.Result) (full bool) {
	missing := make([]broker.Outcome, len(at))
	for i, res := range results {
		k := of[i]
		full = full || headgate.CodeOf(res.Err) == headgate.CodeStreamFull
		switch before := missing[k]; {
		case res.Outcome == broker.OutcomeStored && before != 0:
			o.t.Errorf("key %d: an event is stored behind one that is %s", k, before)
		case res.Outcome == broker.OutcomeUnknown && before != 0 && before != broker.OutcomeUnknown:
			o.t.Errorf("key %d: an event is unknown behind one that is %s", k, before)
		case res.Outcome == broker.OutcomeDuplicate && before != 0: // of another call
		case res.Outcome == broker.OutcomeStored || res.Outcome == broker.OutcomeDuplicate:
			at[k]++
		case before == 0 || before == broker.OutcomeUnknown:
			missing[k] = res.Outcome
		}
	}
	return full
}

// drain checks what was stored since it was last called, and trims it.
func (o *order) drain(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	stats, err := o.b.Stat(ctx, o.stream)
	if err != nil {
		o.t.Error(err)
		return
	}
	for _, st := range stats {
		for p := st.Partition; ; {
			got, err := o.b.Browse(ctx, o.stream, headgate.Position{Partition: p, Offset: o.from[p]}, 500)
			if err != nil {
				o.t.Error(err)
				return
			}
			if len(got) == 0 {
				break
			}
			for _, s := range got {
				var k, n int
				if _, err := fmt.Sscanf(s.Event.ID, "%d-%d", &k, &n); err != nil || s.Position.Offset != o.from[p] {
					o.t.Errorf("%s at %s: %v", s.Event.ID, s.Position, err)
					return
				}
				if n != o.next[k] {
					o.t.Errorf("key %d: event %d is stored where %d has to be", k, n, o.next[k])
					return
				}
				o.next[k]++
				o.from[p]++
			}
		}
		if err := o.b.Trim(ctx, o.stream, st.Partition, o.from[st.Partition]); err != nil {
			o.t.Error(err)
		}
	}
}

// publishHeldBack: what is too large for good holds back its key, and no other,
// until what is behind it is handed in without it.
func publishHeldBack(t *testing.T, b *bench) {
	drv := b.open(3)
	events := []*headgate.Event{event("0", "k"), event("1", "k"), event("2", "k"), event("3", "other"), event("4", ""), event("2", "k")}
	events[1].Data = make([]byte, drv.Caps().MaxEventBytes+1)
	results, err := drv.Publish(b.ctx(), stream, events)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []broker.Outcome{broker.OutcomeStored, broker.OutcomeRejected, broker.OutcomeThrottled, broker.OutcomeStored, broker.OutcomeStored, broker.OutcomeThrottled} {
		if results[i].Outcome != want {
			t.Errorf("event %d is %s (%v), want %s", i, results[i].Outcome, results[i].Err, want)
		}
	}
	wantCode(t, "behind it", results[2].Err, headgate.CodeHeldBack)
	// One that is known is a duplicate wherever it stands.
	again := []*headgate.Event{events[1], event("0", "k"), event("2", "k")}
	results, err = drv.Publish(b.ctx(), stream, again)
	if err != nil {
		t.Fatal(err)
	}
	if results[1].Outcome != broker.OutcomeDuplicate || results[2].Outcome != broker.OutcomeThrottled {
		t.Errorf("behind it a duplicate is %s, a new event %s", results[1].Outcome, results[2].Outcome)
	}
	b.store(event("2", "k"))
}
