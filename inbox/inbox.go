package inbox

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Bounds of what names an event, in bytes, of a stored result, and of a claim.
const (
	MaxConsumer = 256
	MaxSource   = 1024
	MaxID       = 256
	MaxResult   = 64 << 10
	MaxTTL      = 24 * time.Hour
)

// DefaultRetain is how long an inbox remembers unless it was told otherwise. It
// must be longer than streams are retained plus the longest replay.
const DefaultRetain = 30 * 24 * time.Hour

// Receipt names a delivered event.
type Receipt struct {
	// Consumer is what the effects belong to, such as the subscription's name.
	Consumer string
	// Source and ID name the event.
	Source, ID string
	// Recorded is when the event was admitted (recordedtime). It tells events
	// that the inbox may have forgotten.
	Recorded time.Time
	// AllowOld takes an event that the inbox may have forgotten: whoever
	// replays it has seen that it was not handled.
	AllowOld bool
	// Cause is the causal token of the delivery, or empty.
	Cause string
}

// Tx is a transaction of the caller's. Adapters make one.
type Tx interface {
	// Receive notes an event. False: it was handled before. With a cause, the
	// transaction's later events are children of the delivery, where the
	// database can tell (PostgreSQL).
	Receive(ctx context.Context, r Receipt) (bool, error)
	// Claim claims an event for ttl.
	Claim(ctx context.Context, r Receipt, ttl time.Duration) (Claim, error)
	// Finish records a claim's result. It may be repeated.
	Finish(ctx context.Context, r Receipt, claim string, result []byte) error
	// Release ends a claim without a result.
	Release(ctx context.Context, r Receipt, claim string) error
}

// State is what a claim found.
type State string

// The states.
const (
	Run  State = "run"  // the caller has the claim and does the effect
	Busy State = "busy" // another has it; ask again after Wait
	Done State = "done" // the effect was done, and gave Result
)

// Claim is the answer to Tx.Claim.
type Claim struct {
	State State
	// ID is the claim's, for Finish; with Run only.
	ID string
	// Attempt counts the claims of the event, from 1. Above 1 the effect may
	// have been done already: repeat it with the same idempotency key.
	Attempt int
	// Wait is when the other's claim ends, with Busy.
	Wait time.Duration
	// Result is what the effect gave, with Done; nil for an event that was
	// handled in a transaction.
	Result []byte
}

// Check returns invalid_argument when the receipt cannot name an event.
func (r Receipt) Check() error {
	for _, p := range []struct {
		name, value string
		limit       int
	}{{"consumer", r.Consumer, MaxConsumer}, {"source", r.Source, MaxSource}, {"id", r.ID, MaxID}} {
		if p.value == "" || len(p.value) > p.limit || strings.ContainsRune(p.value, 0) {
			return headgate.NewError(headgate.CodeInvalidArgument, "an inbox needs the event's %s, of 1 to %d bytes", p.name, p.limit)
		}
	}
	return nil
}

// Receive notes an event in the caller's transaction. True: it is new, go on
// and commit. False: it was handled before; write nothing and settle the
// delivery. While another transaction is at the same event, Receive waits for
// its end.
//
// Errors: invalid_argument; too_old; conflict for an event that was claimed;
// what the database says, by the adapter.
func Receive(ctx context.Context, tx Tx, r Receipt) (bool, error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	return tx.Receive(ctx, r)
}

// CheckResult returns too_large for a result that cannot be stored.
func CheckResult(result []byte) error {
	if len(result) > MaxResult {
		return &headgate.Error{
			Code: headgate.CodeTooLarge, Detail: "the result is larger than an inbox stores (64 KiB)",
			Fix: "Keep it elsewhere and return where.",
		}
	}
	return nil
}

// CheckTTL returns invalid_argument for a claim's duration out of bounds.
func CheckTTL(ttl time.Duration) error {
	if ttl < time.Millisecond || ttl > MaxTTL {
		return headgate.NewError(headgate.CodeInvalidArgument, "a claim lasts from a millisecond to a day")
	}
	return nil
}
