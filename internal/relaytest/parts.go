package relaytest

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

// OrderSchema is the contract of order.placed and order.paid.
const OrderSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"required":["n"],"properties":{"n":{"type":"integer"},"k":{"type":"integer"},"order":{"type":"string"},"pad":{"type":"string"}}}`

// Partitions is how many the stream has.
const Partitions = 2

// parts are a node's inside.
type parts struct {
	Store      store.Store
	Broker     broker.Broker
	Causal     *causal.Engine
	Quarantine *quarantine.Quarantine
	Door       *perimeter.Perimeter
}

// assemble makes the parts over a store and a broker. now is the clock of the
// causal engine.
func assemble(ctx context.Context, st store.Store, br broker.Broker, now func() time.Time) (*parts, error) {
	p := &parts{Store: st, Broker: br}
	top, err := topology.New(nil, nil, topology.Defaults{Gas: 1 << 20, Breadth: topology.MaxBreadth})
	if err != nil {
		return nil, err
	}
	if _, err := br.Ensure(ctx, []broker.StreamSpec{{Name: topology.DefaultStream, Partitions: Partitions}}); err != nil {
		return nil, err
	}
	reg, err := registry.Open(ctx, registry.Config{Store: st})
	if err != nil {
		return nil, err
	}
	for subject, schema := range map[string]string{
		"order.placed": OrderSchema, "order.paid": OrderSchema,
		"orders.inserted": `{"type":"object"}`, "orders.updated": `{"type":"object"}`, "orders.deleted": `{"type":"object"}`,
	} {
		if _, err := reg.Register(ctx, subject, "", []byte(schema), "admin"); err != nil {
			return nil, err
		}
	}
	if p.Quarantine, err = quarantine.Open(ctx, quarantine.Config{Store: st}); err != nil {
		return nil, err
	}
	if p.Causal, err = causal.Open(ctx, causal.Config{Store: st, Now: now, RootRate: freely}); err != nil {
		return nil, err
	}
	p.Door, err = perimeter.New(perimeter.Config{Broker: br, Contracts: reg, Causal: p.Causal, Quarantine: p.Quarantine, Topology: top})
	return p, err
}

// freely is a rate that no test meets by accident.
var freely = headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6}

// orders is who writes the outbox.
func orders() *headgate.Principal {
	return &headgate.Principal{Name: "orders", Kind: headgate.KindSystem, Emit: []string{"order.*", "orders.*"}, Roots: freely}
}

// events returns all events of the stream, in the order of each partition.
func events(ctx context.Context, br broker.Broker) ([]broker.Stored, error) {
	var all []broker.Stored
	for p := range uint32(Partitions) {
		from := headgate.Position{Partition: p}
		for {
			got, err := br.Browse(ctx, topology.DefaultStream, from, 1000)
			if err != nil {
				return nil, err
			}
			if len(got) == 0 {
				break
			}
			all = append(all, got...)
			from.Offset = got[len(got)-1].Position.Offset + 1
		}
	}
	return all, nil
}
