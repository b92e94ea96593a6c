package node

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// A node that is started again knows the names that senders guessed wrong.
func TestGuessesOutliveTheNode(t *testing.T) {
	dir := t.TempDir()
	drivers := Drivers{
		Stores: map[string]func(context.Context, StoreOptions) (store.Store, error){
			"sqlite": func(ctx context.Context, _ StoreOptions) (store.Store, error) {
				return sqlitestore.Open(ctx, sqlitestore.Config{Path: filepath.Join(dir, "db")})
			},
		},
		Brokers: map[string]func(context.Context, BrokerOptions) (broker.Broker, error){
			"memory": func(context.Context, BrokerOptions) (broker.Broker, error) {
				return membroker.New(membroker.Config{}), nil
			},
		},
	}
	for run := range 2 {
		cfg, problems := Parse([]byte("listen: 127.0.0.1:0\n"))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		cfg.Dev, cfg.Memory, cfg.Data = true, true, t.TempDir()
		n, err := Open(t.Context(), cfg, Options{Drivers: drivers})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.guesses.Of("a.b"); len(got) != run {
			t.Errorf("run %d begins with %+v", run, got)
		}
		ln, err := n.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n.guesses.Add(&headgate.Verdict{
			Contract:   headgate.ContractRef{Subject: "a.b"},
			Violations: []headgate.Violation{{Code: headgate.ViolationUnknownProperty, At: "/guessed"}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx, ln) }()
		<-n.Router.Started()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
