package sqlstore

import (
	"context"
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// touchAfter is how old the mark of an account's last use may be while the
// account is in use without a debit. It spares an exhausted account a write
// for every refusal; Prune looks at days.
const touchAfter = time.Minute

// Debit implements store.Gas.
func (r gas) Debit(_ context.Context, root string, total, granted, want int, now time.Time) (int, error) {
	if want < 0 {
		return 0, headgate.NewError(headgate.CodeInvalidArgument, "a debit of %d units", want)
	}
	a, fresh, err := r.account(root, total, granted, now)
	if err != nil {
		return 0, err
	}
	got := min(want, a.Total-a.Debited)
	if got == 0 && !fresh && now.Sub(a.Updated) < touchAfter {
		return 0, nil
	}
	a.Debited += got
	return got, r.save(a, now)
}

// Get implements store.Gas.
func (r gas) Get(_ context.Context, root string) (store.GasAccount, error) {
	a, found, err := r.find(root)
	if err == nil && !found {
		err = notFound("gas account of root", root)
	}
	return a, err
}

// Raise implements store.Gas.
func (r gas) Raise(_ context.Context, root string, total, granted, add int, now time.Time) (store.GasAccount, error) {
	a, _, err := r.account(root, total, granted, now)
	if err != nil {
		return store.GasAccount{}, err
	}
	if add < 0 || a.Total > math.MaxInt32-min(add, math.MaxInt32) {
		return store.GasAccount{}, headgate.NewError(headgate.CodeInvalidArgument, "a raise of %d units", add)
	}
	a.Total += add
	if err := r.save(a, now); err != nil {
		return store.GasAccount{}, err
	}
	a.Updated = later(a.Updated, now)
	return a, nil
}

// Prune implements store.Gas.
func (r gas) Prune(_ context.Context, before time.Time, limit int) (int, error) {
	q := r.query("DELETE FROM @gas WHERE root IN (SELECT root FROM @gas WHERE updated < ? ORDER BY updated LIMIT ?)")
	q.timeBound(before)
	q.Int(int64(max(limit, 0)))
	return q.Change()
}

func (r gas) find(root string) (a store.GasAccount, found bool, err error) {
	q := r.query("SELECT root, total, debited, updated FROM @gas WHERE root = ?")
	q.Text(root)
	if found = q.Next(); found {
		a = store.GasAccount{Root: q.ColText(), Total: int(q.ColInt()), Debited: int(q.ColInt()), Updated: q.colTime()}
	}
	return a, found, q.Close()
}

// account returns the root's account, or what it would be when opened.
func (r gas) account(root string, total, granted int, now time.Time) (a store.GasAccount, fresh bool, err error) {
	a, found, err := r.find(root)
	if err != nil || found {
		return a, false, err
	}
	if total < 0 || granted < 0 || total > math.MaxInt32 {
		return a, false, headgate.NewError(headgate.CodeInvalidArgument, "an account of %d units with %d granted", total, granted)
	}
	return store.GasAccount{Root: root, Total: total, Debited: min(granted, total), Updated: now}, true, nil
}

func (r gas) save(a store.GasAccount, now time.Time) error {
	q := r.query(`INSERT INTO @gas (root, total, debited, updated) VALUES (?, ?, ?, ?)
		ON CONFLICT (root) DO UPDATE SET total = excluded.total, debited = excluded.debited, updated = excluded.updated`)
	q.Text(a.Root)
	q.Int(int64(a.Total))
	q.Int(int64(a.Debited))
	q.time(later(a.Updated, now))
	return q.Run()
}

// later keeps the mark from going back with the clock: an account that looks
// unused would be pruned, and opened anew with all its units.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
