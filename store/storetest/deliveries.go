package storetest

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var deliveryCases = map[string]func(*testing.T, store.Store){
	"Progress":        progressRoundTrip,
	"ProgressTooHigh": progressTooHigh,
	"Exceptions":      exceptionRoundTrip,
	"ExceptionPages":  exceptionPages,
	"Floors":          floors,
	"FloorsModel":     floorsModel,
}

func progressOf(t testing.TB, s store.Store, subscription string) []store.Progress {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.Progress, error) {
		return tx.Deliveries.Progress(ctx, subscription)
	})
}

func exceptionsOf(t testing.TB, s store.Store, subscription, stream string, after headgate.Position, limit int) []store.Exception {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.Exception, error) {
		return tx.Deliveries.Exceptions(ctx, subscription, stream, after, limit)
	})
}

func progressRoundTrip(t *testing.T, s store.Store) {
	if got := progressOf(t, s, "a"); len(got) > 0 {
		t.Errorf("an unknown subscription has progress %+v", got)
	}
	rows := []store.Progress{
		{Subscription: "a", Stream: "r", Partition: math.MaxUint32, Start: 1, Floor: math.MaxInt64, Done: []byte{0x02}},
		{Subscription: "a", Stream: "s", Partition: 2, Floor: 5, Done: make([]byte, 100_000), Counts: store.Counts{
			Settled: 1, Unmatched: 2, Parked: 3, Extinguished: 4, Expired: 5, Discarded: 6, Trimmed: math.MaxInt64,
		}},
		{Subscription: "a", Stream: "s", Partition: 10, Done: []byte{}},
		{Subscription: "b", Stream: "s", Partition: 2},
	}
	save := func() {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *store.Tx) error {
			shuffled := []store.Progress{rows[2], rows[0], rows[3], rows[1]}
			return tx.Deliveries.SaveProgress(ctx, shuffled)
		})
		equal(t, "progress of a", progressOf(t, s, "a"), rows[:3])
		equal(t, "progress of b", progressOf(t, s, "b"), rows[3:])
	}
	save()
	for i := range rows {
		rows[i].Start++
		rows[i].Floor /= 2
		rows[i].Done = []byte{byte(2 * i), 1}
		rows[i].Counts = rows[i].Counts.Add(store.Counts{Settled: 7, Parked: 1})
	}
	rows[1].Counts.Trimmed = 0
	save()
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Deliveries.SaveProgress(ctx, nil) })
}

// progressTooHigh: a number that a driver cannot keep is refused, not wrapped.
func progressTooHigh(t *testing.T, s store.Store) {
	row := store.Progress{Subscription: "a", Stream: "s", Floor: math.MaxUint64}
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return tx.Deliveries.SaveProgress(ctx, []store.Progress{row})
	})
	if err == nil {
		equal(t, "progress", progressOf(t, s, "a"), []store.Progress{row})
		return
	}
	code(t, "floor above the greatest offset", err, headgate.CodeInvalidArgument)
}

func exception(subscription, stream string, partition uint32, offset uint64) store.Exception {
	return store.Exception{
		Subscription: subscription, Stream: stream, Position: headgate.Position{Partition: partition, Offset: offset},
		Source: "/s", ID: fmt.Sprint(offset), Type: "t", State: store.ExceptionRetry, Attempts: 1, Due: epoch, First: epoch.Add(-time.Minute),
	}
}

func exceptionRoundTrip(t *testing.T, s store.Store) {
	pos := headgate.Position{Partition: 3, Offset: 1 << 60}
	get := func(ctx context.Context, tx *store.Tx) (store.Exception, error) {
		return tx.Deliveries.Exception(ctx, "a", "s", pos)
	}
	code(t, "absent", failing(t, s, get), headgate.CodeNotFound)
	for i, w := range weird {
		e := store.Exception{
			Subscription: "a", Stream: "s", Position: pos, Source: w, ID: w, Type: w, Key: w,
			State:    []store.ExceptionState{store.ExceptionRetry, store.ExceptionAttempt, store.ExceptionHeld}[i%3],
			Attempts: i, History: []byte(w), InProgress: i%2 == 1,
		}
		if i%2 == 0 {
			e.Due, e.First = epoch.Add(time.Duration(i)), epoch.Add(-time.Duration(i))
		}
		update(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.Deliveries.PutExceptions(ctx, []store.Exception{e})
		})
		equal(t, "exception", read(t, s, get), e)
	}
	equal(t, "exceptions of one key", len(exceptionsOf(t, s, "a", "", headgate.Position{}, 10)), 1)
	for range 2 { // a missing one is ignored
		update(t, s, func(ctx context.Context, tx *store.Tx) error {
			return tx.Deliveries.DeleteException(ctx, "a", "s", pos)
		})
	}
	code(t, "deleted", failing(t, s, get), headgate.CodeNotFound)
}

func exceptionPages(t *testing.T, s store.Store) {
	var all []store.Exception
	for _, stream := range []string{"a", "aa", "b"} {
		for _, partition := range []uint32{0, 2, 10} {
			for _, offset := range []uint64{0, 1, 9, 10, 1 << 40} {
				all = append(all, exception("sub", stream, partition, offset))
			}
		}
	}
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		rows := []store.Exception{exception("other", "a", 0, 0), exception("suba", "a", 0, 0)}
		for i := range all {
			rows = append(rows, all[len(all)-1-i])
		}
		return tx.Deliveries.PutExceptions(ctx, rows)
	})
	for _, limit := range []int{1, 4, 7, len(all), 1000} {
		var got []store.Exception
		stream, after := "", headgate.Position{}
		for {
			page := exceptionsOf(t, s, "sub", stream, after, limit)
			if len(page) > limit {
				t.Fatalf("a page of %d for limit %d", len(page), limit)
			}
			if len(page) == 0 || len(got) > len(all) {
				break
			}
			got = append(got, page...)
			stream, after = page[len(page)-1].Stream, page[len(page)-1].Position
		}
		equal(t, fmt.Sprintf("exceptions in pages of %d", limit), got, all)
	}
	equal(t, "exceptions within limit 0", len(exceptionsOf(t, s, "sub", "", headgate.Position{}, 0)), 0)
	equal(t, "behind a gap", exceptionsOf(t, s, "sub", "aa", headgate.Position{Partition: 1, Offset: 5}, 1), all[20:21])
}

func floorsOf(t testing.TB, s store.Store, stream string) map[uint32]uint64 {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) (map[uint32]uint64, error) {
		return tx.Deliveries.Floors(ctx, stream)
	})
}

func floors(t *testing.T, s store.Store) {
	equal(t, "floors of an unknown stream", floorsOf(t, s, "s"), map[uint32]uint64{})
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Deliveries.SaveProgress(ctx, []store.Progress{
			{Subscription: "a", Stream: "s", Partition: 0, Floor: 10},
			{Subscription: "b", Stream: "s", Partition: 0, Floor: 20},
			{Subscription: "a", Stream: "s", Partition: 1, Floor: 7},
			{Subscription: "a", Stream: "s", Partition: 2, Floor: 1},
			{Subscription: "a", Stream: "other", Partition: 0, Floor: 1},
			{Subscription: "a", Stream: "other", Partition: 9, Floor: 1},
		}); err != nil {
			return err
		}
		running := exception("b", "s", 2, 40)
		running.InProgress = true
		return tx.Deliveries.PutExceptions(ctx, []store.Exception{
			exception("b", "s", 0, 3), exception("b", "s", 0, 15), exception("a", "s", 1, 2), running,
			exception("a", "s", 5, 1), // no progress there
			exception("a", "other", 0, 0),
		})
	})
	equal(t, "floors", floorsOf(t, s, "s"), map[uint32]uint64{0: 3, 1: 2, 2: 1})
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		return tx.Deliveries.DeleteException(ctx, "b", "s", headgate.Position{Offset: 3})
	})
	equal(t, "floors after the lowest exception ended", floorsOf(t, s, "s"), map[uint32]uint64{0: 10, 1: 2, 2: 1})
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Subscriptions.Put(ctx, store.Subscription{Name: "a"}); err != nil {
			return err
		}
		return tx.Subscriptions.Delete(ctx, "a")
	})
	equal(t, "floors without a", floorsOf(t, s, "s"), map[uint32]uint64{0: 15})
}

// floorsModel compares Floors with its definition over random histories.
func floorsModel(t *testing.T, s store.Store) {
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		stream := fmt.Sprint("stream", round)
		want := map[uint32]uint64{}
		progress, exceptions := map[[2]int]uint64{}, map[[3]int]bool{}
		update(t, s, func(ctx context.Context, tx *store.Tx) error {
			for range rapid.IntRange(0, 30).Draw(rt, "steps") {
				sub, part, off := rapid.IntRange(0, 2).Draw(rt, "sub"), rapid.IntRange(0, 2).Draw(rt, "part"), rapid.IntRange(0, 20).Draw(rt, "off")
				name, pos := fmt.Sprint("sub", sub), headgate.Position{Partition: uint32(part), Offset: uint64(off)}
				var err error
				switch rapid.IntRange(0, 2).Draw(rt, "op") {
				case 0:
					progress[[2]int{sub, part}] = uint64(off)
					err = tx.Deliveries.SaveProgress(ctx, []store.Progress{{Subscription: name, Stream: stream, Partition: uint32(part), Floor: uint64(off)}})
				case 1:
					exceptions[[3]int{sub, part, off}] = true
					err = tx.Deliveries.PutExceptions(ctx, []store.Exception{exception(name, stream, uint32(part), uint64(off))})
				case 2:
					delete(exceptions, [3]int{sub, part, off})
					err = tx.Deliveries.DeleteException(ctx, name, stream, pos)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		for k, floor := range progress {
			if have, ok := want[uint32(k[1])]; !ok || floor < have {
				want[uint32(k[1])] = floor
			}
		}
		for k := range exceptions {
			if have, ok := want[uint32(k[1])]; ok && uint64(k[2]) < have {
				want[uint32(k[1])] = uint64(k[2])
			}
		}
		if got := floorsOf(t, s, stream); fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Errorf("floors %v, want %v", got, want)
		}
	})
}
