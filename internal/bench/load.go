package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/node"
	"github.com/headgate/headgate/router"
)

// benchConfig is a node without any limit that the load would meet first.
const benchConfig = `
version: 1
principals:
  - { name: load, kind: system, roles: [developer], emit: ["*"], listen: ["*"], roots: { rate: 1000000/s, burst: 1000000 } }
quarantine: { refusal_quota: %d }
`

const benchSchema = `{
  "type": "object",
  "required": ["order_id", "customer_id", "amount", "currency", "placed_at", "lines"],
  "properties": {
    "order_id": {"type": "string", "format": "uuid"},
    "customer_id": {"type": "string", "format": "uuid"},
    "amount": {"type": "number", "minimum": 0},
    "currency": {"enum": ["EUR", "USD", "GBP", "JPY"]},
    "placed_at": {"type": "string", "format": "date-time"},
    "note": {"type": "string", "maxLength": 500},
    "lines": {"type": "array", "minItems": 1, "maxItems": 500, "items": {
      "type": "object", "required": ["sku", "qty"], "additionalProperties": false,
      "properties": {"sku": {"type": "string", "maxLength": 40}, "qty": {"type": "integer", "minimum": 1}, "price": {"type": "number"}}
    }}
  },
  "additionalProperties": false
}`

// payload is an order of about the given size.
func payload(i, size int, extra string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"order_id":"0190b2c4-7b1a-7c3e-9f00-%012d","customer_id":"0190b2c4-7b1a-7c3e-9f00-0242ac120002","amount":129.90,"currency":"EUR","placed_at":"2026-05-01T09:30:00Z",%s"lines":[{"sku":"SKU-000001","qty":2,"price":19.95}`, i, extra)
	for n := 2; b.Len() < size-40; n++ {
		fmt.Fprintf(&b, `,{"sku":"SKU-%06d","qty":%d,"price":19.95}`, n, n%9+1)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// event is an order as one line of the CloudEvents JSON format.
func event(i, size int, extra string) []byte {
	return headgate.AppendStructured(nil, &headgate.Event{ID: fmt.Sprintf("o-%d", i), Source: "/bench", Type: "order.placed", Data: payload(i, size, extra)})
}

// target is a running node with one client.
type target struct {
	node   *node.Node
	url    string
	token  string
	client *client.Client
	http   *http.Client
	stop   context.CancelFunc
	done   chan error
}

// start runs a node in this process with everything embedded and fsynced.
func (r *run) start(ctx context.Context, name string, quota int, obs *headgate.Observer, before func(*node.Node) error) (*target, error) {
	cfg, problems := node.Parse(fmt.Appendf(nil, benchConfig, quota))
	if len(problems) > 0 {
		return nil, errors.New(problems[0].String())
	}
	cfg.Data, cfg.Listen = filepath.Join(r.dir, name), "127.0.0.1:0"
	n, err := node.Open(ctx, cfg, node.Options{Drivers: r.Drivers, Observer: obs})
	if err != nil {
		return nil, err
	}
	r.report.Durability = n.Broker.Caps().Words
	if _, err := n.Registry.Register(ctx, "order.placed", "", []byte(benchSchema), "bench"); err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	if before != nil {
		if err := before(n); err != nil {
			return nil, errors.Join(err, n.Close(ctx))
		}
	}
	ln, err := n.Listen(ctx)
	if err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	t := &target{node: n, url: "http://" + ln.Addr().String(), done: make(chan error, 1)}
	if t.token, err = n.Principals.Issue(ctx, "load", false, 0); err != nil {
		return nil, errors.Join(err, ln.Close(), n.Close(ctx))
	}
	t.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}
	if t.client, err = client.New(client.Config{URL: t.url, Token: t.token, HTTP: t.http}); err != nil {
		return nil, err
	}
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	go func() { t.done <- n.Run(runCtx, ln) }()
	for {
		if err := t.client.Ready(ctx); err == nil {
			return t, nil
		} else if ctx.Err() != nil {
			return nil, err
		}
	}
}

func (t *target) close() error {
	t.client.Close()
	t.stop()
	return <-t.done
}

// post sends one body and demands the status.
func (t *target) post(ctx context.Context, url, media string, body []byte, want int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", media)
	req.Header.Set("Authorization", "Bearer "+t.token)
	resp, err := t.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != want {
		return fmt.Errorf("status %d, want %d: %.300s", resp.StatusCode, want, text)
	}
	return nil
}

// load runs fn n times from several goroutines and returns how long each took
// and how long it took in all.
func load(workers, n int, fn func(i int) error) (took []time.Duration, wall, cpu time.Duration, err error) {
	var next atomic.Int64
	all := make([][]time.Duration, workers)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	cpu0, begin := usage(), time.Now()
	for w := range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || errs[w] != nil {
					return
				}
				start := time.Now()
				errs[w] = fn(i)
				all[w] = append(all[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	wall, cpu = time.Since(begin), usage()-cpu0
	for _, a := range all {
		took = append(took, a...)
	}
	return took, wall, cpu, errors.Join(errs...)
}

// baseline serves a handler on loopback for comparison.
func baseline(h http.HandlerFunc) (url string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { _ = srv.Serve(ln); close(done) }() // ends by Close
	return "http://" + ln.Addr().String(), func() { _ = srv.Close(); <-done }, nil
}

// nullHandler reads the body and answers 202.
func nullHandler(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // a broken request shows at the client
	w.WriteHeader(http.StatusAccepted)
}

// splitHandler reads lines and counts them.
func splitHandler(w http.ResponseWriter, req *http.Request) {
	lines := bufio.NewScanner(req.Body)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	n := 0
	for lines.Scan() {
		n++
	}
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, `{"accepted":%d}`, n)
}

// counter is an in-process handler that only counts.
type counter struct{ n atomic.Int64 }

// wait returns when the handler was called n times.
func (c *counter) wait(ctx context.Context, n int) error {
	for int(c.n.Load()) < n {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (c *counter) handle(context.Context, *router.Delivery, *router.Emitter) error {
	c.n.Add(1)
	return nil
}
