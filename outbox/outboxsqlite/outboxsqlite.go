// Package outboxsqlite adapts SQLite transactions to package outbox, for
// databases that headgate outbox init prepared, with any driver of
// database/sql.
//
// # Model
//
// Each event is one INSERT into the view headgate_outbox, whose trigger checks
// it and gives it its place. The cause of a transaction lies in the view
// headgate_cause while it runs. [DB.Do] runs a transaction with its cause and
// tells a relay in the same process of the commit; [Tx] is for those who run
// their transactions themselves.
//
// # Invariants
//
//  1. Of the events of one call all are in the transaction, or none: SQLite
//     keeps a transaction open after a refusal, so a savepoint undoes the call.
//  2. A cause cannot outlive its transaction: COMMIT fails while it is set, and
//     it cannot be set where foreign keys, which see to that, are off.
//
// # Failure
//
// Refusals of the database are *headgate.Error with its message; the driver's
// error stays in the chain. The transaction goes on as SQLite has it: roll it
// back, or go on without the events.
//
// # Concurrency
//
// A DB is safe for concurrent use; a Tx is as safe as its transaction.
package outboxsqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/outbox"
)

const (
	insert   = `INSERT INTO headgate_outbox (id, type, source, subject, key, attributes, data) VALUES (?, ?, ?, ?, ?, ?, ?)`
	setCause = `INSERT INTO headgate_cause (token) VALUES (?)`
	noCause  = `DELETE FROM headgate_cause`
)

// execer is what of a transaction is used.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Tx returns a transaction as one that events can be written into: a *sql.Tx,
// or a *sql.Conn with an open transaction. Whoever sets a cause through it must
// unset it, by an empty token, before the commit, which fails otherwise.
func Tx(tx execer) outbox.Tx { return adapter{tx} }

type adapter struct{ tx execer }

// InsertEvents implements [outbox.Tx].
func (a adapter) InsertEvents(ctx context.Context, rows []outbox.Row) (err error) {
	if len(rows) > 1 {
		if _, err := a.tx.ExecContext(ctx, `SAVEPOINT headgate_emit`); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = also(a.tx.ExecContext(context.WithoutCancel(ctx), `ROLLBACK TO headgate_emit`))(err)
			}
			err = also(a.tx.ExecContext(context.WithoutCancel(ctx), `RELEASE headgate_emit`))(err)
		}()
	}
	for i := range rows {
		r := &rows[i]
		attributes := sql.NullString{String: string(r.Attributes), Valid: r.Attributes != nil}
		// A nil slice is NULL with every driver only as an untyped nil.
		var data any
		if r.Data != nil {
			data = r.Data
		}
		if _, err := a.tx.ExecContext(ctx, insert, r.ID, r.Type, r.Source, r.Subject, r.Key, attributes, data); err != nil {
			return refusal(err)
		}
	}
	return nil
}

// also adds the error of a statement to another one.
func also(_ sql.Result, second error) func(first error) error {
	return func(first error) error {
		if second == nil {
			return first
		}
		return errors.Join(first, second)
	}
}

// SetCause implements [outbox.Tx].
func (a adapter) SetCause(ctx context.Context, token string) error {
	query, args := setCause, []any{token}
	if token == "" {
		query, args = noCause, nil
	}
	if _, err := a.tx.ExecContext(ctx, query, args...); err != nil {
		return refusal(err)
	}
	return nil
}

// codes are what the triggers refuse, by the name in their message. docs/outbox.md
// lists them.
var codes = [...]struct {
	name string
	code headgate.Code
}{
	{"headgate HG101", headgate.CodeBadEnvelope},
	{"headgate HG102", headgate.CodeTooLarge},
	{"headgate HG103", headgate.CodeBadEnvelope},
	{"headgate HG104", headgate.CodeTokenInvalid},
	{"headgate HG107", headgate.CodeInvalidConfig},
	{"headgate HG108", headgate.CodeBadEnvelope},
	{"headgate HG109", headgate.CodeInvalidArgument},
	{"no such table: headgate_", headgate.CodeInvalidConfig},
	{"no such table: main.headgate_", headgate.CodeInvalidConfig},
}

// refusal names what the database refused.
func refusal(err error) error {
	text := err.Error()
	for _, c := range codes {
		at := strings.Index(text, c.name)
		if at < 0 {
			continue
		}
		e := &headgate.Error{Code: c.code, Detail: text[at:], Outcome: headgate.NotApplied, Err: err}
		if strings.HasPrefix(c.name, "no such table") {
			e.Detail, e.Fix = "the database has no outbox", "Prepare the database: headgate outbox init --url sqlite:PATH."
		}
		return e
	}
	return err
}

// DB runs transactions of one database.
type DB struct {
	// SQL is the database, of any driver.
	SQL *sql.DB
	// Committed, if set, is called after each commit, such as the Wake of the
	// source of a relay in this process. It must not block.
	Committed func()
}

// Do runs fn in a transaction whose events are children of the delivery that
// the causal token came with; without a token they are roots. When fn returns
// an error or panics, everything is undone. Fn must not end the transaction.
// Errors: what fn returned, token_invalid, else the driver's: one of COMMIT
// leaves it unknown whether the transaction was kept.
func (d DB) Do(ctx context.Context, token string, fn func(*sql.Tx) error) error {
	conn, err := d.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if token != "" {
		restore, err := enforce(ctx, conn)
		if err != nil {
			return err
		}
		defer restore()
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to undo
	if token != "" {
		if err := Tx(tx).SetCause(ctx, token); err != nil {
			return err
		}
	}
	if err := fn(tx); err != nil {
		return err
	}
	if token != "" {
		if err := Tx(tx).SetCause(ctx, ""); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if d.Committed != nil {
		d.Committed()
	}
	return nil
}

// enforce switches foreign keys on for a connection that others will use
// afterwards.
func enforce(ctx context.Context, conn *sql.Conn) (restore func(), err error) {
	var on bool
	if err := conn.QueryRowContext(ctx, `PRAGMA foreign_keys`).Scan(&on); err != nil {
		return nil, err
	}
	if on {
		return func() {}, nil
	}
	_, err = conn.ExecContext(ctx, `PRAGMA foreign_keys = ON`)
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `PRAGMA foreign_keys = OFF`) // stricter than it was at worst
	}, err
}
