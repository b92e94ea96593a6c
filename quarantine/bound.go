package quarantine

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// recountEvery is how often a full bound asks the store whether there is room
// again. Counting reads the whole index, so it must not happen for every
// delivery of a lane that waits.
const recountEvery = time.Second

// bound counts the records of some kinds against a limit. The count follows
// what this process puts and is corrected from the store when it is at the
// limit: a transaction that was rolled back after Put makes it too high, and
// records that expired or that another node put make it wrong either way.
type bound struct {
	limit int
	kinds []store.QuarantineKind

	mu      sync.Mutex
	n       int
	checked time.Time
	told    bool // that it is full, since there was room
}

// full reports whether the limit is reached, counting anew when it seems so.
func (b *bound) full(ctx context.Context, tx *store.Tx, now time.Time) (bool, error) {
	b.mu.Lock()
	over := b.n >= b.limit
	fresh := now.Sub(b.checked) < recountEvery && !now.Before(b.checked)
	b.mu.Unlock()
	if !over || fresh {
		return over, nil
	}
	if err := b.recount(ctx, tx, now); err != nil {
		return true, err
	}
	return b.atLimit(), nil
}

func (b *bound) atLimit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n >= b.limit
}

// tell reports whether the bound is newly full, once until there is room again.
func (b *bound) tell() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.told
	b.told = true
	return first
}

func (b *bound) recount(ctx context.Context, tx *store.Tx, now time.Time) error {
	n := 0
	for _, kind := range b.kinds {
		c, err := tx.Quarantine.Count(ctx, kind, "", time.Time{})
		if err != nil {
			return err
		}
		n += c
	}
	b.mu.Lock()
	b.n, b.checked = n, now
	b.told = b.told && n >= b.limit
	b.mu.Unlock()
	return nil
}

func (b *bound) add(n int) {
	b.mu.Lock()
	b.n += n
	b.mu.Unlock()
}
