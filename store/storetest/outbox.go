package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate/headgate/store"
)

var outboxCases = map[string]func(*testing.T, store.Store){
	"AppendAndRead":    outboxAppend,
	"Delete":           outboxDelete,
	"WithTheSettle":    outboxWithProgress,
	"ConcurrentAppend": outboxConcurrent,
}

func pending(t testing.TB, s store.Store, after int64, limit int) []store.OutboxRow {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) ([]store.OutboxRow, error) {
		return tx.Outbox.Pending(ctx, after, limit)
	})
}

func appendRows(t testing.TB, s store.Store, rows []store.OutboxRow) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Outbox.Append(ctx, rows) })
}

func outboxAppend(t *testing.T, s store.Store) {
	var rows []store.OutboxRow
	for _, w := range weird {
		rows = append(rows, store.OutboxRow{Stream: w, Event: []byte(w)})
	}
	rows = append(rows, store.OutboxRow{Stream: "large", Event: make([]byte, 1<<20)}, store.OutboxRow{Stream: "nil"})
	appendRows(t, s, rows)
	appendRows(t, s, nil)
	for i, r := range rows {
		if r.Seq <= 0 || (i > 0 && r.Seq <= rows[i-1].Seq) {
			t.Errorf("row %d has sequence number %d", i, r.Seq)
		}
	}
	equal(t, "pending", pending(t, s, 0, 1000), rows)
	equal(t, "pending after the third", pending(t, s, rows[2].Seq, 2), rows[3:5])
	equal(t, "pending within limit 0", len(pending(t, s, 0, 0)), 0)
	equal(t, "pending after all", len(pending(t, s, rows[len(rows)-1].Seq, 10)), 0)
	equal(t, "count", read(t, s, func(ctx context.Context, tx *store.Tx) (int, error) { return tx.Outbox.Count(ctx) }), len(rows))
}

func outboxDelete(t *testing.T, s store.Store) {
	rows := make([]store.OutboxRow, 30)
	appendRows(t, s, rows)
	remove := func(seqs ...int64) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Outbox.Delete(ctx, seqs) })
	}
	left := func(what string, want ...int) {
		t.Helper()
		got, some := []int64{}, []int64{}
		for _, r := range pending(t, s, 0, 100) {
			got = append(got, r.Seq)
		}
		for _, i := range want {
			some = append(some, rows[i].Seq)
		}
		equal(t, what, got, some)
	}
	var most []int64
	for i := 29; i >= 5; i-- {
		if i != 7 && i != 20 {
			most = append(most, rows[i].Seq)
		}
	}
	remove(most...)
	left("after a run with gaps", 0, 1, 2, 3, 4, 7, 20)
	remove(rows[3].Seq, rows[3].Seq, rows[1].Seq, 1<<40, -5, 0)
	left("after repeated and unknown numbers", 0, 2, 4, 7, 20)
	remove()
	left("after nothing", 0, 2, 4, 7, 20)
	remove(rows[0].Seq, rows[2].Seq, rows[4].Seq, rows[7].Seq, rows[20].Seq)
	left("after all")
	again := make([]store.OutboxRow, 1)
	appendRows(t, s, again)
	if again[0].Seq <= rows[29].Seq {
		t.Errorf("sequence number %d was given before", again[0].Seq)
	}
}

// outboxWithProgress: a settlement and what it emitted are one.
func outboxWithProgress(t *testing.T, s store.Store) {
	settle := func(floor uint64, fail error) error {
		return s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			rows := []store.OutboxRow{{Stream: "s", Event: fmt.Append(nil, floor)}}
			return errors.Join(
				tx.Deliveries.SaveProgress(ctx, []store.Progress{{Subscription: "a", Stream: "s", Floor: floor}}),
				tx.Outbox.Append(ctx, rows), fail)
		})
	}
	if err := settle(1, nil); err != nil {
		t.Fatalf("Update: %v", err)
	}
	if err := settle(2, errWanted); !errors.Is(err, errWanted) {
		t.Fatalf("Update: %v", err)
	}
	equal(t, "floor", progressOf(t, s, "a")[0].Floor, uint64(1))
	equal(t, "emitted", len(pending(t, s, 0, 10)), 1)
}

// outboxConcurrent: whoever reads rows up to a number will never see a lower
// one appear later, so that a publisher may go by the highest it saw.
func outboxConcurrent(t *testing.T, s store.Store) {
	const workers, each = 8, 25
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				rows := []store.OutboxRow{{Stream: fmt.Sprint(w), Event: []byte{byte(i)}}, {Stream: fmt.Sprint(w), Event: []byte{byte(i)}}}
				if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return tx.Outbox.Append(ctx, rows) }); err != nil {
					t.Errorf("Update: %v", err)
				}
			}
		})
	}
	stop := make(chan struct{})
	go func() { wg.Wait(); close(stop) }()
	var last int64
	seen := 0
	drain := func() {
		for _, r := range pending(t, s, last, 10_000) {
			last = r.Seq
			seen++
		}
	}
	for running := true; running; {
		select {
		case <-stop:
			running = false
		default:
		}
		drain()
	}
	drain()
	equal(t, "rows that a reader met going by the highest number", seen, workers*each*2)
}
