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

// TestOneStoreOwnsTheStreams: of nodes that start at once on one server, one
// gets the streams, and what it has another only takes by adopting.
func TestOneStoreOwnsTheStreams(t *testing.T) {
	ctx := context.Background()
	url := startListening(t)
	for round := range 5 {
		var nodes [4]*Broker
		for i := range nodes {
			nodes[i] = open(t, Config{URL: url, Prefix: prefixOf(fmt.Sprint(t.Name(), round))}, brokertest.Options{})
			defer nodes[i].Close(ctx)
		}
		var errs [4]error
		var all sync.WaitGroup
		for i := range nodes {
			all.Go(func() { _, errs[i] = nodes[i].Own(ctx, fmt.Sprint("store-", i), "") })
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: %d and %d own the streams", round, winner, i)
			case err == nil:
				winner = i
			case headgate.CodeOf(err) != headgate.CodeStreamsForeign:
				t.Fatal(err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody owns the streams: %v", round, errs)
		}
		other := (winner + 1) % len(nodes)
		if _, err := nodes[other].Own(ctx, "adopter", fmt.Sprint("store-", winner)); err != nil {
			t.Fatal(err)
		}
		if o, err := nodes[winner].Own(ctx, fmt.Sprint("store-", winner), ""); headgate.CodeOf(err) != headgate.CodeStreamsForeign || o.Owner != "adopter" {
			t.Errorf("the owner before is told %+v, %v", o, err)
		}
	}
}

// TestDamagedOwnerRefuses: a record that cannot be read lets nobody pass, until
// somebody adopts the streams.
func TestDamagedOwnerRefuses(t *testing.T) {
	ctx := context.Background()
	b := open(t, Config{Dir: t.TempDir()}, brokertest.Options{})
	defer b.Close(ctx)
	if _, err := b.Own(ctx, "mine", ""); err != nil {
		t.Fatal(err)
	}
	for _, damage := range []string{"", "{", `{"owner":"a b"}`, `{"owner":""}`, `{"owner":"mine","since":"yesterday"}`} {
		if _, err := b.js.Publish(ctx, b.ownerName(), []byte(damage)); err != nil {
			t.Fatal(err)
		}
		if o, err := b.Own(ctx, "", ""); err != nil || o.Owner != broker.Unreadable {
			t.Errorf("%q is read as %+v, %v", damage, o, err)
		}
		for _, from := range []string{"", "mine", "other"} {
			if o, err := b.Own(ctx, "mine", from); headgate.CodeOf(err) != headgate.CodeStreamsForeign {
				t.Errorf("behind %q: %+v, %v", damage, o, err)
			}
		}
		if o, err := b.Own(ctx, "mine", broker.Unreadable); err != nil || o.Owner != "mine" {
			t.Errorf("adopting behind %q: %+v, %v", damage, o, err)
		}
	}
}
