package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var contractCases = map[string]func(*testing.T, store.Store){
	"RoundTrip":     contractRoundTrip,
	"Versions":      contractVersions,
	"Latest":        contractLatest,
	"Delete":        contractDelete,
	"OneOfManyWins": contractRace,
}

func contract(subject string, version int) store.Contract {
	return store.Contract{
		Subject: subject, Version: version, Digest: fmt.Sprint("sha256:", version), Schema: []byte(`{"type":"object"} ` + "\n"),
		Policy: []byte(`{}`), Created: epoch.Add(time.Duration(version)), By: "ops",
	}
}

func putContract(t testing.TB, s store.Store, c store.Contract) error {
	t.Helper()
	return s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Contracts.Put(ctx, c) })
}

func getContract(t testing.TB, s store.Store, subject string, version int) store.Contract {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) (store.Contract, error) {
		return tx.Contracts.Get(ctx, subject, version)
	})
}

func contractVersionsOf(t testing.TB, s store.Store, subject string) []int {
	t.Helper()
	all := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.Contract, error) {
		return tx.Contracts.Versions(ctx, subject)
	})
	numbers := []int{}
	for _, c := range all {
		numbers = append(numbers, c.Version)
	}
	return numbers
}

func contractRoundTrip(t *testing.T, s store.Store) {
	for i, w := range weird {
		c := store.Contract{
			Subject: "s" + w, Version: 1, Type: w, Digest: w, Schema: []byte(w), Policy: nil, Draft: i%2 == 0, Deleted: i%3 == 0, By: w,
		}
		if i%2 == 0 {
			c.Created = epoch.Add(time.Duration(i))
		}
		if err := putContract(t, s, c); err != nil {
			t.Fatalf("Put: %v", err)
		}
		equal(t, "contract", getContract(t, s, c.Subject, 1), c)
	}
}

func contractVersions(t *testing.T, s store.Store) {
	for _, version := range []int{0, -1, 2} {
		code(t, fmt.Sprintf("first version %d", version), putContract(t, s, contract("a", version)), headgate.CodeConflict)
	}
	for v := 1; v <= 12; v++ { // more than nine: numbers, not texts, are ordered
		if err := putContract(t, s, contract("a", v)); err != nil {
			t.Fatalf("Put %d: %v", v, err)
		}
		for _, wrong := range []int{v, v - 1, v + 2} {
			code(t, fmt.Sprintf("version %d after %d", wrong, v), putContract(t, s, contract("a", wrong)), headgate.CodeConflict)
		}
	}
	equal(t, "versions", contractVersionsOf(t, s, "a"), []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	equal(t, "latest", getContract(t, s, "a", 0), contract("a", 12))
	equal(t, "versions of an unknown subject", contractVersionsOf(t, s, "A"), []int{})
	for _, version := range []int{0, 1} {
		err := failing(t, s, func(ctx context.Context, tx *store.Tx) (store.Contract, error) {
			return tx.Contracts.Get(ctx, "A", version)
		})
		code(t, "unknown subject", err, headgate.CodeNotFound)
	}
	err := failing(t, s, func(ctx context.Context, tx *store.Tx) (store.Contract, error) { return tx.Contracts.Get(ctx, "a", 13) })
	code(t, "unknown version", err, headgate.CodeNotFound)
}

func contractLatest(t *testing.T, s store.Store) {
	latest := func() (names []string) {
		all := read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.Contract, error) { return tx.Contracts.Latest(ctx) })
		for _, c := range all {
			names = append(names, fmt.Sprint(c.Subject, "@", c.Version))
		}
		return names
	}
	if got := latest(); len(got) > 0 {
		t.Errorf("an empty store has contracts %v", got)
	}
	for _, subject := range []string{"b", "a", "c", "B"} {
		for v := 1; v <= 3; v++ {
			if err := putContract(t, s, contract(subject, v)); err != nil {
				t.Fatalf("Put: %v", err)
			}
		}
	}
	equal(t, "latest", latest(), []string{"B@3", "a@3", "b@3", "c@3"})
	deleteContract(t, s, "a", 3)
	deleteContract(t, s, "c", 0)
	equal(t, "latest after deletions", latest(), []string{"B@3", "a@2", "b@3"})
}

func deleteContract(t testing.TB, s store.Store, subject string, version int) int {
	t.Helper()
	var n int
	update(t, s, func(ctx context.Context, tx *store.Tx) (err error) {
		n, err = tx.Contracts.Delete(ctx, subject, version)
		return err
	})
	return n
}

func contractDelete(t *testing.T, s store.Store) {
	for v := 1; v <= 4; v++ {
		if err := putContract(t, s, contract("a", v)); err != nil {
			t.Fatalf("Put: %v", err)
		}
	}
	equal(t, "marked", deleteContract(t, s, "a", 4), 1)
	equal(t, "marked again", deleteContract(t, s, "a", 4), 0)
	equal(t, "marked of an unknown subject", deleteContract(t, s, "b", 0), 0)
	equal(t, "latest", getContract(t, s, "a", 0).Version, 3)
	gone := contract("a", 4)
	gone.Deleted = true
	equal(t, "deleted version", getContract(t, s, "a", 4), gone)
	equal(t, "marked all", deleteContract(t, s, "a", 0), 3)
	err := failing(t, s, func(ctx context.Context, tx *store.Tx) (store.Contract, error) { return tx.Contracts.Get(ctx, "a", 0) })
	code(t, "latest of a deleted subject", err, headgate.CodeNotFound)
	equal(t, "versions", contractVersionsOf(t, s, "a"), []int{1, 2, 3, 4})
	code(t, "reused version", putContract(t, s, contract("a", 4)), headgate.CodeConflict)
	if err := putContract(t, s, contract("a", 5)); err != nil {
		t.Errorf("next version after a deletion: %v", err)
	}
	equal(t, "latest", getContract(t, s, "a", 0).Version, 5)
}

func contractRace(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 20 {
		wg.Go(func() {
			err := putContract(t, s, contract("a", 1))
			if err == nil {
				mu.Lock()
				won++
				mu.Unlock()
				return
			}
			code(t, "loser", err, headgate.CodeConflict)
		})
	}
	wg.Wait()
	equal(t, "winners", won, 1)
}
