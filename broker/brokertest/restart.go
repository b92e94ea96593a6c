package brokertest

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

func testRestart(t *testing.T, h Harness) {
	cases(t, h, map[string]func(*testing.T, *bench){
		"events and offsets survive a close": reopen,
		"ids survive a close":                reopenDedupe,
		"a slow reader costs no memory":      slowReader,
	})
}

// forgetful reports that the driver claims to keep nothing: a named Cap, which
// ends a test that needs more.
func (b *bench) forgetful() bool { return b.b.Caps().Durability == broker.DurabilityMemory }

func reopen(t *testing.T, b *bench) {
	b.open(3)
	if b.forgetful() {
		return
	}
	var want []headgate.Position
	for i := range 3 {
		want = append(want, b.store(eventsOf(500, fmt.Sprint(i), "")...)...)
		b.open(3)
	}
	total := 0
	for _, part := range b.stored() {
		total += len(part)
	}
	if total != len(want) {
		t.Errorf("%d events after three restarts, want %d", total, len(want))
	}
}

func reopenDedupe(t *testing.T, b *bench) {
	b.open(3)
	if b.forgetful() {
		return
	}
	events := eventsOf(3000, "x", "")
	at := b.store(events...)
	at = append(at, b.store(event("single", "k"))...)
	events = append(events, event("single", "k"))
	drv := b.open(3)
	results, err := drv.Publish(b.ctx(), stream, events)
	if err != nil {
		t.Fatal(err)
	}
	survived := 0
	for i, r := range results {
		if r.Outcome == broker.OutcomeDuplicate {
			survived++
			wantDuplicate(t, r, at[i])
			if known, ok := drv.Known(stream, events[i].Source, events[i].ID); !ok || known != at[i] {
				t.Fatalf("Known says %s, %v; stored at %s", known, ok, at[i])
			}
		}
	}
	if claims := drv.Caps().DedupeSurvivesRestart; claims != (survived == len(events)) {
		t.Errorf("%d of %d ids survived the restart; Caps claims %v", survived, len(events), claims)
	}
}

// A subscription that nobody reads from holds its buffer and no more, however
// much is stored behind it.
func slowReader(t *testing.T, b *bench) {
	drv := b.open(2)
	if b.forgetful() {
		return
	}
	for range 3 {
		b.subscribe(broker.SubscribeSpec{Buffer: 32})
	}
	half := b.subscribe(broker.SubscribeSpec{Buffer: 32})
	const (
		calls, each, size = 48, 64, 16 << 10 // 48 MiB in all
		bound             = 24 << 20
	)
	data := make([]byte, size)
	var before, after runtime.MemStats
	publish := func(n int) {
		events := eventsOf(each, fmt.Sprintf("slow-%d", n), "")
		for _, e := range events {
			e.Data = data
		}
		if results, err := drv.Publish(b.ctx(), stream, events); err != nil || results[each-1].Outcome != broker.OutcomeStored {
			t.Fatalf("publish: %v, %v", results, err)
		}
	}
	publish(-1)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range calls {
		publish(n)
	}
	half.receive(32)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > bound {
		t.Errorf("heap grew by %d MiB while %d MiB were stored behind slow readers, bound %d MiB", grown>>20, calls*each*size>>20, bound>>20)
	}
}

// testCaps checks claims that no other test does.
func testCaps(t *testing.T, h Harness) {
	cases(t, h, map[string]func(*testing.T, *bench){
		"claims are plausible":          capsPlausible,
		"ids are remembered as claimed": capsDedupeIDs,
		"ids are forgotten as claimed":  capsDedupeWindow,
	})
}

func capsPlausible(t *testing.T, b *bench) {
	drv := b.open(1)
	c := drv.Caps()
	if c.Words == "" || c.MaxEventBytes < 64<<10 || c.DedupeIDs < 1 || c.DedupeWindow <= 0 {
		t.Errorf("caps %+v", c)
	}
	switch c.Durability {
	case broker.DurabilityMemory:
		if c.DedupeSurvivesRestart {
			t.Error("a driver that keeps nothing claims to remember ids")
		}
	case broker.DurabilityProcess, broker.DurabilityFsync, broker.DurabilityQuorum:
		if b.h.Child == nil {
			t.Errorf("durability %s is claimed, but the harness has no child to kill", c.Durability)
		}
	default:
		t.Errorf("durability %q", c.Durability)
	}
	if drv.Caps() != c {
		t.Error("caps changed between two calls")
	}
}

func capsDedupeIDs(t *testing.T, b *bench) {
	drv := b.openWith(Options{DedupeIDs: 2000}, broker.StreamSpec{Name: stream, Partitions: 3})
	n := drv.Caps().DedupeIDs
	if n != 2000 {
		t.Fatalf("Caps.DedupeIDs is %d, 2000 were asked for", n)
	}
	var at []headgate.Position
	for i := range 5 {
		at = append(at, b.store(eventsOf(n, fmt.Sprint(i), "")...)...)
	}
	for i := range n {
		if known, ok := drv.Known(stream, "/brokertest", fmt.Sprintf("4-%d", i)); !ok || known != at[4*n+i] {
			t.Fatalf("id %d of the last %d is known: %v", i, n, ok)
		}
	}
	if _, ok := drv.Known(stream, "/brokertest", "0-0"); ok {
		t.Errorf("the first of %d ids is still known: the claim of %d is far too low or memory has no bound", 5*n, n)
	}
}

func capsDedupeWindow(t *testing.T, b *bench) {
	var ahead atomic.Int64
	start := time.Now()
	now := func() time.Time { return start.Add(time.Duration(ahead.Load())) }
	drv := b.openWith(Options{DedupeWindow: time.Minute, Now: now}, broker.StreamSpec{Name: stream, Partitions: 1})
	if w := drv.Caps().DedupeWindow; w != time.Minute {
		t.Fatalf("Caps.DedupeWindow is %v, a minute was asked for", w)
	}
	first := b.store(event("x", "k"))[0]
	ahead.Store(int64(50 * time.Second))
	results, err := drv.Publish(b.ctx(), stream, []*headgate.Event{event("x", "k")})
	if err != nil {
		t.Fatal(err)
	}
	wantDuplicate(t, results[0], first)
	ahead.Store(int64(70 * time.Second))
	if _, ok := drv.Known(stream, "/brokertest", "x"); ok {
		t.Error("the id is known beyond the window")
	}
	if second := b.store(event("x", "k"))[0]; second.Offset != 1 {
		t.Errorf("stored again at %s, want offset 1", second)
	}
}
