// Package outboxpgx adapts transactions of pgx to package outbox, for databases
// that headgate outbox init prepared.
//
// # Model
//
// All events of one call go to the server in one round trip, through the
// function headgate.emit_event: the writing role needs headgate_writer and no
// right on any table.
//
// # Failure
//
// Refusals of the database are *headgate.Error with its message and SQLSTATE;
// the pgconn.PgError stays in the chain, so that callers can retry a
// serialization failure as they do.
package outboxpgx

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const insert = `SELECT headgate.emit_event($1, $2, $3, $4, $5, $6::text::jsonb, $7)`

// Tx returns the transaction as one that events can be written into.
func Tx(tx pgx.Tx) outbox.Tx { return adapter{tx} }

type adapter struct{ tx pgx.Tx }

// InsertEvents implements [outbox.Tx].
func (a adapter) InsertEvents(ctx context.Context, rows []outbox.Row) error {
	var batch pgx.Batch
	for i := range rows {
		r := &rows[i]
		var attributes *string
		if r.Attributes != nil {
			s := string(r.Attributes)
			attributes = &s
		}
		batch.Queue(insert, r.ID, r.Type, r.Source, r.Subject, r.Key, attributes, r.Data)
	}
	if err := a.tx.SendBatch(ctx, &batch).Close(); err != nil {
		return refusal(err)
	}
	return nil
}

// SetCause implements [outbox.Tx].
func (a adapter) SetCause(ctx context.Context, token string) error {
	if _, err := a.tx.Exec(ctx, `SELECT headgate.set_cause($1)`, token); err != nil {
		return refusal(err)
	}
	return nil
}

// refusal names what the database refused. The codes are those of
// docs/outbox.md.
func refusal(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	code := headgate.CodeUnavailable
	switch e.Code {
	case "HG101", "HG103", "HG113":
		code = headgate.CodeBadEnvelope
	case "HG102":
		code = headgate.CodeTooLarge
	case "HG104":
		code = headgate.CodeTokenInvalid
	case "42501":
		code = headgate.CodeForbidden
	case "3F000", "42883":
		code = headgate.CodeInvalidConfig
	}
	out := &headgate.Error{Code: code, Detail: fmt.Sprintf("%s (%s)", e.Message, e.Code), Fix: e.Hint, Outcome: headgate.NotApplied, Err: err}
	switch code {
	case headgate.CodeInvalidConfig:
		out.Fix = "Prepare the database: headgate outbox init --url URL."
	case headgate.CodeForbidden:
		out.Fix = "GRANT headgate_writer TO the role that writes."
	}
	return out
}
