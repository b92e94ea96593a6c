package pgstore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// function is what Update and View run.
type function = func(context.Context, *store.Tx) error

// call runs fn in a transaction of its own or as a member of a group. A panic becomes an
// internal error; its stack goes to the log, since the caller's own stack says
// nothing about it.
func call(ctx context.Context, log *slog.Logger, c *conn, seqs *numbers, fn function) (err error) {
	t := newTx(c, seqs)
	defer func() {
		t.over.Store(true)
		if p := recover(); p != nil {
			log.Error("store function panicked", "panic", clip(fmt.Sprint(p)), "stack", string(debug.Stack()))
			err = &headgate.Error{Code: headgate.CodeInternal, Outcome: headgate.NotApplied, Detail: "a store function panicked"}
		}
	}()
	return fn(ctx, &t.roles)
}
