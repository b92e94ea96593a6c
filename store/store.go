package store

import "context"

// Store runs transactions. Implementations are safe for concurrent use.
type Store interface {
	// Update runs fn in a read-write transaction and returns once it is
	// durable. An error from fn rolls its writes back and comes back as is.
	// Cancelling ctx before fn was started abandons it; afterwards the result
	// is waited for.
	Update(ctx context.Context, fn func(context.Context, *Tx) error) error
	// View runs fn in a read-only snapshot. It never waits for writers.
	View(ctx context.Context, fn func(context.Context, *Tx) error) error
	// Info describes the store for an operator.
	Info() Info
	// Close waits for running transactions and releases the store.
	Close() error
}

// Info describes a store for headgate doctor.
type Info struct {
	Driver string // "sqlite", …
	// Durable is false where a nil error from Update does not survive power
	// loss of the host.
	Durable bool
	// Words is one sentence about durability.
	Words string
	// Shared: several nodes may have the store open at once.
	Shared bool
	// Place is where the store is, in letters, digits and "_", as far as a copy
	// of it elsewhere, which has the same identity, would have another: the
	// server and the database. It stays with a physical standby that takes over.
	// Empty: it cannot be told.
	Place string
	// Schema is the version of the tables.
	Schema int
}

// Tx gives the roles of one transaction. It is valid only within the function
// that received it, on one goroutine.
type Tx struct {
	Settings      Settings
	Contracts     Contracts
	Principals    Principals
	Subscriptions Subscriptions
	Deliveries    Deliveries
	Outbox        Outbox
	Quarantine    Quarantine
	Gas           Gas
	Index         Index
	Leases        Leases
	Registry      Registry
}
