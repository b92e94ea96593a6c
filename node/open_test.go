package node

import (
	"context"
	"errors"
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
