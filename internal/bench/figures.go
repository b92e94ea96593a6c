package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/node"
	"github.com/headgate/headgate/router"
)

// single measures one durable publish per request, from 1 and 64 clients.
func (r *run) single(ctx context.Context) (err error) {
	t, err := r.start(ctx, "single", 1000, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	url, stop, err := baseline(nullHandler)
	if err != nil {
		return err
	}
	defer stop()
	for _, c := range []struct{ clients, n int }{{1, 5000}, {64, 60_000}} {
		n := r.long(c.n)
		bodies := make([][]byte, n)
		for i := range bodies {
			bodies[i] = event(c.clients*10_000_000+i, 400, "")
		}
		nullTook, nullWall, _, err := load(c.clients, n, func(i int) error { return t.post(ctx, url, api.TypeEvent, bodies[i], 202) })
		if err != nil {
			return err
		}
		took, wall, cpu, err := load(c.clients, n, func(i int) error {
			return t.post(ctx, t.url+"/v1/events", api.TypeEvent, bodies[i], 202)
		})
		if err != nil {
			return err
		}
		ours, null := latency(took), latency(nullTook)
		row := Row{
			ID: fmt.Sprintf("single-%d", c.clients), Work: fmt.Sprintf("one durable publish per request, %d client(s), 400 B", c.clients),
			P50: ours.P50, P99: ours.P99, P999: ours.P999, CPU: float64(cpu.Microseconds()) / float64(n),
		}
		if c.clients == 1 {
			row.Ours, row.Baseline, row.Unit = ours.P50, r.report.Fsync.P50+null.P50, "µs p50"
			row.Against = "one append + fdatasync, plus one request to a handler that does nothing"
		} else {
			row.Ours, row.Baseline, row.Unit = float64(n)/wall.Seconds(), float64(n)/nullWall.Seconds(), "events/s"
			row.Against = "net/http handler that reads the body and answers"
		}
		r.add(row)
	}
	return nil
}

// bulk measures NDJSON requests that are checked, fsynced and consumed by an
// in-process handler at the same time.
func (r *run) bulk(ctx context.Context) (err error) {
	var seen counter
	t, err := r.start(ctx, "bulk", 1000, nil, func(n *node.Node) error { return subscribe(ctx, n, "sink", router.DedupeDurable, seen.handle) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	url, stop, err := baseline(splitHandler)
	if err != nil {
		return err
	}
	defer stop()
	total := int64(0)
	for _, size := range []int{100, 1000} {
		requests := max(r.long(400_000/size), 8)
		bodies := make([][]byte, requests)
		for i := range bodies {
			var b bytes.Buffer
			for j := range size {
				b.Write(event(size*100_000_000+i*size+j, 400, ""))
				b.WriteByte('\n')
			}
			bodies[i] = b.Bytes()
		}
		n := requests * size
		_, splitWall, _, err := load(8, requests, func(i int) error { return t.post(ctx, url, api.TypeNDJSON, bodies[i], 202) })
		if err != nil {
			return err
		}
		begin, cpu0 := time.Now(), usage()
		took, wall, _, err := load(8, requests, func(i int) error {
			return t.post(ctx, t.url+"/v1/events", api.TypeNDJSON, bodies[i], 202)
		})
		if err != nil {
			return err
		}
		total += int64(n)
		if err := seen.wait(ctx, int(total)); err != nil {
			return err
		}
		consumed := time.Since(begin)
		if err := t.node.Index.Wait(ctx); err != nil {
			return err
		}
		cpu := usage() - cpu0 // of all that was done for the events, the index included
		l := latency(took)
		r.add(Row{
			ID: fmt.Sprintf("bulk-%d", size), Work: fmt.Sprintf("NDJSON of %d events of 400 B a request, 8 clients, checked, durable and consumed", size),
			Ours: float64(n) / wall.Seconds(), Baseline: float64(n) / splitWall.Seconds(), Unit: "events/s", Against: "net/http handler that only splits the lines",
			P50: l.P50, P99: l.P99, P999: l.P999, CPU: float64(cpu.Microseconds()) / float64(n),
			Note: fmt.Sprintf("The in-process handler had seen all of them after %.0f%% of the time of publishing, the index after %.0f%%.",
				100*consumed.Seconds()/wall.Seconds(), 100*time.Since(begin).Seconds()/wall.Seconds()),
		})
	}
	return nil
}

func subscribe(ctx context.Context, n *node.Node, name, dedupe string, fn router.HandlerFunc) error {
	admin := &headgate.Principal{Name: "load", Kind: headgate.KindSystem, Roles: []headgate.Role{headgate.RoleAdmin}, Listen: []string{"*"}}
	_, err := n.Router.Put(ctx, admin, name, router.Spec{
		Types: []string{"order.*"}, From: "beginning", Deliver: router.Deliver{Handler: &router.Handler{}}, Dedupe: dedupe, Order: router.OrderNone, Concurrency: 256,
	}, "api")
	if err != nil {
		return err
	}
	return n.Router.Handle(name, fn)
}

// refusals measures the time from the last byte read to the verdict, of
// refused events, while two clients saturate the node.
func (r *run) refusals(ctx context.Context) error {
	for _, c := range []struct {
		name string
		size int
	}{{"400B", 400}, {"8KB", 8 << 10}} {
		if err := r.refusal(ctx, c.name, c.size); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) refusal(ctx context.Context, name string, size int) (err error) {
	var mu sync.Mutex
	var verdicts []time.Duration
	obs := &headgate.Observer{Refused: func(i headgate.RefusedInfo) {
		mu.Lock()
		verdicts = append(verdicts, i.Took)
		mu.Unlock()
	}}
	t, err := r.start(ctx, "refusal-"+name, 100, obs, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	n := r.long(20_000)
	bad := make([][]byte, n)
	for i := range bad {
		bad[i] = event(i, size, `"amuont":12,`)
	}
	took, wall, cpu, err := load(2, n, func(i int) error {
		return t.post(ctx, t.url+"/v1/events", api.TypeEvent, bad[i], http.StatusUnprocessableEntity)
	})
	if err != nil {
		return err
	}
	v, http := latency(verdicts), latency(took)
	r.add(Row{
		ID: "refusal-" + name, Work: "refusal with full report, 2 clients, last byte read to verdict", Ours: float64(n) / wall.Seconds(), Unit: "refusals/s",
		P50: v.P50, P99: v.P99, P999: v.P999, CPU: float64(cpu.Microseconds()) / float64(n),
		Note: fmt.Sprintf("Promise: p99.9 below 3 ms. Whole requests: p50 %.0f µs, p99 %.0f µs.", http.P50, http.P99),
	})
	return nil
}

// pulls measures pull and settle round trips over HTTP.
func (r *run) pulls(ctx context.Context) (err error) {
	t, err := r.start(ctx, "pulls", 1000, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	for _, batch := range []int{1, 100} {
		rounds := r.long(60_000 / max(batch/4, 12))
		name := fmt.Sprintf("pull-%d", batch)
		if _, _, err := t.client.PutSubscription(ctx, name, api.SubscriptionSpec{Types: []string{"order.placed"}, Concurrency: 1000}); err != nil {
			return err
		}
		var b bytes.Buffer
		for i := range rounds * batch {
			b.Write(event(batch*50_000_000+i, 400, ""))
			b.WriteByte('\n')
		}
		if err := t.post(ctx, t.url+"/v1/events", api.TypeNDJSON, b.Bytes(), 202); err != nil {
			return err
		}
		done := 0
		took, wall, cpu, err := load(1, rounds, func(int) error {
			deliveries, err := t.client.Pull(ctx, name, batch, 10*time.Second)
			if err != nil {
				return err
			}
			settle := make([]api.Settlement, len(deliveries))
			for i, d := range deliveries {
				settle[i] = api.Settlement{Claim: d.Claim, Outcome: "ack"}
			}
			done += len(settle)
			_, err = t.client.Settle(ctx, name, settle...)
			return err
		})
		if err != nil {
			return err
		}
		l := latency(took)
		r.add(Row{
			ID: name, Work: fmt.Sprintf("pull %d and settle them durably, 1 client", batch), Ours: float64(done) / wall.Seconds(), Unit: "events/s",
			P50: l.P50, P99: l.P99, P999: l.P999, CPU: float64(cpu.Microseconds()) / float64(max(done, 1)), Note: "Latencies are of whole rounds.",
		})
	}
	return nil
}

// handler measures publish → router → in-process handler → settle.
func (r *run) handler(ctx context.Context) (err error) {
	n := r.long(200_000)
	var seen counter
	t, err := r.start(ctx, "handler", 1000, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	var b bytes.Buffer
	for i := range n {
		b.Write(event(i, 400, ""))
		b.WriteByte('\n')
	}
	if err := t.post(ctx, t.url+"/v1/events", api.TypeNDJSON, b.Bytes(), 202); err != nil {
		return err
	}
	if err := t.node.Index.Wait(ctx); err != nil {
		return err
	}
	cpu0, begin := usage(), time.Now()
	if err := subscribe(ctx, t.node, "sink", router.DedupeDurable, seen.handle); err != nil {
		return err
	}
	if err := seen.wait(ctx, n); err != nil {
		return err
	}
	wall, cpu := time.Since(begin), usage()-cpu0
	r.add(Row{
		ID: "handler", Work: "stored events → router → in-process handler → durable settlement", Ours: float64(n) / wall.Seconds(), Unit: "events/s",
		CPU: float64(cpu.Microseconds()) / float64(n),
	})
	return nil
}
