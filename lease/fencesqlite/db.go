package fencesqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

// DB runs fenced transactions in one database. The zero value is ready for
// use; a program has one for each database, so that it remembers what is
// superseded.
type DB struct{ seen fence.Seen }

// Tx runs fn as SQLite's writer, under the fence: nothing of it is kept unless
// the fence is the newest grant that the database was told of, from before fn
// runs until the commit. Db is an SQLite database of any driver. When fn
// returns an error or panics, everything is undone. Fn must not end the
// transaction.
//
// Errors: stale_fence, fence_conflict, lease_closing, lease_expired (by the
// holder's own clock), fence_missing and fence_foreign from triggers,
// invalid_argument for a grant that was not sealed; what fn returned; the
// driver's.
func (d *DB) Tx(ctx context.Context, db *sql.DB, f fence.Fence, fn func(*sql.Conn) error) error {
	if err := d.known(f); err != nil {
		return err
	}
	// Whoever is superseded learns it without queueing for the writer.
	if err := d.refused(f, current(ctx, db, f)); err != nil {
		return err
	}
	return d.refused(f, write(ctx, db, func(conn *sql.Conn) error {
		if err := current(ctx, conn, f); err != nil {
			return err
		}
		// One that was left by a connection without foreign keys counts for
		// nothing.
		if _, err := conn.ExecContext(ctx, "DELETE FROM headgate_fence"); err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, "INSERT INTO headgate_fence (resource, epoch, nonce) VALUES (?, ?, ?)", f.Resource, f.Epoch, f.NonceText()); err != nil {
			return err
		}
		if err := fn(conn); err != nil {
			return err
		}
		if !f.Deadline.IsZero() && !time.Now().Before(f.Deadline) {
			return headgate.NewError(headgate.CodeLeaseExpired, "The lease on %s ran out within the transaction.", f.Resource)
		}
		res, err := conn.ExecContext(ctx, "DELETE FROM headgate_fence WHERE resource = ? AND epoch = ? AND nonce = ?", f.Resource, f.Epoch, f.NonceText())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return errors.Join(headgate.NewError(headgate.CodeInvalidArgument, "The function ended the fenced transaction, or took its fence away."), err)
		}
		return nil
	}))
}

func (d *DB) known(f fence.Fence) error {
	if err := f.Check(time.Now()); err != nil {
		return err
	}
	return d.seen.Check(f)
}

// refused reads what a trigger said, and remembers what is final.
func (d *DB) refused(f fence.Fence, err error) error {
	if err == nil {
		return nil
	}
	if e := headgate.AsError(err); e != nil {
		if e.Code == headgate.CodeStaleFence {
			d.seen.Note(f)
		}
		return err
	}
	for state, code := range map[string]headgate.Code{
		"headgate HG001": headgate.CodeStaleFence, "headgate HG002": headgate.CodeFenceMissing, "headgate HG004": headgate.CodeFenceForeign,
	} {
		if strings.Contains(err.Error(), state) {
			return &headgate.Error{Code: code, Detail: "A trigger refused the write.", Outcome: headgate.NotApplied, Err: err}
		}
	}
	return err
}

// write runs fn between BEGIN IMMEDIATE and COMMIT on one connection, with
// what the triggers rest on switched on.
func write(ctx context.Context, db *sql.DB, fn func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, pragma := range []string{"foreign_keys", "recursive_triggers"} {
		restore, err := switchOn(ctx, conn, pragma)
		if err != nil {
			return err
		}
		defer restore()
	}
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // it may be over already
		}
	}()
	if err := fn(conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		return err
	}
	done = true
	return nil
}

// switchOn sets a pragma of a connection that others will use afterwards.
func switchOn(ctx context.Context, conn *sql.Conn, pragma string) (restore func(), err error) {
	var on bool
	if err := conn.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&on); err != nil {
		return nil, err
	}
	if on {
		return func() {}, nil
	}
	_, err = conn.ExecContext(ctx, "PRAGMA "+pragma+" = ON")
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA "+pragma+" = OFF") // stricter than it was at worst
	}, err
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// current is the guard itself. Within the writer's transaction it holds until
// the commit.
func current(ctx context.Context, q querier, f fence.Fence) error {
	var epoch int64
	var nonce string
	var closing bool
	err := q.QueryRowContext(ctx, "SELECT epoch, nonce, closing FROM headgate_fences WHERE resource = ?", f.Resource).Scan(&epoch, &nonce, &closing)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return unsealed(f)
	case err != nil:
		return err
	case f.Epoch < epoch:
		return headgate.NewError(headgate.CodeStaleFence, "Epoch %d of %s is superseded by %d.", f.Epoch, f.Resource, epoch)
	case f.Epoch > epoch:
		return unsealed(f)
	case nonce != f.NonceText():
		return headgate.NewError(headgate.CodeFenceConflict, "Epoch %d of %s was granted to another holder.", f.Epoch, f.Resource)
	case closing:
		return headgate.NewError(headgate.CodeLeaseClosing, "The gate of epoch %d of %s is closed.", f.Epoch, f.Resource)
	}
	return nil
}

func unsealed(f fence.Fence) error {
	return &headgate.Error{
		Code: headgate.CodeInvalidArgument, Outcome: headgate.NotApplied, Detail: "Epoch " + f.String() + " was not sealed here.",
		Fix: "Seal this database with the new grant before using it.",
	}
}

// Seal tells the database of a new grant. When it returns nil everything that
// older grants did is committed and visible, and nothing of theirs passes any
// more. A new holder seals before it reads. It is repeated safely.
//
// Errors: stale_fence when a newer grant has sealed, fence_conflict,
// lease_closing after [CloseAll].
func (d *DB) Seal(ctx context.Context, db *sql.DB, f fence.Fence) error {
	if err := d.known(f); err != nil {
		return err
	}
	return d.refused(f, write(ctx, db, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, `INSERT INTO headgate_fences (resource, epoch, nonce) VALUES (?, ?, ?)
			ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, nonce = excluded.nonce, closing = 0 WHERE epoch < excluded.epoch`, f.Resource, f.Epoch, f.NonceText())
		if err != nil {
			return err
		}
		return current(ctx, conn, f)
	}))
}

// CloseAll is for a database restored from a backup, before anyone writes: no
// grant that the backup knows is good any more. It returns how many there were.
func CloseAll(ctx context.Context, db *sql.DB) (int64, error) {
	res, err := db.ExecContext(ctx, "UPDATE headgate_fences SET closing = 1 WHERE closing = 0")
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
