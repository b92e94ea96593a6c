package fencepg

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
)

// The SQLSTATEs of refusals. No middleware retries class HG.
const (
	StateStale    = "HG001" // the epoch is superseded
	StateMissing  = "HG002" // the transaction names no fence, or none that can be read
	StatePlace    = "HG003" // not here: a seal within a transaction, a grant that was not sealed
	StateForeign  = "HG004" // the row belongs to a resource that the transaction holds no fence of
	StateExpired  = "HG005" // the lease ran out and nobody has taken it
	StateConflict = "HG006" // another grant carries the same epoch
	StateClosing  = "HG007" // the lease is being revoked or taken over
)

// codes says what each state means to the rest of Headgate.
var codes = map[string]headgate.Code{
	StateStale: headgate.CodeStaleFence, StateMissing: headgate.CodeFenceMissing, StatePlace: headgate.CodeInvalidArgument,
	StateForeign: headgate.CodeFenceForeign, StateExpired: headgate.CodeLeaseExpired, StateConflict: headgate.CodeFenceConflict,
	StateClosing: headgate.CodeLeaseClosing,
}

// State returns the SQLSTATE of an error of any driver that tells it (pgx,
// lib/pq), or nothing.
func State(err error) string {
	var stated interface{ SQLState() string }
	if errors.As(err, &stated) {
		return stated.SQLState()
	}
	return ""
}

// Error returns a refusal of a guard as an *headgate.Error, and every other
// error as it is.
func Error(err error) error {
	code, ok := codes[State(err)]
	if !ok || headgate.AsError(err) != nil || !ours(err) {
		return err
	}
	return &headgate.Error{Code: code, Detail: clip(err.Error()), Outcome: headgate.NotApplied, Err: err}
}

// ours tells the guard's refusals from those of other functions of Headgate,
// whose states are of the same class: the guard names its schema. Drivers that
// do not pass that on leave no doubt to be resolved.
func ours(err error) bool {
	var pg *pgconn.PgError
	return !errors.As(err, &pg) || strings.HasSuffix(strings.Trim(pg.SchemaName, `"`), "_fence")
}

// conflict reports whether the server asks to run the transaction again.
func conflict(err error) bool {
	s := State(err)
	return s == "40001" || s == "40P01"
}
