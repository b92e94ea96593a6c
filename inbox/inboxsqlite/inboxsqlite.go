// Package inboxsqlite is the inbox in an SQLite database: its installation, and
// the adapter for transactions of database/sql with any driver.
//
// # Model
//
// One table, keyed by consumer, source and id. SQLite has one writer at a time:
// whoever receives is the writer until the transaction ends, so that a
// concurrent duplicate waits for it (busy_timeout) and then finds its row.
// [Maintain] deletes old rows, a bounded number at a time.
//
// Begin the transaction by BEGIN IMMEDIATE, or receive before reading anything:
// a transaction that has read cannot become the writer once another has written.
//
// # Failure
//
// Refusals are *headgate.Error; after one the transaction must be rolled back.
// SQLite has no roles: triggers keep rows from being deleted before their time
// and from being changed, which stops mistakes, not those who drop triggers.
// The file must lie on a local disk of one host.
//
// # Concurrency
//
// Everything here is safe for concurrent use, a Tx as safe as its transaction.
package inboxsqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
)

// SchemaVersion is the version of what [Install] makes.
const SchemaVersion = 1

// now is SQLite's clock in milliseconds since 1970.
const now = `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`

// skew is how far apart the clocks of node and database may be.
const skew = time.Hour

//go:embed schema.sql
var schema string

// Script returns what Install executes, for an inbox that remembers for retain
// (0: [inbox.DefaultRetain]).
func Script(retain time.Duration) string {
	return schema + fmt.Sprintf("INSERT OR IGNORE INTO headgate_inbox_state (one, version, retain) VALUES (1, %d, %d);\n",
		SchemaVersion, cmp.Or(retain, inbox.DefaultRetain).Milliseconds())
}

// Install prepares a database. It may be repeated, and then sets retain where
// one is given. Errors: invalid_argument, conflict for another version.
func Install(ctx context.Context, db *sql.DB, retain time.Duration) error {
	if retain != 0 && retain < time.Hour {
		return headgate.NewError(headgate.CodeInvalidArgument, "an inbox remembers for an hour at least")
	}
	return install(ctx, db, retain)
}

func install(ctx context.Context, db *sql.DB, retain time.Duration) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	script := "BEGIN IMMEDIATE;\n" + Script(retain)
	if retain > 0 {
		script += fmt.Sprintf("UPDATE headgate_inbox_state SET retain = %d;\n", retain.Milliseconds())
	}
	if _, err := conn.ExecContext(ctx, script+"COMMIT;\n"); err != nil {
		_, rerr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, rerr)
	}
	var version int
	if err := conn.QueryRowContext(ctx, "SELECT version FROM headgate_inbox_state").Scan(&version); err != nil {
		return err
	}
	if version != SchemaVersion {
		return headgate.NewError(headgate.CodeConflict, "the inbox has version %d; this build works with %d", version, SchemaVersion)
	}
	return nil
}

// Querier is what of a transaction is used.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Tx returns a transaction as one that events can be received in: a *sql.Tx, or
// a *sql.Conn with an open transaction. Receive does not set a cause: that is
// outboxsqlite's.
func Tx(tx querier) inbox.Tx { return adapter{tx} }

type adapter struct{ tx querier }

// enter refuses what the inbox may have forgotten. It writes, so that from here
// on this transaction is the writer.
func (a adapter) enter(ctx context.Context, r inbox.Receipt) error {
	var forgotten sql.NullInt64
	if _, err := a.tx.ExecContext(ctx, "UPDATE headgate_inbox_state SET one = 1"); err != nil {
		return refusal(err)
	}
	if r.AllowOld {
		return nil
	}
	err := a.tx.QueryRowContext(ctx, "SELECT forgotten FROM headgate_inbox_state").Scan(&forgotten)
	if err != nil {
		return refusal(err)
	}
	if horizon := time.UnixMilli(forgotten.Int64).Add(skew); forgotten.Valid && r.Recorded.Before(horizon) {
		return headgate.NewError(headgate.CodeTooOld, "the event was recorded at %s, and what was handled before %s is forgotten",
			r.Recorded.UTC().Format(time.RFC3339), horizon.UTC().Format(time.RFC3339))
	}
	return nil
}

// Receive implements [inbox.Tx].
func (a adapter) Receive(ctx context.Context, r inbox.Receipt) (bool, error) {
	if err := a.enter(ctx, r); err != nil {
		return false, err
	}
	res, err := a.tx.ExecContext(ctx, `INSERT INTO headgate_inbox (consumer, source, id, seen) VALUES (?, ?, ?, `+now+`) ON CONFLICT DO NOTHING`, r.Consumer, r.Source, r.ID)
	if err != nil {
		return false, refusal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err == nil, err
	}
	var open bool
	err = a.tx.QueryRowContext(ctx, `SELECT expires IS NOT NULL FROM headgate_inbox WHERE consumer = ? AND source = ? AND id = ?`, r.Consumer, r.Source, r.ID).Scan(&open)
	if err == nil && open {
		err = &headgate.Error{
			Code: headgate.CodeConflict, Detail: "the event was claimed, and its outcome is not recorded",
			Fix: "Handle the events of one consumer either in transactions or by claims.",
		}
	}
	return false, err
}

// Claim implements [inbox.Tx].
func (a adapter) Claim(ctx context.Context, r inbox.Receipt, ttl time.Duration) (c inbox.Claim, err error) {
	if err := inbox.CheckTTL(ttl); err != nil {
		return c, err
	}
	if err := a.enter(ctx, r); err != nil {
		return c, err
	}
	id := rand.Text()
	// A claim that ran out is taken over; one that lives and one that is done
	// stay as they are.
	_, err = a.tx.ExecContext(ctx, `INSERT INTO headgate_inbox (consumer, source, id, seen, claim, expires) VALUES (?, ?, ?, `+now+`, ?, `+now+` + ?)
		ON CONFLICT DO UPDATE SET claim = excluded.claim, expires = excluded.expires, attempts = attempts + 1 WHERE expires <= excluded.seen`,
		r.Consumer, r.Source, r.ID, id, ttl.Milliseconds())
	if err != nil {
		return c, refusal(err)
	}
	var claim sql.NullString
	var wait sql.NullInt64
	err = a.tx.QueryRowContext(ctx, `SELECT claim, expires - `+now+`, attempts, result FROM headgate_inbox WHERE consumer = ? AND source = ? AND id = ?`, r.Consumer, r.Source, r.ID).
		Scan(&claim, &wait, &c.Attempt, &c.Result)
	switch {
	case err != nil:
	case !wait.Valid:
		c.State = inbox.Done
	case claim.String == id:
		c.State, c.ID, c.Result = inbox.Run, id, nil
	default:
		c.State, c.Wait, c.Result = inbox.Busy, max(time.Duration(wait.Int64)*time.Millisecond, time.Millisecond), nil
	}
	return c, err
}

// Finish implements [inbox.Tx].
func (a adapter) Finish(ctx context.Context, r inbox.Receipt, claim string, result []byte) error {
	if err := inbox.CheckResult(result); err != nil {
		return err
	}
	var value any // a nil slice is NULL with every driver only as an untyped nil
	if result != nil {
		value = result
	}
	return a.end(ctx, r, claim, `expires = NULL, result = ?`, value)
}

// Release implements [inbox.Tx].
func (a adapter) Release(ctx context.Context, r inbox.Receipt, claim string) error {
	return a.end(ctx, r, claim, `expires = `+now)
}

// end changes the row of a claim, unless another has taken it over or it has
// ended already.
func (a adapter) end(ctx context.Context, r inbox.Receipt, claim, set string, args ...any) error {
	args = append(args, r.Consumer, r.Source, r.ID, claim)
	res, err := a.tx.ExecContext(ctx, `UPDATE headgate_inbox SET `+set+` WHERE consumer = ? AND source = ? AND id = ? AND claim = ? AND expires IS NOT NULL`, args...)
	if err != nil {
		return refusal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	var mine bool
	err = a.tx.QueryRowContext(ctx, `SELECT coalesce(claim = ?, 0) FROM headgate_inbox WHERE consumer = ? AND source = ? AND id = ?`, claim, r.Consumer, r.Source, r.ID).Scan(&mine)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !mine {
		return headgate.NewError(headgate.CodeClaimSuperseded, "the claim was taken over, or is not known")
	}
	return err
}

func refusal(err error) error {
	text := err.Error()
	if strings.Contains(text, "no such table: headgate_") || strings.Contains(text, "no such table: main.headgate_") {
		return &headgate.Error{Code: headgate.CodeInvalidConfig, Detail: "the database has no inbox", Fix: "Prepare the database: headgate inbox init --url sqlite:PATH.", Err: err}
	}
	if at := strings.Index(text, "headgate HG"); at >= 0 {
		return &headgate.Error{Code: headgate.CodeForbidden, Detail: text[at:], Outcome: headgate.NotApplied, Err: err}
	}
	return err
}

// MaintainLimit bounds what one call of Maintain deletes.
const MaintainLimit = 1000

// Maintain deletes rows that are older than the inbox's retention, at most
// [MaintainLimit], and returns how many: call it again while it is that many.
func Maintain(ctx context.Context, db *sql.DB) (int64, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to undo
	// First what is forgotten, which the trigger and later receivers go by.
	_, err = tx.ExecContext(ctx, `UPDATE headgate_inbox_state SET forgotten = max(coalesce(forgotten, -1), coalesce(
		(SELECT max(seen) FROM (SELECT seen FROM headgate_inbox WHERE seen < `+now+` - retain ORDER BY seen LIMIT ?)), forgotten, -1))
		WHERE EXISTS (SELECT 1 FROM headgate_inbox WHERE seen < `+now+` - retain)`, MaintainLimit)
	if err != nil {
		return 0, refusal(err)
	}
	res, err := tx.ExecContext(ctx, `DELETE FROM headgate_inbox WHERE (consumer, source, id) IN
		(SELECT consumer, source, id FROM headgate_inbox WHERE seen <= (SELECT forgotten FROM headgate_inbox_state) ORDER BY seen LIMIT ?)`, MaintainLimit)
	if err != nil {
		return 0, refusal(err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, err
	}
	return n, tx.Commit()
}

// Status is what can be told of an inbox.
type Status struct {
	Version   int           `json:"version"`
	Retain    time.Duration `json:"retain"`
	Forgotten time.Time     `json:"forgotten,omitzero"` // zero: nothing is
	Rows      int64         `json:"rows"`
	Oldest    time.Time     `json:"oldest,omitzero"`
	Claims    int64         `json:"claims"` // open ones
	Late      int64         `json:"late"`   // open ones that ran out
}

// Inspect returns the state of the inbox. Errors: not_found.
func Inspect(ctx context.Context, db *sql.DB) (Status, error) {
	var s Status
	var retain int64
	var forgotten, oldest sql.NullInt64
	err := db.QueryRowContext(ctx, `SELECT version, retain, forgotten, (SELECT count(*) FROM headgate_inbox), (SELECT min(seen) FROM headgate_inbox),
		(SELECT count(*) FROM headgate_inbox WHERE expires IS NOT NULL), (SELECT count(*) FROM headgate_inbox WHERE expires < `+now+`) FROM headgate_inbox_state`).
		Scan(&s.Version, &retain, &forgotten, &s.Rows, &oldest, &s.Claims, &s.Late)
	if err != nil && (errors.Is(err, sql.ErrNoRows) || strings.Contains(err.Error(), "no such table: headgate_inbox")) {
		return s, headgate.NewError(headgate.CodeNotFound, "the database has no inbox; prepare it by headgate inbox init --url sqlite:PATH")
	}
	if err != nil {
		return s, err
	}
	s.Retain = time.Duration(retain) * time.Millisecond
	if forgotten.Valid {
		s.Forgotten = time.UnixMilli(forgotten.Int64).UTC()
	}
	if oldest.Valid {
		s.Oldest = time.UnixMilli(oldest.Int64).UTC()
	}
	return s, nil
}
