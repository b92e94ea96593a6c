package hold_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate/lease/hold"
)

// Only one process of many reports: the others wait for the role, and take it
// up when its holder is gone.
func ExampleSingleton() {
	var node hold.Keeper = &keeper{} // a *client.Client, or a lease service of this process
	err := hold.Singleton(context.Background(), node, "role/reports", nil, slog.Default(), func(ctx context.Context, l *hold.Lease) error {
		// ctx ends with the role; context.Cause says why. Whatever is written
		// goes with l.Token, so that it is refused once the role is lost.
		fmt.Println("reporting as", l.Resource(), "under epoch", l.Epoch())
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// reporting as role/reports under epoch 7
	// <nil>
}
