package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/eventcodec"
)

func testPublish(t *testing.T, h Harness) {
	cases(t, h, map[string]func(*testing.T, *bench){
		"empty batch":                        publishEmpty,
		"every attribute survives":           publishWhole,
		"odd bodies survive":                 publishBodies,
		"a bad event spares its neighbors":   publishMixed,
		"a bad event holds its key back":     publishHeldBack,
		"a key stops where it finds no room": publishFit,
		"order of a key handed in twice":     publishTogether,
		"the size limit is exact":            publishLimit,
		"unknown stream":                     publishNoStream,
		"closed driver":                      publishClosed,
		"keys go to their partition":         publishKeys,
		"events without a key spread":        publishKeyless,
		"a large batch keeps its order":      publishLarge,
		"order of a key over publishers":     publishOrder,
		"same id twice in one call":          publishTwiceInCall,
		"same id in later calls":             publishAgain,
		"same id at the same time":           publishRace,
		"a full stream refuses":              publishFull,
		"a call that was given up":           publishCanceled,
	})
}

func publishEmpty(t *testing.T, b *bench) {
	b.open(2)
	if at := b.store(); len(at) != 0 {
		t.Errorf("%d results for no events", len(at))
	}
}

func publishWhole(t *testing.T, b *bench) {
	b.open(1)
	want := event("whole", "k\r\n\x00ü")
	want.Subject, want.DataSchema = "S\"1", "suite.event@1"
	want.Time = time.Date(2026, 5, 4, 3, 2, 1, 9, time.FixedZone("", 3600))
	want.ExpiryTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	want.TraceParent, want.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b"
	want.SetExtension(headgate.Extension{Name: "flag", Value: "true", Kind: headgate.ExtensionBool})
	want.Header.Causes, want.Header.Hop, want.Header.Fence = []string{"c,1", "c2"}, 3, "r@4"
	want.Header.RecordedTime = time.Date(2026, 5, 4, 3, 2, 2, 0, time.UTC)
	want.Header.Lineage = []byte{0, 255}
	before := eventcodec.Append(nil, want)
	at := b.store(want)
	if !bytes.Equal(before, eventcodec.Append(nil, want)) {
		t.Error("publishing changed the event")
	}
	got := b.stored()[0][0]
	if diff := cmp.Diff(want, got.Event); diff != "" {
		t.Errorf("browsed event differs (-want +got):\n%s", diff)
	}
	if got.Position != at[0] || got.Time.IsZero() {
		t.Errorf("browsed at %s (stored at %s), time %v", got.Position, at[0], got.Time)
	}
	if diff := cmp.Diff(want, b.subscribe(broker.SubscribeSpec{}).receive(1)[0].Event); diff != "" {
		t.Errorf("delivered event differs (-want +got):\n%s", diff)
	}
}

func publishBodies(t *testing.T, b *bench) {
	b.open(1)
	bodies := [][]byte{nil, {}, {0}, []byte("\xff\xfe\r\n\x00"), bytes.Repeat([]byte{0xa5}, 300_000)}
	for i, data := range bodies {
		e := event(fmt.Sprint(i), "k")
		e.Data = data
		b.store(e)
	}
	for i, s := range b.stored()[0] {
		if !bytes.Equal(s.Event.Data, bodies[i]) || (s.Event.Data == nil) != (bodies[i] == nil) {
			t.Errorf("body %d changed", i)
		}
	}
}

func publishMixed(t *testing.T, b *bench) {
	drv := b.open(1)
	limit := drv.Caps().MaxEventBytes
	events := eventsOf(3, "mixed", "k")
	events[1].Data, events[1].Key = make([]byte, limit+1), "large"
	results, err := drv.Publish(b.ctx(), stream, events)
	if err != nil {
		t.Fatal(err)
	}
	if got := results[1]; got.Outcome != broker.OutcomeRejected || headgate.CodeOf(got.Err) != headgate.CodeTooLarge {
		t.Errorf("too large event is %s: %v", got.Outcome, got.Err)
	}
	for _, i := range []int{0, 2} {
		if results[i].Outcome != broker.OutcomeStored {
			t.Errorf("neighbour %d is %s: %v", i, results[i].Outcome, results[i].Err)
		}
	}
	if results[0].Position.Offset != 0 || results[2].Position.Offset != 1 {
		t.Errorf("offsets %d and %d, want 0 and 1", results[0].Position.Offset, results[2].Position.Offset)
	}
	b.stored()
}

func publishLimit(t *testing.T, b *bench) {
	drv := b.open(1)
	limit := drv.Caps().MaxEventBytes
	sized := func(id string, size int) *headgate.Event {
		e := event(id, "k")
		e.Data = make([]byte, size/2)
		e.Data = make([]byte, len(e.Data)+size-len(eventcodec.Append(nil, e)))
		// The length prefixes may have grown by a byte on the way.
		e.Data = e.Data[:len(e.Data)+size-len(eventcodec.Append(nil, e))]
		if got := len(eventcodec.Append(nil, e)); got != size {
			t.Fatalf("made an event of %d bytes, wanted %d", got, size)
		}
		return e
	}
	b.store(sized("at", limit))
	results, err := drv.Publish(b.ctx(), stream, []*headgate.Event{sized("over", limit+1)})
	if err != nil || results[0].Outcome != broker.OutcomeRejected {
		t.Errorf("one byte over the limit: %v, %v", results, err)
	}
	if n := len(b.stored()[0]); n != 1 {
		t.Errorf("%d events stored, want 1", n)
	}
}

func publishNoStream(t *testing.T, b *bench) {
	drv := b.open(1)
	_, err := drv.Publish(b.ctx(), "nowhere", eventsOf(1, "x", ""))
	wantCode(t, "publish", err, headgate.CodeStreamUnknown)
	_, err = drv.Subscribe(b.ctx(), broker.SubscribeSpec{Stream: "nowhere"})
	wantCode(t, "subscribe", err, headgate.CodeStreamUnknown)
	_, err = drv.Browse(b.ctx(), "nowhere", headgate.Position{}, 1)
	wantCode(t, "browse", err, headgate.CodeStreamUnknown)
	_, err = drv.Stat(b.ctx(), "nowhere")
	wantCode(t, "stat", err, headgate.CodeStreamUnknown)
	wantCode(t, "trim", drv.Trim(b.ctx(), "nowhere", 0, 1), headgate.CodeStreamUnknown)
	_, err = drv.Browse(b.ctx(), stream, headgate.Position{Partition: 1 << 31}, 1)
	wantCode(t, "browse of no partition", err, headgate.CodeInvalidArgument)
	wantCode(t, "trim of no partition", drv.Trim(b.ctx(), stream, 9, 1), headgate.CodeInvalidArgument)
	if _, ok := drv.Known("nowhere", "/brokertest", "x-0"); ok {
		t.Error("an id is known in a stream that does not exist")
	}
}

func publishClosed(t *testing.T, b *bench) {
	drv := b.open(1)
	b.store(event("before", ""))
	b.close()
	if _, err := drv.Publish(b.ctx(), stream, eventsOf(1, "x", "")); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("publish after close: %v", err)
	}
	if _, err := drv.Subscribe(b.ctx(), broker.SubscribeSpec{Stream: stream}); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("subscribe after close: %v", err)
	}
	if err := drv.Close(b.ctx()); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func publishKeys(t *testing.T, b *bench) {
	b.open(5)
	for i := range 50 {
		key := fmt.Sprintf("key-%d", i)
		at := b.store(event(key, key))
		if want := broker.PartitionOf(key, 5); at[0].Partition != want {
			t.Errorf("%s went to partition %d, want %d", key, at[0].Partition, want)
		}
	}
}

func publishKeyless(t *testing.T, b *bench) {
	b.open(4)
	used := map[uint32]bool{}
	for i := range 20 {
		for _, at := range b.store(eventsOf(1000, fmt.Sprint(i), "")...) {
			used[at.Partition] = true
		}
	}
	if len(used) != 4 {
		t.Errorf("20,000 events without a key used %d of 4 partitions", len(used))
	}
}

func publishLarge(t *testing.T, b *bench) {
	b.open(1)
	const n = 5000
	for i, at := range b.store(eventsOf(n, "large", "k")...) {
		if at.Offset != uint64(i) {
			t.Fatalf("event %d is at %s", i, at)
		}
	}
	for i, s := range b.stored()[0] {
		if want := fmt.Sprintf("large-%d", i); s.Event.ID != want {
			t.Fatalf("%s at %s, want %s", s.Event.ID, s.Position, want)
		}
	}
}

// Eight publishers, each with keys of its own, mixing single events and small
// batches: every key's events are in the order of their calls.
func publishOrder(t *testing.T, b *bench) {
	drv := b.open(3)
	const publishers, each, keys = 8, 1250, 5
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for n := 0; n < each; {
				var batch []*headgate.Event
				for range 1 + (n*7+p)%40 {
					if n < each {
						batch = append(batch, event(fmt.Sprintf("%d/%d", p, n), fmt.Sprintf("key-%d-%d", p, n%keys)))
						n++
					}
				}
				results, err := drv.Publish(context.Background(), stream, batch)
				for _, r := range results {
					if r.Outcome != broker.OutcomeStored {
						err = r.Err
					}
				}
				if err != nil {
					t.Errorf("publisher %d: %v", p, err)
					return
				}
			}
		})
	}
	wg.Wait()
	last, total := map[string]int{}, 0
	for _, part := range b.stored() {
		for _, s := range part {
			var p, n int
			if _, err := fmt.Sscanf(s.Event.ID, "%d/%d", &p, &n); err != nil {
				t.Fatal(err)
			}
			if before, ok := last[s.Event.Key]; ok && before >= n {
				t.Fatalf("%s: %d after %d", s.Event.Key, n, before)
			}
			last[s.Event.Key] = n
			total++
		}
	}
	if total != publishers*each {
		t.Errorf("%d events stored, want %d", total, publishers*each)
	}
}

func publishTwiceInCall(t *testing.T, b *bench) {
	drv := b.open(3)
	other := event("same", "k")
	other.Source = "/another"
	results, err := drv.Publish(b.ctx(), stream, []*headgate.Event{event("same", "k"), event("same", "k"), other})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Outcome != broker.OutcomeStored || results[2].Outcome != broker.OutcomeStored {
		t.Errorf("outcomes %s, %s", results[0].Outcome, results[2].Outcome)
	}
	wantDuplicate(t, results[1], results[0].Position)
	b.stored()
}

func publishAgain(t *testing.T, b *bench) {
	drv := b.open(3)
	first := b.store(eventsOf(100, "again", "")...)
	results, err := drv.Publish(b.ctx(), stream, append(eventsOf(100, "again", ""), event("new", "")))
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range first {
		wantDuplicate(t, results[i], at)
		if known, ok := drv.Known(stream, "/brokertest", fmt.Sprintf("again-%d", i)); !ok || known != at {
			t.Errorf("Known says %s, %v; stored at %s", known, ok, at)
		}
	}
	if results[100].Outcome != broker.OutcomeStored {
		t.Errorf("the new event is %s: %v", results[100].Outcome, results[100].Err)
	}
	if _, ok := drv.Known(stream, "/brokertest", "never"); ok {
		t.Error("an id that was never published is known")
	}
	b.stored()
}

func publishRace(t *testing.T, b *bench) {
	drv := b.open(3)
	for round := range 20 {
		const n = 16
		results := make([]broker.Result, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				got, err := drv.Publish(context.Background(), stream, []*headgate.Event{event(fmt.Sprintf("race-%d", round), "")})
				if err != nil {
					t.Error(err)
					return
				}
				results[i] = got[0]
			})
		}
		wg.Wait()
		var stored []headgate.Position
		for _, r := range results {
			if r.Outcome == broker.OutcomeStored {
				stored = append(stored, r.Position)
			}
		}
		if len(stored) != 1 {
			t.Fatalf("round %d: stored %d times", round, len(stored))
		}
		for _, r := range results {
			if r.Outcome != broker.OutcomeStored {
				wantDuplicate(t, r, stored[0])
			}
		}
	}
	b.stored()
}

func publishFull(t *testing.T, b *bench) {
	drv := b.openWith(Options{}, broker.StreamSpec{Name: stream, Partitions: 1, MaxBytes: 256 << 10})
	stored, n := 0, 0
	var full broker.Result
	for full.Outcome == 0 {
		e := event(fmt.Sprintf("full-%d", n), "k")
		e.Data = make([]byte, 8<<10)
		results, err := drv.Publish(b.ctx(), stream, []*headgate.Event{e})
		if err != nil {
			t.Fatal(err)
		}
		if n++; results[0].Outcome == broker.OutcomeStored {
			stored++
		} else {
			full = results[0]
		}
		if n > 1000 {
			t.Fatal("8 MB fit into a stream of 256 KiB")
		}
	}
	if full.Outcome != broker.OutcomeThrottled || headgate.CodeOf(full.Err) != headgate.CodeStreamFull {
		t.Errorf("a full stream answers %s: %v", full.Outcome, full.Err)
	}
	if stored < 16 {
		t.Errorf("full after %d events of 8 KiB, a quarter of which should fit twice", stored)
	}
	if kept := b.stored()[0]; len(kept) != stored || kept[0].Position.Offset != 0 {
		t.Errorf("%d of %d events kept", len(kept), stored)
	}
	if err := drv.Trim(b.ctx(), stream, 0, uint64(stored/2)); err != nil {
		t.Fatal(err)
	}
	if at := b.store(event("after", "k")); at[0].Offset != uint64(stored) {
		t.Errorf("after the trim stored at %s, want offset %d", at[0], stored)
	}
}

// Whatever a given-up call answers, publishing again with the same ids ends
// with every event stored once.
func publishCanceled(t *testing.T, b *bench) {
	drv := b.open(2)
	for round := range 30 {
		ctx, cancel := context.WithCancel(context.Background())
		if round%3 == 0 {
			cancel()
		} else {
			go cancel()
		}
		events := eventsOf(50, fmt.Sprintf("gone-%d", round), "")
		results, err := drv.Publish(ctx, stream, events)
		cancel()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		again, err := drv.Publish(b.ctx(), stream, events)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			switch r.Outcome {
			case broker.OutcomeStored:
				wantDuplicate(t, again[i], r.Position)
			case broker.OutcomeUnknown:
				if o := again[i].Outcome; o != broker.OutcomeStored && o != broker.OutcomeDuplicate {
					t.Fatalf("after Unknown the repetition is %s: %v", o, again[i].Err)
				}
			default:
				t.Fatalf("a given-up event is %s: %v", r.Outcome, r.Err)
			}
		}
	}
	total := 0
	for _, part := range b.stored() {
		total += len(part)
	}
	if total != 30*50 {
		t.Errorf("%d events stored, want %d", total, 30*50)
	}
}

func wantCode(t *testing.T, what string, err error, code headgate.Code) {
	t.Helper()
	if headgate.CodeOf(err) != code {
		t.Errorf("%s: error %v, want code %s", what, err, code)
	}
}

func wantDuplicate(t *testing.T, r broker.Result, at headgate.Position) {
	t.Helper()
	if r.Outcome != broker.OutcomeDuplicate || r.Position != at {
		t.Fatalf("outcome %s at %s (%v), want duplicate at %s", r.Outcome, r.Position, r.Err, at)
	}
}
