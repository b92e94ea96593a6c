package node

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/lease"
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
	if err := n.mayGrant(); headgate.CodeOf(err) != headgate.CodeUnavailable {
		t.Errorf("a node whose streams are another store's may grant leases: %v", err)
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

// TestOwnersAreCompared: the identity and the place count, a run does not, and
// what is not said is no difference.
func TestOwnersAreCompared(t *testing.T) {
	for _, c := range []struct {
		a, b       string
		same, copy bool
	}{
		{"id", "id", true, false},
		{"id-run1", "id-run2", true, false},
		{"id_1_2-run", "id_1_2", true, false},
		{"id_1_2", "id", true, false},
		{"id-run", "id_1_2", true, false},
		{"id_1_2", "id_1_3", false, true},
		{"id_1_2-run", "id_7_2-run", false, true},
		{"id_1_2", "ie_1_2", false, false},
		{"id", "ide", false, false},
		{"", "id", false, false},
	} {
		if same, copied := sameStore(c.a, c.b), copies(c.a, c.b); same != c.same || copied != c.copy {
			t.Errorf("%q and %q: same %t, copies %t", c.a, c.b, same, copied)
		}
	}
}

// silent is a broker that may not say whose its streams are.
type silent struct {
	shared
	quiet atomic.Bool
}

func (s *silent) Own(ctx context.Context, owner, from string) (broker.Ownership, error) {
	if s.quiet.Load() {
		return broker.Ownership{}, headgate.NewError(headgate.CodeUnavailable, "away")
	}
	return s.shared.Own(ctx, owner, from)
}

// TestSilentBrokerStopsGrants: while nobody has said for longer than a lease
// lasts whose the streams are, no lease is granted; those that stand go on.
func TestSilentBrokerStopsGrants(t *testing.T) {
	b := &silent{shared: shared{membroker.New(membroker.Config{})}}
	defer b.Broker.Close(context.Background())
	n, err := ownerNode(t, b)
	if err != nil {
		t.Fatal(err)
	}
	_, stop := running(t, n)
	defer stop()
	<-n.Router.Started()
	p := &headgate.Principal{Name: "p", Kind: headgate.KindAgent, Lease: []string{"*"}}
	acquire := func(resource, id string) (lease.Grant, error) {
		got, err := n.Leases.Acquire(t.Context(), p, lease.Request{Resources: []string{resource}, TTL: time.Minute, RequestID: id})
		if err != nil {
			return lease.Grant{}, err
		}
		return got[0], nil
	}
	held, err := acquire("r/1", "one")
	if err != nil {
		t.Fatal(err)
	}
	b.quiet.Store(true)
	if _, err := acquire("r/2", ""); err != nil {
		t.Errorf("at the beginning of the silence: %v", err)
	}
	old := time.Now().Add(-ownStale - time.Second)
	for late := true; ; late = false { // one answer may be under way since before the silence
		n.owned.checked.Store(&old)
		g, err := acquire("r/3", "")
		if headgate.CodeOf(err) == headgate.CodeUnavailable {
			break
		}
		if !late || err != nil {
			t.Fatalf("after a long silence: %v", err)
		}
		if err := n.Leases.Release(t.Context(), p, "r/3", g.Token); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := acquire("r/1", "one"); err != nil || !again.Again {
		t.Errorf("a repeated request: %+v, %v", again, err)
	}
	renewed, err := n.Leases.Renew(t.Context(), p, "r/1", held.Token, 0)
	if err != nil {
		t.Errorf("a renewal: %v", err)
	}
	if err := n.Leases.Release(t.Context(), p, "r/1", renewed.Token); err != nil {
		t.Errorf("a release: %v", err)
	}
	b.quiet.Store(false)
	for end := time.Now().Add(time.Minute); ; {
		_, err := acquire("r/3", "")
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the broker is heard again: %v", err)
		}
	}
}
