package node

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// sickly is a broker whose disk can fail, and be nearly full.
type sickly struct {
	*membroker.Broker
	failed, low atomic.Bool
}

func (s *sickly) Refuses() error {
	if s.low.Load() {
		return headgate.NewError(headgate.CodeDiskFull, "5 bytes are free")
	}
	return s.Healthy()
}

func (s *sickly) Healthy() error {
	if s.failed.Load() {
		return headgate.NewError(headgate.CodeNotDurable, "the disk failed")
	}
	return nil
}

// A node whose broker stores nothing any more says so, and one that cannot
// write its address down runs all the same.
func TestBrokerFailureIsSeen(t *testing.T) {
	b := &sickly{Broker: membroker.New(membroker.Config{})}
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
	// A folder in the way fails the write, as a full disk does.
	if err := os.MkdirAll(filepath.Join(cfg.Data, URLFile+".new", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), cfg, Options{Drivers: drivers})
	if err != nil {
		t.Fatal(err)
	}
	address, stop := running(t, n)
	defer stop()
	ready := func() int {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := ready(); got != http.StatusOK || len(n.findings(t.Context())) != 0 {
		t.Fatalf("ready %d, findings %v", got, n.findings(t.Context()))
	}
	b.low.Store(true)
	got := n.findings(t.Context())
	if ready() != http.StatusOK || len(got) != 1 || got[0].Severity != "error" || got[0].Fix == "" {
		t.Errorf("with a nearly full disk: ready %d, findings %v", ready(), got)
	}
	b.low.Store(false)
	b.failed.Store(true)
	got = n.findings(t.Context())
	if ready() != http.StatusServiceUnavailable || len(got) != 1 || got[0].Severity != "error" {
		t.Errorf("with a failed disk: ready %d, findings %v", ready(), got)
	}
}

// running runs a node until stop, which fails the test unless it ends well.
func running(t *testing.T, n *Node) (address string, stop func()) {
	t.Helper()
	ln, err := n.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx, ln) }()
	return ln.Addr().String(), func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
}
