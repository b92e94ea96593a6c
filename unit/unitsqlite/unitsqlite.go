// Package unitsqlite runs units of work in an SQLite database through
// database/sql, with any driver.
//
// # Model
//
// [DB] implements unit.DB over a *sql.DB. A unit is SQLite's writer from its
// beginning to its end, on one connection, which the function gets with the
// transaction open; it must not end it. The database needs headgate inbox init;
// the outbox, where handlers emit events; and the tables of package fencesqlite
// where deliveries come with a lease: a lease that cannot be checked is refused.
//
// # Failure
//
// Writers wait in SQLite's way: give the connections a busy timeout. One that
// ran out is the driver's error, and the next delivery tries again. For a
// commit that survives power loss set synchronous to FULL.
//
// # Concurrency
//
// A DB is safe for concurrent use; a program has one for each database. Units
// run one after another.
package unitsqlite

import (
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/inbox/inboxsqlite"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencesqlite"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/outbox/outboxsqlite"
	"github.com/headgate/headgate/unit"
)

// DB runs units of work in one database. SQL is required.
type DB struct {
	SQL *sql.DB
	// Fences guards transactions under a lease; nil: one without a memory.
	Fences *fencesqlite.DB
	// Committed, if set, is called after each commit, such as the Wake of the
	// source of a relay in this process. It must not block.
	Committed func()
}

// New returns a DB with defaults.
func New(db *sql.DB) *DB { return &DB{SQL: db, Fences: &fencesqlite.DB{}} }

// Begin implements unit.DB.
func (d *DB) Begin(ctx context.Context, o unit.Opening, fn func(*sql.Conn) error) error {
	inner := func(conn *sql.Conn) error {
		if o.Receive != nil {
			if fresh, err := inboxsqlite.Tx(conn).Receive(ctx, *o.Receive); err != nil || !fresh {
				return cmp.Or(err, unit.ErrDuplicate)
			}
		}
		return caused(ctx, conn, o.Cause, fn)
	}
	var err error
	if o.Fence != nil {
		err = d.fences().Tx(ctx, d.SQL, *o.Fence, inner)
	} else {
		err = d.write(ctx, o.Cause, inner)
	}
	if err == nil && d.Committed != nil {
		d.Committed()
	}
	return err
}

// caused runs fn with the cause set, which must be unset before the commit. A
// database without an outbox has nothing that a cause could be for.
func caused(ctx context.Context, conn *sql.Conn, token string, fn func(*sql.Conn) error) error {
	if token == "" {
		return fn(conn)
	}
	emits, err := hasOutbox(ctx, conn)
	if err != nil {
		return err
	}
	if !emits {
		return fn(conn)
	}
	out := outboxsqlite.Tx(conn)
	if err := out.SetCause(ctx, token); err != nil {
		return err
	}
	if err := fn(conn); err != nil {
		return err
	}
	return out.SetCause(ctx, "")
}

// hasOutbox reports whether there is an outbox that a cause could be for.
func hasOutbox(ctx context.Context, conn *sql.Conn) (emits bool, err error) {
	err = conn.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE name = 'headgate_cause'`).Scan(&emits)
	return emits, err
}

// write runs fn between BEGIN IMMEDIATE and COMMIT on one connection, with
// foreign keys on where a cause will rest on them.
func (d *DB) write(ctx context.Context, cause string, fn func(*sql.Conn) error) error {
	conn, err := d.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	emits := false
	if cause != "" {
		if emits, err = hasOutbox(ctx, conn); err != nil {
			return err
		}
	}
	var enforced bool
	if err := conn.QueryRowContext(ctx, "PRAGMA foreign_keys").Scan(&enforced); err != nil {
		return err
	}
	if emits && !enforced {
		if _, err := conn.ExecContext(ctx, "PRAGMA foreign_keys = ON"); err != nil {
			return err
		}
		defer func() {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA foreign_keys = OFF") // stricter than it was at worst
		}()
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
	_, err = conn.ExecContext(ctx, "COMMIT")
	done = err == nil
	return err
}

func (d *DB) fences() *fencesqlite.DB {
	if d.Fences != nil {
		return d.Fences
	}
	return &fencesqlite.DB{}
}

// Seal implements unit.DB.
func (d *DB) Seal(ctx context.Context, f fence.Fence) error { return d.fences().Seal(ctx, d.SQL, f) }

// Ports implements unit.DB.
func (d *DB) Ports(conn *sql.Conn) (inbox.Tx, outbox.Tx) {
	return inboxsqlite.Tx(conn), outboxsqlite.Tx(conn)
}

// Receive implements unit.DB.
func (d *DB) Receive(ctx context.Context, conn *sql.Conn, r inbox.Receipt) (bool, error) {
	fresh, err := inboxsqlite.Tx(conn).Receive(ctx, r)
	if err != nil || !fresh {
		return false, err
	}
	emits, err := hasOutbox(ctx, conn)
	if err != nil || !emits {
		return err == nil, err
	}
	return true, outboxsqlite.Tx(conn).SetCause(ctx, r.Cause)
}

// Again implements unit.DB. A unit is the only writer: nothing to repeat.
func (d *DB) Again(error) bool { return false }

// Remembers tells how long the inbox remembers events.
func (d *DB) Remembers(ctx context.Context) (time.Duration, error) {
	s, err := inboxsqlite.Inspect(ctx, d.SQL)
	return s.Retain, err
}

// Maintain deletes what the inbox need not remember any more, in steps: call it
// every hour or so.
func (d *DB) Maintain(ctx context.Context) error {
	for {
		n, err := inboxsqlite.Maintain(ctx, d.SQL)
		if err != nil || n < inboxsqlite.MaintainLimit {
			return err
		}
	}
}
