package node

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate"
)

// TestStopWhileStartingIsNoFailure: what the store says of a call that the stop
// has ended is not an error of the node; the same without a stop is.
func TestStopWhileStartingIsNoFailure(t *testing.T) {
	gone := headgate.NewError(headgate.CodeCanceled, "the caller went away before the store answered")
	ctx, g := newGroup(t.Context())
	g.run(ctx, "router", func(ctx context.Context) error { <-ctx.Done(); return gone })
	if err := g.wait(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	ctx, g = newGroup(t.Context())
	g.run(ctx, "router", func(context.Context) error { return gone })
	<-g.failed
	if err := g.wait(); !errors.Is(err, gone) {
		t.Errorf("not stopped: %v", err)
	}
}
