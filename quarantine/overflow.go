package quarantine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// maxCounters bounds the distinct counters since the start of the process, in
// memory and hence in the store: types are whatever a client says. Beyond it
// types are summed up, and beyond twice that principals too.
const maxCounters = 4096

type counterKey struct{ principal, reason, eventType string }

// overflow counts the refusals that were not kept.
type overflow struct {
	// flushing is held while counters move to the store.
	flushing sync.Mutex

	mu    sync.Mutex
	known map[counterKey]struct{}
	dirty map[counterKey]store.QuarantineOverflow
}

func newOverflow() *overflow {
	return &overflow{known: make(map[counterKey]struct{}), dirty: make(map[counterKey]store.QuarantineOverflow)}
}

// add counts n refusals.
func (o *overflow) add(principal, reason, eventType string, n uint64, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := o.key(counterKey{principal, reason, eventType})
	row := o.dirty[key]
	row.Principal, row.Reason, row.Type = key.principal, key.reason, key.eventType
	row.Count += n
	if now.After(row.Last) {
		row.Last = now
	}
	o.dirty[key] = row
}

// key returns the key itself, or a coarser one when there are too many.
func (o *overflow) key(k counterKey) counterKey {
	for limit := maxCounters; ; limit *= 2 {
		if _, ok := o.known[k]; ok {
			return k
		}
		if len(o.known) < limit || k.principal == "" {
			o.known[k] = struct{}{}
			return k
		}
		if k.eventType == "" {
			k.principal = ""
		}
		k.eventType = ""
	}
}

// rows returns what was not flushed yet.
func (o *overflow) rows() []store.QuarantineOverflow {
	o.mu.Lock()
	defer o.mu.Unlock()
	rows := make([]store.QuarantineOverflow, 0, len(o.dirty))
	for _, r := range o.dirty {
		rows = append(rows, r)
	}
	return rows
}

// flush moves the counters to the store. On an error they stay in memory: an
// outcome that is unknown counts twice rather than not at all.
func (o *overflow) flush(ctx context.Context, s store.Store) error {
	o.flushing.Lock()
	defer o.flushing.Unlock()
	o.mu.Lock()
	rows := make([]store.QuarantineOverflow, 0, len(o.dirty))
	for _, r := range o.dirty {
		rows = append(rows, r)
	}
	clear(o.dirty)
	o.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, compareOverflow)
	err := s.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Quarantine.AddOverflow(ctx, rows)
	})
	if err != nil {
		for _, r := range rows {
			o.add(r.Principal, r.Reason, r.Type, r.Count, r.Last)
		}
	}
	return err
}

// mergeOverflow adds up the counters of the store and of memory.
func mergeOverflow(stored, fresh []store.QuarantineOverflow) []store.QuarantineOverflow {
	all := slices.Concat(stored, fresh)
	slices.SortStableFunc(all, compareOverflow)
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && compareOverflow(out[n-1], r) == 0 {
			out[n-1].Count += r.Count
			if r.Last.After(out[n-1].Last) {
				out[n-1].Last = r.Last
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

func compareOverflow(a, b store.QuarantineOverflow) int {
	return cmp.Or(cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Type, b.Type))
}
