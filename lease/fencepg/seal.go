package fencepg

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgblock"
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
	return d.takeover(ctx, pool, f, nil)
}

// SealEnding is Seal, and ends the sessions whose transactions under older
// grants are in the way, as far as the pool's role may. It returns those that
// it ended. What it may not end it waits for as Seal does; the error then names
// it, and the right that is missing.
func (d *DB) SealEnding(ctx context.Context, pool *pgxpool.Pool, f fence.Fence) ([]headgate.BlockingSession, error) {
	e := &ender{pool: pool}
	err := d.takeover(ctx, pool, f, e)
	var ended []headgate.BlockingSession
	for i := range e.met {
		b := &e.met[i].BlockingSession
		switch {
		case b.Ended:
			ended = append(ended, *b)
		case headgate.CodeOf(err) == headgate.CodeUnavailable && b.Lacks != "":
			headgate.AsError(err).Detail += " In the way is " + b.String() + ", which the role may not end (" + b.Lacks + ")."
		}
	}
	return ended, err
}

// Gate closes the gate for grants below the epoch: what they begin from now on
// is refused. It waits for nothing, and a resource that was never sealed has no
// gate.
func (d *DB) Gate(ctx context.Context, pool *pgxpool.Pool, resource string, below int64) error {
	_, err := pool.Exec(ctx, "SELECT "+fence.Ident(cmp.Or(d.Schema, "headgate"))+".fence_gate($1, $2)", resource, below)
	return Error(err)
}

func (d *DB) takeover(ctx context.Context, pool *pgxpool.Pool, f fence.Fence, e *ender) error {
	if err := d.known(f); err != nil {
		return err
	}
	if err := d.Gate(ctx, pool, f.Resource, f.Epoch); err != nil {
		return d.refused(f, err)
	}
	begun := time.Now()
	for {
		err := d.seal(ctx, pool, f, e)
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
func (d *DB) seal(ctx context.Context, pool *pgxpool.Pool, f fence.Fence, e *ender) error {
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
	if e != nil {
		pid, err := pgblock.PID(ctx, conn.Conn().PgConn())
		if err != nil {
			return err
		}
		defer e.watch(ctx, pid)()
	}
	schema := fence.Ident(cmp.Or(d.Schema, "headgate"))
	if _, err := tx.Exec(ctx, "SELECT "+schema+".fence_seal($1, $2, $3)", f.Resource, f.Epoch, f.NonceText()); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// enderLook is how often an ender looks who is in the way.
const enderLook = 10 * time.Millisecond

// ender ends the sessions that keep a seal waiting.
type ender struct {
	pool *pgxpool.Pool
	met  []pgblock.Session
}

// watch looks who keeps the session waiting until the returned function is
// called, which waits for its end.
func (e *ender) watch(ctx context.Context, waiter int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		conn, err := e.pool.Acquire(ctx)
		if err != nil {
			return // the seal waits as one that ends nobody
		}
		defer conn.Release()
		tick := time.NewTicker(enderLook)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if e.look(ctx, conn.Conn().PgConn(), waiter) != nil {
				return
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// look ends whom it sees for the second time. The transaction of a seal that is
// about to commit is so short that it is not seen twice: it is left alone.
func (e *ender) look(ctx context.Context, pg *pgconn.PgConn, waiter int) error {
	found, err := pgblock.Look(ctx, pg, waiter, pgblock.Lock{})
	if err != nil {
		return err
	}
	for i := range found {
		k := slices.IndexFunc(e.met, func(s pgblock.Session) bool { return s.Same(&found[i]) })
		if k < 0 {
			e.met = append(e.met, found[i])
			continue
		}
		if s := &e.met[k]; !s.Ended && s.Lacks == "" {
			if err := s.End(ctx, pg); err != nil {
				return err
			}
		}
	}
	return nil
}
