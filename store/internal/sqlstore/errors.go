package sqlstore

import (
	"context"

	"github.com/headgate/headgate"
)

// Abandoned is the error of a call whose context ended before it began.
func Abandoned(ctx context.Context) error {
	return &headgate.Error{
		Code: headgate.CodeCanceled, Outcome: headgate.NotApplied,
		Detail: "the caller went away before the store began", Err: context.Cause(ctx),
	}
}

// closed is the error of a call to a store that was closed.
func closed() error {
	return headgate.NewError(headgate.CodeDraining, "the store is closed")
}

// Over is the error of a role that is used after its function returned.
func Over() error {
	return headgate.NewError(headgate.CodeInternal, "a transaction was used after its function returned")
}

func notFound(what, name string) error {
	return headgate.NewError(headgate.CodeNotFound, "there is no %s %q", what, Clip(name))
}

// Clip keeps what an error echoes short.
func Clip(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
