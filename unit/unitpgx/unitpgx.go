// Package unitpgx runs units of work in a PostgreSQL database through pgx.
//
// # Model
//
// [DB] implements unit.DB over a pool. The database needs headgate inbox init;
// headgate outbox init where handlers emit events; and the functions of package
// fencepg where deliveries come with a lease: a lease that cannot be checked is
// refused.
//
// # Failure
//
// Each transaction is bounded by the server: a worker that hangs in one longer
// than [DB.Limit] loses it, and with it nothing but its own work.
//
// # Concurrency
//
// A DB is safe for concurrent use; a program has one for each database.
package unitpgx

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/inbox/inboxpgx"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/outbox/outboxpgx"
	"github.com/headgate/headgate/unit"
)

// DefaultLimit is how long a transaction may wait for its worker.
const DefaultLimit = 30 * time.Second

// DB runs units of work in one database. Pool is required.
type DB struct {
	Pool *pgxpool.Pool
	// Options are those of the transactions; BeginQuery must be empty.
	Options pgx.TxOptions
	// Limit is how long a transaction may wait for its worker, before the server
	// ends it; default [DefaultLimit]. Under a lease it bounds statements, too.
	Limit time.Duration
	// Fences guards transactions under a lease; default: functions in schema
	// headgate.
	Fences *fencepg.DB
}

// New returns a DB with defaults.
func New(pool *pgxpool.Pool) *DB {
	return &DB{Pool: pool, Fences: &fencepg.DB{}}
}

// Begin implements unit.DB.
func (d *DB) Begin(ctx context.Context, o unit.Opening, fn func(pgx.Tx) error) error {
	if o.Fence != nil {
		return d.fenced(ctx, o, fn)
	}
	conn, err := d.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.BeginTx(d.Options)
	b.Queue(`SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true), pg_catalog.set_config('headgate.cause', $2, true)`,
		strconv.FormatInt(cmp.Or(d.Limit, DefaultLimit).Milliseconds(), 10), o.Cause)
	fresh := true
	if o.Receive != nil { // all in one round trip, which BEGIN takes anyway
		inboxpgx.QueueReceive(b, caused(o), &fresh)
	}
	results := conn.SendBatch(ctx, b)
	tx := results.Tx()
	err = results.Close()
	defer rollback(ctx, tx) // after a commit it does nothing
	if err != nil {
		return inboxpgx.Error(err)
	}
	if !fresh {
		return unit.ErrDuplicate
	}
	if err := fn(tx); err != nil {
		return err
	}
	err = tx.Commit(ctx)
	if err != nil && conn.Conn().IsClosed() && !pgconn.SafeToRetry(err) { // also when the server said why: it may have committed before
		return &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.Unknown, Detail: "the connection broke while the transaction committed", Err: err}
	}
	return err
}

// caused is the receipt with the transaction's cause.
func caused(o unit.Opening) inbox.Receipt {
	r := *o.Receive
	r.Cause = o.Cause
	return r
}

func (d *DB) fenced(ctx context.Context, o unit.Opening, fn func(pgx.Tx) error) error {
	passed := false
	err := d.fences().Tx(ctx, d.Pool, *o.Fence, d.Options, func(tx pgx.Tx) error {
		passed = true
		if o.Receive != nil {
			if fresh, err := inboxpgx.Tx(tx).Receive(ctx, caused(o)); err != nil || !fresh {
				return cmp.Or(err, unit.ErrDuplicate)
			}
		} else if o.Cause != "" {
			if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('headgate.cause', $1, true)`, o.Cause); err != nil {
				return err
			}
		}
		return fn(tx)
	})
	if s := fencepg.State(err); !passed && (s == "42883" || s == "3F000") {
		return &headgate.Error{
			Code: headgate.CodeInvalidConfig, Detail: "the delivery comes with a lease, and the database has no guard to check it",
			Fix: "Install the guard (headgate lease fence-table, or fencepg.Install).", Err: err,
		}
	}
	return err
}

func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // pgx closes a connection whose rollback fails
}

func (d *DB) fences() *fencepg.DB {
	if d.Fences != nil {
		return d.Fences
	}
	return &fencepg.DB{Limit: d.Limit}
}

// Seal implements unit.DB.
func (d *DB) Seal(ctx context.Context, f fence.Fence) error {
	return d.fences().Seal(ctx, d.Pool, f)
}

// Ports implements unit.DB.
func (d *DB) Ports(tx pgx.Tx) (inbox.Tx, outbox.Tx) { return inboxpgx.Tx(tx), outboxpgx.Tx(tx) }

// Receive implements unit.DB.
func (d *DB) Receive(ctx context.Context, tx pgx.Tx, r inbox.Receipt) (bool, error) {
	if r.Cause == "" { // it would leave the last one's
		if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('headgate.cause', '', true)`); err != nil {
			return false, err
		}
	}
	return inboxpgx.Tx(tx).Receive(ctx, r)
}

// Again implements unit.DB.
func (d *DB) Again(err error) bool {
	s := fencepg.State(err)
	return s == "40001" || s == "40P01"
}

// Remembers tells how long the inbox remembers events.
func (d *DB) Remembers(ctx context.Context) (time.Duration, error) {
	var seconds int64
	err := d.Pool.QueryRow(ctx, `SELECT extract(epoch FROM retain)::bigint FROM headgate.inbox_status()`).Scan(&seconds)
	return time.Duration(seconds) * time.Second, inboxpgx.Error(err)
}

// Maintain looks after the inbox: call it every hour or so. That another one
// holds it up is no error.
func (d *DB) Maintain(ctx context.Context) error {
	_, err := inboxpgx.Maintain(ctx, d.Pool)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "55P03" {
		return nil // lock_not_available: the next call has it
	}
	return err
}
