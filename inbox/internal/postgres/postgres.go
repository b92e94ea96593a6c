// Package postgres holds what the inbox adapters of PostgreSQL share: the calls
// of the functions in schema headgate, and what their refusals mean.
package postgres

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate"
)

// The calls, in SQL that needs no type of a driver.
const (
	Receive = `SELECT headgate.receive($1, $2, $3, CAST($4 AS timestamptz), $5, $6)`
	Claim   = `SELECT c.state, coalesce(CAST(c.claim AS text), ''), c.attempt, CAST(ceil(coalesce(extract(epoch FROM c.wait), 0) * 1000) AS bigint), c.result
		FROM headgate.inbox_claim($1, $2, $3, CAST($4 AS timestamptz), CAST($5 AS bigint) * interval '1 millisecond', $6) c`
	Finish  = `SELECT headgate.inbox_finish($1, $2, $3, CAST($4 AS uuid), CAST($5 AS bytea))`
	Release = `SELECT headgate.inbox_release($1, $2, $3, CAST($4 AS uuid))`
)

// State returns the SQLSTATE of an error of any driver that tells it, or
// nothing.
func State(err error) string {
	var stated interface{ SQLState() string }
	if errors.As(err, &stated) {
		return stated.SQLState()
	}
	return ""
}

// Again reports whether the server asks to run the transaction again.
func Again(err error) bool {
	s := State(err)
	return s == "40001" || s == "40P01"
}

var codes = map[string]headgate.Code{
	"HG201": headgate.CodeInvalidArgument, "HG202": headgate.CodeTooOld, "HG203": headgate.CodeConflict,
	"HG204": headgate.CodeClaimSuperseded, "HG205": headgate.CodeTooLarge,
	"42501": headgate.CodeForbidden, "3F000": headgate.CodeInvalidConfig, "42883": headgate.CodeInvalidConfig, "22P02": headgate.CodeInvalidArgument,
}

// Error names what a call of an inbox function was refused for; every other
// error stays as it is.
func Error(err error) error {
	state := State(err)
	code, ok := codes[state]
	if !ok || headgate.AsError(err) != nil {
		return err
	}
	e := &headgate.Error{Code: code, Detail: fmt.Sprintf("the inbox refuses: %.300s", err.Error()), Outcome: headgate.NotApplied, Err: err}
	switch code {
	case headgate.CodeInvalidConfig:
		e.Fix = "Prepare the database: headgate inbox init --url URL."
	case headgate.CodeForbidden:
		e.Fix = "GRANT headgate_consumer TO the role that consumes."
	case headgate.CodeConflict:
		e.Fix = "Handle the events of one consumer either in transactions or by claims."
	}
	return e
}
