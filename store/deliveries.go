package store

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// Progress is how far one subscription came in one partition. Every event of
// the partition from Start on is, for the subscription, either done (below
// Floor, or with its bit set in Done) or not. An event that left the happy
// path is done here and lives on as an [Exception] or a quarantine record.
type Progress struct {
	Subscription string
	Stream       string
	Partition    uint32
	// Start is the first offset that the subscription was entitled to.
	Start uint64
	// Floor is the offset below which every event is done.
	Floor uint64
	// Done is a bitmap of done events from Floor on: bit i of byte i/8 stands
	// for offset Floor+i. The bit of Floor itself is never set. Trailing zero
	// bytes are cut.
	Done []byte
	// Counts says how the done events ended. Each event is counted once, in
	// the transaction that marks it done or that ends its exception.
	Counts Counts
}

// Counts says how events ended, per subscription and partition.
type Counts struct {
	Settled, Unmatched, Parked, Extinguished, Expired, Discarded uint64
	// Trimmed counts events that retention removed before the subscription
	// ever saw them (a gap that the router met on reading). Zero unless an
	// operator forced a trim.
	Trimmed uint64
}

// Add returns the sums.
func (c Counts) Add(d Counts) Counts {
	return Counts{
		Settled: c.Settled + d.Settled, Unmatched: c.Unmatched + d.Unmatched, Parked: c.Parked + d.Parked,
		Extinguished: c.Extinguished + d.Extinguished, Expired: c.Expired + d.Expired, Discarded: c.Discarded + d.Discarded,
		Trimmed: c.Trimmed + d.Trimmed,
	}
}

// Sum returns the total.
func (c Counts) Sum() uint64 {
	return c.Settled + c.Unmatched + c.Parked + c.Extinguished + c.Expired + c.Discarded + c.Trimmed
}

// ExceptionState says what an exception waits for.
type ExceptionState string

// The states.
const (
	// ExceptionRetry: waits until Due for its next attempt.
	ExceptionRetry ExceptionState = "retry"
	// ExceptionAttempt: its attempt was recorded and dispatched.
	ExceptionAttempt ExceptionState = "attempt"
	// ExceptionHeld: waits for an earlier event of its key.
	ExceptionHeld ExceptionState = "held"
)

// Exception is a delivery that left the happy path: its first attempt failed,
// or it is held behind one that did. Its key is (Subscription, Stream,
// Position).
type Exception struct {
	Subscription string
	Stream       string
	Position     headgate.Position
	Source, ID   string // of the event
	Type, Key    string
	State        ExceptionState
	Attempts     int       // recorded so far, a dispatched one included
	Due          time.Time // of the next attempt, or of the claim's end
	First        time.Time // when the first attempt began
	// History is the bounded list of attempts (JSON): the first 3, the last 7.
	History []byte
	// InProgress is true while the event's bit in [Progress] is not set, so
	// that the exception adds to it rather than replaces it: a redelivery
	// after a crash whose attempt was recorded before dispatch.
	InProgress bool
}

// Deliveries keeps what the router must not forget.
type Deliveries interface {
	// Progress returns all progress of a subscription, ordered by stream and
	// partition; none for an unknown one.
	Progress(ctx context.Context, subscription string) ([]Progress, error)
	// SaveProgress adds or replaces progress rows by (subscription, stream,
	// partition).
	SaveProgress(ctx context.Context, rows []Progress) error
	// Floors returns, for every partition of a stream, the lowest offset that
	// some subscription still needs: its floor or its lowest exception.
	// Partitions without progress of any subscription are missing.
	Floors(ctx context.Context, stream string) (map[uint32]uint64, error)
	// PutExceptions adds or replaces exceptions by key.
	PutExceptions(ctx context.Context, rows []Exception) error
	// DeleteException removes one exception; a missing one is ignored.
	DeleteException(ctx context.Context, subscription, stream string, pos headgate.Position) error
	// Exceptions returns up to limit exceptions of a subscription, ordered by
	// stream, partition and offset, starting after the given key (zero value:
	// from the first).
	Exceptions(ctx context.Context, subscription, afterStream string, after headgate.Position, limit int) ([]Exception, error)
	// Exception returns one exception, or not_found.
	Exception(ctx context.Context, subscription, stream string, pos headgate.Position) (Exception, error)
}
