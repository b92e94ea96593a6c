package natsbroker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

// TestSlowReaderIsNotTheServersFault: the bound of a read is for the server. A
// consumer that takes the messages of a batch longer than that still gets all
// of them, in order and once.
func TestSlowReaderIsNotTheServersFault(t *testing.T) {
	b := open(t, Config{Dir: t.TempDir()}, brokertest.Options{})
	defer b.Close(context.Background())
	ctx := t.Context()
	if _, err := b.Ensure(ctx, []broker.StreamSpec{{Name: "s", Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	const n = 12
	for i := range n {
		if _, err := b.Publish(ctx, "s", []*headgate.Event{{ID: fmt.Sprint(i), Source: "/s", Type: "t"}}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := b.fetcher()
	if err != nil {
		t.Fatal(err)
	}
	defer b.release(f)
	f.most = 100 * time.Millisecond
	defer func() { f.most = fetchTimeout }()
	var got []uint64
	err = f.batch(ctx, b.streamName("s", 0), 0, n, func(m message) bool {
		got = append(got, m.seq)
		if len(got)%4 == 0 {
			<-time.After(3 * f.most) // the consumer has no room
		}
		return true
	})
	if err != nil {
		t.Fatalf("after %d messages: %v", len(got), err)
	}
	if len(got) != n {
		t.Fatalf("%d messages, want %d", len(got), n)
	}
	for i, seq := range got {
		if seq != got[0]+uint64(i) {
			t.Fatalf("sequences %v", got)
		}
	}
}
