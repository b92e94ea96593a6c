package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var leaseCases = map[string]func(*testing.T, store.Store){
	"GrantAndGet":      leaseGrant,
	"EpochsNeverFall":  leaseEpochs,
	"Touch":            leaseTouch,
	"List":             leaseList,
	"ClockNeverFalls":  leaseClock,
	"PrincipalsLease":  leasePrincipals,
	"OneTransaction":   leaseWithOutbox,
	"RollbackOfAGrant": leaseRollback,
	"Requests":         leaseRequests,
}

func grant(t testing.TB, s store.Store, l store.Lease) error {
	t.Helper()
	return s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Leases.Grant(ctx, l) })
}

func leaseOf(t testing.TB, s store.Store, resource string) store.Lease {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) (store.Lease, error) { return tx.Leases.Get(ctx, resource) })
}

func leaseGrant(t *testing.T, s store.Store) {
	for i, w := range weird {
		l := store.Lease{
			Resource: "r" + w, Epoch: int64(i) + 1, Nonce: []byte("n" + w), Holder: w, Worker: w, Request: w, Audience: []string{"a", "b"}, Sealed: []string{"c"},
			TTL: 30 * time.Second, Closing: i%2 == 0, Acquired: epoch, Expires: epoch.Add(time.Minute), Changed: epoch,
		}
		if i%3 == 0 {
			l.Until, l.Audience, l.Sealed, l.Nonce = epoch.Add(time.Hour), nil, nil, nil
		}
		if err := grant(t, s, l); err != nil {
			t.Fatal(err)
		}
		equal(t, "lease", leaseOf(t, s, l.Resource), l)
	}
	code(t, "unknown", failing(t, s, func(ctx context.Context, tx *store.Tx) (store.Lease, error) { return tx.Leases.Get(ctx, "none") }), headgate.CodeNotFound)
}

func leaseEpochs(t *testing.T, s store.Store) {
	last := store.Lease{Resource: "r", Epoch: 1<<53 - 2, Holder: "a", Acquired: epoch, Expires: epoch, Changed: epoch}
	if err := grant(t, s, last); err != nil {
		t.Fatal(err)
	}
	for _, e := range []int64{0, 1, last.Epoch - 1, last.Epoch} {
		lower := last
		lower.Epoch, lower.Holder = e, "b"
		code(t, fmt.Sprint("epoch ", e), grant(t, s, lower), headgate.CodeConflict)
	}
	equal(t, "lease", leaseOf(t, s, "r"), last)
	last.Epoch++
	if err := grant(t, s, last); err != nil {
		t.Error(err)
	}
}

func leaseTouch(t *testing.T, s store.Store) {
	l := store.Lease{Resource: "r", Epoch: 7, Nonce: []byte("n"), Holder: "a", TTL: time.Second, Acquired: epoch, Expires: epoch, Changed: epoch}
	if err := grant(t, s, l); err != nil {
		t.Fatal(err)
	}
	touch := func(resource string, at int64) error {
		return s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return tx.Leases.Touch(ctx, resource, at, epoch.Add(time.Hour), epoch.Add(time.Second), true)
		})
	}
	for _, at := range []int64{6, 8, 0} {
		code(t, fmt.Sprint("touch of epoch ", at), touch("r", at), headgate.CodeConflict)
	}
	code(t, "touch of another", touch("other", 7), headgate.CodeConflict)
	equal(t, "lease", leaseOf(t, s, "r"), l)
	if err := touch("r", 7); err != nil {
		t.Fatal(err)
	}
	l.Expires, l.Changed, l.Closing = epoch.Add(time.Hour), epoch.Add(time.Second), true
	equal(t, "touched lease", leaseOf(t, s, "r"), l)
}

func leaseList(t *testing.T, s store.Store) {
	names := []string{"a", "ticket/1", "ticket/10", "ticket/2", "ticket0", "z"}
	for i, n := range names {
		l := store.Lease{Resource: n, Epoch: 1, Acquired: epoch, Expires: epoch, Changed: epoch}
		if i%2 == 0 {
			l.Holder, l.Expires = "h", epoch.Add(time.Duration(i)*time.Second)
		}
		if err := grant(t, s, l); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		f    store.LeaseFilter
		want []string
	}{
		{store.LeaseFilter{}, names},
		{store.LeaseFilter{Prefix: "ticket/"}, names[1:4]},
		{store.LeaseFilter{Prefix: "ticket/", After: "ticket/1", Limit: 1}, names[2:3]},
		{store.LeaseFilter{HeldAt: epoch.Add(-time.Hour)}, []string{"a", "ticket/10", "ticket0"}},
		{store.LeaseFilter{HeldAt: epoch, Prefix: "t"}, []string{"ticket/10", "ticket0"}},
		{store.LeaseFilter{HeldAt: epoch.Add(2*time.Second - time.Millisecond)}, []string{"ticket/10", "ticket0"}},
		{store.LeaseFilter{HeldAt: epoch.Add(2 * time.Second)}, []string{"ticket0"}},
		{store.LeaseFilter{After: "z"}, nil},
	} {
		var got []string
		for _, l := range read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.Lease, error) { return tx.Leases.List(ctx, c.f) }) {
			got = append(got, l.Resource)
		}
		equal(t, fmt.Sprintf("%+v", c.f), got, c.want)
	}
}

// leaseClock: the clock moves on and is about the present.
func leaseClock(t *testing.T, s store.Store) {
	now := func() time.Time {
		return read(t, s, func(ctx context.Context, tx *store.Tx) (time.Time, error) { return tx.Leases.Now(ctx) })
	}
	first := now()
	if first.Location() != time.UTC || first.Before(epoch) {
		t.Errorf("the clock shows %s", first)
	}
	for range 20 {
		next := now()
		if next.Before(first) {
			t.Errorf("the clock went from %s to %s", first, next)
		}
		first = next
	}
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		next, err := tx.Leases.Now(ctx)
		if next.Before(first) {
			t.Errorf("the clock went from %s to %s", first, next)
		}
		return err
	})
}

func leasePrincipals(t *testing.T, s store.Store) {
	p := store.Principal{Principal: headgate.Principal{Name: "p", Kind: headgate.KindAgent, Lease: []string{"ticket/*", "x"}}, Created: epoch}
	for _, lease := range [][]string{p.Lease, nil, {}} {
		p.Lease = lease
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Principals.Put(ctx, p) })
		equal(t, "principal", read(t, s, func(ctx context.Context, tx *store.Tx) (store.Principal, error) { return tx.Principals.Get(ctx, "p") }), p)
	}
}

// leaseWithOutbox: what a transaction reads of a lease holds until its events
// are committed.
func leaseWithOutbox(t *testing.T, s store.Store) {
	if err := grant(t, s, store.Lease{Resource: "r", Epoch: 1, Acquired: epoch, Expires: epoch, Changed: epoch}); err != nil {
		t.Fatal(err)
	}
	const writers = 8
	done := make(chan error, 2*writers)
	for w := range writers {
		go func() {
			done <- s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				l, err := tx.Leases.Get(ctx, "r")
				if err != nil {
					return err
				}
				return tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "s", Event: fmt.Append(nil, l.Epoch)}})
			})
		}()
		go func() {
			done <- s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				l, err := tx.Leases.Get(ctx, "r")
				if err != nil {
					return err
				}
				l.Epoch++
				l.Worker = fmt.Sprint(w)
				return tx.Leases.Grant(ctx, l)
			})
		}()
	}
	for range 2 * writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	equal(t, "epoch", leaseOf(t, s, "r").Epoch, int64(writers+1))
	last := 0
	for _, row := range pending(t, s, 0, 100) {
		var at int
		if _, err := fmt.Sscan(string(row.Event), &at); err != nil || at < last {
			t.Errorf("an event of epoch %s came after one of epoch %d", row.Event, last)
		}
		last = at
	}
}

func leaseRollback(t *testing.T, s store.Store) {
	l := store.Lease{Resource: "r", Epoch: 1, Acquired: epoch, Expires: epoch, Changed: epoch}
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Leases.Grant(ctx, l); err != nil {
			return err
		}
		return errWanted
	})
	if err != errWanted {
		t.Errorf("Update: %v", err)
	}
	code(t, "rolled back", failing(t, s, func(ctx context.Context, tx *store.Tx) (store.Lease, error) { return tx.Leases.Get(ctx, "r") }), headgate.CodeNotFound)
}

func leaseRequests(t *testing.T, s store.Store) {
	asked := func(id string) string {
		return string(read(t, s, func(ctx context.Context, tx *store.Tx) ([]byte, error) { return tx.Leases.Remembered(ctx, []byte(id)) }))
	}
	remember := func(id, what string, at time.Time) {
		t.Helper()
		err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return tx.Leases.Remember(ctx, []byte(id), []byte(what), at)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	forget := func(before time.Time, most, limit int) (n int) {
		t.Helper()
		err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = tx.Leases.Forget(ctx, before, most, limit)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	equal(t, "unknown", asked("one"), "")
	remember("one\x00\xff", "a\x00\xff", epoch)
	equal(t, "any bytes", asked("one\x00\xff"), "a\x00\xff")
	remember("one\x00\xff", "b", epoch.Add(time.Minute))
	equal(t, "anew", asked("one\x00\xff"), "b")
	for i := range 10 {
		remember(fmt.Sprint(i), "c", epoch.Add(time.Duration(i)*time.Second))
	}
	equal(t, "too old, by the limit", forget(epoch.Add(5*time.Second), 100, 3), 3)
	equal(t, "too old", forget(epoch.Add(5*time.Second), 100, 100), 2)
	equal(t, "the oldest", asked("4"), "")
	equal(t, "the next", asked("5"), "c")
	equal(t, "too many", forget(epoch, 2, 100), 4)
	equal(t, "of the latest", asked("9")+asked("one\x00\xff"), "cb")
	equal(t, "the rest", forget(epoch.Add(time.Hour), 2, 100), 2)
	equal(t, "nothing left", forget(epoch.Add(time.Hour), 0, 100), 0)
}
