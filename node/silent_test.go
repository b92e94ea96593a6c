package node

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// hanging is a broker that is asked for its owner alone, and may not answer.
type hanging struct {
	broker.Broker
	hangs atomic.Bool
	asked atomic.Int32
}

func (h *hanging) Own(ctx context.Context, owner, _ string) (broker.Ownership, error) {
	h.asked.Add(1)
	if h.hangs.Load() {
		<-ctx.Done()
		return broker.Ownership{}, context.Cause(ctx)
	}
	return broker.Ownership{Owner: owner}, nil
}

// TestReadinessFollowsTheBroker: a broker that hangs makes the node unready within
// seconds, without a question of the probe's own, and one that answers again
// makes it ready.
func TestReadinessFollowsTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := strings.Repeat("a", 32)
		a, b := &answering{}, &hanging{}
		a.id.Store(id)
		n := &Node{Store: a, Broker: b}
		n.owned.store, n.owned.owner = id, id
		n.ready.on.Store(true)
		if err := n.checkOwner(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.keepStreams(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			n.look.wait()
		}()
		expect := func(what string, ready bool) {
			t.Helper()
			synctest.Wait() // the node's own question may be due at this moment
			before := b.asked.Load()
			err := n.checkReady(t.Context())
			if (err == nil) != ready || b.asked.Load() != before {
				t.Errorf("%s: %v, after %d questions", what, err, b.asked.Load()-before)
			}
			if err != nil && (headgate.CodeOf(err) != headgate.CodeUnavailable || !strings.Contains(err.Error(), "broker")) {
				t.Errorf("%s: %v", what, err)
			}
		}
		time.Sleep(time.Minute)
		expect("after a minute", true)
		b.hangs.Store(true)
		time.Sleep(ownEvery)
		expect("at the first question", true)
		time.Sleep(silence)
		expect("after three", false)
		b.hangs.Store(false)
		time.Sleep(ownPatience + ownEvery)
		expect("when it answers", true)
	})
}
