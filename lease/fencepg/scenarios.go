package fencepg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/lease/fence"
)

const (
	waitForWriter = "a takeover waits for an open write"
	waitForTaker  = "a write waits for an open takeover, and is refused when it commits"
	oldSnapshot   = "a write with a snapshot from before the takeover is refused"
)

var scenarios = []scenario{
	{name: "a write after the takeover is refused", run: afterTakeover(takeover, StateStale)},
	{name: "a write after the release is refused", run: afterTakeover("epoch = epoch + 1, nonce = NULL", StateStale)},
	{name: "a raised epoch alone refuses", run: afterTakeover("epoch = epoch + 1", StateStale)},
	{name: "another nonce of the same epoch is refused", run: afterTakeover("nonce = 'another nonce 16'", StateConflict)},
	{name: "a closed gate refuses", run: afterTakeover("closing = true", StateClosing)},
	{name: "a lease that ran out refuses", run: afterTakeover("expires = 1", StateExpired)},
	{name: "a lease that ran out since BEGIN refuses", run: ranOutSince},
	{name: waitForWriter, run: takeoverWaits},
	{name: waitForTaker, run: writeWaits},
	{name: "a write that waited for a takeover passes when that is undone", run: writePasses},
	{name: oldSnapshot, run: snapshotBefore},
	{name: "a renewal does not wait for an open write", run: renewalPasses},
	{name: "the gate closes without waiting for an open write", run: gatePasses},
	{name: "a write does not wait for an open renewal", run: writePassesRenewal},
	{name: "a write that is rolled back lets the takeover go on", run: rollbackFrees},
	{name: "a guard that a savepoint took back does not count", only: triggered, run: savepointDrops},
	{name: "a gate that closes after the guard refuses the next statement", only: triggered, run: gateWithin},
	{name: "a fence that was set by hand is checked", only: triggered, run: forged},
	{name: "a setting that another transaction left is not a fence", only: triggered, run: leftOver},
}

func afterTakeover(what, state string) func(context.Context, *world, string, pgx.TxIsoLevel, fence.Fence) error {
	return func(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
		if err := w.set(ctx, w.taker, f, what); err != nil {
			return err
		}
		if err := w.begin(ctx, w.worker, level); err != nil {
			return err
		}
		return refused(w.write(ctx, guard, f), state)
	}
}

// ranOutSince tells the time of the transaction, which is old, from the time.
func ranOutSince(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	err := errors.Join(w.begin(ctx, w.worker, level), w.set(ctx, w.taker, f, "expires = (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint"))
	if err != nil {
		return err
	}
	return refused(w.write(ctx, guard, f), StateExpired)
}

// opened is a worker with a guarded write that is not committed.
func (w *world) opened(ctx context.Context, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := w.begin(ctx, w.worker, level); err != nil {
		return err
	}
	return w.write(ctx, guard, f)
}

func takeoverWaits(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := errors.Join(w.opened(ctx, guard, level, f), w.begin(ctx, w.taker, pgx.ReadCommitted)); err != nil {
		return err
	}
	done, err := w.waits(ctx, w.taker, func() error { return w.take(ctx, guard, f) })
	if err != nil {
		return err
	}
	return errors.Join(exec(ctx, w.worker, "COMMIT"), <-done, exec(ctx, w.taker, "COMMIT"))
}

// midway is a write that waits for an open takeover.
func (w *world) midway(ctx context.Context, guard string, level pgx.TxIsoLevel, f fence.Fence) (<-chan error, error) {
	if err := errors.Join(w.begin(ctx, w.taker, pgx.ReadCommitted), w.take(ctx, guard, f), w.begin(ctx, w.worker, level)); err != nil {
		return nil, err
	}
	return w.waits(ctx, w.worker, func() error { return w.write(ctx, guard, f) })
}

func writeWaits(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	done, err := w.midway(ctx, guard, level, f)
	if err != nil {
		return err
	}
	if err := exec(ctx, w.taker, "COMMIT"); err != nil {
		return err
	}
	if err := refused(<-done, StateStale, "40001"); err != nil {
		return err
	}
	// Whoever repeats it learns what it is.
	if err := errors.Join(exec(ctx, w.worker, "ROLLBACK"), w.begin(ctx, w.worker, level)); err != nil {
		return err
	}
	return refused(w.write(ctx, guard, f), StateStale)
}

func writePasses(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	done, err := w.midway(ctx, guard, level, f)
	if err != nil {
		return err
	}
	return errors.Join(exec(ctx, w.taker, "ROLLBACK"), <-done, exec(ctx, w.worker, "COMMIT"))
}

func snapshotBefore(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	err := errors.Join(w.begin(ctx, w.worker, level), exec(ctx, w.worker, "SELECT count(*) FROM "+w.table("plain")),
		w.begin(ctx, w.taker, pgx.ReadCommitted), w.take(ctx, guard, f), exec(ctx, w.taker, "COMMIT"))
	if err != nil {
		return err
	}
	err = w.write(ctx, guard, f)
	if err == nil {
		err = exec(ctx, w.worker, "COMMIT")
	}
	return refused(err, StateStale, "40001")
}

func renewalPasses(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := w.opened(ctx, guard, level, f); err != nil {
		return err
	}
	return errors.Join(w.quick(ctx, w.taker, func() error { return w.set(ctx, w.taker, f, renewal) }), exec(ctx, w.worker, "COMMIT"))
}

func gatePasses(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := w.opened(ctx, guard, level, f); err != nil {
		return err
	}
	return errors.Join(w.quick(ctx, w.taker, func() error { return w.set(ctx, w.taker, f, "closing = true") }), exec(ctx, w.worker, "COMMIT"))
}

func writePassesRenewal(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := errors.Join(w.begin(ctx, w.taker, pgx.ReadCommitted), w.set(ctx, w.taker, f, renewal), exec(ctx, w.worker, "SET lock_timeout = '300ms'")); err != nil {
		return err
	}
	return errors.Join(w.opened(ctx, guard, level, f), exec(ctx, w.worker, "COMMIT"), exec(ctx, w.taker, "COMMIT"))
}

func rollbackFrees(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := w.opened(ctx, guard, level, f); err != nil {
		return err
	}
	done, err := w.waits(ctx, w.taker, func() error { return w.set(ctx, w.taker, f, takeover) })
	if err != nil {
		return err
	}
	return errors.Join(exec(ctx, w.worker, "ROLLBACK"), <-done)
}

func savepointDrops(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	err := errors.Join(w.begin(ctx, w.worker, level), exec(ctx, w.worker, "SAVEPOINT s"), w.guard(ctx, guard, f), exec(ctx, w.worker, "ROLLBACK TO s"),
		w.quick(ctx, w.taker, func() error { return w.set(ctx, w.taker, f, takeover) }))
	if err != nil {
		return err
	}
	return refused(w.insert(ctx, guard, f), StateMissing, StateStale, "40001")
}

// gateWithin holds for new snapshots only: an old one does not see the gate.
// The epoch, which it does see, is what safety rests on.
func gateWithin(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := errors.Join(w.opened(ctx, guard, level, f), w.set(ctx, w.taker, f, "closing = true")); err != nil {
		return err
	}
	err := w.insert(ctx, guard, f)
	if level != pgx.ReadCommitted {
		return nil
	}
	return refused(err, StateClosing)
}

func forged(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := errors.Join(w.set(ctx, w.taker, f, takeover), w.begin(ctx, w.worker, level)); err != nil {
		return err
	}
	_, err := w.worker.Exec(ctx, `SELECT set_config($1, format(E'%s\n%s\t%s\t%s\n', pg_current_xact_id(), $2::text, $3::bigint, $4::text), true)`,
		w.config.setting(), f.Resource, f.Epoch, f.NonceText())
	if err != nil {
		return err
	}
	return refused(w.insert(ctx, guard, f), StateStale, "40001")
}

func leftOver(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error {
	if err := w.opened(ctx, guard, level, f); err != nil {
		return err
	}
	_, err := w.worker.Exec(ctx, "SELECT set_config($1, current_setting($1), false)", w.config.setting())
	if err := errors.Join(err, exec(ctx, w.worker, "COMMIT"), w.begin(ctx, w.worker, level)); err != nil {
		return err
	}
	return refused(w.insert(ctx, guard, f), StateMissing)
}
