package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// OutboxLoad is a workload for relays of any make. Every event is one
// transaction with a business row, and carries a mark by which [Sink] knows it
// in whatever envelope it comes: its number, its key, and the time just before
// its commit was sent.
type OutboxLoad struct {
	URL string // of the database
	// Into is where events go: headgate for an outbox that headgate outbox init
	// prepared; table for public.outboxevent with the columns of Debezium's
	// event router; message for pg_logical_emit_message with the prefix outbox.
	Into  string
	Count int // events
	Rate  int // transactions a second; 0: as fast as eight connections can
	Keys  int // default 97
}

// loadStatements write one event: business row's id, event id, key, data.
var loadStatements = map[string]string{
	"headgate": `WITH b AS (INSERT INTO public.bench_business VALUES ($1)) SELECT headgate.emit_event($2, 'order.placed', NULL, NULL, $3, NULL, convert_to($4, 'UTF8'))`,
	"table": `WITH b AS (INSERT INTO public.bench_business VALUES ($1))
		INSERT INTO public.outboxevent (id, aggregatetype, aggregateid, type, payload) VALUES ($2::text::uuid, 'order', $3, 'order.placed', $4::text::jsonb)`,
	"message": `WITH b AS (INSERT INTO public.bench_business VALUES ($1)), i AS (SELECT $2::text, $3::text) SELECT pg_logical_emit_message(true, 'outbox', $4::text) FROM i`,
}

// Prepare makes the tables of a workload, empty.
func (l *OutboxLoad) Prepare(ctx context.Context) error {
	c, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	_, err = c.Exec(ctx, `DROP TABLE IF EXISTS public.bench_business`)
	if err == nil {
		_, err = c.Exec(ctx, `CREATE TABLE public.bench_business (id bigint PRIMARY KEY)`)
	}
	if err == nil && l.Into == "table" {
		_, err = c.Exec(ctx, `CREATE TABLE IF NOT EXISTS public.outboxevent
			(id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb)`)
	}
	return err
}

// Run writes the workload. Events of a key are written by one connection, in
// the order of their numbers.
func (l *OutboxLoad) Run(ctx context.Context) error {
	sql, ok := loadStatements[l.Into]
	if !ok {
		return headgate.NewError(headgate.CodeInvalidArgument, "into: want headgate, table or message")
	}
	if l.Keys <= 0 {
		l.Keys = 97
	}
	const workers = 8
	begin := time.Now()
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() { errs[w] = l.write(ctx, sql, w, workers, begin) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (l *OutboxLoad) write(ctx context.Context, sql string, w, workers int, begin time.Time) error {
	c, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for n := 0; n < l.Count; n++ {
		key := n % l.Keys
		if key%workers != w {
			continue
		}
		if l.Rate > 0 {
			wait := time.NewTimer(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(l.Rate))))
			select {
			case <-wait.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", begin.Unix()&0xffffffff, n)
		data := fmt.Sprintf(`{"order_id": %d, "bench": "%d.%d.%d", "note": "%s"}`, n, n, key, time.Now().UnixMicro(), strings.Repeat("x", 300))
		if _, err := c.Exec(ctx, sql, int64(n), id, "k"+strconv.Itoa(key), data); err != nil {
			return err
		}
	}
	return nil
}

// SinkConfig says where events come out.
type SinkConfig struct {
	// NATS and Stream name a JetStream stream, which is read from its first
	// message; the time of an event is when the server stored it.
	NATS, Stream string
	// Node is a Headgate node, whose events of type order.placed are read from
	// the first; the time of an event is when it arrived here.
	Node *client.Client
	// Expect ends the reading after so many different events, Idle when none
	// came for so long (default 30 s).
	Expect int
	Idle   time.Duration
}

// SinkReport is what came out.
type SinkReport struct {
	Events     int     `json:"events"` // different ones
	Duplicates int     `json:"duplicates"`
	Disorder   int     `json:"out_of_order"` // behind a later one of its key, repetitions aside
	Unmarked   int     `json:"unmarked"`     // messages that are none of the load's
	Missing    int     `json:"missing"`      // of Expect
	Rate       float64 `json:"events_per_second"`
	Latency    Latency `json:"commit_to_sink_us"`
}

// mark finds what OutboxLoad wrote, also where quotes are escaped.
var mark = regexp.MustCompile(`bench\\*":\s*\\*"(\d+)\.(\d+)\.(\d+)`)

// tally counts events in the order of their coming.
type tally struct {
	seen   map[int64]bool
	last   map[int64]int64
	report SinkReport
	took   []time.Duration
	first  time.Time
	end    time.Time
}

func newTally() *tally { return &tally{seen: map[int64]bool{}, last: map[int64]int64{}} }

func (c *tally) add(message []byte, at time.Time) {
	m := mark.FindSubmatch(message)
	if m == nil {
		c.report.Unmarked++
		return
	}
	var v [3]int64
	for i := range v {
		v[i], _ = strconv.ParseInt(string(m[i+1]), 10, 64) // digits
	}
	n, key, micro := v[0], v[1], v[2]
	if c.seen[n] {
		c.report.Duplicates++
		return
	}
	c.seen[n] = true
	if last, ok := c.last[key]; ok && n < last {
		c.report.Disorder++
	}
	c.last[key] = max(c.last[key], n)
	if c.first.IsZero() {
		c.first = at
	}
	c.end = at
	c.took = append(c.took, max(at.Sub(time.UnixMicro(micro)), 0))
}

func (c *tally) finish(expect int) SinkReport {
	r := c.report
	r.Events, r.Latency = len(c.seen), latency(c.took)
	r.Missing = max(expect-r.Events, 0)
	if span := c.end.Sub(c.first); span > 0 {
		r.Rate = float64(r.Events) / span.Seconds()
	}
	return r
}

// Sink reads until everything that is expected came, or nothing comes any more.
func Sink(ctx context.Context, cfg SinkConfig) (SinkReport, error) {
	if cfg.Idle <= 0 {
		cfg.Idle = 30 * time.Second
	}
	c := newTally()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var idle atomic.Bool
	timer := time.AfterFunc(cfg.Idle, func() { idle.Store(true); stop() })
	defer timer.Stop()
	take := func(message []byte, at time.Time) bool {
		timer.Reset(cfg.Idle)
		c.add(message, at)
		return cfg.Expect == 0 || len(c.seen) < cfg.Expect
	}
	var err error
	switch {
	case cfg.NATS != "" && cfg.Stream != "":
		err = sinkNATS(ctx, cfg, take)
	case cfg.Node != nil:
		err = sinkNode(ctx, cfg, take)
	default:
		return SinkReport{}, headgate.NewError(headgate.CodeInvalidArgument, "name a JetStream stream or a node")
	}
	if idle.Load() {
		err = nil
	}
	return c.finish(cfg.Expect), err
}

func sinkNATS(ctx context.Context, cfg SinkConfig, take func([]byte, time.Time) bool) error {
	nc, err := nats.Connect(cfg.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.OrderedConsumer(ctx, cfg.Stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		at := time.Now()
		if meta, err := m.Metadata(); err == nil {
			at = meta.Timestamp
		}
		if !take(m.Data(), at) {
			return nil
		}
	}
}

func sinkNode(ctx context.Context, cfg SinkConfig, take func([]byte, time.Time) bool) error {
	opts := client.TailOpts{Types: []string{"order.placed"}, From: "beginning"}
	for {
		t, err := cfg.Node.Tail(ctx, opts)
		if err != nil {
			return err
		}
		for err == nil {
			var m client.TailMessage
			if m, err = t.Next(); err != nil {
				break
			}
			if m.Event != nil && !take(m.Event.Event, time.Now()) {
				return t.Close()
			}
		}
		opts.Cursor = t.Cursor()
		_ = t.Close() // it ended
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
}

// Write prints the report.
func (r SinkReport) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d events (%d missing), %d repeated, %d out of order per key, %d other messages\n%.0f events/s; from commit: p50 %.0f µs, p99 %.0f µs, p99.9 %.0f µs\n",
		r.Events, r.Missing, r.Duplicates, r.Disorder, r.Unmarked, r.Rate, r.Latency.P50, r.Latency.P99, r.Latency.P999)
	return err
}
