package node

import (
	"context"
	"log/slog"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store"
)

// Drivers are the drivers that a build offers, by the names that the
// configuration uses.
type Drivers struct {
	Stores  map[string]func(context.Context, StoreOptions) (store.Store, error)
	Brokers map[string]func(context.Context, BrokerOptions) (broker.Broker, error)
}

// StoreOptions are what a store driver is opened with.
type StoreOptions struct {
	Dir    string // folder of embedded files
	URL    string // of an outside database, resolved
	Memory bool
	// Relaxed gives up durability against power loss (durability: relaxed).
	Relaxed bool
	Log     *slog.Logger
}

// BrokerOptions are what a broker driver is opened with.
type BrokerOptions struct {
	Dir         string // folder of embedded files
	URL         string // of an outside server, resolved; empty: embedded
	Credentials string
	Replicas    int
	Relaxed     bool // durability: relaxed
	// MaxEventBytes is the largest encoded event that some type allows.
	MaxEventBytes int
	Log           *slog.Logger
}
