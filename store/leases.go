package store

import (
	"context"
	"errors"
	"time"
)

// ErrGuarded is wrapped by errors of Leases.Grant where a guarded write is in
// flight: the epoch cannot rise before that has ended.
var ErrGuarded = errors.New("store: a guarded write is in flight")

// Lease is the row of one resource that was ever leased. Rows are never
// deleted: a row that is gone could give an epoch twice.
type Lease struct {
	Resource string
	// Epoch rises with every grant and with every end of one. Together with
	// Resource it is the key that guards lock.
	Epoch int64
	// Nonce names this grant: 16 random bytes. Nil while nobody holds it.
	Nonce []byte
	// Holder is the principal that holds it; empty while nobody does.
	Holder string
	// Worker says which of the holder's workers, in its own words.
	Worker string
	// Request is the id of the call that was granted last.
	Request string
	// Audience are the targets that the grant's tokens are meant for.
	Audience []string
	// Sealed are the targets that were, or were to be, told of the grant.
	Sealed []string
	TTL    time.Duration
	// Closing refuses guards and renewals: the lease is being revoked.
	Closing bool
	// Acquired and Expires are times of the store's clock; Until is when no
	// renewal helps any more, zero for never.
	Acquired, Expires, Until time.Time
	// Changed is when the row was last written, by the store's clock.
	Changed time.Time
}

// LeaseFilter selects leases.
type LeaseFilter struct {
	Prefix string // of the resource
	After  string // resources above this one
	Limit  int    // default 100, at most 1000
	// HeldAt leaves only those that somebody holds at this time of the store's
	// clock; zero: all.
	HeldAt time.Time
}

// Leases keeps who holds what, and the clock by which leases run out.
type Leases interface {
	// Now returns the store's clock: the database's where there is one that
	// several nodes share, else a clock of this process that never goes back,
	// also not below what the store has recorded.
	Now(ctx context.Context) (time.Time, error)
	// Get returns a row, or not_found. In Update the row cannot change its
	// epoch until the transaction has ended.
	Get(ctx context.Context, resource string) (Lease, error)
	// List returns rows, ordered by resource.
	List(ctx context.Context, f LeaseFilter) ([]Lease, error)
	// Grant writes a whole row. Its epoch must be above the stored one, else
	// conflict.
	Grant(ctx context.Context, l Lease) error
	// Touch changes what is not part of the key, and nothing else: the end of
	// a lease, and whether its gate is closed. It is conflict unless the
	// epoch is the stored one.
	Touch(ctx context.Context, resource string, epoch int64, expires, changed time.Time, closing bool) error
	// Remember keeps what was asked for under an id as of a time, in place of
	// what it kept.
	Remember(ctx context.Context, id, asked []byte, at time.Time) error
	// Remembered returns what was asked for under an id, nil for an unknown
	// one.
	Remembered(ctx context.Context, id []byte) (asked []byte, err error)
	// Forget deletes ids that were remembered before the time, and those beyond
	// the most latest, oldest first, at most limit, and returns how many.
	Forget(ctx context.Context, before time.Time, most, limit int) (int, error)
}
