package brokertest

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

func testKeep(t *testing.T, h Harness) {
	cases(t, h, map[string]func(*testing.T, *bench){
		"browse":                         browse,
		"stat":                           stat,
		"trim respects its offset":       trim,
		"trim of everything":             trimAll,
		"a reader behind a trim":         trimBehindReader,
		"ensure twice changes nothing":   ensureTwice,
		"ensure reports drift":           ensureDrift,
		"ensure refuses what is no name": ensureInvalid,
	})
}

// fill stores n events of one key in a mixture of batches and single events.
func (b *bench) fill(n int) {
	b.t.Helper()
	for at := 0; at < n; {
		size := min([]int{1, 300, 1, 1, 2000, 7}[at%6], n-at)
		b.store(eventsOf(size, fmt.Sprintf("fill-%d", at), "k")...)
		at += size
	}
}

func browse(t *testing.T, b *bench) {
	drv := b.open(1)
	if got, err := drv.Browse(b.ctx(), stream, headgate.Position{}, 10); err != nil || len(got) != 0 {
		t.Errorf("an empty partition holds %d events, %v", len(got), err)
	}
	b.fill(2500)
	for _, c := range []struct {
		from  uint64
		limit int
		want  int
	}{{0, 1, 1}, {0, 0, 0}, {1, 400, 400}, {299, 5, 5}, {1234, 1000, 1000}, {2499, 10, 1}, {2500, 10, 0}, {1 << 40, 10, 0}} {
		got, err := drv.Browse(b.ctx(), stream, headgate.Position{Offset: c.from}, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		// Fewer than the limit is allowed, nothing is not.
		if len(got) > c.limit || (len(got) == 0) != (c.want == 0) {
			t.Errorf("browse from %d, limit %d: %d events", c.from, c.limit, len(got))
		}
		for i, s := range got {
			if s.Position.Offset != c.from+uint64(i) {
				t.Fatalf("browse from %d: event %d is at %s", c.from, i, s.Position)
			}
		}
	}
}

func stat(t *testing.T, b *bench) {
	drv := b.open(3)
	b.store(eventsOf(10, "x", keyFor(1, 3))...)
	stats, err := drv.Stat(b.ctx(), stream)
	if err != nil || len(stats) != 3 {
		t.Fatalf("stat: %d partitions, %v", len(stats), err)
	}
	for i, st := range stats {
		want := uint64(0)
		if i == 1 {
			want = 10
		}
		if st.Partition != uint32(i) || st.First != 0 || st.Next != want {
			t.Errorf("partition %d: %+v", i, st)
		}
		if (st.Bytes > 0) != (i == 1) || st.FirstTime.IsZero() != (i != 1) {
			t.Errorf("partition %d: %d bytes, first stored %v", i, st.Bytes, st.FirstTime)
		}
	}
}

func trim(t *testing.T, b *bench) {
	drv := b.open(1)
	b.fill(2500)
	first := uint64(0)
	for _, below := range []uint64{0, 1, 2, 299, 300, 301, 1000, 900, 2400, 2499} {
		if err := drv.Trim(b.ctx(), stream, 0, below); err != nil {
			t.Fatal(err)
		}
		stats, err := drv.Stat(b.ctx(), stream)
		if err != nil {
			t.Fatal(err)
		}
		st := stats[0]
		if st.First > max(below, first) || st.Next != 2500 || st.First < first {
			t.Fatalf("after a trim below %d: kept %d to %d", below, st.First, st.Next)
		}
		first = st.First
		got, err := drv.Browse(b.ctx(), stream, headgate.Position{}, 1)
		if err != nil || len(got) != 1 || got[0].Position.Offset != first {
			t.Fatalf("after a trim below %d browse starts with %v, %v; want %d", below, got, err, first)
		}
	}
	if first == 0 {
		t.Error("ten trims removed nothing")
	}
	b.stored()
}

func trimAll(t *testing.T, b *bench) {
	drv := b.open(1)
	b.fill(700)
	if err := drv.Trim(b.ctx(), stream, 0, 1<<50); err != nil {
		t.Fatal(err)
	}
	if drv.Caps().Durability != broker.DurabilityMemory {
		drv = b.open(1)
	}
	if at := b.store(event("after", "k")); at[0].Offset != 700 {
		t.Errorf("after a trim of everything stored at %s, want offset 700", at[0])
	}
	if stats, err := drv.Stat(b.ctx(), stream); err != nil || stats[0].Next != 701 {
		t.Errorf("stat %+v, %v", stats, err)
	}
	b.stored()
}

func trimBehindReader(t *testing.T, b *bench) {
	drv := b.open(1)
	b.fill(2500)
	if err := drv.Trim(b.ctx(), stream, 0, 2000); err != nil {
		t.Fatal(err)
	}
	stats, err := drv.Stat(b.ctx(), stream)
	if err != nil {
		t.Fatal(err)
	}
	r := b.subscribe(broker.SubscribeSpec{From: map[uint32]uint64{0: 10}})
	if d := r.receive(1)[0]; d.Position.Offset != stats[0].First {
		t.Errorf("a reader from 10 starts at %s, the first kept is %d", d.Position, stats[0].First)
	}
}

func ensureTwice(t *testing.T, b *bench) {
	specs := []broker.StreamSpec{{Name: stream}, {Name: "other-1_a", Partitions: 2, MaxBytes: 1 << 20}}
	drv := b.openWith(Options{}, specs...)
	at := b.store(event("x", "k"))
	drift, err := drv.Ensure(b.ctx(), specs)
	if err != nil || len(drift) != 0 {
		t.Errorf("second ensure: %+v, %v", drift, err)
	}
	if stats, err := drv.Stat(b.ctx(), stream); err != nil || len(stats) != broker.DefaultPartitions {
		t.Errorf("%d partitions by default, %v", len(stats), err)
	}
	if got := b.stored()[at[0].Partition]; len(got) != 1 {
		t.Errorf("%d events after the second ensure", len(got))
	}
}

func ensureDrift(t *testing.T, b *bench) {
	drv := b.openWith(Options{}, broker.StreamSpec{Name: stream, Partitions: 2, MaxBytes: 1 << 20})
	drift, err := drv.Ensure(b.ctx(), []broker.StreamSpec{{Name: stream, Partitions: 3, MaxBytes: 2 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]broker.Drift{}
	for _, d := range drift {
		seen[d.Setting] = d
		if d.Stream != stream {
			t.Errorf("drift %+v names another stream", d)
		}
	}
	if d := seen["partitions"]; d.Want != "3" || d.Have != "2" || !d.Unsafe {
		t.Errorf("drift of partitions: %+v", d)
	}
	if d := seen["max_bytes"]; d.Want != "2097152" || d.Have != "1048576" {
		t.Errorf("drift of max_bytes: %+v", d)
	}
	if stats, err := drv.Stat(b.ctx(), stream); err != nil || len(stats) != 2 {
		t.Errorf("the stream was altered: %d partitions, %v", len(stats), err)
	}
}

func ensureInvalid(t *testing.T, b *bench) {
	drv := b.open(1)
	for _, spec := range []broker.StreamSpec{
		{},
		{Name: "a.b"},
		{Name: "A"},
		{Name: "a b"},
		{Name: "a>"},
		{Name: "*"},
		{Name: "ü"},
		{Name: "../a"},
		{Name: string(make([]byte, 1<<16))},
		{Name: "ok", Partitions: -1},
		{Name: "ok", Partitions: 1 << 20},
		{Name: "ok", MaxBytes: -1},
	} {
		_, err := drv.Ensure(b.ctx(), []broker.StreamSpec{spec})
		wantCode(t, fmt.Sprintf("ensure %.20q", spec.Name), err, headgate.CodeInvalidArgument)
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("an error of %d bytes echoes the name", len(err.Error()))
		}
	}
}
