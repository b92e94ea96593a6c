package node

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// TestDriverFails opens a node whose drivers fail the way that drivers written
// as "return x.Open(…)" do: with a nil pointer inside of the interface.
func TestDriverFails(t *testing.T) {
	broken := errors.New("the driver failed")
	stores := func(fail bool) map[string]func(context.Context, StoreOptions) (store.Store, error) {
		return map[string]func(context.Context, StoreOptions) (store.Store, error){
			"sqlite": func(ctx context.Context, _ StoreOptions) (store.Store, error) {
				if fail {
					var none *sqlitestore.Store
					return none, broken
				}
				return sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
			},
		}
	}
	brokers := map[string]func(context.Context, BrokerOptions) (broker.Broker, error){
		"memory": func(context.Context, BrokerOptions) (broker.Broker, error) {
			var none *membroker.Broker
			return none, broken
		},
	}
	for name, failing := range map[string]bool{"store": true, "broker": false} {
		t.Run(name, func(t *testing.T) {
			cfg, problems := Parse(nil)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			cfg.Dev, cfg.Memory, cfg.Data = true, true, t.TempDir()
			_, err := Open(t.Context(), cfg, Options{Drivers: Drivers{Stores: stores(failing), Brokers: brokers}})
			if !errors.Is(err, broken) {
				t.Errorf("error %v, want that of the driver", err)
			}
		})
	}
}

// The configuration that the README shows is one that a node takes.
func TestReadmeConfiguration(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```yaml\n")
	text, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the README shows no configuration")
	}
	cfg, problems := Parse([]byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(cfg.Principals) == 0 || cfg.Principals[0].Roles == nil {
		t.Error("the README's node has no operator: nobody could ask it anything")
	}
}
