package natsbroker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

// TestKeysKeepOrderOverFrames: a call of a key fills many frames, of which some
// are refused: a full partition, and callers who hand in the same.
func TestKeysKeepOrderOverFrames(t *testing.T) {
	ctx := context.Background()
	b := open(t, Config{Dir: t.TempDir(), FrameEvents: 3, FrameBytes: 40 << 10}, brokertest.Options{})
	defer b.Close(ctx)
	if _, err := b.Ensure(ctx, []broker.StreamSpec{{Name: "events", Partitions: 2, MaxBytes: 100 << 10}}); err != nil {
		t.Fatal(err)
	}
	brokertest.Order(t, b, "events", 3, 300, 1)
}

// TestKeysKeepOrderOverCutConnections: answers are lost in the middle of calls.
func TestKeysKeepOrderOverCutConnections(t *testing.T) {
	ctx := context.Background()
	p := newProxy(t, startListening(t))
	defer p.close()
	b := &cutting{Broker: open(t, Config{URL: p.url(), Prefix: prefixOf(t.Name()), FrameEvents: 3}, brokertest.Options{}), proxy: p}
	defer b.Close(ctx)
	if _, err := b.Ensure(ctx, []broker.StreamSpec{{Name: "events", Partitions: 2}}); err != nil {
		t.Fatal(err)
	}
	brokertest.Order(t, b, "events", 2, 300, 2)
	b.cuts.Wait()
}

// cutting loses its connection in some of its first calls.
type cutting struct {
	*Broker
	proxy *proxy
	calls atomic.Int32
	cuts  sync.WaitGroup
}

// Publish implements [broker.Publisher].
func (c *cutting) Publish(ctx context.Context, stream string, events []*headgate.Event) ([]broker.Result, error) {
	if n := c.calls.Add(1); n < 20 && n%4 == 0 {
		c.cuts.Go(c.proxy.cut)
	}
	return c.Broker.Publish(ctx, stream, events)
}
