package storetest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var indexCases = map[string]func(*testing.T, store.Store){
	"RoundTrip": indexRoundTrip,
	"Replace":   indexReplace,
	"ByRoot":    indexByRoot,
	"Cursors":   indexCursors,
	"Prune":     indexPrune,
	"Reset":     indexReset,
	"Model":     indexModel,
}

func putIndex(t testing.TB, s store.Store, rows ...store.IndexRow) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Index.Put(ctx, rows) })
}

func byID(t testing.TB, s store.Store, id string) []store.IndexRow {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.IndexRow, error) { return tx.Index.ByID(ctx, id) })
}

func byRoot(t testing.TB, s store.Store, root string, skip, limit int) []store.IndexRow {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.IndexRow, error) {
		return tx.Index.ByRoot(ctx, root, skip, limit)
	})
}

func indexRow(stream string, partition uint32, offset uint64) store.IndexRow {
	return store.IndexRow{
		ID: fmt.Sprintf("%s-%d-%d", stream, partition, offset), Source: "/s", Stream: stream,
		Position: headgate.Position{Partition: partition, Offset: offset}, Type: "t", Root: "r", TTL: 15, Hop: 1,
		Origin: headgate.OriginAgent, Principal: "p", Contract: "t@1", Recorded: epoch,
	}
}

func indexRoundTrip(t *testing.T, s store.Store) {
	if got := byID(t, s, "absent"); len(got) > 0 {
		t.Errorf("an unknown id has rows %+v", got)
	}
	for i, w := range weird {
		row := store.IndexRow{
			ID: "i" + w, Source: w, Stream: "s" + w, Position: headgate.Position{Partition: math.MaxUint32, Offset: uint64(i)},
			Type: w, Subject: w, Root: "r" + w, Causes: w, TTL: i, Hop: -i, Origin: headgate.Origin(w), Principal: w, Contract: w,
		}
		if i%2 == 0 {
			row.Recorded = epoch.Add(time.Duration(i))
		}
		putIndex(t, s, row)
		equal(t, "row by id", byID(t, s, row.ID), []store.IndexRow{row})
		equal(t, "row by root", byRoot(t, s, row.Root, 0, 10), []store.IndexRow{row})
	}
}

func indexReplace(t *testing.T, s store.Store) {
	a := indexRow("s", 0, 1)
	putIndex(t, s, a)
	b := a
	b.ID, b.Root = "other", "r2"
	putIndex(t, s, b, b)
	equal(t, "old id", len(byID(t, s, a.ID)), 0)
	equal(t, "old root", len(byRoot(t, s, a.Root, 0, 10)), 0)
	equal(t, "new id", byID(t, s, "other"), []store.IndexRow{b})
	// Another source may use the same id.
	c := indexRow("s", 1, 1)
	c.ID, c.Source = "other", "/elsewhere"
	putIndex(t, s, c)
	equal(t, "shared id", byID(t, s, "other"), []store.IndexRow{b, c})
	putIndex(t, s)
}

func indexByRoot(t *testing.T, s store.Store) {
	var rows []store.IndexRow
	for _, at := range []time.Duration{0, 1, time.Hour} {
		for _, stream := range []string{"a", "b"} {
			for _, pos := range []headgate.Position{{Partition: 1, Offset: 9}, {Partition: 1, Offset: 10}, {Partition: 2, Offset: 0}} {
				row := indexRow(stream, pos.Partition, pos.Offset+100*uint64(at/1))
				row.Recorded = epoch.Add(at)
				rows = append(rows, row)
			}
		}
	}
	for i := range rows {
		putIndex(t, s, rows[(i*7)%len(rows)])
	}
	other := indexRow("c", 0, 0)
	other.Root = "r2"
	putIndex(t, s, other)
	equal(t, "all", byRoot(t, s, "r", 0, 100), rows)
	for skip := range len(rows) + 2 {
		for _, limit := range []int{0, 1, 5} {
			want := rows[min(skip, len(rows)):min(skip+limit, len(rows))]
			if got := byRoot(t, s, "r", skip, limit); len(got)+len(want) > 0 {
				equal(t, fmt.Sprintf("from %d, %d rows", skip, limit), got, want)
			}
		}
	}
}

func cursor(t testing.TB, s store.Store, stream string, partition uint32) uint64 {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) (uint64, error) {
		return tx.Index.Cursor(ctx, stream, partition)
	})
}

func indexCursors(t *testing.T, s store.Store) {
	equal(t, "cursor at first", cursor(t, s, "s", 0), uint64(0))
	for _, next := range []uint64{5, 7, 3} {
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Index.SetCursor(ctx, "s", 1, next) })
		equal(t, "cursor", cursor(t, s, "s", 1), next)
	}
	equal(t, "cursor of another partition", cursor(t, s, "s", 0), uint64(0))
	equal(t, "cursor of another stream", cursor(t, s, "t", 1), uint64(0))
}

func indexPrune(t *testing.T, s store.Store) {
	for i := range uint64(20) {
		putIndex(t, s, indexRow("s", 0, i), indexRow("s", 1, i), indexRow("t", 0, i))
	}
	prune := func(below uint64, limit int) (n int) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = tx.Index.Prune(ctx, "s", 0, below, limit)
			return err
		})
		return n
	}
	for _, step := range []struct {
		below uint64
		limit int
		want  int
	}{{0, 100, 0}, {10, 0, 0}, {10, 4, 4}, {10, 4, 4}, {10, 4, 2}, {10, 4, 0}, {12, 2, 2}, {math.MaxUint64, 5, 5}, {math.MaxUint64, 100, 3}, {5, 5, 0}} {
		equal(t, fmt.Sprintf("pruned below %d, at most %d", step.below, step.limit), prune(step.below, step.limit), step.want)
	}
	equal(t, "rows left", len(byRoot(t, s, "r", 0, 100)), 40)
}

func indexReset(t *testing.T, s store.Store) {
	putIndex(t, s, indexRow("s", 0, 1))
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Index.SetCursor(ctx, "s", 0, 2) })
	for range 2 {
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Index.Reset(ctx) })
	}
	equal(t, "rows", len(byRoot(t, s, "r", 0, 100)), 0)
	equal(t, "cursor", cursor(t, s, "s", 0), uint64(0))
	putIndex(t, s, indexRow("s", 0, 1))
	equal(t, "rows put again", len(byRoot(t, s, "r", 0, 100)), 1)
}

// indexModel puts rows in stretches that overlap, leave gaps and come twice,
// prunes them, and compares every answer with a map.
func indexModel(t *testing.T, s store.Store) {
	type place struct {
		stream string
		pos    headgate.Position
	}
	rnd := rand.New(rand.NewPCG(7, 11))
	model := map[place]store.IndexRow{}
	id := func() string { return fmt.Sprint("e", rnd.IntN(300)) }
	for step := range 120 {
		stream, partition := []string{"s", "t"}[rnd.IntN(2)], uint32(rnd.IntN(2))
		if rnd.IntN(8) == 0 {
			below, limit := rnd.Uint64N(400), rnd.IntN(60)
			update(t, s, func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.Index.Prune(ctx, stream, partition, below, limit)
				return err
			})
			var gone []uint64
			for p := range model {
				if p.stream == stream && p.pos.Partition == partition && p.pos.Offset < below {
					gone = append(gone, p.pos.Offset)
				}
			}
			slices.Sort(gone)
			for _, off := range gone[:min(limit, len(gone))] {
				delete(model, place{stream, headgate.Position{Partition: partition, Offset: off}})
			}
			continue
		}
		var rows []store.IndexRow
		off := rnd.Uint64N(300)
		for range 1 + rnd.IntN(150) {
			row := indexRow(stream, partition, off)
			row.ID, row.Root, row.Recorded = id(), id(), epoch.Add(time.Duration(rnd.IntN(1000)))
			if rnd.IntN(3) == 0 {
				row.Root = row.ID
			}
			rows = append(rows, row)
			model[place{stream, row.Position}] = row
			off += uint64(1 + rnd.IntN(3)/2)
		}
		putIndex(t, s, rows...)
		if step%6 != 0 {
			continue
		}
		for range 20 {
			asked, skip, limit := id(), rnd.IntN(5), 1+rnd.IntN(20)
			var ids, roots []store.IndexRow
			for _, row := range model {
				if row.ID == asked {
					ids = append(ids, row)
				}
				if row.Root == asked {
					roots = append(roots, row)
				}
			}
			places := func(a, b store.IndexRow) int {
				return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Position.Partition, b.Position.Partition), cmp.Compare(a.Position.Offset, b.Position.Offset))
			}
			slices.SortFunc(ids, places)
			slices.SortFunc(roots, func(a, b store.IndexRow) int { return cmp.Or(a.Recorded.Compare(b.Recorded), places(a, b)) })
			roots = roots[min(skip, len(roots)):]
			roots = roots[:min(limit, len(roots))]
			if got := byID(t, s, asked); len(got)+len(ids) > 0 {
				equal(t, "rows by id "+asked, got, ids)
			}
			if got := byRoot(t, s, asked, skip, limit); len(got)+len(roots) > 0 {
				equal(t, "rows by root "+asked, got, roots)
			}
		}
	}
}
