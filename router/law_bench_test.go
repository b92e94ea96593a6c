package router

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// BenchmarkConservation measures the conservation law over a million events
// that a subscription has settled, and over a backlog of a hundred thousand.
func BenchmarkConservation(b *testing.B) {
	for _, c := range []struct{ done, pending int }{{1_000_000, 0}, {0, 100_000}} {
		b.Run(fmt.Sprintf("done=%d/pending=%d", c.done, c.pending), func(b *testing.B) {
			r := newRigWith(b, benchBroker, 4)
			r.quiet = true
			r.start()
			defer r.end()
			r.put("s", Spec{Types: []string{"x"}, Concurrency: 1000})
			for n, typ := range map[int]string{c.done: "y", c.pending: "x"} {
				for n > 0 {
					batch := make([]*headgate.Event, min(n, 1000))
					for i := range batch {
						batch[i] = event(fmt.Sprint(typ, n, "/", i), typ, "")
					}
					r.publish(batch...)
					n -= len(batch)
				}
			}
			for r.balance().Counts.Unmatched < uint64(c.done) {
				runtime.Gosched()
			}
			b.ResetTimer()
			for range b.N {
				r.balance()
			}
		})
	}
}

// BenchmarkStart measures the start of a subscription with 50,000 exceptions.
func BenchmarkStart(b *testing.B) {
	r := newRigWith(b, benchBroker, 1)
	r.quiet = true
	r.start()
	r.put("s", Spec{})
	const n = 50_000
	var rows []store.Exception
	p := newProgress(0)
	for i := range uint64(n) {
		p.mark(i)
		rows = append(rows, store.Exception{
			Subscription: "s", Stream: "events", Position: headgate.Position{Offset: i}, Type: "x", Key: fmt.Sprint(i % 1000),
			State: store.ExceptionRetry, Attempts: 1, Due: time.Now().Add(time.Hour), First: time.Now(),
		})
	}
	if err := r.stop(); err != nil {
		b.Fatal(err)
	}
	r.update(func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Deliveries.PutExceptions(ctx, rows); err != nil {
			return err
		}
		return tx.Deliveries.SaveProgress(ctx, []store.Progress{p.row("s", "events", 0)})
	})
	b.ResetTimer()
	for range b.N {
		r.start()
		b.StopTimer()
		if err := r.stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.StopTimer()
	r.close()
}
