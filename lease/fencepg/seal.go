package fencepg

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

// sealWait is how long one attempt to seal waits for older transactions.
const sealWait = 250 * time.Millisecond

// Seal tells the database of a new grant, in two phases: the gate closes for
// older grants, then the epoch rises when their transactions have ended. When
// it returns nil everything that older grants did is committed and visible,
// and nothing of theirs passes any more. A new holder seals before it reads.
// It is repeated safely. It waits until ctx ends, and then returns unavailable.
//
// With a [Node] in the same database there is nothing to seal.
//
// Errors: stale_fence when a newer grant has sealed, fence_conflict.
func (d *DB) Seal(ctx context.Context, pool *pgxpool.Pool, f fence.Fence) error {
	if err := d.known(f); err != nil {
		return err
	}
	schema := fence.Ident(cmp.Or(d.Schema, "headgate"))
	if _, err := pool.Exec(ctx, "SELECT "+schema+".fence_gate($1, $2)", f.Resource, f.Epoch); err != nil {
		return d.refused(f, err)
	}
	begun := time.Now()
	for {
		err := d.seal(ctx, pool, schema, f)
		if State(err) != "55P03" { // lock_not_available: once more
			return d.refused(f, err)
		}
		if ctx.Err() != nil {
			return &headgate.Error{
				Code: headgate.CodeUnavailable, Outcome: headgate.NotApplied, RetryAfter: sealWait, Err: err,
				Detail: fmt.Sprintf("Transactions under an older grant of %s are in the way for %s.", f.Resource, time.Since(begun).Round(time.Millisecond)),
			}
		}
	}
}

// seal makes one attempt, in a transaction of its own.
func (d *DB) seal(ctx context.Context, pool *pgxpool.Pool, schema string, f fence.Fence) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", sealWait.Milliseconds())); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT "+schema+".fence_seal($1, $2, $3)", f.Resource, f.Epoch, f.NonceText()); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
