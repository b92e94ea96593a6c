package fencepg

import (
	"context"
	"database/sql"
	"errors"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

// SQLTx is [DB.Tx] for database/sql with a driver of PostgreSQL (pgx/stdlib,
// lib/pq). The guard is a round trip of its own, with the bounds.
func (d *DB) SQLTx(ctx context.Context, db *sql.DB, f fence.Fence, o *sql.TxOptions, fn func(*sql.Tx) error) error {
	if err := d.known(f); err != nil {
		return err
	}
	if o != nil && o.ReadOnly {
		return headgate.NewError(headgate.CodeInvalidArgument, "A fenced transaction writes.")
	}
	for again := false; ; again = true {
		tx, err := db.BeginTx(ctx, o)
		if err != nil {
			return err
		}
		guard, args := d.guard(f, "")
		_, err = tx.ExecContext(ctx, guard, args...)
		if err != nil {
			_ = tx.Rollback() // nothing was done
			if !again && conflict(err) {
				continue
			}
			return d.refused(f, err)
		}
		return d.refused(f, finish(ctx, tx, fn))
	}
}

func finish(ctx context.Context, tx *sql.Tx, fn func(*sql.Tx) error) (err error) {
	done := false
	defer func() {
		if !done {
			_ = tx.Rollback() // fn panicked, and goes on to
		}
	}()
	err = fn(tx)
	done = true
	if err != nil {
		if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
			return errors.Join(err, rerr)
		}
		return err
	}
	if err = tx.Commit(); err != nil && State(err) == "" && ctx.Err() == nil {
		return &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.Unknown, Detail: "The connection broke while the transaction committed.", Err: err}
	}
	return err
}
