// Command embedded runs a node inside a program: it publishes one event and
// handles it in the same process. Everything is in memory; leave Memory out
// and set Data to keep it.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/node"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

func main() {
	if err := run(context.Background()); err != nil {
		slog.Error("embedded node", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	dir, err := os.MkdirTemp("", "headgate-embedded-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cfg, _ := node.Parse(nil) // every setting at its default
	cfg.Dev, cfg.Memory, cfg.Data, cfg.Listen = true, true, dir, "127.0.0.1:0"
	n, err := node.Open(ctx, cfg, node.Options{Drivers: drivers()})
	if err != nil {
		return err
	}
	me := &headgate.Principal{
		Name: "program", Kind: headgate.KindSystem, Emit: []string{"ticket.*"}, Listen: []string{"ticket.*"},
		Roots: headgate.RootRight{Allowed: true, Rate: 100},
	}
	if err := n.Principals.Put(ctx, *me, "api"); err != nil {
		return err
	}
	if _, err := n.Router.Put(ctx, me, "triage", router.Spec{Types: []string{"ticket.opened"}, Deliver: router.Deliver{Handler: &router.Handler{}}}, "api"); err != nil {
		return err
	}
	err = n.Router.Handle("triage", func(_ context.Context, d *router.Delivery, _ *router.Emitter) error {
		fmt.Printf("handled %s %s: %s\n", d.Event.Type, d.Event.ID, d.Event.Data)
		stop()
		return nil
	})
	if err != nil {
		return err
	}
	ln, err := n.Listen(ctx)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx, ln) }()
	<-n.Router.Started()
	results := n.Perimeter.Admit(ctx, perimeter.Submission{Principal: me, Door: "program", Items: []perimeter.Item{
		{Event: &headgate.Event{ID: "T-1", Type: "ticket.opened", Data: []byte(`{"ticket_id":"T-1"}`)}},
	}})
	if refused := results[0].Err; refused != nil {
		stop()
		<-done
		return refused
	}
	return <-done
}

func drivers() node.Drivers {
	return node.Drivers{
		Stores: map[string]func(context.Context, node.StoreOptions) (store.Store, error){
			"sqlite": func(ctx context.Context, _ node.StoreOptions) (store.Store, error) {
				return sqlitestore.Open(ctx, sqlitestore.Config{Memory: true})
			},
		},
		Brokers: map[string]func(context.Context, node.BrokerOptions) (broker.Broker, error){
			"memory": func(context.Context, node.BrokerOptions) (broker.Broker, error) {
				return membroker.New(membroker.Config{}), nil
			},
		},
	}
}
