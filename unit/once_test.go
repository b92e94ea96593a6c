package unit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/unitsqlite"
)

// An effect outside of the database is done once, and its result is what every
// later delivery gets.
func TestOnceStoresTheResult(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var keys []string
		do := func(_ context.Context, key string) ([]byte, error) {
			keys = append(keys, key)
			return []byte("receipt 7\x00"), nil
		}
		for attempt := range 3 {
			res, err := w.once(ctx, delivery("a"), time.Minute, do)
			must(t, err)
			if res.Duplicate != (attempt > 0) || string(res.Value) != "receipt 7\x00" {
				t.Errorf("attempt %d: %+v", attempt, res)
			}
		}
		if len(keys) != 1 || keys[0] != delivery("a").Key() {
			t.Errorf("keys %q", keys)
		}
		// In a transaction it is a duplicate, too; and the other way round.
		if res, err := w.do(ctx, delivery("a"), effect("a")); err != nil || !res.Duplicate {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := w.do(ctx, delivery("b"), effect("b")); err != nil {
			t.Error(err)
		}
		if res, err := w.once(ctx, delivery("b"), time.Minute, do); err != nil || !res.Duplicate || res.Value != nil {
			t.Errorf("%+v, %v", res, err)
		}
		if n := w.number(`SELECT count(*) FROM effects`); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// While a claim lives others are told when to come back; what fails may be
// tried at once; what dies is done again under the same key, when its claim has
// ended by the database's clock.
func TestOnceClaims(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var first string
		_, err := w.once(ctx, delivery("a"), time.Minute, func(ctx context.Context, key string) ([]byte, error) {
			first = key
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Minute {
				t.Errorf("the context ends at %v", deadline)
			}
			_, err := w.once(ctx, delivery("a"), time.Minute, func(context.Context, string) ([]byte, error) {
				t.Error("two are at it")
				return nil, nil
			})
			want(t, "a second worker", err, headgate.CodeInProgress)
			if e := headgate.AsError(err); e == nil || e.RetryAfter <= 0 || e.RetryAfter > time.Minute {
				t.Errorf("%+v", e)
			}
			if outcome, delay := unit.Settle(err); outcome != unit.Retry || delay <= 0 {
				t.Errorf("settled as %s after %s", outcome, delay)
			}
			_, err = w.do(ctx, delivery("a"), effect("a"))
			want(t, "in a transaction", err, headgate.CodeConflict)
			return nil, errors.New("the tool is away")
		})
		if err == nil || err.Error() != "the tool is away" {
			t.Error(err)
		}
		must(t, w.claim(ctx, delivery("a"), func(in inbox.Tx) error { // one that dies
			c, err := in.Claim(ctx, delivery("a").Receipt, time.Hour)
			if err == nil && (c.State != inbox.Run || c.Attempt != 2) {
				t.Errorf("%+v", c)
			}
			return err
		}))
		_, err = w.once(ctx, delivery("a"), time.Minute, nil)
		want(t, "the dead one's claim lives", err, headgate.CodeInProgress)
		w.expire()
		res, err := w.once(ctx, delivery("a"), time.Minute, func(_ context.Context, key string) ([]byte, error) {
			if key != first {
				t.Errorf("key %q, then %q", first, key)
			}
			return []byte("x"), nil
		})
		must(t, err)
		if res.Duplicate || string(res.Value) != "x" {
			t.Errorf("%+v", res)
		}
	})
}

// expire lets every claim run out.
func (w *world) expire() {
	if w.postgres == "" {
		w.exec(`UPDATE headgate_inbox SET expires = 1 WHERE expires IS NOT NULL`)
		return
	}
	w.exec(`UPDATE headgate_inbox.rows SET expires = '2000-01-01' WHERE expires IS NOT NULL`)
}

// A worker whose claim was taken over cannot record anything; one whose claim
// merely ran out can.
func TestLateResults(t *testing.T) {
	everyLevel(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		res, err := w.once(ctx, delivery("late"), time.Minute, func(context.Context, string) ([]byte, error) {
			w.expire()
			return []byte("in time"), nil
		})
		if err != nil || string(res.Value) != "in time" {
			t.Errorf("%+v, %v", res, err)
		}
		_, err = w.once(ctx, delivery("taken"), time.Minute, func(context.Context, string) ([]byte, error) {
			w.expire()
			if _, err := w.once(ctx, delivery("taken"), time.Minute, func(context.Context, string) ([]byte, error) { return []byte("second"), nil }); err != nil {
				t.Error(err)
			}
			return []byte("first"), nil
		})
		want(t, "taken over", err, headgate.CodeClaimSuperseded)
		if outcome, _ := unit.Settle(err); outcome != unit.Drop {
			t.Errorf("settled as %s", outcome)
		}
		res, err = w.once(ctx, delivery("taken"), time.Minute, nil)
		if err != nil || string(res.Value) != "second" {
			t.Errorf("%+v, %v", res, err)
		}
		// Finish may be repeated, and never changes what is stored.
		var claim string
		r := delivery("again").Receipt
		must(t, w.claim(ctx, delivery("again"), func(in inbox.Tx) error {
			c, err := in.Claim(ctx, r, time.Minute)
			claim = c.ID
			return err
		}))
		for _, result := range []string{"one", "two"} {
			must(t, w.claim(ctx, delivery("again"), func(in inbox.Tx) error { return in.Finish(ctx, r, claim, []byte(result)) }))
		}
		res, err = w.once(ctx, delivery("again"), time.Minute, nil)
		if err != nil || string(res.Value) != "one" {
			t.Errorf("%+v, %v", res, err)
		}
		for _, unknown := range []string{"00000000-0000-4000-8000-000000000000", "x"} {
			err = w.claim(ctx, delivery("again"), func(in inbox.Tx) error { return in.Release(ctx, r, unknown) })
			if code := headgate.CodeOf(err); code != headgate.CodeClaimSuperseded && code != headgate.CodeInvalidArgument {
				t.Errorf("claim %q: %v", unknown, err)
			}
		}
	})
}

// Results are bounded, and so are claims.
func TestOnceBounds(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		size := inbox.MaxResult + 1
		do := func(context.Context, string) ([]byte, error) { return make([]byte, size), nil }
		_, err := w.once(ctx, delivery("a"), time.Minute, do)
		want(t, "too large a result", err, headgate.CodeTooLarge)
		size--
		res, err := w.once(ctx, delivery("a"), time.Minute, do) // the claim was given back
		if err != nil || len(res.Value) != inbox.MaxResult {
			t.Errorf("%d bytes, %v", len(res.Value), err)
		}
		for _, ttl := range []time.Duration{-1, time.Microsecond, 25 * time.Hour} {
			_, err := w.once(ctx, delivery("b"), ttl, do)
			want(t, ttl.String(), err, headgate.CodeInvalidArgument)
		}
		for _, d := range []unit.Delivery{delivery(strings.Repeat("x", inbox.MaxID+1)), delivery("a\x00"), delivery("")} {
			_, err := w.once(ctx, d, time.Minute, do)
			want(t, "no id", err, headgate.CodeInvalidArgument)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is swallowed")
				}
			}()
			_, _ = w.once(ctx, delivery("p"), time.Minute, func(context.Context, string) ([]byte, error) { panic("x") })
		}()
		if _, err := w.once(ctx, delivery("p"), time.Minute, func(context.Context, string) ([]byte, error) { return nil, nil }); err != nil {
			t.Errorf("a panic keeps its claim: %v", err)
		}
	})
}

// 16 workers at one effect: it is done once.
func TestOnceRace(t *testing.T) {
	everyLevel(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		runs := 0
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for {
					res, err := w.once(t.Context(), delivery("a"), time.Minute, func(context.Context, string) ([]byte, error) {
						mu.Lock()
						defer mu.Unlock()
						runs++
						return fmt.Append(nil, "run ", runs), nil
					})
					if headgate.CodeOf(err) == headgate.CodeInProgress || pgState(err) == "40001" {
						continue // the worker's next attempt
					}
					if err != nil || string(res.Value) != "run 1" {
						t.Errorf("%+v, %v", res, err)
					}
					return
				}
			})
		}
		wg.Wait()
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
	})
}

// Record runs in the transaction that records the result: both or neither.
func TestOnceRecords(t *testing.T) {
	raw := openSQLite(t, t.TempDir()+"/user.db")
	must(t, installSQLite(t, raw))
	db := unitsqlite.New(raw)
	fail := errors.New("no")
	runs := 0
	e := unit.Effect[*sql.Conn]{
		Do: func(context.Context, string) ([]byte, error) { runs++; return []byte("v"), nil },
		Record: func(ctx context.Context, conn *sql.Conn, _ outbox.Tx, result []byte) error {
			_, err := conn.ExecContext(ctx, `INSERT INTO effects (id) VALUES (?)`, string(result))
			return errors.Join(err, fail)
		},
	}
	if _, err := unit.Once(t.Context(), db, delivery("a"), e); !errors.Is(err, fail) {
		t.Error(err)
	}
	_, err := raw.ExecContext(t.Context(), `UPDATE headgate_inbox SET expires = 1`)
	must(t, err)
	fail = nil
	res, err := unit.Once(t.Context(), db, delivery("a"), e)
	must(t, err)
	var rows int
	must(t, raw.QueryRowContext(t.Context(), `SELECT count(*) FROM effects`).Scan(&rows))
	if rows != 1 || runs != 2 || res.Duplicate {
		t.Errorf("%d rows, %d runs, %+v", rows, runs, res)
	}
}
