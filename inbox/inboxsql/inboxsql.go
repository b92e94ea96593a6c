// Package inboxsql adapts transactions of database/sql to package inbox, for
// PostgreSQL databases that headgate inbox init prepared, with any driver.
//
// # Model
//
// Each call is one call of a function in schema headgate: the consuming role
// needs headgate_consumer and no right on any table. See package inboxpgx.
//
// # Failure
//
// Refusals are *headgate.Error where the driver's errors tell their SQLSTATE by
// a method SQLState (pgx/stdlib, lib/pq); else they are the driver's, unchanged.
// The transaction is aborted then.
package inboxsql

import (
	"context"
	"database/sql"
	"time"

	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/inbox/internal/postgres"
)

// Tx returns the transaction as one that events can be received in.
func Tx(tx *sql.Tx) inbox.Tx { return adapter{tx} }

type adapter struct{ tx *sql.Tx }

func recorded(r inbox.Receipt) sql.NullTime {
	return sql.NullTime{Time: r.Recorded, Valid: !r.Recorded.IsZero()}
}

// Receive implements [inbox.Tx].
func (a adapter) Receive(ctx context.Context, r inbox.Receipt) (fresh bool, err error) {
	err = a.tx.QueryRowContext(ctx, postgres.Receive, r.Consumer, r.Source, r.ID, recorded(r), sql.NullString{String: r.Cause, Valid: r.Cause != ""}, r.AllowOld).Scan(&fresh)
	return fresh, postgres.Error(err)
}

// Claim implements [inbox.Tx].
func (a adapter) Claim(ctx context.Context, r inbox.Receipt, ttl time.Duration) (c inbox.Claim, err error) {
	if err := inbox.CheckTTL(ttl); err != nil {
		return c, err
	}
	var state string
	var wait int64
	err = a.tx.QueryRowContext(ctx, postgres.Claim, r.Consumer, r.Source, r.ID, recorded(r), ttl.Milliseconds(), r.AllowOld).
		Scan(&state, &c.ID, &c.Attempt, &wait, &c.Result)
	c.State, c.Wait = inbox.State(state), time.Duration(wait)*time.Millisecond
	return c, postgres.Error(err)
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
	_, err := a.tx.ExecContext(ctx, postgres.Finish, r.Consumer, r.Source, r.ID, claim, value)
	return postgres.Error(err)
}

// Release implements [inbox.Tx].
func (a adapter) Release(ctx context.Context, r inbox.Receipt, claim string) error {
	_, err := a.tx.ExecContext(ctx, postgres.Release, r.Consumer, r.Source, r.ID, claim)
	return postgres.Error(err)
}
