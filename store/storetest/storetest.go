// Package storetest is the conformance suite of the store port. A driver
// passes it whole or is not a driver:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Driver{Open: func(t testing.TB, dir string) store.Store { … }})
//	}
//
// # Model
//
// Every case opens a store in a folder of its own, works on it through the
// port alone, and closes it. Cases about durability open the same folder
// again. [Crash] kills a process in the middle of a flood of updates and
// looks at what is left.
//
// The suite tests what the port promises, no more: nothing here depends on a
// driver's schema, speed or messages.
package storetest

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Driver is the store under test.
type Driver struct {
	// Open opens the store that lives in the folder, and creates it on first
	// use. It fails the test when it cannot. The suite closes the store.
	Open func(t testing.TB, dir string) store.Store
	// Volatile marks a store that forgets everything on Close.
	Volatile bool
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	t.Helper()
	groups := map[string]map[string]func(*testing.T, store.Store){
		"Transactions":  transactionCases,
		"Settings":      settingsCases,
		"Contracts":     contractCases,
		"Principals":    principalCases,
		"Subscriptions": subscriptionCases,
		"Deliveries":    deliveryCases,
		"Outbox":        outboxCases,
		"Quarantine":    quarantineCases,
		"Gas":           gasCases,
		"Index":         indexCases,
		"Leases":        leaseCases,
		"Registry":      registryCases,
		"Identity":      identityCases,
	}
	for group, cases := range groups {
		t.Run(group, func(t *testing.T) {
			for name, run := range cases {
				t.Run(name, func(t *testing.T) { run(t, open(t, d, t.TempDir())) })
			}
		})
	}
	t.Run("Identity/lasts", func(t *testing.T) { identityKept(t, d) })
	t.Run("Lifecycle", func(t *testing.T) { lifecycle(t, d) })
}

// open opens a store that the test's end closes, unless the test did.
func open(t testing.TB, d Driver, dir string) store.Store {
	t.Helper()
	s := d.Open(t, dir)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// epoch is the present of the suite: time is an argument everywhere.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// weird holds strings that a driver may not change.
var weird = []string{
	"", " ", "a", "A", "é", "日本語", "🚦", "a\x00b", "\x00", "\xff\xfe", "a\xc3", "'; DROP TABLE x; --", `\"%_`, "\n\r\t",
	strings.Repeat("x", 5000),
}

func update(t testing.TB, s store.Store, fn func(context.Context, *store.Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatalf("Update: %v", err)
	}
}

func view(t testing.TB, s store.Store, fn func(context.Context, *store.Tx) error) {
	t.Helper()
	if err := s.View(t.Context(), fn); err != nil {
		t.Fatalf("View: %v", err)
	}
}

// read returns what get returns in a View.
func read[T any](t testing.TB, s store.Store, get func(context.Context, *store.Tx) (T, error)) T {
	t.Helper()
	var v T
	view(t, s, func(ctx context.Context, tx *store.Tx) (err error) {
		v, err = get(ctx, tx)
		return err
	})
	return v
}

// failing returns the error of get in a View.
func failing[T any](t testing.TB, s store.Store, get func(context.Context, *store.Tx) (T, error)) error {
	t.Helper()
	return s.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := get(ctx, tx)
		return err
	})
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func code(t testing.TB, what string, err error, want headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != want {
		t.Errorf("%s: error %v has code %q, want %q", what, err, got, want)
	}
}
