package router

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// BenchmarkIdle measures what 1,000 subscriptions to other types cost: memory
// each, an event on its way past them, and a tide that saves their progress.
func BenchmarkIdle(b *testing.B) {
	const subs = 1000
	r := newRigWith(b, benchBroker, 4)
	r.quiet = true
	r.start()
	defer r.end()
	before := inUse()
	for i := range subs {
		r.put(fmt.Sprint("s", i), Spec{Types: []string{fmt.Sprint("other.t", i)}, When: `data.amount > 100.0 && data.currency == "EUR"`})
	}
	each := float64(inUse()-before) / subs
	f := r.router.feeds.all()[0]
	batch := make([]broker.Delivery, receiveBatch)
	for i := range batch {
		batch[i].Event = event(fmt.Sprint(i), "x", "")
	}
	b.Run("event", func(b *testing.B) {
		b.ReportMetric(each, "B/subscription")
		for n := 0; n < b.N; n += len(batch) {
			for i := range batch {
				batch[i].Position = headgate.Position{Offset: f.next[0]}
				batch[i].Position.Offset += uint64(i)
			}
			f.hand(batch)
		}
	})
	b.Run("tide", func(b *testing.B) {
		for range b.N {
			f.mu.Lock()
			f.moved = 1
			for p := range f.next {
				f.next[p]++
			}
			f.mu.Unlock()
			if late := r.router.tide(context.Background(), 1, nil); len(late) > 0 {
				b.Fatal("not saved")
			}
		}
	})
}

// inUse returns the memory of heap and stacks.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
