package lease

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
)

// durable is a service over a database that fsyncs.
func durable(b *testing.B) *Service {
	st, err := sqlitestore.Open(b.Context(), sqlitestore.Config{Path: filepath.Join(b.TempDir(), "h.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	return service(b, st)
}

func grantOf(b testing.TB, s *Service, resource string) Grant {
	b.Helper()
	g, err := s.Acquire(b.Context(), worker("a"), Request{Resources: []string{resource}, TTL: MaxTTL})
	if err != nil {
		b.Fatal(err)
	}
	return g[0]
}

func BenchmarkAcquireRelease(b *testing.B) {
	s := durable(b)
	for b.Loop() {
		g := grantOf(b, s, "r")
		if err := s.Release(b.Context(), worker("a"), "r", g.Token); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeartbeat renews in parallel, as many holders do.
func BenchmarkHeartbeat(b *testing.B) {
	s := durable(b)
	b.SetParallelism(64)
	n := make(chan int, 1)
	n <- 0
	b.RunParallel(func(pb *testing.PB) {
		i := <-n
		n <- i + 1
		g := grantOf(b, s, "r"+strconv.Itoa(i))
		for pb.Next() {
			if _, err := s.Renew(b.Context(), worker("a"), "", g.Token, 0); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// superseded returns a fence that is.
func superseded(b *testing.B, s *Service) Fence {
	b.Helper()
	g := grantOf(b, s, "old")
	f, err := s.Read(b.Context(), g.Token, "")
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Release(b.Context(), worker("a"), "old", g.Token); err != nil {
		b.Fatal(err)
	}
	return f
}

func reject(b *testing.B, check func() error) {
	b.Helper()
	took := make([]time.Duration, 0, 1<<16)
	for b.Loop() {
		began := time.Now()
		if headgate.CodeOf(check()) != headgate.CodeStaleFence {
			b.Fatal("a stale fence passed")
		}
		if len(took) < cap(took) {
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	for name, q := range map[string]float64{"p50-µs": 0.5, "p99-µs": 0.99, "p99.9-µs": 0.999} {
		b.ReportMetric(float64(took[int(q*float64(len(took)-1))].Nanoseconds())/1000, name)
	}
}

func BenchmarkRejectFromMemory(b *testing.B) {
	s := durable(b)
	f := superseded(b, s)
	reject(b, func() error { return s.Superseded(&f) })
}

// BenchmarkRejectFromStore: a node that does not remember asks the store,
// without and with writers that keep its queue busy.
func BenchmarkRejectFromStore(b *testing.B) {
	for _, busy := range []int{0, 6} {
		b.Run(map[int]string{0: "idle", 6: "busy"}[busy], func(b *testing.B) {
			s := durable(b)
			f := superseded(b, s)
			stop := make(chan struct{})
			done := make(chan struct{}, busy)
			for i := range busy {
				g := grantOf(b, s, "busy"+string(rune('a'+i)))
				go func() {
					defer func() { done <- struct{}{} }()
					for {
						select {
						case <-stop:
							return
						default:
							if err := write(b.Context(), s, s.cfg.Store, g.Token); err != nil {
								return
							}
						}
					}
				}()
			}
			reject(b, func() error {
				s.seen.epochs.Clear()
				return s.Current(b.Context(), &f)
			})
			close(stop)
			for range busy {
				<-done
			}
		})
	}
}

// BenchmarkWrite compares a fenced write with an unfenced one, 8 at a time.
func BenchmarkWrite(b *testing.B) {
	for _, fenced := range []bool{false, true} {
		b.Run(map[bool]string{false: "unfenced", true: "fenced"}[fenced], func(b *testing.B) {
			s := durable(b)
			f, err := s.Read(b.Context(), grantOf(b, s, "r").Token, "")
			if err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					err := s.cfg.Store.Update(b.Context(), func(ctx context.Context, tx *store.Tx) error {
						if fenced {
							if err := s.Guard(ctx, tx, &f); err != nil {
								return err
							}
						}
						return tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "s", Event: []byte("event")}})
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
