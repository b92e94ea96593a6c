package unit

import (
	"errors"
	"time"

	"github.com/headgate/headgate"
)

// Outcome is how a delivery is to be settled.
type Outcome string

// The outcomes.
const (
	Ack    Outcome = "ack"
	Retry  Outcome = "retry"
	Reject Outcome = "reject"
	// Drop: leave it alone. Another worker has it, or will have it when its
	// claim ends; to settle it would be refused.
	Drop Outcome = "drop"
)

// Rejected wraps an error after which a delivery is parked rather than tried
// again.
func Rejected(err error) error { return &rejected{err} }

type rejected struct{ err error }

func (r *rejected) Error() string { return "rejected: " + r.err.Error() }
func (r *rejected) Unwrap() error { return r.err }

// Settle says how to settle a delivery by the error of [Do] or [Once], and the
// delay before a retry; zero: the subscription's backoff.
func Settle(err error) (Outcome, time.Duration) {
	if err == nil {
		return Ack, 0
	}
	if _, ok := errors.AsType[*rejected](err); ok {
		return Reject, 0
	}
	e := headgate.AsError(err)
	if e == nil {
		return Retry, 0
	}
	switch e.Code {
	case headgate.CodeStaleFence, headgate.CodeFenceConflict, headgate.CodeLeaseClosing, headgate.CodeLeaseExpired, headgate.CodeLeaseLost,
		headgate.CodeClaimExpired, headgate.CodeClaimSuperseded:
		return Drop, 0
	case headgate.CodeTooOld, headgate.CodeConflict, headgate.CodeBadEnvelope, headgate.CodeTooLarge, headgate.CodeUnsupportedMediaType,
		headgate.CodeContractUnknown, headgate.CodeContractViolation, headgate.CodeExpired, headgate.CodeFenceInvalid, headgate.CodeFenceForeign:
		return Reject, 0 // it is the event's fault, or the handler's with it
	}
	return Retry, e.RetryAfter
}
