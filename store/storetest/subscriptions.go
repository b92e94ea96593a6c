package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var subscriptionCases = map[string]func(*testing.T, store.Store){
	"RoundTrip": subscriptionRoundTrip,
	"Delete":    subscriptionDelete,
}

func subscriptionRoundTrip(t *testing.T, s store.Store) {
	get := func(name string) func(context.Context, *store.Tx) (store.Subscription, error) {
		return func(ctx context.Context, tx *store.Tx) (store.Subscription, error) {
			return tx.Subscriptions.Get(ctx, name)
		}
	}
	code(t, "absent", failing(t, s, get("a")), headgate.CodeNotFound)
	want := []store.Subscription{
		{Name: "B", Spec: []byte{}},
		{Name: "a", Spec: []byte(`{"types":["x.*"]}`), Paused: true, Managed: "config", Created: epoch, Updated: epoch.Add(time.Hour)},
		{Name: "b"},
	}
	for _, i := range []int{1, 2, 0, 1} {
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Subscriptions.Put(ctx, want[i]) })
		equal(t, "subscription", read(t, s, get(want[i].Name)), want[i])
	}
	want[1].Paused, want[1].Spec, want[1].Updated = false, []byte("2"), time.Time{}
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Subscriptions.Put(ctx, want[1]) })
	all := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.Subscription, error) {
		return tx.Subscriptions.List(ctx)
	})
	equal(t, "subscriptions", all, want)
}

func subscriptionDelete(t *testing.T, s store.Store) {
	remove := func(ctx context.Context, tx *store.Tx) error { return tx.Subscriptions.Delete(ctx, "a") }
	for range 2 { // deleted, created anew, deleted
		update(t, s, func(ctx context.Context, tx *store.Tx) error {
			for _, name := range []string{"a", "b"} {
				if err := tx.Subscriptions.Put(ctx, store.Subscription{Name: name}); err != nil {
					return err
				}
				if err := tx.Deliveries.SaveProgress(ctx, []store.Progress{{Subscription: name, Stream: "s", Floor: 3}}); err != nil {
					return err
				}
				if err := tx.Deliveries.PutExceptions(ctx, []store.Exception{{Subscription: name, Stream: "s"}}); err != nil {
					return err
				}
			}
			return nil
		})
		update(t, s, remove)
		for name, want := range map[string]int{"a": 0, "b": 1} {
			equal(t, "progress of "+name, len(progressOf(t, s, name)), want)
			equal(t, "exceptions of "+name, len(exceptionsOf(t, s, name, "", headgate.Position{}, 10)), want)
		}
	}
	code(t, "deleted twice", s.Update(t.Context(), remove), headgate.CodeNotFound)
}
