package hold

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate"
)

// singletonWait is how long one call waits for the role.
const singletonWait = 30 * time.Second

// Singleton runs a role that only one process of many may have, until ctx
// ends: it waits for the lease, runs fn while it is held, and waits again when
// it was lost. When fn returns while the lease is held, Singleton returns what
// it returned. What no repetition puts right (forbidden, unauthenticated,
// invalid_argument) is returned, too, also after the role was held before; all
// else is tried again. Log may be nil; the request id of o does not count.
func Singleton(ctx context.Context, k Keeper, resource string, o *Opts, log *slog.Logger, fn func(context.Context, *Lease) error) error {
	var opts Opts
	if o != nil {
		opts = *o
	}
	opts.RequestID = "" // it would name one acquisition, and a role has many
	if opts.Wait == 0 {
		opts.Wait = singletonWait
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	for ctx.Err() == nil {
		held, l, err := Acquire(ctx, k, resource, &opts)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				releaseLate(ctx, l)
			}
			return nil
		case err == nil:
		case headgate.CodeOf(err) == headgate.CodeLeaseHeld:
			continue
		case hopeless(err):
			return err
		default:
			log.Warn("role not acquired, trying again", "resource", resource, "error", err)
			pause(ctx, pauseAfter(&opts))
			continue
		}
		log.Info("role acquired", "resource", resource, "epoch", l.Epoch())
		err = fn(held, l)
		lost := held.Err() != nil && ctx.Err() == nil
		cause := context.Cause(held)
		releaseLate(ctx, l)
		if !lost {
			return err
		}
		log.Warn("role lost", "resource", resource, "error", cause)
	}
	return nil
}

// hopeless reports whether asking again brings the same answer until somebody
// changes a right, a secret or the program.
func hopeless(err error) bool {
	switch headgate.CodeOf(err) {
	case headgate.CodeForbidden, headgate.CodeUnauthenticated, headgate.CodeInvalidArgument:
		return true
	}
	return false
}

// pauseAfter is how long to wait after a failure.
func pauseAfter(o *Opts) time.Duration {
	if o.TTL > 0 {
		return o.TTL / 3
	}
	return DefaultTTL / 3
}

// releaseLate releases although ctx may have ended.
func releaseLate(ctx context.Context, l *Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = l.Release(ctx) // else it runs out
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
