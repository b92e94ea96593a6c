package storetest

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Everything calls every method once in every form that has a statement of
// its own.
func Everything(ctx context.Context, tx *store.Tx) error {
	var errs []error
	try := func(err error) {
		if err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
			errs = append(errs, err)
		}
	}
	try2 := func(_ any, err error) { try(err) }
	pos := headgate.Position{}
	try2(tx.Settings.Get(ctx, "a"))
	try(tx.Settings.Put(ctx, "a", nil))
	try(tx.Settings.Delete(ctx, "a"))
	try2(tx.Settings.List(ctx, ""))
	try2(tx.Settings.List(ctx, "a"))
	try(tx.Contracts.Put(ctx, store.Contract{Subject: "a", Version: 1}))
	for version := range 2 {
		try2(tx.Contracts.Get(ctx, "a", version))
		try2(tx.Contracts.Delete(ctx, "a", version))
	}
	try2(tx.Contracts.Versions(ctx, "a"))
	try2(tx.Contracts.Latest(ctx))
	try(tx.Principals.Put(ctx, store.Principal{Principal: headgate.Principal{Name: "a"}}))
	try2(tx.Principals.List(ctx))
	try(tx.Principals.PutToken(ctx, store.Token{ID: "a", Principal: "a"}))
	try2(tx.Principals.Token(ctx, "a"))
	try2(tx.Principals.Tokens(ctx, "a"))
	try(tx.Principals.DeleteToken(ctx, "a"))
	try(tx.Principals.Delete(ctx, "a"))
	try(tx.Subscriptions.Put(ctx, store.Subscription{Name: "a"}))
	try2(tx.Subscriptions.Get(ctx, "a"))
	try2(tx.Subscriptions.List(ctx))
	try2(tx.Deliveries.Progress(ctx, "a"))
	try(tx.Deliveries.SaveProgress(ctx, []store.Progress{{}}))
	try2(tx.Deliveries.Floors(ctx, "a"))
	try(tx.Deliveries.PutExceptions(ctx, []store.Exception{{}}))
	try(tx.Deliveries.DeleteException(ctx, "a", "a", pos))
	try2(tx.Deliveries.Exceptions(ctx, "a", "", pos, 1))
	try2(tx.Deliveries.Exception(ctx, "a", "a", pos))
	try(tx.Subscriptions.Delete(ctx, "a"))
	try(tx.Outbox.Append(ctx, make([]store.OutboxRow, 1)))
	try2(tx.Outbox.Pending(ctx, 0, 1))
	try(tx.Outbox.Delete(ctx, []int64{1}))
	try2(tx.Outbox.Count(ctx))
	try2(tx.Quarantine.Put(ctx, store.QuarantineRecord{QID: "a"}))
	try2(tx.Quarantine.Get(ctx, "a"))
	for _, f := range filters() {
		try2(tx.Quarantine.List(ctx, f))
		try2(tx.Quarantine.Groups(ctx, f))
	}
	for _, kind := range []store.QuarantineKind{"", store.KindParked} {
		for _, principal := range []string{"", "a"} {
			try2(tx.Quarantine.Count(ctx, kind, principal, time.Time{}))
		}
	}
	try2(tx.Quarantine.Expire(ctx, time.Now(), 1))
	try(tx.Quarantine.AddOverflow(ctx, []store.QuarantineOverflow{{}}))
	try2(tx.Quarantine.Overflow(ctx))
	try2(tx.Gas.Debit(ctx, "a", 2, 1, 1, time.Now()))
	try2(tx.Gas.Prune(ctx, time.Now(), 1))
	rows := make([]store.IndexRow, 20)
	for i := range rows {
		rows[i].ID, rows[i].Position.Offset = string(rune('a'+i)), uint64(i)
	}
	try(tx.Index.Put(ctx, rows))
	try(tx.Index.Put(ctx, rows[1:2]))
	try2(tx.Index.ByID(ctx, "a"))
	try2(tx.Index.ByRoot(ctx, "a", 0, 1))
	try2(tx.Index.Cursor(ctx, "a", 0))
	try(tx.Index.SetCursor(ctx, "a", 0, 1))
	try2(tx.Index.Prune(ctx, "a", 0, 1, 1))
	try(tx.Index.Reset(ctx))
	try2(tx.Leases.Now(ctx))
	try2(tx.Leases.Get(ctx, "a"))
	for _, f := range []store.LeaseFilter{{}, {Prefix: "a"}, {HeldAt: time.Now()}, {Prefix: "a", HeldAt: time.Now()}} {
		try2(tx.Leases.List(ctx, f))
	}
	try(tx.Leases.Grant(ctx, store.Lease{Resource: "a", Epoch: 1}))
	try(tx.Leases.Touch(ctx, "a", 1, time.Now(), time.Now(), false))
	try(tx.Leases.Remember(ctx, []byte("a"), []byte("b"), time.Now()))
	try2(tx.Leases.Remembered(ctx, []byte("a")))
	try2(tx.Leases.Forget(ctx, time.Now(), 1, 1))
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// filters are those of no, one and two fields.
func filters() []store.QuarantineFilter {
	set := func(f *store.QuarantineFilter, field int) {
		switch field {
		case 0:
			f.Kind = store.KindParked
		case 1, 2, 3, 4, 5, 6, 7, 8:
			*[]*string{&f.Reason, &f.Type, &f.Subscription, &f.Principal, &f.Root, &f.ID, &f.Fingerprint, &f.After}[field-1] = "a"
		}
	}
	all := []store.QuarantineFilter{{}}
	for a := range 9 {
		for b := a; b < 9; b++ {
			var f store.QuarantineFilter
			set(&f, a)
			set(&f, b)
			all = append(all, f)
		}
	}
	return all
}

// Statements counts the places in files that execute a statement, so that the
// test of all plans notices one that Everything does not reach.
func Statements(t testing.TB, patterns ...string) (n int) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			n += len(regexp.MustCompile("\\br\\.(t\\.)?query\\([\"`]").FindAll(b, -1))
		}
	}
	return n
}
