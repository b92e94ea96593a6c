package unit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/relay/sqliterelay"
	"github.com/headgate/headgate/unit"
)

// 16 concurrent deliveries of one id have one effect; a replay that is older
// than what is remembered needs the override.
func TestTrap36InboxRaceAndRetention(t *testing.T) {
	everyLevel(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for round := range 3 {
			id := fmt.Sprint("e", round)
			var fresh, again atomic.Int64
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for {
						res, err := w.do(ctx, delivery(id), effect(id))
						switch outcome, _ := unit.Settle(err); {
						case err == nil && res.Duplicate:
							again.Add(1)
						case err == nil:
							fresh.Add(1)
						case outcome == unit.Retry && pgState(err) == "40001":
							continue // the worker's next attempt
						default:
							t.Errorf("%s: %v", w.name, err)
						}
						return
					}
				})
			}
			wg.Wait()
			if fresh.Load() != 1 || again.Load() != 15 {
				t.Errorf("%d were new and %d duplicates", fresh.Load(), again.Load())
			}
			if n := w.number(`SELECT count(*) FROM effects WHERE id = '` + id + `'`); n != 1 {
				t.Errorf("there are %d effects", n)
			}
		}

		w.forget(t)
		old := delivery("e0")
		_, err := w.do(ctx, old, effect("e0"))
		want(t, "a replay of what is forgotten", err, headgate.CodeTooOld)
		if outcome, _ := unit.Settle(err); outcome != unit.Reject {
			t.Errorf("it is settled as %s", outcome)
		}
		old.Recorded = time.Time{}
		_, err = w.do(ctx, old, effect("e0"))
		want(t, "of an unknown time", err, headgate.CodeTooOld)
		if n := w.number(`SELECT count(*) FROM effects`); n != 3 {
			t.Errorf("a refused replay had an effect: %d", n)
		}
		old.AllowOld = true
		for _, duplicate := range []bool{false, true} { // with the override, and then it is known again
			res, err := w.do(ctx, old, effect("e0"))
			must(t, err)
			if res.Duplicate != duplicate {
				t.Errorf("with the override: %+v, want duplicate %v", res, duplicate)
			}
		}
		young := delivery("young")
		young.Recorded = time.Now().Add(2 * time.Hour)
		res, err := w.do(ctx, young, effect("young"))
		must(t, err)
		if res.Duplicate {
			t.Error("a young event is taken for a duplicate")
		}
	})
}

func pgState(err error) string {
	var stated interface{ SQLState() string }
	if errors.As(err, &stated) {
		return stated.SQLState()
	}
	return ""
}

// What fails leaves nothing behind, and the next delivery does all of it.
func TestFailureLeavesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		boom := errors.New("boom")
		_, err := w.do(ctx, delivery("a"), func(ctx context.Context, exec writer, out outbox.Tx) error {
			if err := effect("a")(ctx, exec, out); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is swallowed")
				}
			}()
			_, _ = w.do(ctx, delivery("a"), func(ctx context.Context, exec writer, out outbox.Tx) error {
				must(t, effect("a")(ctx, exec, out))
				panic(boom)
			})
		}()
		// A handler that hides a statement's failure: an aborted transaction of
		// PostgreSQL does not commit.
		res, err := w.do(ctx, delivery("b"), func(_ context.Context, exec writer, _ outbox.Tx) error {
			if exec(`INSERT INTO nowhere VALUES (1)`) == nil {
				t.Error("there is no such table")
			}
			return nil
		})
		if w.postgres != "" && err == nil {
			t.Errorf("an aborted transaction passes for committed: %+v", res)
		}
		if n := w.number(`SELECT count(*) FROM effects`); n != 0 {
			t.Errorf("%d effects are left", n)
		}
		for _, duplicate := range []bool{false, true} {
			res, err := w.do(ctx, delivery("a"), effect("a"))
			must(t, err)
			if res.Duplicate != duplicate {
				t.Errorf("%+v", res)
			}
		}
		if n := w.number(`SELECT count(*) FROM effects`); n != 1 {
			t.Errorf("%d effects", n)
		}
		// Another consumer, and another source, have effects of their own.
		other, source := delivery("a"), delivery("a")
		other.Consumer, source.Source = "mailing", "/other"
		for _, d := range []unit.Delivery{other, source} {
			if res, err := w.do(ctx, d, effect("a")); err != nil || res.Duplicate {
				t.Errorf("%+v, %v", res, err)
			}
		}
		_, err = w.do(ctx, unit.Delivery{}, effect("a"))
		want(t, "no event", err, headgate.CodeInvalidArgument)
	})
}

// A second delivery waits for the first, and does the work if that is undone.
func TestDuplicateWaitsForTheFirst(t *testing.T) {
	for _, end := range []string{"rollback", "commit"} {
		t.Run(end, func(t *testing.T) {
			everyLevel(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				inside, goOn := make(chan struct{}), make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := w.do(ctx, delivery("a"), func(ctx context.Context, exec writer, out outbox.Tx) error {
						if err := effect("first")(ctx, exec, out); err != nil {
							return err
						}
						close(inside)
						<-goOn
						if end == "rollback" {
							return errors.New("no")
						}
						return nil
					})
					if (err == nil) != (end == "commit") {
						t.Error(err)
					}
				})
				<-inside
				var second unit.Result
				wg.Go(func() {
					var err error
					for { // at higher levels the wait may end in 40001 for longer than Attempts
						if second, err = w.do(ctx, delivery("a"), effect("second")); pgState(err) != "40001" {
							break
						}
					}
					if err != nil {
						t.Error(err)
					}
				})
				if w.postgres != "" {
					waitFor(t, w, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
				}
				close(goOn)
				wg.Wait()
				if second.Duplicate != (end == "commit") {
					t.Errorf("the second: %+v", second)
				}
				if n := w.number(`SELECT count(*) FROM effects`); n != 1 {
					t.Errorf("%d effects", n)
				}
			})
		})
	}
}

// waitFor waits until a query gives more than none.
func waitFor(t *testing.T, w *world, query string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); w.number(query) == 0; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", query)
		}
	}
}

// A lease that was superseded between claim and commit: nothing is written,
// nothing is repeated, and the delivery is left to the other worker.
func TestSupersededWorkerWritesNothing(t *testing.T) {
	everyLevel(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		d := delivery("a")
		d.Fence = grant("order/1", 10)
		// The first unit under a lease seals the database by itself.
		if res, err := w.do(ctx, d, effect("a")); err != nil || res.Duplicate {
			t.Fatalf("%+v, %v", res, err)
		}
		late := delivery("b")
		late.Fence = grant("order/1", 10)
		must(t, w.seal(ctx, *grant("order/1", 20))) // another worker has taken over
		runs := 0
		_, err := w.do(ctx, late, func(ctx context.Context, exec writer, out outbox.Tx) error {
			runs++
			return effect("b")(ctx, exec, out)
		})
		want(t, "stale", err, headgate.CodeStaleFence)
		if headgate.AsError(err).Info().Retry != headgate.RetryNever || runs != 0 {
			t.Errorf("it is repeated: %v, %d runs", err, runs)
		}
		if outcome, _ := unit.Settle(err); outcome != unit.Drop {
			t.Errorf("it is settled as %s", outcome)
		}
		if n := w.number(`SELECT count(*) FROM effects`); n != 1 {
			t.Errorf("%d effects", n)
		}
		late.Fence = grant("order/1", 20) // the new holder
		if res, err := w.do(ctx, late, effect("b")); err != nil || res.Duplicate {
			t.Errorf("the new holder: %+v, %v", res, err)
		}
		_, err = w.once(ctx, func() unit.Delivery { d := delivery("c"); d.Fence = grant("order/1", 10); return d }(), time.Minute,
			func(context.Context, string) ([]byte, error) { t.Error("it runs"); return nil, nil })
		want(t, "stale, outside", err, headgate.CodeStaleFence)
	})
}

// A takeover waits for a unit in progress: it is before it, or after it.
func TestTakeoverWaitsForTheUnit(t *testing.T) {
	w := pgxWorld(t, prepared(t), "")
	ctx := t.Context()
	d := delivery("a")
	d.Fence = grant("order/1", 10)
	must(t, w.seal(ctx, *d.Fence))
	sealed := make(chan error, 1)
	_, err := w.do(ctx, d, func(ctx context.Context, exec writer, out outbox.Tx) error {
		go func() { sealed <- w.seal(ctx, *grant("order/1", 20)) }()
		waitFor(t, w, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		return effect("a")(ctx, exec, out)
	})
	must(t, err)
	must(t, <-sealed)
	if n := w.number(`SELECT count(*) FROM effects`); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// A lease in a database that cannot check it is refused.
func TestLeaseWithoutGuardIsRefused(t *testing.T) {
	url := newDatabase(t)
	must(t, installInbox(t, url))
	pgtest.Exec(t, url, effects)
	d := delivery("a")
	d.Fence = grant("order/1", 10)
	for _, w := range []*world{pgxWorld(t, url, ""), sqlWorld(t, url)} {
		_, err := w.do(t.Context(), d, effect("a"))
		want(t, w.name, err, headgate.CodeInvalidConfig)
	}
}

// What the database asks to repeat is repeated, within bounds.
func TestConflictsAreRepeated(t *testing.T) {
	url := prepared(t)
	for _, w := range []*world{pgxWorld(t, url, ""), sqlWorld(t, url)} {
		for _, fails := range []int{unit.Attempts - 1, 100} {
			runs, id := 0, fmt.Sprint(w.name, fails)
			_, err := w.do(t.Context(), delivery(id), func(ctx context.Context, exec writer, out outbox.Tx) error {
				runs++
				if runs <= fails {
					return exec(`DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$`)
				}
				return effect("x")(ctx, exec, out)
			})
			if runs != unit.Attempts || (err == nil) != (fails < 100) {
				t.Errorf("%s: %d runs, %v", w.name, runs, err)
			}
		}
	}
}

// Where there is no outbox, emitting fails the unit, whole.
func TestEmitWithoutOutboxFailsTheUnit(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		d := delivery("a")
		d.Cause = "hgc1token"
		emit := func(ctx context.Context, exec writer, out outbox.Tx) error {
			if err := effect("a")(ctx, exec, out); err != nil {
				return err
			}
			return outbox.Emit(ctx, out, &headgate.Event{Type: "order.charged", Source: "/billing"})
		}
		if _, err := w.do(t.Context(), d, emit); err == nil {
			t.Error("an event went nowhere")
		}
		if n := w.number(`SELECT count(*) FROM effects`); n != 0 {
			t.Errorf("%d effects", n)
		}
		if res, err := w.do(t.Context(), d, effect("a")); err != nil || res.Duplicate {
			t.Errorf("without an event: %+v, %v", res, err)
		}
	})
}

// Events of a unit in SQLite are children of its delivery, and of no other.
func TestSQLiteEventsAreChildren(t *testing.T) {
	w := sqliteWorld(t)
	must(t, sqliterelay.Install(t.Context(), w.raw))
	for _, c := range []struct{ id, cause string }{{"a", "hgc1one"}, {"a", "hgc1again"}, {"b", ""}, {"c", "hgc1three"}} {
		d := delivery(c.id)
		d.Cause = c.cause
		_, err := w.do(t.Context(), d, func(ctx context.Context, _ writer, out outbox.Tx) error {
			return outbox.Emit(ctx, out, &headgate.Event{Type: "order.charged", Source: "/billing", Key: c.id}, &headgate.Event{Type: "order.closed", Source: "/billing", Key: c.id})
		})
		must(t, err)
	}
	if n := w.number(`SELECT count(*) FROM headgate_outbox_rows WHERE key = 'a' AND cause = 'hgc1one' OR key = 'b' AND coalesce(cause, '') = '' OR key = 'c' AND cause = 'hgc1three'`); n != 6 {
		t.Errorf("%d of 6 rows are as they must be", n)
	}
	if n := w.number(`SELECT count(*) FROM headgate_outbox_rows`); n != 6 {
		t.Errorf("%d rows", n)
	}
}

// A function that ran and failed has not handled its event, also when its error
// is that of an inbox that it asked itself.
func TestDuplicateIsOnlyWhatDidNotRun(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for i, lease := range []bool{false, true} {
			d := delivery(fmt.Sprint("own", i))
			if lease {
				d.Fence = grant("r", 1)
				must(t, w.seal(ctx, *d.Fence))
			}
			for _, own := range []error{unit.ErrDuplicate, fmt.Errorf("asking another inbox: %w", unit.ErrDuplicate)} {
				res, err := w.do(ctx, d, func(ctx context.Context, exec writer, out outbox.Tx) error {
					return errors.Join(effect(d.ID)(ctx, exec, out), own)
				})
				if !errors.Is(err, own) || res.Duplicate {
					t.Errorf("%v: %+v, %v", own, res, err)
				}
				if outcome, _ := unit.Settle(err); outcome != unit.Retry {
					t.Errorf("settled as %s", outcome)
				}
				_, err = w.batch(ctx, []unit.Delivery{d}, func(context.Context, writer, outbox.Tx, int) error { return own })
				if !errors.Is(err, own) {
					t.Errorf("in a batch: %v", err)
				}
			}
			if n := w.number(`SELECT count(*) FROM effects`); n != i {
				t.Errorf("%d effects of %d", n, i)
			}
			for again := range 2 {
				res, err := w.do(ctx, d, effect(d.ID))
				if err != nil || res.Duplicate != (again == 1) {
					t.Errorf("%+v, %v", res, err)
				}
			}
		}
	})
}
