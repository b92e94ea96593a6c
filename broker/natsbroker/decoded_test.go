package natsbroker

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

// TestReadersShareEvents: readers that follow a partition together hand out the
// very same events, decoded once; one that begins in the midst of a frame gets
// the rest of it; and no more than the bound is kept.
func TestReadersShareEvents(t *testing.T) {
	b := open(t, Config{Dir: t.TempDir()}, brokertest.Options{})
	defer b.Close(context.Background())
	ctx := t.Context()
	if _, err := b.Ensure(ctx, []broker.StreamSpec{{Name: "s", Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	subscribe := func(from uint64) broker.Subscription {
		t.Helper()
		sub, err := b.Subscribe(ctx, broker.SubscribeSpec{Name: "test", Stream: "s", From: map[uint32]uint64{0: from}})
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	const frame = 40
	first, second, late := subscribe(0), subscribe(0), subscribe(frame/2)
	defer first.Close()
	defer second.Close()
	defer late.Close()
	for round := range 30 {
		events := make([]*headgate.Event, frame)
		for i := range events {
			events[i] = &headgate.Event{ID: fmt.Sprint(round, "-", i), Source: "/s", Type: "t", Data: make([]byte, 4000)}
		}
		results, err := b.Publish(ctx, "s", events)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Outcome != broker.OutcomeStored {
				t.Fatalf("round %d: %+v", round, r)
			}
		}
		one, two := receiveAll(ctx, t, first, frame), receiveAll(ctx, t, second, frame)
		skip := 0
		if round == 0 {
			skip = frame / 2
		}
		three := receiveAll(ctx, t, late, frame-skip)
		for i := range one {
			want := fmt.Sprint(round, "-", i)
			if one[i].Event.ID != want || one[i].Position.Offset != uint64(round*frame+i) {
				t.Fatalf("event %s at %s, want %s", one[i].Event.ID, one[i].Position, want)
			}
			if one[i].Event != two[i].Event {
				t.Fatalf("event %s was decoded for each reader", want)
			}
			if i >= skip && (three[i-skip].Event.ID != want || three[i-skip].Position != one[i].Position) {
				t.Fatalf("the late reader has %s, want %s", three[i-skip].Event.ID, want)
			}
		}
	}
	b.decoded.mu.Lock()
	defer b.decoded.mu.Unlock()
	sum := 0
	for _, f := range b.decoded.frames {
		sum += f.size
	}
	if sum != b.decoded.bytes || sum > decodedBytes || len(b.decoded.order) != len(b.decoded.frames) {
		t.Errorf("%d bytes of %d frames are kept, %d counted, %d in order", sum, len(b.decoded.frames), b.decoded.bytes, len(b.decoded.order))
	}
}

// receiveAll receives and acknowledges n events.
func receiveAll(ctx context.Context, t *testing.T, sub broker.Subscription, n int) []broker.Delivery {
	t.Helper()
	var all []broker.Delivery
	for len(all) < n {
		got, err := sub.Receive(ctx, n-len(all))
		if err != nil {
			t.Fatal(err)
		}
		acks := make([]broker.Settlement, len(got))
		for i, d := range got {
			acks[i] = broker.Settlement{Position: d.Position, Act: broker.Ack}
		}
		if err := sub.Settle(ctx, acks); err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}
