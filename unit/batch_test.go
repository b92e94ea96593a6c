package unit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/relay/sqliterelay"
	"github.com/headgate/headgate/unit"
)

func deliveries(ids ...string) (ds []unit.Delivery) {
	for _, id := range ids {
		ds = append(ds, delivery(id))
	}
	return ds
}

func each(ds []unit.Delivery) func(context.Context, writer, outbox.Tx, int) error {
	return func(ctx context.Context, exec writer, out outbox.Tx, i int) error {
		return effect(ds[i].ID)(ctx, exec, out)
	}
}

// A batch is handled as a whole or not at all; what was handled before, or earlier
// in the batch, is skipped, each in its place.
func TestBatchIsHandledAsAWhole(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		_, err := w.do(ctx, delivery("b"), effect("b"))
		must(t, err)
		ds := deliveries("a", "b", "c", "a", "d")
		boom := errors.New("boom")
		_, err = w.batch(ctx, ds, func(ctx context.Context, exec writer, out outbox.Tx, i int) error {
			if err := each(ds)(ctx, exec, out, i); err != nil || i < 4 {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), "delivery 5 of 5") {
			t.Errorf("got %v", err)
		}
		if n := w.number(`SELECT count(*) FROM effects`); n != 1 {
			t.Errorf("a batch that failed left %d effects", n-1)
		}
		var ran []int
		results, err := w.batch(ctx, ds, func(ctx context.Context, exec writer, out outbox.Tx, i int) error {
			ran = append(ran, i)
			return each(ds)(ctx, exec, out, i)
		})
		must(t, err)
		var again []int
		for i, r := range results {
			if r.Duplicate {
				again = append(again, i)
			}
		}
		if !slices.Equal(ran, []int{0, 2, 4}) || !slices.Equal(again, []int{1, 3}) {
			t.Errorf("ran %v, duplicates %v", ran, again)
		}
		if n := w.number(`SELECT count(DISTINCT id) * 100 + count(*) FROM effects`); n != 404 {
			t.Errorf("the effects count %d", n)
		}
		results, err = w.batch(ctx, nil, nil)
		if err != nil || results != nil {
			t.Errorf("an empty batch: %v, %v", results, err)
		}
	})
}

// What cannot be one transaction is refused before anything runs.
func TestBatchesThatAreRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		never := func(context.Context, writer, outbox.Tx, int) error {
			t.Error("it ran")
			return nil
		}
		for name, ds := range map[string][]unit.Delivery{
			"too many": make([]unit.Delivery, unit.MaxBatch+1),
			"no id":    deliveries("a", ""),
			"one under a lease": append(deliveries("a"), unit.Delivery{
				Receipt: delivery("b").Receipt, Fence: grant("r", 1),
			}),
			"two leases": {{Receipt: delivery("a").Receipt, Fence: grant("r", 1)}, {Receipt: delivery("b").Receipt, Fence: grant("r", 2)}},
		} {
			_, err := w.batch(t.Context(), ds, never)
			want(t, name, err, headgate.CodeInvalidArgument)
		}
		ds := []unit.Delivery{{Receipt: delivery("a").Receipt, Fence: grant("r", 2)}, {Receipt: delivery("b").Receipt, Fence: grant("r", 2)}}
		_, err := w.batch(t.Context(), ds, each(ds))
		must(t, err)
		late := []unit.Delivery{{Receipt: delivery("c").Receipt, Fence: grant("r", 1)}}
		_, err = w.batch(t.Context(), late, never)
		want(t, "a superseded worker", err, headgate.CodeStaleFence)
		if n := w.number(`SELECT count(*) FROM effects`); n != 2 {
			t.Errorf("there are %d effects", n)
		}
	})
}

// Batches that hold the same events in any order, and single deliveries beside
// them, have one effect for each event, at every isolation level.
func TestBatchesRace(t *testing.T) {
	everyLevel(t, func(t *testing.T, w *world) {
		const events = 4
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				var ids []string
				for _, n := range rand.Perm(events) {
					ids = append(ids, fmt.Sprint("e", n))
				}
				ds := deliveries(ids...)
				for {
					_, err := w.batch(t.Context(), ds, each(ds))
					if err == nil {
						return
					}
					if s := pgState(err); s != "40001" && s != "40P01" { // the worker's next attempt
						t.Errorf("%s: %v", w.name, err)
						return
					}
				}
			})
		}
		wg.Wait()
		if n := w.number(`SELECT count(DISTINCT id) * 100 + count(*) FROM effects`); n != events*100+events {
			t.Errorf("the effects count %d", n)
		}
	})
}

// What a delivery's handler emits are its own children, not another's, and a
// delivery without a cause gives none.
func TestBatchKeepsCausesApart(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ds := deliveries("a", "b", "c", "d")
		ds[1].Cause, ds[2].Cause = "hgc1first", "hgc1second"
		if w.postgres == "" {
			must(t, sqliterelay.Install(t.Context(), w.raw))
		}
		_, err := w.batch(t.Context(), ds, func(ctx context.Context, exec writer, out outbox.Tx, i int) error {
			if w.postgres != "" { // what the outbox reads; a slot here would hold up others' tests
				return exec(`INSERT INTO effects (id, n) VALUES (coalesce(current_setting('headgate.cause', true), ''), ` + fmt.Sprint(i) + `)`)
			}
			return outbox.Emit(ctx, out, &headgate.Event{Type: "order.placed", Data: fmt.Appendf(nil, `{"n":%d}`, i)})
		})
		must(t, err)
		if w.postgres == "" {
			w.exec(`INSERT INTO effects (id, n) SELECT coalesce(cause, ''), seq - 1 FROM headgate_outbox_rows`)
		}
		for i, d := range ds {
			if n := w.number(fmt.Sprintf(`SELECT count(*) FROM effects WHERE id = '%s' AND n = %d`, d.Cause, i)); n != 1 {
				t.Errorf("what delivery %d emits is not its own child", i+1)
			}
		}
	})
}
