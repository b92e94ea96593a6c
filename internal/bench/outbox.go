package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
)

// pollEvery is how often the baseline looks for rows: what polling relays do
// that are tuned for latency.
const pollEvery = 100 * time.Millisecond

// outboxBench is one prepared database and one node.
type outboxBench struct {
	r    *run
	t    *target
	url  string
	who  *headgate.Principal
	name string
}

// outbox measures the way from a business transaction to the broker, against a
// relay that polls, in the same database and through the same perimeter.
func (r *run) outbox(ctx context.Context) error {
	server := os.Getenv("HEADGATE_TEST_POSTGRES")
	if server == "" {
		r.add(Row{ID: "outbox-latency", Work: "not measured", Note: "HEADGATE_TEST_POSTGRES names no server; scripts/services run CMD starts one."})
		return nil
	}
	t, err := r.start(ctx, "outbox", 1000, nil, nil)
	if err != nil {
		return err
	}
	b := &outboxBench{r: r, t: t, name: fmt.Sprintf("bench_%x", time.Now().UnixNano())}
	p, err := t.node.Principals.Get(ctx, "load")
	if err == nil {
		b.who = &p.Principal
		err = b.withDatabase(ctx, server)
	}
	return errors.Join(err, t.close())
}

func (b *outboxBench) withDatabase(ctx context.Context, server string) error {
	admin, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, `CREATE DATABASE `+b.name); err != nil {
		return err
	}
	c := admin.Config()
	b.url = fmt.Sprintf("postgres://%s:%s@%s:%d/%s?sslmode=disable", c.User, c.Password, c.Host, c.Port, b.name)
	err = b.measure(ctx)
	end := context.WithoutCancel(ctx)
	_, slot := admin.Exec(end, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, b.name)
	_, drop := admin.Exec(end, `DROP DATABASE `+b.name+` WITH (FORCE)`)
	return errors.Join(err, slot, drop)
}

func (b *outboxBench) measure(ctx context.Context) error {
	if err := pgrelay.Install(ctx, b.url, pgrelay.InstallOptions{}); err != nil {
		return err
	}
	err := b.exec(ctx, `CREATE TABLE public.business (id bigint PRIMARY KEY, note text);
		CREATE TABLE public.polled (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text, key text, data text)`)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{b.cost, b.latency, b.drain, b.idle} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *outboxBench) exec(ctx context.Context, sql string) error {
	c, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// The statements of one transaction: the business row alone, and with each kind
// of event.
const (
	businessRow = `INSERT INTO public.business VALUES ($1, 'a note of the business')`
	withOutbox  = `WITH b AS (` + businessRow + `) SELECT headgate.emit_event($2, 'order.placed', NULL, NULL, $3, NULL, convert_to($4, 'UTF8'))`
	withPolled  = `WITH b AS (` + businessRow + `) INSERT INTO public.polled (id, key, data) VALUES ($2, $3, $4)`
	withMessage = `WITH b AS (` + businessRow + `) SELECT pg_logical_emit_message(true, 'bench', $2 || $3 || $4)`
)

// sequence numbers every business row of the run.
func (b *outboxBench) args(n int64) []any {
	return []any{n, fmt.Sprintf("%s-%d", b.name, n), "k" + strconv.FormatInt(n%97, 10), string(payload(int(n), 400, ""))}
}

// cost is what an event adds to a business transaction.
func (b *outboxBench) cost(ctx context.Context) error {
	c, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var took [3][]time.Duration
	n := int64(0)
	for range b.r.long(3000) {
		// In turn, so that what else the machine does falls on all alike.
		for i, sql := range [...]string{businessRow, withOutbox, withMessage} {
			n++
			args := b.args(n)
			if sql == businessRow {
				args = args[:1]
			}
			began := time.Now()
			if _, err := c.Exec(ctx, sql, args...); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	alone := latency(took[0])
	for _, with := range []struct {
		id, work string
		took     Latency
	}{
		{"outbox-cost", "business transaction with one event of 400 B, median", latency(took[1])},
		{"outbox-cost-message", "the same with pg_logical_emit_message instead, median", latency(took[2])},
	} {
		b.r.add(Row{
			ID: with.id, Work: with.work, Ours: with.took.P50, Baseline: alone.P50, Unit: "µs", P50: with.took.P50, P99: with.took.P99,
			Against: "the business row alone",
		})
	}
	return b.exec(ctx, `TRUNCATE public.business`)
}

// acks collects when each event was committed and acknowledged.
type acks struct {
	mu        sync.Mutex
	committed map[string]time.Time
	acked     map[string]time.Time
	done      atomic.Int64
}

func newAcks() *acks { return &acks{committed: map[string]time.Time{}, acked: map[string]time.Time{}} }

// commit notes the first time that is told for an event: that of the log, or
// else when the writer heard of its commit, which is a little later.
func (a *acks) commit(id string, at time.Time) {
	a.mu.Lock()
	if _, ok := a.committed[id]; !ok {
		a.committed[id] = at
	}
	a.mu.Unlock()
}

func (a *acks) ack(id string, at time.Time) {
	a.mu.Lock()
	a.acked[id] = at
	a.mu.Unlock()
	a.done.Add(1)
}

// latency is from commit to acknowledgement.
func (a *acks) latency() Latency {
	a.mu.Lock()
	defer a.mu.Unlock()
	took := make([]time.Duration, 0, len(a.acked))
	for id, at := range a.acked {
		if c, ok := a.committed[id]; ok {
			took = append(took, max(at.Sub(c), 0))
		}
	}
	return latency(took)
}

// relay runs our relay until stop.
func (b *outboxBench) relay(ctx context.Context, a *acks) (stop func() error, err error) {
	src, err := pgrelay.New(pgrelay.Config{URL: b.url})
	if err != nil {
		return nil, err
	}
	r, err := relay.New(relay.Config{
		Name: "bench", Source: src, Admit: b.t.node.Perimeter, Keep: b.t.node.Quarantine,
		Principal: func(string) (*headgate.Principal, error) { return b.who, nil },
		Done: func(d relay.Done) {
			// The log's time replaces what the writer told.
			a.mu.Lock()
			a.committed[d.Row.Event.ID] = d.Row.Committed
			a.mu.Unlock()
			a.ack(d.Row.Event.ID, d.At)
		},
	})
	if err != nil {
		return nil, err
	}
	return background(ctx, r.Run), nil
}

// polling runs the baseline until stop: rows are claimed with SKIP LOCKED,
// published, and deleted in the same transaction.
func (b *outboxBench) polling(ctx context.Context, a *acks) func() error {
	return background(ctx, func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, b.url)
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			n, err := b.poll(ctx, c, a)
			if err != nil {
				return err
			}
			if n > 0 {
				continue
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
}

func (b *outboxBench) poll(ctx context.Context, c *pgx.Conn, a *acks) (int, error) {
	n := 0
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT seq, id, key, data FROM public.polled ORDER BY seq LIMIT 500 FOR UPDATE SKIP LOCKED`)
		if err != nil {
			return err
		}
		s := perimeter.Submission{Principal: b.who, Door: "poll"}
		var seqs []int64
		for rows.Next() {
			var seq int64
			var id, key, data string
			if err := rows.Scan(&seq, &id, &key, &data); err != nil {
				return err
			}
			seqs = append(seqs, seq)
			s.Items = append(s.Items, perimeter.Item{Event: &headgate.Event{ID: id, Type: "order.placed", Key: key, Data: []byte(data)}})
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if n = len(seqs); n == 0 {
			return nil
		}
		for _, res := range b.t.node.Perimeter.Admit(ctx, s) {
			if res.Err != nil {
				return res.Err
			}
			a.ack(res.Event.ID, time.Now())
		}
		_, err = tx.Exec(ctx, `DELETE FROM public.polled WHERE seq = ANY ($1)`, seqs)
		return err
	})
	if ctx.Err() != nil {
		return 0, nil
	}
	return n, err
}

// background runs fn until the returned function is called.
func background(ctx context.Context, fn func(context.Context) error) func() error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	return func() error { cancel(); return <-done }
}

// paced runs transactions at 500 a second over eight connections.
func (b *outboxBench) paced(ctx context.Context, sql string, first int64, count int, a *acks) error {
	const workers, rate = 8, 500
	var next atomic.Int64
	begin := time.Now()
	errs := make(chan error, workers)
	for range workers {
		go func() {
			c, err := pgx.Connect(ctx, b.url)
			if err != nil {
				errs <- err
				return
			}
			defer c.Close(ctx)
			for {
				i := next.Add(1) - 1
				if i >= int64(count) {
					errs <- nil
					return
				}
				wait := time.NewTimer(time.Until(begin.Add(time.Duration(i) * time.Second / rate)))
				<-wait.C
				args := b.args(first + i)
				if _, err := c.Exec(ctx, sql, args...); err != nil {
					errs <- err
					return
				}
				a.commit(args[1].(string), time.Now())
			}
		}()
	}
	var all []error
	for range workers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func (a *acks) wait(ctx context.Context, n int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for a.done.Load() < int64(n) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// warmUp is how many events go before the measured ones.
const warmUp = 50

// warm sends events through until the relay runs, and forgets their times.
func (b *outboxBench) warm(ctx context.Context, sql string, first int64, a *acks) error {
	if err := b.paced(ctx, sql, first, warmUp, a); err != nil {
		return err
	}
	if err := a.wait(ctx, warmUp); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.acked)
	return nil
}

// latency is from the commit until the broker's durable acknowledgement.
func (b *outboxBench) latency(ctx context.Context) error {
	count := b.r.long(10_000)
	skip := newAcks()
	stop, err := b.relay(ctx, skip) // what cost left behind goes first
	if err != nil {
		return err
	}
	if err := skip.wait(ctx, b.r.long(3000)); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	ours := newAcks()
	if stop, err = b.relay(ctx, ours); err != nil {
		return err
	}
	if err := b.warm(ctx, withOutbox, 900_000, ours); err != nil {
		return err
	}
	before := usage()
	if err := b.paced(ctx, withOutbox, 1_000_000, count, ours); err != nil {
		return err
	}
	if err := ours.wait(ctx, count+warmUp); err != nil {
		return err
	}
	cpu := float64(usage()-before) / float64(count) / 1e3
	if err := stop(); err != nil {
		return err
	}
	theirs := newAcks()
	halt := b.polling(ctx, theirs)
	if err := b.warm(ctx, withPolled, 1_900_000, theirs); err != nil {
		return err
	}
	if err := b.paced(ctx, withPolled, 2_000_000, count, theirs); err != nil {
		return err
	}
	if err := theirs.wait(ctx, count+warmUp); err != nil {
		return err
	}
	if err := halt(); err != nil {
		return err
	}
	o, t := ours.latency(), theirs.latency()
	b.r.add(Row{
		ID: "outbox-latency", Work: "commit → durable ack at 500 tx/s, median", Ours: o.P50, Baseline: t.P50, Unit: "µs", P50: o.P50, P99: o.P99, P999: o.P999, CPU: cpu,
		Against: "a relay that polls every 100 ms (SKIP LOCKED)",
		Note:    fmt.Sprintf("the baseline's p99 is %.0f µs; CPU includes the load", t.P99),
	})
	return nil
}

// drain is how fast a backlog of single events goes out.
func (b *outboxBench) drain(ctx context.Context) error {
	count := b.r.long(200_000)
	fill := func(sql string) error {
		for from := 0; from < count; from += 1000 {
			to := min(from+1000, count)
			if err := b.exec(ctx, fmt.Sprintf(sql, from, to-1)); err != nil {
				return err
			}
		}
		return nil
	}
	data := string(payload(1, 400, ""))
	rate := func(begin func(*acks) (func() error, error)) (float64, float64, error) {
		a := newAcks()
		start, cpu := time.Now(), usage()
		stop, err := begin(a)
		if err != nil {
			return 0, 0, err
		}
		if err := a.wait(ctx, count); err != nil {
			return 0, 0, err
		}
		took := time.Since(start)
		used := float64(usage()-cpu) / float64(count) / 1e3
		return float64(count) / took.Seconds(), used, stop()
	}
	if err := fill(`SELECT headgate.emit_event('` + b.name + `-d' || i, 'order.placed', NULL, NULL, 'k' || mod(i, 997), NULL, convert_to('` + data + `', 'UTF8')) FROM generate_series(%d, %d) i`); err != nil {
		return err
	}
	ours, cpu, err := rate(func(a *acks) (func() error, error) { return b.relay(ctx, a) })
	if err != nil {
		return err
	}
	if err := fill(`INSERT INTO public.polled (id, key, data) SELECT '` + b.name + `-p' || i, 'k' || mod(i, 997), '` + data + `' FROM generate_series(%d, %d) i`); err != nil {
		return err
	}
	theirs, theirCPU, err := rate(func(a *acks) (func() error, error) { return b.polling(ctx, a), nil })
	if err != nil {
		return err
	}
	b.r.add(Row{
		ID: "outbox-drain", Work: fmt.Sprintf("backlog of %d events of 400 B", count), Ours: ours, Baseline: theirs, Unit: "events/s", CPU: cpu,
		Against: "a relay that polls without pause while there are rows (SKIP LOCKED, 500 at once)",
		Note:    fmt.Sprintf("the baseline spends %.1f µs of CPU per event outside of the database", theirCPU),
	})
	return nil
}

// idle counts transactions of the database while nothing happens. Our relay's
// are its heartbeats and their proofs.
func (b *outboxBench) idle(ctx context.Context) error {
	span := 60 * time.Second
	if b.r.Short {
		span = 3 * time.Second
	}
	count := func() (int64, error) {
		c, err := pgx.Connect(ctx, b.url)
		if err != nil {
			return 0, err
		}
		defer c.Close(ctx)
		var n int64
		if _, err := c.Exec(ctx, `SELECT pg_stat_force_next_flush()`); err != nil {
			return 0, err
		}
		err = c.QueryRow(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
		return n, err
	}
	during := func(stop func() error) (float64, error) {
		n, err := count()
		if err == nil {
			wait := time.NewTimer(span)
			<-wait.C
			var m int64
			m, err = count()
			n = m - n
		}
		return float64(n) * float64(time.Minute) / float64(span), errors.Join(err, stop())
	}
	stop, err := b.relay(ctx, newAcks())
	if err != nil {
		return err
	}
	ours, err := during(stop)
	if err != nil {
		return err
	}
	theirs, err := during(b.polling(ctx, newAcks()))
	if err != nil {
		return err
	}
	b.r.add(Row{
		ID: "outbox-idle", Work: "transactions in a minute of idleness", Ours: ours, Baseline: theirs, Unit: "transactions",
		Against: "a relay that polls every 100 ms",
		Note:    "ours are the opening of the session, a heartbeat and its proof every 10 s, and the three of this measurement; no query looks for rows",
	})
	return nil
}
