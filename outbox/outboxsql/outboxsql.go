// Package outboxsql adapts transactions of database/sql to package outbox, for
// PostgreSQL databases that headgate outbox init prepared, with any driver.
//
// # Model
//
// Each event is one call of the function headgate.emit_event: the writing role
// needs headgate_writer and no right on any table.
//
// # Failure
//
// Errors are the driver's, unchanged: which SQLSTATE they carry is for the
// driver to tell. docs/outbox.md lists those of the functions. After one the
// transaction is aborted.
package outboxsql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/headgate/headgate/outbox"
)

const insert = `SELECT headgate.emit_event($1, $2, $3, $4, $5, CAST(CAST($6 AS text) AS jsonb), $7)`

// Tx returns the transaction as one that events can be written into.
func Tx(tx *sql.Tx) outbox.Tx { return adapter{tx} }

type adapter struct{ tx *sql.Tx }

// InsertEvents implements [outbox.Tx].
func (a adapter) InsertEvents(ctx context.Context, rows []outbox.Row) error {
	for i := range rows {
		r := &rows[i]
		attributes := sql.NullString{String: string(r.Attributes), Valid: r.Attributes != nil}
		if _, err := a.tx.ExecContext(ctx, insert, r.ID, r.Type, r.Source, r.Subject, r.Key, attributes, r.Data); err != nil {
			return fmt.Errorf("outbox: event %s: %w", r.ID, err)
		}
	}
	return nil
}

// SetCause implements [outbox.Tx].
func (a adapter) SetCause(ctx context.Context, token string) error {
	if _, err := a.tx.ExecContext(ctx, `SELECT headgate.set_cause($1)`, token); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}
