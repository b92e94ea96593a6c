package unit

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/outbox"
)

// DefaultTTL is how long a claim of [Once] lasts.
const DefaultTTL = time.Minute

// farewell bounds what is recorded of an effect after the caller went away.
const farewell = 10 * time.Second

// Effect is something outside of the database.
type Effect[T any] struct {
	// TTL is how long Do may take, after which another worker may do it again:
	// a millisecond to a day, default [DefaultTTL].
	TTL time.Duration
	// Do does it and returns what later deliveries are told, at most
	// [inbox.MaxResult] bytes. Key is its idempotency key: pass it to whoever
	// does the effect, so that a repetition is known there. The context ends
	// with the claim.
	Do func(ctx context.Context, key string) ([]byte, error)
	// Record, if set, runs in the transaction that records the result, with the
	// rules of [Do]'s function.
	Record func(ctx context.Context, tx T, out outbox.Tx, result []byte) error
}

// Once does an effect outside of the database and records its result. A
// delivery of an event whose result is recorded returns that, as a duplicate.
// While another worker is at it the error is in_progress with the time that is
// left of its claim. When Do fails the claim ends, and the next delivery does
// the effect again with the same key; so it does when the worker dies, once the
// claim has ended.
//
// Errors: in_progress; what Do or Record returned; claim_superseded when
// another worker took over meanwhile; too_large; else those of [Do].
func Once[T any](ctx context.Context, db DB[T], d Delivery, e Effect[T]) (Result, error) {
	ttl := cmp.Or(e.TTL, DefaultTTL)
	effect, cancel := context.WithTimeout(ctx, ttl) // from before the claim: never longer than it
	defer cancel()
	var c inbox.Claim
	if err := d.Check(); err != nil {
		return Result{}, err
	}
	err := run(ctx, db, d.unnoted(), func(_ T, in inbox.Tx, _ outbox.Tx) (err error) {
		c, err = in.Claim(ctx, d.Receipt, ttl)
		return err
	})
	switch {
	case err != nil:
		return Result{}, err
	case c.State == inbox.Done:
		return Result{Duplicate: true, Value: c.Result}, nil
	case c.State != inbox.Run:
		return Result{}, &headgate.Error{Code: headgate.CodeInProgress, Detail: "another worker claimed the event", RetryAfter: max(c.Wait, time.Millisecond)}
	}
	ended := false
	defer func() {
		if !ended { // Do panicked, and goes on to
			_ = release(ctx, db, d, c.ID)
		}
	}()
	value, err := e.Do(effect, d.Key())
	if err == nil {
		err = inbox.CheckResult(value)
	}
	ended = true
	if err != nil {
		if rerr := release(ctx, db, d, c.ID); rerr != nil && headgate.CodeOf(rerr) != headgate.CodeClaimSuperseded {
			err = errors.Join(err, rerr)
		}
		return Result{}, err
	}
	if err := record(ctx, db, d, e, c.ID, value); err != nil {
		return Result{}, err
	}
	return Result{Value: value}, nil
}

// record stores the result, also when the caller has gone: the effect is done.
func record[T any](ctx context.Context, db DB[T], d Delivery, e Effect[T], claim string, value []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	return run(ctx, db, d.unnoted(), func(tx T, in inbox.Tx, out outbox.Tx) error {
		if err := in.Finish(ctx, d.Receipt, claim, value); err != nil {
			return err
		}
		if e.Record == nil {
			return nil
		}
		return e.Record(ctx, tx, out, value)
	})
}

func release[T any](ctx context.Context, db DB[T], d Delivery, claim string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	return run(ctx, db, d.unnoted(), func(_ T, in inbox.Tx, _ outbox.Tx) error { return in.Release(ctx, d.Receipt, claim) })
}

// unnoted is how a transaction begins that does not note the event.
func (d Delivery) unnoted() Opening { return Opening{Fence: d.Fence, Cause: d.Cause} }
