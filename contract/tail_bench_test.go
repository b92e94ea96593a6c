package contract

import (
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkReportTail shows how long single refusals with proposals take while
// two workers saturate the cores, and, as a control for what the machine adds,
// how long a refusal takes that allocates nothing beside.
func BenchmarkReportTail(b *testing.B) {
	c, payload := refusedWebhook(b)
	for _, m := range []struct {
		name string
		fn   func()
	}{
		{"check", func() { c.Check(payload) }},
		{"report", func() { c.Report(payload) }},
		{"accept", func() { c.engine.accept(payload) }},
	} {
		b.Run(m.name, func(b *testing.B) {
			const workers = 2
			took := make([][]time.Duration, workers)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					took[w] = make([]time.Duration, 0, b.N/workers)
					for range b.N / workers {
						start := time.Now()
						m.fn()
						took[w] = append(took[w], time.Since(start))
					}
				})
			}
			wg.Wait()
			all := slices.Concat(took...)
			slices.Sort(all)
			for _, q := range []struct {
				name string
				at   float64
			}{{"p50-µs", 0.5}, {"p99-µs", 0.99}, {"p99.9-µs", 0.999}} {
				if len(all) > 0 {
					b.ReportMetric(float64(all[int(float64(len(all)-1)*q.at)].Nanoseconds())/1000, q.name)
				}
			}
		})
	}
}

// benchCPU measures fn in CPU time too, which says more than the clock where
// other processes want the cores.
func benchCPU(b *testing.B, fn func()) {
	fn()
	n, at := 0, cpuTime()
	for b.Loop() {
		fn()
		n++
	}
	b.ReportMetric(float64((cpuTime()-at).Nanoseconds())/float64(n), "cpu-ns/op")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for a bad argument alone
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
