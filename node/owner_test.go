package node

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// ownerNode opens a node with a store of its own on a broker that others share.
func ownerNode(t *testing.T, b broker.Broker) (*Node, error) {
	t.Helper()
	drivers := Drivers{
		Stores: map[string]func(context.Context, StoreOptions) (store.Store, error){
			"sqlite": func(ctx context.Context, _ StoreOptions) (store.Store, error) {
				return sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
			},
		},
		Brokers: map[string]func(context.Context, BrokerOptions) (broker.Broker, error){
			"memory": func(context.Context, BrokerOptions) (broker.Broker, error) { return b, nil },
		},
	}
	cfg, problems := Parse(nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	cfg.Dev, cfg.Memory, cfg.Data, cfg.Listen = true, true, t.TempDir(), "127.0.0.1:0"
	return Open(t.Context(), cfg, Options{Drivers: drivers})
}

// shared is a broker that outlives the nodes on it.
type shared struct{ *membroker.Broker }

func (shared) Close(context.Context) error { return nil }

// TestStreamsOfAnotherStoreEndTheNode: a node does not start on another store's
// streams, and one whose streams are adopted takes nothing more, drains, and
// says why.
func TestStreamsOfAnotherStoreEndTheNode(t *testing.T) {
	b := shared{membroker.New(membroker.Config{})}
	defer b.Broker.Close(context.Background())
	n, err := ownerNode(t, b)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ownerNode(t, b)
	if e := headgate.AsError(err); second != nil || e == nil || e.Code != headgate.CodeStreamsForeign || !strings.Contains(e.Detail, n.owned.store) {
		t.Fatalf("a second store's node: %v, %v", second, err)
	}
	ln, err := n.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Run(t.Context(), ln) }()
	<-n.Router.Started()
	if _, err := b.Own(t.Context(), "adopter", n.owned.owner); err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the node goes on")
	}
	if headgate.CodeOf(err) != headgate.CodeStreamsForeign || !strings.Contains(err.Error(), "adopter") {
		t.Errorf("the node ended with %v", err)
	}
	if _, err := http.Get("http://" + ln.Addr().String() + "/healthz"); err == nil {
		t.Error("the node that ended answers")
	}
}

// TestUnheardOwnerIsAFinding: doctor says when it could not be asked for long
// whose the streams are.
func TestUnheardOwnerIsAFinding(t *testing.T) {
	n := &Node{}
	for age, want := range map[time.Duration]int{0: 0, ownStale / 2: 0, 2 * ownStale: 1} {
		at := time.Now().Add(-age)
		n.owned.checked.Store(&at)
		if got := n.ownerFindings(); len(got) != want {
			t.Errorf("after %v: %+v", age, got)
		}
	}
}
