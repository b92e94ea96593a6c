package natsbroker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

// benchEvent is an event of about 400 bytes of payload.
func benchEvent(n uint64, key string) *headgate.Event {
	now := time.Now()
	return &headgate.Event{
		ID: fmt.Sprintf("0198f3a2-7c41-7000-8000-%012x", n), Source: "/bench/publisher", Type: "bench.event",
		Subject: "ticket/1", Time: now, DataSchema: "bench.event@1", Key: key,
		Data: benchData[:400],
		Header: headgate.Header{
			RootID: "0198f3a2-7c41-7000-8000-000000000000", TTL: 16, Origin: headgate.OriginAgent,
			Principal: "bench", Actor: headgate.KindAgent, RecordedTime: now, Lineage: benchData[:48],
		},
	}
}

var benchData = slices.Repeat([]byte(`{"k":"0123456789"},`), 64)

func benchBroker(b *testing.B, d broker.Durability) *Broker {
	b.Helper()
	br := open(b, Config{Dir: b.TempDir(), Durability: d, MinFree: -1}, brokertest.Options{})
	if _, err := br.Ensure(context.Background(), []broker.StreamSpec{{Name: "bench"}}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = br.Close(context.Background()) })
	return br
}

// syncLatency is the disk's median time to append and sync 600 bytes.
func syncLatency(b *testing.B) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "sync"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	times := make([]time.Duration, 300)
	for i := range times {
		start := time.Now()
		if _, err := f.Write(benchData[:600]); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// BenchmarkPublishSingle has many publishers with one event in each call.
func BenchmarkPublishSingle(b *testing.B) {
	for _, clients := range []int{1, 8, 64, 512} {
		for _, d := range []broker.Durability{broker.DurabilityFsync, broker.DurabilityProcess} {
			b.Run(fmt.Sprintf("clients=%d/%s", clients, d), func(b *testing.B) {
				br := benchBroker(b, d)
				fsync := syncLatency(b)
				publishFrom(b, br, clients, 1)
				b.ReportMetric(float64(fsync.Microseconds()), "fsync-p50-µs")
			})
		}
	}
}

// BenchmarkPublishBatch has four publishers with many events in each call.
func BenchmarkPublishBatch(b *testing.B) {
	for _, size := range []int{100, 1000} {
		for _, d := range []broker.Durability{broker.DurabilityFsync, broker.DurabilityProcess} {
			b.Run(fmt.Sprintf("size=%d/%s", size, d), func(b *testing.B) {
				br := benchBroker(b, d)
				publishFrom(b, br, 4, size)
			})
		}
	}
}

// publishFrom publishes b.N events, counting only what is Stored.
func publishFrom(b *testing.B, br *Broker, clients, size int) {
	b.Helper()
	var next atomic.Uint64
	var wg sync.WaitGroup
	lat := make([][]time.Duration, clients)
	b.ResetTimer()
	for c := range clients {
		wg.Go(func() {
			for {
				first := next.Add(uint64(size)) - uint64(size)
				if first >= uint64(b.N) {
					return
				}
				events := make([]*headgate.Event, min(size, b.N-int(first)))
				for i := range events {
					events[i] = benchEvent(first+uint64(i), "")
				}
				start := time.Now()
				results, err := br.Publish(context.Background(), "bench", events)
				lat[c] = append(lat[c], time.Since(start))
				if err != nil || results[len(results)-1].Outcome != broker.OutcomeStored {
					b.Error(err, results[0].Err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(lat...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkConsume receives and settles what is stored already.
func BenchmarkConsume(b *testing.B) {
	br := benchBroker(b, broker.DurabilityProcess)
	const batch = 1000
	for n := 0; n < b.N; n += batch {
		events := make([]*headgate.Event, batch)
		for i := range events {
			events[i] = benchEvent(uint64(n+i), "")
		}
		if _, err := br.Publish(context.Background(), "bench", events); err != nil {
			b.Fatal(err)
		}
	}
	sub, err := br.Subscribe(context.Background(), broker.SubscribeSpec{Stream: "bench", Buffer: 4096})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	ss := make([]broker.Settlement, 0, 1024)
	for n := 0; n < b.N; {
		ds, err := sub.Receive(context.Background(), 1024)
		if err != nil {
			b.Fatal(err)
		}
		ss = ss[:0]
		for _, d := range ds {
			ss = append(ss, broker.Settlement{Position: d.Position, Act: broker.Ack})
		}
		if err := sub.Settle(context.Background(), ss); err != nil {
			b.Fatal(err)
		}
		n += len(ds)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	_ = sub.Close()
}

// BenchmarkOpen starts the driver on a million stored events, all within the
// dedupe window: until it answers, and until the window is complete.
func BenchmarkOpen(b *testing.B) {
	for _, size := range []int{1000, 10} {
		b.Run(fmt.Sprintf("events=1M/batch=%d", size), func(b *testing.B) {
			dir := b.TempDir()
			cfg := Config{Dir: dir, Durability: broker.DurabilityProcess, MinFree: -1}
			ctx := context.Background()
			specs := []broker.StreamSpec{{Name: "bench"}}
			br := open(b, cfg, brokertest.Options{})
			if _, err := br.Ensure(ctx, specs); err != nil {
				b.Fatal(err)
			}
			const total = 1_000_000
			for n := 0; n < total; n += size {
				events := make([]*headgate.Event, size)
				for i := range events {
					events[i] = benchEvent(uint64(n+i), "")
				}
				if _, err := br.Publish(ctx, "bench", events); err != nil {
					b.Fatal(err)
				}
			}
			if err := br.Close(ctx); err != nil {
				b.Fatal(err)
			}
			var ready, complete time.Duration
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				br := open(b, cfg, brokertest.Options{})
				if _, err := br.Ensure(ctx, specs); err != nil {
					b.Fatal(err)
				}
				ready += time.Since(start)
				if _, ok := br.Known("bench", "/bench/publisher", benchEvent(total-1, "").ID); !ok {
					b.Fatal("the last id is not known")
				}
				complete += time.Since(start)
				if err := br.Close(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(ready.Milliseconds())/float64(b.N), "ready-ms")
			b.ReportMetric(float64(complete.Milliseconds())/float64(b.N), "complete-ms")
		})
	}
}
