package unit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/outbox"
)

// Attempts is how often a transaction is run at most.
const Attempts = 4

// Delivery is what a unit of work needs to know of a delivery.
type Delivery struct {
	inbox.Receipt
	// Fence is the lease that the worker works under; nil: none.
	Fence *fence.Fence
}

// Of returns the delivery of an event to a consumer. Cause and lease are the
// tokens that came with it; empty where there are none. Errors: fence_invalid.
func Of(consumer string, e *headgate.Event, cause, lease string) (Delivery, error) {
	d := Delivery{Receipt: inbox.Receipt{Consumer: consumer, Source: e.Source, ID: e.ID, Recorded: e.Header.RecordedTime, Cause: cause}}
	if lease == "" {
		return d, nil
	}
	f, err := fence.Parse(lease)
	if err != nil {
		return Delivery{}, err
	}
	d.Fence = &f
	return d, nil
}

// Key is the idempotency key of the event's effect: the same for every attempt
// of this consumer at this event, and for nothing else. 32 hexadecimal digits.
func (d Delivery) Key() string {
	h := sha256.New()
	for _, s := range []string{d.Consumer, d.Source, d.ID} {
		sum := sha256.Sum256([]byte(s)) // of a fixed size, so that no two triples read the same
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Opening says what a transaction begins with.
type Opening struct {
	// Fence must be passed before anything else; nil: none.
	Fence *fence.Fence
	// Cause is the causal token of events that the transaction emits.
	Cause string
	// Receive is noted in the inbox next; nil: nothing is. Its own cause is not
	// looked at.
	Receive *inbox.Receipt
}

// DB runs transactions of type T in one database. Adapters implement it.
type DB[T any] interface {
	// Begin runs fn in a transaction and commits it if fn returns nil. When fn
	// returns an error or panics, everything is undone. An event that was
	// handled before is [ErrDuplicate], and a fence that was never sealed is
	// invalid_argument, both before fn runs; a commit that may have happened has
	// the outcome unknown.
	Begin(ctx context.Context, o Opening, fn func(T) error) error
	// Seal tells the database of a new grant.
	Seal(ctx context.Context, f fence.Fence) error
	// Ports returns the transaction as inbox and outbox.
	Ports(tx T) (inbox.Tx, outbox.Tx)
	// Receive notes an event within a transaction, and makes the receipt's cause,
	// or none, that of what the transaction emits from here on. False: the event
	// was handled before.
	Receive(ctx context.Context, tx T, r inbox.Receipt) (bool, error)
	// Again reports whether the database asks to run the transaction again. It
	// never does for a refused fence.
	Again(err error) bool
}

// Result is what came of a delivery.
type Result struct {
	// Duplicate: it was handled before, and the function did not run.
	Duplicate bool
	// Value is what the effect gave, with [Once].
	Value []byte
}

// ErrDuplicate is what DB.Begin returns for an event that was handled before.
// From the function of a unit it is an error as any other, wrapped or not.
var ErrDuplicate = errors.New("unit: the event was handled before")

// Do handles a delivery: fn runs in a transaction in which the event is noted,
// under the delivery's lease. Tx is the adapter's transaction; out takes events
// of package outbox, as children of the delivery. Fn may run several times and
// must have no effect but through them. Result.Duplicate tells that the event
// was handled before.
//
// Where the lease's node keeps its state in another database, the first unit
// under a new lease seals the database with it.
//
// Errors: what fn returned; stale_fence and the other refusals of a lease,
// which are final; invalid_argument and too_old of the receipt; conflict for an
// event that [Once] claimed; unavailable with the outcome unknown; the driver's.
func Do[T any](ctx context.Context, db DB[T], d Delivery, fn func(ctx context.Context, tx T, out outbox.Tx) error) (Result, error) {
	if err := d.Check(); err != nil {
		return Result{}, err
	}
	o := Opening{Fence: d.Fence, Cause: d.Cause, Receive: &d.Receipt}
	err := run(ctx, db, o, func(tx T, _ inbox.Tx, out outbox.Tx) error { return fn(ctx, tx, out) })
	if err == errDuplicate {
		return Result{Duplicate: true}, nil
	}
	return Result{}, err
}

// errDuplicate is run's for an event that was handled before: nobody else has it,
// so that no function can return it for its own.
var errDuplicate = errors.New("unit: the event was handled before, and the function did not run")

// run runs one transaction, again where the database asks for it. [ErrDuplicate]
// counts only where fn did not begin: fn may itself have asked an inbox.
func run[T any](ctx context.Context, db DB[T], o Opening, fn func(T, inbox.Tx, outbox.Tx) error) error {
	sealed := false
	for attempt := 1; ; attempt++ {
		begun := false
		err := db.Begin(ctx, o, func(tx T) error {
			begun = true
			in, out := db.Ports(tx)
			return fn(tx, in, out)
		})
		switch {
		case err == nil:
			return nil
		case !begun && errors.Is(err, ErrDuplicate):
			return errDuplicate
		case o.Fence != nil && !begun && !sealed && headgate.CodeOf(err) == headgate.CodeInvalidArgument:
			sealed = true
			if err := db.Seal(ctx, *o.Fence); err != nil {
				return err
			}
		case attempt >= Attempts || !db.Again(err):
			return err
		case !pause(ctx, attempt):
			return errors.Join(ctx.Err(), err)
		}
	}
}

// pause waits some 5 to 80 ms; false: ctx ended.
func pause(ctx context.Context, attempt int) bool {
	t := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(5*time.Millisecond<<attempt)))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
