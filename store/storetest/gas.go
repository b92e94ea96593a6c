package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var gasCases = map[string]func(*testing.T, store.Store){
	"Debit":      gasDebit,
	"Concurrent": gasConcurrent,
	"Model":      gasModel,
	"Rollback":   gasRollback,
	"Raise":      gasRaise,
	"Prune":      gasPrune,
}

func debit(t testing.TB, s store.Store, root string, total, granted, want int, now time.Time) (got int) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx *store.Tx) (err error) {
		got, err = tx.Gas.Debit(ctx, root, total, granted, want, now)
		return err
	})
	return got
}

func account(t testing.TB, s store.Store, root string) store.GasAccount {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) (store.GasAccount, error) { return tx.Gas.Get(ctx, root) })
}

func gasDebit(t *testing.T, s store.Store) {
	get := func(ctx context.Context, tx *store.Tx) (store.GasAccount, error) { return tx.Gas.Get(ctx, "r") }
	code(t, "no account", failing(t, s, get), headgate.CodeNotFound)
	equal(t, "first", debit(t, s, "r", 100, 16, 30, epoch), 30)
	equal(t, "account", account(t, s, "r"), store.GasAccount{Root: "r", Total: 100, Debited: 46, Updated: epoch})
	equal(t, "with another total", debit(t, s, "r", 1000, 500, 50, epoch.Add(time.Hour)), 50)
	equal(t, "account", account(t, s, "r"), store.GasAccount{Root: "r", Total: 100, Debited: 96, Updated: epoch.Add(time.Hour)})
	equal(t, "the rest", debit(t, s, "r", 100, 16, 30, epoch), 4)
	equal(t, "nothing left", debit(t, s, "r", 100, 16, 30, epoch), 0)
	equal(t, "another root", debit(t, s, "R", 5, 10, 1, epoch), 0)
	equal(t, "granted more than all", account(t, s, "R").Debited, 5)
	equal(t, "nothing wanted", debit(t, s, "z", 5, 0, 0, epoch), 0)
	for _, bad := range [][3]int{{-1, 0, 1}, {1, -1, 1}, {1, 0, -1}} {
		err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.Gas.Debit(ctx, "bad", bad[0], bad[1], bad[2], epoch)
			return err
		})
		code(t, fmt.Sprint("debit of ", bad), err, headgate.CodeInvalidArgument)
	}
}

// gasConcurrent: many debits at once never get more than there is, and in the
// end exactly what there is.
func gasConcurrent(t *testing.T, s store.Store) {
	const total, granted = 500, 16
	roots := []string{"a", "b", "c"}
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for w := range 12 {
		rnd := rand.New(rand.NewPCG(1, uint64(w)))
		wg.Go(func() {
			for range 60 {
				root, want := roots[rnd.IntN(len(roots))], 1+rnd.IntN(20)
				fail := rnd.IntN(4) == 0
				var n int
				err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
					n, err = tx.Gas.Debit(ctx, root, total, granted, want, epoch)
					if fail {
						return errors.Join(err, errWanted)
					}
					return err
				})
				if fail {
					continue
				}
				if err != nil || n > want {
					t.Errorf("debit of %d got %d, %v", want, n, err)
				}
				mu.Lock()
				got[root] += n
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, root := range roots {
		a := account(t, s, root)
		if a.Debited > total || a.Debited != granted+got[root] {
			t.Errorf("root %s: %d debited, %d handed out beside %d granted", root, a.Debited, got[root], granted)
		}
		equal(t, "the rest of "+root, debit(t, s, root, total, granted, 10*total, epoch), total-a.Debited)
		equal(t, "nothing left of "+root, debit(t, s, root, total, granted, 1, epoch), 0)
	}
}

// gasModel compares random histories with the definition, and never lets the
// units handed out pass the total.
func gasModel(t *testing.T, s store.Store) {
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		model := map[string]*store.GasAccount{}
		now := epoch
		update(t, s, func(ctx context.Context, tx *store.Tx) error {
			for range rapid.IntRange(1, 25).Draw(rt, "steps") {
				root := fmt.Sprint(round, "/", rapid.IntRange(0, 2).Draw(rt, "root"))
				total, granted := rapid.IntRange(0, 40).Draw(rt, "total"), rapid.IntRange(0, 20).Draw(rt, "granted")
				amount := rapid.IntRange(0, 30).Draw(rt, "amount")
				now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(rt, "seconds")) * time.Second)
				m := model[root]
				if m == nil {
					m = &store.GasAccount{Root: root, Total: total, Debited: min(total, granted)}
					model[root] = m
				}
				if rapid.IntRange(0, 4).Draw(rt, "op") == 0 {
					m.Total += amount
					a, err := tx.Gas.Raise(ctx, root, total, granted, amount, now)
					if err != nil {
						return err
					}
					if a.Total != m.Total || a.Debited != m.Debited {
						rt.Errorf("Raise gave %+v, want %+v", a, *m)
					}
					continue
				}
				want := min(amount, m.Total-m.Debited)
				m.Debited += want
				got, err := tx.Gas.Debit(ctx, root, total, granted, amount, now)
				if err != nil {
					return err
				}
				if got != want {
					rt.Errorf("Debit(%s, %d, %d, %d) = %d, want %d", root, total, granted, amount, got, want)
				}
			}
			return nil
		})
		for root, m := range model {
			if a := account(t, s, root); a.Total != m.Total || a.Debited != m.Debited || a.Debited > a.Total {
				rt.Errorf("account %+v, want %+v", a, *m)
			}
		}
	})
}

func gasRollback(t *testing.T, s store.Store) {
	debit(t, s, "r", 10, 0, 3, epoch)
	_ = s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		n, err := tx.Gas.Debit(ctx, "r", 10, 0, 7, epoch)
		return errors.Join(err, fmt.Errorf("%w after %d", errWanted, n))
	})
	equal(t, "debited", account(t, s, "r").Debited, 3)
}

func gasRaise(t *testing.T, s store.Store) {
	raise := func(root string, add int, now time.Time) (a store.GasAccount, err error) {
		err = s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
			a, err = tx.Gas.Raise(ctx, root, 10, 4, add, now)
			return err
		})
		return a, err
	}
	a, err := raise("r", 5, epoch)
	if err != nil {
		t.Fatalf("Raise: %v", err)
	}
	equal(t, "raised account", a, store.GasAccount{Root: "r", Total: 15, Debited: 4, Updated: epoch})
	equal(t, "kept account", account(t, s, "r"), a)
	equal(t, "debit", debit(t, s, "r", 10, 4, 100, epoch), 11)
	if _, err = raise("r", 2, epoch.Add(time.Hour)); err != nil {
		t.Fatalf("Raise: %v", err)
	}
	equal(t, "debit of the raise", debit(t, s, "r", 10, 4, 100, epoch), 2)
	_, err = raise("r", -1, epoch)
	code(t, "negative raise", err, headgate.CodeInvalidArgument)
}

func gasPrune(t *testing.T, s store.Store) {
	for i := range 10 {
		debit(t, s, fmt.Sprint("r", i), 5, 0, 5, epoch.Add(time.Duration(i)*time.Hour))
	}
	// Refused debits keep an account alive, or its root would start anew.
	debit(t, s, "r0", 5, 0, 1, epoch.Add(20*time.Hour))
	prune := func(before time.Time, limit int) (n int) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = tx.Gas.Prune(ctx, before, limit)
			return err
		})
		return n
	}
	equal(t, "pruned before any", prune(epoch, 10), 0)
	equal(t, "pruned within limit 0", prune(epoch.Add(time.Hour*99), 0), 0)
	equal(t, "pruned", prune(epoch.Add(5*time.Hour), 3), 3)
	equal(t, "pruned", prune(epoch.Add(5*time.Hour), 3), 1)
	equal(t, "exhausted account in use", debit(t, s, "r0", 5, 0, 1, epoch.Add(21*time.Hour)), 0)
	equal(t, "pruned", prune(epoch.Add(99*time.Hour), 100), 6)
}
