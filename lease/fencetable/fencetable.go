// Package fencetable keeps the highest epoch of each resource beside data that
// lives in a database of its own, away from the leases, and refuses what is
// below it in the transaction of the write.
//
// # Model
//
// A fence table has one row per resource: the highest epoch that ever wrote,
// and its nonce. [Table.Check], called within the transaction of a write,
// passes the row's own epoch and nonce, raises the row to a higher epoch, and
// refuses a lower one. [Table.Seal] raises the row in a transaction of its
// own.
//
// # Invariants
//
//  1. Once a transaction with Check of epoch e has committed, none with a lower
//     epoch commits after it: the row is locked from Check to the commit.
//  2. Rows only rise, and are never deleted here. Do not delete them.
//
// # What it cannot do
//
// The table only knows who has come by. Until the new holder of a lease has
// called Seal or Check, a superseded one still passes: call Seal before you
// read what you are going to change. It does not know either when a lease ran
// out or is being revoked. For PostgreSQL package fencepg does more.
//
// # Failure
//
// stale_fence and fence_conflict are final: roll back and stop. All other
// errors are the database's. In SQLite a transaction that has read before Check
// may fail as busy: begin it as immediate, or call Check first.
//
// # Concurrency
//
// A Table has no state and is safe for concurrent use.
package fencetable

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
)

// Dialect is how a database writes SQL.
type Dialect string

// The dialects.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
)

// DefaultName is the table's name when none is given.
const DefaultName = "headgate_fences"

// Table is a fence table.
type Table struct {
	Dialect Dialect // required
	// Name of the table, letters, digits and "_"; default headgate_fences.
	Name string
}

// statements are the texts for a dialect.
type statements struct{ create, read, insert, raise string }

// sql returns the statements, or invalid_config.
func (t Table) sql() (statements, error) {
	name := t.Name
	if name == "" {
		name = DefaultName
	}
	if !plainName(name) {
		return statements{}, headgate.NewError(headgate.CodeInvalidConfig, "a fence table's name has letters, digits and \"_\" only")
	}
	switch t.Dialect {
	case SQLite:
		return statements{
			create: "CREATE TABLE IF NOT EXISTS " + name + " (resource TEXT PRIMARY KEY, epoch INTEGER NOT NULL, nonce BLOB NOT NULL, UNIQUE (resource, epoch)) WITHOUT ROWID",
			read:   "SELECT epoch, nonce FROM " + name + " WHERE resource = ?",
			insert: "INSERT INTO " + name + " (resource, epoch, nonce) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
			raise:  "UPDATE " + name + " SET epoch = ?, nonce = ? WHERE resource = ? AND epoch < ?",
		}, nil
	case Postgres:
		return statements{
			create: "CREATE TABLE IF NOT EXISTS " + name + " (resource TEXT PRIMARY KEY, epoch BIGINT NOT NULL, nonce BYTEA NOT NULL, UNIQUE (resource, epoch))",
			// The epoch is part of a key: raising it waits for those who hold
			// this lock, who do not wait for each other.
			read:   "SELECT epoch, nonce FROM " + name + " WHERE resource = $1 FOR KEY SHARE",
			insert: "INSERT INTO " + name + " (resource, epoch, nonce) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
			raise:  "UPDATE " + name + " SET epoch = $1, nonce = $2 WHERE resource = $3 AND epoch < $4",
		}, nil
	}
	return statements{}, headgate.NewError(headgate.CodeInvalidConfig, "the dialect of a fence table is sqlite or postgres")
}

func plainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 63
}

// Script returns the statement by which Create creates the table.
func (t Table) Script() (string, error) {
	q, err := t.sql()
	return q.create, err
}

// Create creates the table unless it is there.
func (t Table) Create(ctx context.Context, db *sql.DB) error {
	q, err := t.sql()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, q.create)
	return err
}

// checkTries bounds how often Check looks again after another raised the row
// under its eyes.
const checkTries = 4

// What a fence is made of, as its token has it.
const (
	maxEpoch  = 1<<53 - 1
	nonceSize = 16
)

// Check passes when no higher epoch has written, and keeps it so until the
// transaction ends. Errors: fence_invalid, stale_fence, fence_conflict, and
// the database's.
func (t Table) Check(ctx context.Context, tx *sql.Tx, f lease.Fence) error {
	q, err := t.sql()
	if err != nil {
		return err
	}
	// What is of no grant must not raise the epoch: nobody could ever pass it.
	if !headgate.ValidResource(f.Resource) || f.Epoch <= 0 || f.Epoch > maxEpoch || len(f.Nonce) != nonceSize {
		return headgate.NewError(headgate.CodeFenceInvalid, "the fence has no valid resource, epoch or nonce")
	}
	if t.Dialect == SQLite {
		// A write that changes nothing makes this the writer, before it reads.
		if _, err := tx.ExecContext(ctx, q.raise, f.Epoch, f.Nonce, f.Resource, int64(-1)); err != nil {
			return err
		}
	}
	for range checkTries {
		var epoch int64
		var nonce []byte
		err := tx.QueryRowContext(ctx, q.read, f.Resource).Scan(&epoch, &nonce)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			if _, err := tx.ExecContext(ctx, q.insert, f.Resource, f.Epoch, f.Nonce); err != nil {
				return err
			}
			continue // the row now is ours, or that of who came first
		case err != nil:
			return err
		case epoch > f.Epoch:
			return headgate.NewError(headgate.CodeStaleFence, "epoch %d of %s was superseded by %d", f.Epoch, f.Resource, epoch)
		case epoch == f.Epoch && !bytes.Equal(nonce, f.Nonce):
			return headgate.NewError(headgate.CodeFenceConflict, "epoch %d of %s was granted to another holder", f.Epoch, f.Resource)
		case epoch == f.Epoch:
			return nil
		}
		if _, err := tx.ExecContext(ctx, q.raise, f.Epoch, f.Nonce, f.Resource, f.Epoch); err != nil {
			return err
		}
	}
	return headgate.NewError(headgate.CodeConflict, "the fence of %s changes all the time", f.Resource)
}

// Seal makes the epoch the lowest that may write from now on, and waits for
// transactions of lower ones that are under way. Call it before you read what
// you are going to change.
func (t Table) Seal(ctx context.Context, db *sql.DB, f lease.Fence) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := t.Check(ctx, tx, f); err != nil {
		if back := tx.Rollback(); back != nil && !errors.Is(back, sql.ErrTxDone) {
			err = fmt.Errorf("%w (and not rolled back: %w)", err, back)
		}
		return err
	}
	return tx.Commit()
}
