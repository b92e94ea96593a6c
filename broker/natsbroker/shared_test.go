package natsbroker

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

// A node repeats, with many calls at once, what another node stored: also what
// waits in the queue while it learns of the other's events is known.
func TestAnotherNodesEventsAreKnown(t *testing.T) {
	ctx := context.Background()
	url := startListening(t)
	var nodes [2]*Broker
	for i := range nodes {
		nodes[i] = open(t, Config{URL: url, Prefix: prefixOf(t.Name())}, brokertest.Options{})
		defer nodes[i].Close(ctx)
		if _, err := nodes[i].Ensure(ctx, []broker.StreamSpec{{Name: "events", Partitions: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	const events = 400
	publish := func(b *Broker, n int) broker.Result {
		res, err := b.Publish(ctx, "events", []*headgate.Event{{ID: fmt.Sprint(n), Source: "/s", Type: "a.b", Key: fmt.Sprint(n % 7), Data: []byte("{}")}})
		if err != nil {
			t.Error(err)
			return broker.Result{}
		}
		return res[0]
	}
	for round := range 3 {
		var all sync.WaitGroup
		for node, want := range []broker.Outcome{broker.OutcomeStored, broker.OutcomeDuplicate} {
			for n := range events {
				all.Go(func() {
					if got := publish(nodes[(node+round)%2], round*events+n); got.Outcome != want {
						t.Errorf("round %d, node %d, event %d: %v, want %v", round, node, n, got.Outcome, want)
					}
				})
			}
			all.Wait()
		}
	}
}
