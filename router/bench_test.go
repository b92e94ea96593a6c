package router

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// BenchmarkHandler measures publish → router → handler → settle in one
// process, with the broker in memory and the store in SQLite without fsync, so
// that it shows the router's own cost per event.
func BenchmarkHandler(b *testing.B) {
	for _, dedupe := range []string{DedupeDurable, DedupeWindow, DedupeNone} {
		for _, keyed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/keyed=%v", dedupe, keyed), func(b *testing.B) { benchHandler(b, dedupe, keyed) })
		}
	}
}

func benchHandler(b *testing.B, dedupe string, keyed bool) {
	r := newRigWith(b, benchBroker, 4)
	r.quiet = true
	r.start()
	defer r.end()
	var seen atomic.Int64
	done := make(chan struct{}, 1)
	err := r.router.Handle("h", func(context.Context, *Delivery, *Emitter) error {
		if seen.Add(1) == int64(b.N) {
			done <- struct{}{}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	r.put("h", Spec{Dedupe: dedupe, Deliver: Deliver{Handler: &Handler{}}, Concurrency: 256})
	batch := make([]*headgate.Event, 0, 1000)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		key := ""
		if keyed {
			key = fmt.Sprint(i % 1000)
		}
		batch = append(batch, event(fmt.Sprint(i), "x", key))
		if len(batch) == cap(batch) || i == b.N-1 {
			r.publish(batch...)
			batch = batch[:0]
		}
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkPull measures pull and settle in batches of 100.
func BenchmarkPull(b *testing.B) {
	r := newRigWith(b, benchBroker, 4)
	r.quiet = true
	r.start()
	defer r.end()
	r.put("s", Spec{Concurrency: 1000})
	batch := make([]*headgate.Event, 0, 1000)
	for i := range b.N {
		batch = append(batch, event(fmt.Sprint(i), "x", ""))
		if len(batch) == cap(batch) || i == b.N-1 {
			r.publish(batch...)
			batch = batch[:0]
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		got := r.pull("s", 100, time.Second)
		in := make([]Settlement, len(got))
		for i, d := range got {
			in[i] = Settlement{Claim: d.Claim, Outcome: OutcomeAck}
		}
		for _, res := range r.settle("s", in...) {
			if res.Err != nil {
				b.Fatal(res.Err)
			}
		}
		n += len(got)
	}
}
