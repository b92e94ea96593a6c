// Package unitsql runs units of work in a PostgreSQL database through
// database/sql, with any driver whose errors tell their SQLSTATE by a method
// SQLState (pgx/stdlib, lib/pq).
//
// # Model
//
// [DB] implements unit.DB over a *sql.DB. What the database needs is that of
// package unitpgx.
//
// # Failure
//
// As with package unitpgx. Repeating what the database asks to repeat, and
// telling refusals apart, need the driver's SQLState.
//
// # Concurrency
//
// A DB is safe for concurrent use; a program has one for each database.
package unitsql

import (
	"cmp"
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/inbox/inboxsql"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/outbox/outboxsql"
	"github.com/headgate/headgate/unit"
)

// DefaultLimit is how long a transaction may wait for its worker.
const DefaultLimit = 30 * time.Second

// DB runs units of work in one database. SQL is required.
type DB struct {
	SQL *sql.DB
	// Options are those of the transactions; nil: the driver's.
	Options *sql.TxOptions
	// Limit is how long a transaction may wait for its worker, before the server
	// ends it; default [DefaultLimit]. Under a lease it bounds statements, too.
	Limit time.Duration
	// Fences guards transactions under a lease; default: functions in schema
	// headgate.
	Fences *fencepg.DB
}

// New returns a DB with defaults.
func New(db *sql.DB) *DB { return &DB{SQL: db, Fences: &fencepg.DB{}} }

// Begin implements unit.DB.
func (d *DB) Begin(ctx context.Context, o unit.Opening, fn func(*sql.Tx) error) error {
	begin := `SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true), pg_catalog.set_config('headgate.cause', $2, true)`
	if o.Fence != nil {
		passed := false
		err := d.fences().SQLTx(ctx, d.SQL, *o.Fence, d.Options, func(tx *sql.Tx) error {
			passed = true
			if o.Receive == nil && o.Cause != "" {
				if _, err := tx.ExecContext(ctx, `SELECT pg_catalog.set_config('headgate.cause', $1, true)`, o.Cause); err != nil {
					return err
				}
			}
			return received(ctx, tx, o, fn)
		})
		if s := fencepg.State(err); !passed && (s == "42883" || s == "3F000") {
			return &headgate.Error{
				Code: headgate.CodeInvalidConfig, Detail: "the delivery comes with a lease, and the database has no guard to check it",
				Fix: "Install the guard (headgate lease fence-table, or fencepg.Install).", Err: err,
			}
		}
		return err
	}
	tx, err := d.SQL.BeginTx(ctx, d.Options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to undo
	limit := strconv.FormatInt(cmp.Or(d.Limit, DefaultLimit).Milliseconds(), 10)
	if _, err := tx.ExecContext(ctx, begin, limit, o.Cause); err != nil {
		return err
	}
	if err := received(ctx, tx, o, fn); err != nil {
		return err
	}
	err = tx.Commit()
	if err != nil && fencepg.State(err) == "" && ctx.Err() == nil && !strings.Contains(err.Error(), "rollback") {
		return &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.Unknown, Detail: "the connection broke while the transaction committed", Err: err}
	}
	return err
}

// received runs fn if the event is new, or none is to be noted.
func received(ctx context.Context, tx *sql.Tx, o unit.Opening, fn func(*sql.Tx) error) error {
	if o.Receive != nil {
		r := *o.Receive
		r.Cause = o.Cause
		if fresh, err := inboxsql.Tx(tx).Receive(ctx, r); err != nil || !fresh {
			return cmp.Or(err, unit.ErrDuplicate)
		}
	}
	return fn(tx)
}

// Receive implements unit.DB.
func (d *DB) Receive(ctx context.Context, tx *sql.Tx, r inbox.Receipt) (bool, error) {
	if r.Cause == "" { // it would leave the last one's
		if _, err := tx.ExecContext(ctx, `SELECT pg_catalog.set_config('headgate.cause', '', true)`); err != nil {
			return false, err
		}
	}
	return inboxsql.Tx(tx).Receive(ctx, r)
}

func (d *DB) fences() *fencepg.DB {
	if d.Fences != nil {
		return d.Fences
	}
	return &fencepg.DB{Limit: d.Limit}
}

// Seal implements unit.DB: the gate closes for older grants, then the epoch
// rises when their transactions have ended.
func (d *DB) Seal(ctx context.Context, f fence.Fence) error {
	if _, err := d.SQL.ExecContext(ctx, `SELECT headgate.fence_gate($1, $2)`, f.Resource, f.Epoch); err != nil {
		return fencepg.Error(err)
	}
	for {
		err := d.seal(ctx, f)
		if fencepg.State(err) != "55P03" || ctx.Err() != nil { // lock_not_available: once more
			return fencepg.Error(err)
		}
	}
}

// seal makes one attempt, as a transaction of its own.
func (d *DB) seal(ctx context.Context, f fence.Fence) error {
	tx, err := d.SQL.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to undo
	if _, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = 250`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `SELECT headgate.fence_seal($1, $2, $3)`, f.Resource, f.Epoch, f.NonceText()); err != nil {
		return err
	}
	return tx.Commit()
}

// Ports implements unit.DB.
func (d *DB) Ports(tx *sql.Tx) (inbox.Tx, outbox.Tx) { return inboxsql.Tx(tx), outboxsql.Tx(tx) }

// Again implements unit.DB.
func (d *DB) Again(err error) bool {
	s := fencepg.State(err)
	return s == "40001" || s == "40P01"
}

// Remembers tells how long the inbox remembers events.
func (d *DB) Remembers(ctx context.Context) (time.Duration, error) {
	var seconds int64
	err := d.SQL.QueryRowContext(ctx, `SELECT CAST(extract(epoch FROM retain) AS bigint) FROM headgate.inbox_status()`).Scan(&seconds)
	return time.Duration(seconds) * time.Second, err
}

// Maintain looks after the inbox: call it every hour or so. That another one
// holds it up is no error.
func (d *DB) Maintain(ctx context.Context) error {
	_, err := d.SQL.ExecContext(ctx, `SELECT headgate.inbox_maintain()`)
	if fencepg.State(err) == "55P03" {
		return nil // lock_not_available: the next call has it
	}
	return err
}
