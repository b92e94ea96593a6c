package broker

import (
	"errors"
	"time"

	"github.com/headgate/headgate"
)

// ErrClosed is wrapped by errors of a closed driver or subscription.
var ErrClosed = errors.New("broker: closed")

// Closed is the error of a driver that was closed: draining, wrapping
// [ErrClosed].
func Closed() error { return headgate.NewError(headgate.CodeDraining, "%v", ErrClosed) }

// NoStream is the error for a stream that [Broker].Ensure was never told of.
func NoStream(name string) error {
	return headgate.NewError(headgate.CodeStreamUnknown, "stream %q is not declared", clip(name))
}

// NoPartition is the error for a partition that the stream does not have.
func NoPartition(stream string, partition uint32) error {
	return headgate.NewError(headgate.CodeInvalidArgument, "stream %s has no partition %d", stream, partition)
}

// maxOwner bounds the name of an owner.
const maxOwner = 128

// ValidOwner reports whether s can name an owner: 1 to 128 letters, digits, "-"
// and "_".
func ValidOwner(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && s != Unreadable && len(s) <= maxOwner
}

// BadOwner is the error for a name that is none.
func BadOwner() error {
	return headgate.NewError(headgate.CodeInvalidArgument, "an owner of streams is named by 1 to %d letters, digits, \"-\" and \"_\"", maxOwner)
}

// Foreign is the error for streams that belong to another owner.
func Foreign(o Ownership) error {
	if o.Owner == Unreadable {
		return headgate.NewError(headgate.CodeStreamsForeign, "whom the streams belong to cannot be read")
	}
	return headgate.NewError(headgate.CodeStreamsForeign, "the streams belong to the store %s since %s", o.Owner, o.Since.UTC().Format(time.RFC3339))
}

// TooLarge is the result of an event whose encoded form exceeds
// Caps.MaxEventBytes.
func TooLarge(size, limit int) Result {
	return Result{
		Outcome: OutcomeRejected,
		Err:     headgate.NewError(headgate.CodeTooLarge, "the event takes %d bytes when stored, at most %d are allowed", size, limit),
	}
}

// HeldBack is the result of an event that was not attempted, since one before
// it in the call has the same key and was not stored.
func HeldBack() Result {
	return Throttled(headgate.CodeHeldBack, "an event before it of the same key was not stored")
}

// Throttled is the result of an event that was not stored and may be later.
func Throttled(code headgate.Code, format string, args ...any) Result {
	return Result{Outcome: OutcomeThrottled, Err: headgate.NewError(code, format, args...)}
}

// Unknown is the result of an event that may have been stored.
func Unknown(cause error) Result {
	return Result{
		Outcome: OutcomeUnknown,
		Err:     headgate.NewError(headgate.CodeUnknownOutcome, "no answer came back: %v", cause),
	}
}
