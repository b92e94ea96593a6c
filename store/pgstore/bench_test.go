package pgstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func openBench(b *testing.B) *Store {
	b.Helper()
	return openTest(b, Config{})
}

// spread runs b.N updates from n goroutines.
func spread(b *testing.B, n int, update func(worker, i int) error) {
	b.Helper()
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range n {
		wg.Go(func() {
			for i := w; i < b.N; i += n {
				if err := update(w, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
}

// BenchmarkSettle is the happy path of a settle call: the progress of a frame
// and one emitted event.
func BenchmarkSettle(b *testing.B) {
	event := make([]byte, 400)
	done := make([]byte, 8)
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("goroutines=", n), func(b *testing.B) {
			s := openBench(b)
			b.ReportAllocs()
			spread(b, n, func(w, i int) error {
				return s.Update(b.Context(), func(ctx context.Context, tx *store.Tx) error {
					if err := tx.Deliveries.SaveProgress(ctx, []store.Progress{{
						Subscription: "triage", Stream: "support", Partition: uint32(w), Floor: uint64(i), Done: done,
					}}); err != nil {
						return err
					}
					return tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "support", Event: event}})
				})
			})
		})
	}
}

// BenchmarkOutsideNodes is the same from several nodes that share a schema, with the
// writers' lock and with SERIALIZABLE transactions that the server may refuse.
// What every node reads and writes is its own, beside one shared counter.
func BenchmarkOutsideNodes(b *testing.B) {
	event := make([]byte, 400)
	for _, n := range []int{1, 2, 4} {
		for name, optimistic := range map[string]bool{"lock": false, "serializable": true} {
			b.Run(fmt.Sprintf("nodes=%d/%s", n, name), func(b *testing.B) {
				nodes := openNodes(b, n, Config{optimistic: optimistic})
				var refused atomic.Int64
				spread(b, 16, func(w, i int) error {
					for {
						err := nodes[w%n].Update(b.Context(), func(ctx context.Context, tx *store.Tx) error {
							if _, err := tx.Gas.Debit(ctx, fmt.Sprint("root", i/16), 1000, 0, 1, time.Unix(0, 0)); err != nil {
								return err
							}
							if err := tx.Deliveries.SaveProgress(ctx, []store.Progress{{
								Subscription: "triage", Stream: "support", Partition: uint32(w), Floor: uint64(i),
							}}); err != nil {
								return err
							}
							return tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "support", Event: event}})
						})
						if headgate.CodeOf(err) != headgate.CodeUnavailable {
							return err
						}
						refused.Add(1)
					}
				})
				b.ReportMetric(float64(refused.Load())/float64(b.N), "given-up/op")
			})
		}
	}
}

// BenchmarkProgress saves progress alone.
func BenchmarkProgress(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("goroutines=", n), func(b *testing.B) {
			s := openBench(b)
			spread(b, n, func(w, i int) error {
				return s.Update(b.Context(), func(ctx context.Context, tx *store.Tx) error {
					return tx.Deliveries.SaveProgress(ctx, []store.Progress{{Subscription: "triage", Stream: "support", Partition: uint32(w), Floor: uint64(i)}})
				})
			})
		})
	}
}

// BenchmarkRows writes batches of 100 rows, one transaction each.
func BenchmarkRows(b *testing.B) {
	const batch = 100
	for name, write := range map[string]func(ctx context.Context, tx *store.Tx, i int) error{
		"outbox": func(ctx context.Context, tx *store.Tx, _ int) error {
			rows := make([]store.OutboxRow, batch)
			for j := range rows {
				rows[j] = store.OutboxRow{Stream: "support", Event: make([]byte, 400)}
			}
			return tx.Outbox.Append(ctx, rows)
		},
		"index": func(ctx context.Context, tx *store.Tx, i int) error {
			rows := make([]store.IndexRow, batch)
			for j := range rows {
				n := uint64(i*batch + j)
				rows[j] = store.IndexRow{
					ID: fmt.Sprintf("01999999-0000-7000-8000-%012d", n), Source: "/helpdesk", Stream: "support", Type: "ticket.opened",
					Root: fmt.Sprintf("01999999-0000-7000-8000-%012d", n/10), Principal: "helpdesk", Contract: "ticket.opened@1", Recorded: time.Unix(0, int64(n)),
				}
				rows[j].Position.Offset = n
			}
			return tx.Index.Put(ctx, rows)
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := openBench(b)
			spread(b, 1, func(_, i int) error {
				return s.Update(b.Context(), func(ctx context.Context, tx *store.Tx) error { return write(ctx, tx, i) })
			})
			b.ReportMetric(batch*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkView reads one row, alone and beside a flood of updates.
func BenchmarkView(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(fmt.Sprint("busy=", busy), func(b *testing.B) {
			s := openBench(b)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			if busy {
				for range 4 {
					wg.Go(func() {
						for i := 0; ctx.Err() == nil; i++ {
							_ = s.Update(ctx, put(fmt.Sprint(i%1000)))
						}
					})
				}
			}
			b.ResetTimer()
			for b.Loop() {
				if err := s.View(b.Context(), func(ctx context.Context, tx *store.Tx) error {
					_, err := tx.Deliveries.Floors(ctx, "support")
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
			cancel()
			wg.Wait()
		})
	}
}
