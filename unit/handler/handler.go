// Package handler brings deliveries of a node in this process to units of work.
//
// # Model
//
// [Func] makes a handler of the router of a function that calls unit.Do or
// unit.Once. What came of it settles the delivery by unit.Settle.
//
// # Concurrency
//
// The handler is called as the router calls it: for several deliveries at once.
package handler

import (
	"context"

	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/unit"
)

// Func returns a handler whose effects belong to the consumer. Events go
// through the unit's own outbox; the router's emitter is not used.
func Func(consumer string, fn func(ctx context.Context, d unit.Delivery, in *router.Delivery) error) router.HandlerFunc {
	return func(ctx context.Context, in *router.Delivery, _ *router.Emitter) error {
		lease := ""
		if in.Lease != nil {
			lease = in.Lease.Token
		}
		d, err := unit.Of(consumer, in.Event, in.Cause(), lease)
		if err == nil {
			err = fn(ctx, d, in)
		}
		switch outcome, delay := unit.Settle(err); {
		case outcome == unit.Reject:
			return router.Reject(err)
		case delay > 0:
			return router.RetryAfter(delay, err)
		}
		return err // where another worker has it, the router knows
	}
}
