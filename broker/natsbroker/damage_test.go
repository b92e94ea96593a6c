package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
	"github.com/headgate/headgate/internal/eventcodec"
)

// damaged is an open driver with one partition, and what it reported.
type damaged struct {
	t       *testing.T
	dir     string
	b       *Broker
	reports chan Damage
	probe   func(string) error // nil: the driver's own
}

func newDamaged(t *testing.T) *damaged {
	d := &damaged{t: t, dir: t.TempDir(), reports: make(chan Damage, 1000)}
	d.open()
	t.Cleanup(func() { d.close() })
	return d
}

func (d *damaged) open() {
	d.t.Helper()
	d.b = open(d.t, Config{Dir: d.dir, probe: d.probe, Damaged: func(x Damage) { d.reports <- x }}, brokertest.Options{})
	if _, err := d.b.Ensure(context.Background(), []broker.StreamSpec{{Name: "s", Partitions: 1}}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) close() {
	if err := d.b.Close(context.Background()); err != nil {
		d.t.Error(err)
	}
}

// store publishes one frame of n events.
func (d *damaged) store(prefix string, n int) []headgate.Position {
	d.t.Helper()
	var events []*headgate.Event
	for i := range n {
		events = append(events, &headgate.Event{ID: fmt.Sprintf("%s-%d", prefix, i), Source: "/s", Type: "t"})
	}
	results, err := d.b.Publish(context.Background(), "s", events)
	if err != nil {
		d.t.Fatal(err)
	}
	var at []headgate.Position
	for _, r := range results {
		if r.Outcome != broker.OutcomeStored {
			d.t.Fatalf("%s: %v", r.Outcome, r.Err)
		}
		at = append(at, r.Position)
	}
	return at
}

// inject puts a message into the partition behind the driver's back.
func (d *damaged) inject(data []byte) {
	d.t.Helper()
	msg, err := d.b.nc.RequestMsg(&nats.Msg{Subject: d.b.subject("s", 0), Data: data}, 10*time.Second)
	if err != nil {
		d.t.Fatal(err)
	}
	if len(msg.Data) == 0 {
		d.t.Fatal("no acknowledgement")
	}
}

// claim is a frame that says it holds n events from the base on.
func claim(base uint64, n int, writer uint64) []byte {
	rec := eventcodec.Append(nil, &headgate.Event{ID: "injected", Source: "/s", Type: "t"})
	ids, recs := make([]digest, n), make([][]byte, n)
	for i := range recs {
		recs[i], ids[i] = rec, digestOf("/s", fmt.Sprintf("injected-%d-%d", base, i))
	}
	h := header{base: base, count: uint32(n), body: uint32(n * len(rec)), time: time.Now(), writer: writer, serial: 1}
	return appendFrame(nil, h, ids, recs)
}

func (d *damaged) read(from uint64) (positions []uint64, gaps []*broker.GapError) {
	d.t.Helper()
	sub, err := d.b.Subscribe(context.Background(), broker.SubscribeSpec{Stream: "s", From: map[uint32]uint64{0: from}})
	if err != nil {
		d.t.Fatal(err)
	}
	defer sub.Close()
	stats, err := d.b.Stat(context.Background(), "s")
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for next := from; next < stats[0].Next; {
		ds, err := sub.Receive(ctx, 100)
		var gap *broker.GapError
		switch {
		case errors.As(err, &gap):
			gaps = append(gaps, gap)
		case err != nil:
			d.t.Fatalf("receive at %d of %d: %v", next, stats[0].Next, err)
		}
		for _, x := range ds {
			positions = append(positions, x.Position.Offset)
			next = x.Position.Offset + 1
		}
	}
	return positions, gaps
}

// A frame whose bytes changed is reported and skipped alone: what was before
// and behind it arrives, the gap is named, and its offsets stay empty.
func TestDamagedFrameIsReportedAndSkipped(t *testing.T) {
	d := newDamaged(t)
	d.store("a", 3)
	bad := claim(3, 4, 1)
	bad[len(bad)-1] ^= 1
	d.inject(bad)
	d.close()
	d.open()
	if at := d.store("b", 2); at[0].Offset != 7 {
		t.Fatalf("stored at %d; offsets 3 to 6 belong to the damaged frame", at[0].Offset)
	}
	positions, gaps := d.read(0)
	if fmt.Sprint(positions) != "[0 1 2 7 8]" {
		t.Errorf("received offsets %v", positions)
	}
	if len(gaps) != 1 || gaps[0].From != 3 || gaps[0].To != 7 || gaps[0].Stream != "s" || !errors.Is(gaps[0], errFrame) {
		t.Errorf("gaps %v", gaps)
	}
	if d.b.DamagedFrames() == 0 || len(d.reports) == 0 {
		t.Error("nothing was reported")
	}
	if r := <-d.reports; r.Stream != "s" || r.Sequence != 2 || !errors.Is(r.Err, errFrame) {
		t.Errorf("report %+v", r)
	}
	got, err := d.b.Browse(context.Background(), "s", headgate.Position{Offset: 4}, 10)
	if err != nil || len(got) == 0 || got[0].Position.Offset != 7 {
		t.Errorf("browse into the gap: %v, %v", got, err)
	}
}

// What somebody else wrote into the partition takes no offsets.
func TestForeignMessagesTakeNoOffsets(t *testing.T) {
	d := newDamaged(t)
	d.store("a", 2)
	d.inject([]byte("not a frame"))
	d.inject(nil)
	// The writer finds its sequence taken, looks, and goes on behind.
	if at := d.store("b", 2); at[0].Offset != 2 {
		t.Fatalf("stored at %d, want 2", at[0].Offset)
	}
	positions, gaps := d.read(0)
	if fmt.Sprint(positions) != "[0 1 2 3]" || len(gaps) != 0 {
		t.Errorf("received %v, gaps %v", positions, gaps)
	}
	if d.b.DamagedFrames() < 2 {
		t.Errorf("%d damaged messages counted, want 2 at least", d.b.DamagedFrames())
	}
}

// Another writer's frames are taken into account: offsets go on behind them,
// and their ids are known.
func TestSecondWriterIsNoticed(t *testing.T) {
	d := newDamaged(t)
	d.store("a", 2)
	d.inject(claim(2, 3, 99))
	if at := d.store("b", 1); at[0].Offset != 5 {
		t.Fatalf("stored at %d, want 5", at[0].Offset)
	}
	if at, ok := d.b.Known("s", "/s", "injected-2-1"); !ok || at.Offset != 3 {
		t.Errorf("the other writer's id is known: %v, at %s", ok, at)
	}
	positions, gaps := d.read(1)
	if fmt.Sprint(positions) != "[1 2 3 4 5]" || len(gaps) != 0 {
		t.Errorf("received %v, gaps %v", positions, gaps)
	}
}

// An event that cannot be decoded behind a good checksum is a gap as well.
func TestUndecodableEventIsAGap(t *testing.T) {
	d := newDamaged(t)
	d.store("a", 1)
	rec := []byte{9, 9, 9}
	h := header{base: 1, count: 1, body: uint32(len(rec)), time: time.Now(), writer: 99, serial: 1}
	d.inject(appendFrame(nil, h, []digest{{}}, [][]byte{rec}))
	d.store("b", 1)
	positions, gaps := d.read(0)
	if fmt.Sprint(positions) != "[0 2]" || len(gaps) != 1 || gaps[0].From != 1 || gaps[0].To != 2 {
		t.Errorf("received %v, gaps %v", positions, gaps)
	}
}
