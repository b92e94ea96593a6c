package quarantine

import (
	"context"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	flushEvery  = time.Second
	expireEvery = time.Minute
	// expireBatch is how many records one transaction deletes: few enough that
	// no other writer waits long.
	expireBatch = 500
	// finalFlush bounds the last flush at the end of Run and in Close.
	finalFlush = 5 * time.Second
)

// Run flushes the counters every second and deletes expired records every
// minute until ctx ends, then flushes once more and returns nil. What fails is
// logged and tried again at the next turn.
func (q *Quarantine) Run(ctx context.Context) error {
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
	q.expire(ctx)
	for {
		select {
		case <-flush.C:
			q.flush(ctx)
		case <-expire.C:
			q.expire(ctx)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalFlush)
			defer cancel()
			q.flush(ctx)
			return nil
		}
	}
}

// Close waits for records on their way, flushes the counters and refuses
// further records: later refusals are lost, so the doors close first. Records
// are still readable.
func (q *Quarantine) Close(ctx context.Context) error {
	q.recorder.close()
	return q.overflow.flush(ctx, q.cfg.Store)
}

func (q *Quarantine) flush(ctx context.Context) {
	if err := q.overflow.flush(ctx, q.cfg.Store); err != nil && ctx.Err() == nil {
		q.cfg.Log.WarnContext(ctx, "counters of refusals could not be stored; they stay in memory", "error", err)
	}
}

func (q *Quarantine) expire(ctx context.Context) {
	deleted := 0
	for ctx.Err() == nil {
		n, err := q.expireOnce(ctx)
		deleted += n
		if err != nil {
			if ctx.Err() == nil {
				q.cfg.Log.WarnContext(ctx, "expired quarantine records could not be deleted", "error", err)
			}
			break
		}
		if n < expireBatch {
			break
		}
	}
	if deleted == 0 && !q.refused.atLimit() {
		return // what others deleted is noticed once it matters
	}
	q.cfg.Log.DebugContext(ctx, "expired quarantine records deleted", "count", deleted)
	err := q.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := q.parked.recount(ctx, tx, q.cfg.Now()); err != nil {
			return err
		}
		return q.refused.recount(ctx, tx, q.cfg.Now())
	})
	if err != nil && ctx.Err() == nil {
		q.cfg.Log.WarnContext(ctx, "quarantine records could not be counted", "error", err)
	}
}

func (q *Quarantine) expireOnce(ctx context.Context) (n int, err error) {
	now := q.cfg.Now()
	err = q.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		n, err = tx.Quarantine.Expire(ctx, now, expireBatch)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
