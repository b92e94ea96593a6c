package node

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
)

// TestReadyzFollowsTheDatabase: while the database of the node is away /readyz
// says so, soon and without saying where it is; afterwards the node is ready by
// itself.
func TestReadyzFollowsTheDatabase(t *testing.T) {
	server := pgtest.Start(t)
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	drivers := Drivers{
		Stores: map[string]func(context.Context, StoreOptions) (store.Store, error){
			"postgres": func(ctx context.Context, o StoreOptions) (store.Store, error) {
				return pgstore.Open(ctx, pgstore.Config{URL: o.URL, Logger: o.Log})
			},
		},
		Brokers: map[string]func(context.Context, BrokerOptions) (broker.Broker, error){
			"nats": func(context.Context, BrokerOptions) (broker.Broker, error) {
				return membroker.New(membroker.Config{}), nil
			},
		},
	}
	cfg, problems := Parse([]byte("store: {driver: postgres, url: '" + server.URL() + "'}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	cfg.Data, cfg.Listen = t.TempDir(), "127.0.0.1:0"
	n, err := Open(t.Context(), cfg, Options{Drivers: drivers})
	if err != nil {
		t.Fatal(err)
	}
	address, stop := running(t, n)
	defer stop()
	ready := func() (int, string) {
		began := time.Now()
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Second { // 1 s where nothing else runs
			t.Errorf("a probe took %v", took)
		}
		return resp.StatusCode, string(b)
	}
	until := func(want int) string {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; {
			got, body := ready()
			if got == want {
				return body
			}
			if time.Now().After(end) {
				t.Fatalf("/readyz stays at %d: %s", got, body)
			}
		}
	}
	<-n.Router.Started()
	until(http.StatusOK)
	server.Crash()
	body := until(http.StatusServiceUnavailable)
	if !strings.Contains(body, "store") {
		t.Errorf("it does not say what is down: %s", body)
	}
	for _, hidden := range []string{at.Hostname(), at.Port()} {
		if strings.Contains(body, hidden) {
			t.Errorf("it says %q: %s", hidden, body)
		}
	}
	server.Restart()
	until(http.StatusOK)
}
