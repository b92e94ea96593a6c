package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/store"
)

// Drivers are the drivers that a build offers, by the names that the
// configuration uses.
type Drivers struct {
	Stores  map[string]func(context.Context, StoreOptions) (store.Store, error)
	Brokers map[string]func(context.Context, BrokerOptions) (broker.Broker, error)
	// CheckStore and CheckBroker say by the same names, where a driver can tell,
	// why it would not open by its options alone. They reach nothing.
	CheckStore  map[string]func(StoreOptions) error
	CheckBroker map[string]func(BrokerOptions) error
	// Outboxes are sources of relays by the scheme of their URL. They connect
	// when the relay runs.
	Outboxes map[string]func(OutboxOptions) (relay.Source, error)
	// Seals are databases and services that know of new leases, by the scheme
	// of their URL. They connect when they are sealed, and are closed with the
	// node.
	Seals map[string]func(SealOptions) (target lease.Target, close func(), err error)
}

// SealOptions are what a target of leases.seal is made with.
type SealOptions struct {
	URL    string // resolved
	Schema string // of the guard's functions; empty: the default
	Table  string // a fence table in place of the functions
	// Audience is whom tokens for a service are meant for.
	Audience string
}

// OutboxOptions are what the source of an outbox is made with.
type OutboxOptions struct {
	URL       string        // resolved
	Retain    time.Duration // 0: the driver's default
	WALBudget int64         // bytes; 0: the driver's default
	Log       *slog.Logger
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
	Prefix      string // of the names of its streams; empty: the driver's default
	Replicas    int
	Relaxed     bool // durability: relaxed
	// MaxEventBytes is the largest encoded event that some type allows.
	MaxEventBytes int
	Log           *slog.Logger
}
