package unit

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/outbox"
)

// MaxBatch bounds the deliveries of one [DoBatch].
const MaxBatch = 1000

// DoBatch handles deliveries in one transaction, in their order: fn runs for each
// whose event was not handled before, by another transaction or earlier in the
// batch, with its place in ds. What it emits are children of that delivery. All is
// committed, or nothing: when fn fails for one, none is handled. The results are
// in the order of ds; they count only without an error. Fn must return the error of
// a statement that failed: where it hides one, PostgreSQL fails the batch, and
// SQLite, which undoes that statement alone, commits the others.
//
// It is for many small effects: they share a commit. A batch that fails is best
// handled one by one with [Do], so that one delivery does not hold up the others.
//
// Deliveries under a lease must share it. Errors: invalid_argument for more than
// [MaxBatch] deliveries, for leases that differ, and for a receipt that names no
// event, before anything ran; else those of Do, with the delivery's place.
func DoBatch[T any](ctx context.Context, db DB[T], ds []Delivery, fn func(ctx context.Context, tx T, out outbox.Tx, i int) error) ([]Result, error) {
	if len(ds) == 0 {
		return nil, nil
	}
	o, err := opening(ds)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(ds))
	err = run(ctx, db, o, func(tx T, _ inbox.Tx, out outbox.Tx) error {
		clear(results) // of an attempt before
		for i := range ds {
			r := ds[i].Receipt
			fresh, err := db.Receive(ctx, tx, r)
			if err == nil && fresh {
				err = fn(ctx, tx, out, i)
			}
			if err != nil {
				return fmt.Errorf("delivery %d of %d: %w", i+1, len(ds), err)
			}
			results[i].Duplicate = !fresh
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// opening checks a batch and says what its transaction begins with: a cause, if
// there is any.
func opening(ds []Delivery) (o Opening, err error) {
	if len(ds) > MaxBatch {
		return o, headgate.NewError(headgate.CodeInvalidArgument, "there are %d deliveries; one batch takes %d", len(ds), MaxBatch)
	}
	if f := ds[0].Fence; f != nil {
		shared := *f
		o.Fence = &shared
	}
	for i := range ds {
		if err := ds[i].Check(); err != nil {
			return o, fmt.Errorf("delivery %d of %d: %w", i+1, len(ds), err)
		}
		f := ds[i].Fence
		if (f == nil) != (o.Fence == nil) || f != nil && (f.Resource != o.Fence.Resource || f.Epoch != o.Fence.Epoch || string(f.Nonce) != string(o.Fence.Nonce)) {
			return o, headgate.NewError(headgate.CodeInvalidArgument, "delivery %d of %d comes under another lease than the first", i+1, len(ds))
		}
		if f != nil && !f.Deadline.IsZero() && (o.Fence.Deadline.IsZero() || f.Deadline.Before(o.Fence.Deadline)) {
			o.Fence.Deadline = f.Deadline
		}
		if o.Cause == "" {
			o.Cause = ds[i].Cause
		}
	}
	return o, nil
}
