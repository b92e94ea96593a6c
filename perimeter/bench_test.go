package perimeter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/perimeter"
)

func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := open(b, setup{})
			p := helpdesk()
			p.Roots.Rate, p.Roots.Burst = 1e12, 1<<40
			discard := &broken{Broker: g.broker, publish: func(_ context.Context, _ string, events []*headgate.Event) ([]broker.Result, error) {
				res := make([]broker.Result, len(events))
				for i := range res {
					res[i].Outcome = broker.OutcomeStored
				}
				return res, nil
			}}
			cfg := g.cfg
			cfg.Broker, cfg.Observer = discard, nil
			gate, err := perimeter.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			events := make([]headgate.Event, n)
			in := make([]perimeter.Item, n)
			data := []byte(`{"n":1,"key":"a key of some length"}`)
			b.ReportAllocs()
			seq := 0
			for b.Loop() {
				for i := range events {
					seq++
					events[i] = headgate.Event{Type: "ticket.opened", ID: ids[seq%len(ids)], Source: "/bench", Data: data}
					in[i].Event = &events[i]
				}
				for _, r := range gate.Admit(context.Background(), perimeter.Submission{Principal: p, Items: in}) {
					if r.Err != nil {
						b.Fatal(r.Err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
		})
	}
}

// ids are made before the clock runs.
var ids = func() []string {
	out := make([]string, 4096)
	for i := range out {
		out[i] = fmt.Sprintf("event-%08d", i)
	}
	return out
}()

// BenchmarkRefuse reports the time from the last byte read to the verdict, of
// payloads with one fault, on every core at once. Beyond the quota refusals are
// counted; before it they wait for their record, after the verdict.
func BenchmarkRefuse(b *testing.B) {
	for _, size := range []int{400, 8 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			g := open(b, setup{})
			var mu sync.Mutex
			var took []time.Duration
			cfg := g.cfg
			cfg.Observer = &headgate.Observer{Refused: func(i headgate.RefusedInfo) {
				mu.Lock()
				took = append(took, i.Took)
				mu.Unlock()
			}}
			gate, err := perimeter.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			data := []byte(`{"key":"` + strings.Repeat("x", size-20) + `","n":"1"}`)
			p := helpdesk()
			p.Roots.Rate, p.Roots.Burst = 1e12, 1<<40
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					e := &headgate.Event{Type: "ticket.opened", Source: "/bench", Data: data}
					res := gate.Admit(context.Background(), perimeter.Submission{Principal: p, Items: items(e)})
					if res[0].Err == nil || res[0].Err.Code != headgate.CodeContractViolation {
						b.Error(res[0].Err)
					}
				}
			})
			slices.Sort(took)
			for _, q := range []struct {
				name string
				per  int
			}{{"p50-ns", 500}, {"p99-ns", 990}, {"p99.9-ns", 999}} {
				b.ReportMetric(float64(took[min(len(took)*q.per/1000, len(took)-1)]), q.name)
			}
		})
	}
}
