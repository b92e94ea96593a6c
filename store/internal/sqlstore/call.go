package sqlstore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Call runs fn over the roles of one transaction. A panic becomes an internal
// error; its stack goes to the log, since the caller's own stack says nothing
// about it. After fn, ended is called, however it ended.
func Call(ctx context.Context, log *slog.Logger, roles *store.Tx, fn Function, ended func(panicked bool)) (err error) {
	returned := false
	defer func() {
		p := recover()
		ended(!returned)
		if p != nil {
			log.Error("store function panicked", "panic", Clip(fmt.Sprint(p)), "stack", string(debug.Stack()))
			err = &headgate.Error{Code: headgate.CodeInternal, Outcome: headgate.NotApplied, Detail: "a store function panicked"}
		}
	}()
	err = fn(ctx, roles)
	returned = true
	return err
}
