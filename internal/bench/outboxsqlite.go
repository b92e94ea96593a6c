package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/outbox/outboxsqlite"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/sqliterelay"
	"github.com/ncruces/go-sqlite3/driver"
)

// fileBench is one SQLite database and one node.
type fileBench struct {
	r      *run
	t      *target
	path   string
	db     *sql.DB
	who    *headgate.Principal
	source *sqliterelay.Source
}

// outboxSQLite measures the way from a transaction in an SQLite file to the
// broker, against a relay that polls the same file through the same perimeter.
func (r *run) outboxSQLite(ctx context.Context) error {
	t, err := r.start(ctx, "outbox-sqlite", 1000, nil, nil)
	if err != nil {
		return err
	}
	b := &fileBench{r: r, t: t, path: filepath.Join(r.dir, "business.db")}
	return errors.Join(b.measure(ctx), t.close())
}

func (b *fileBench) measure(ctx context.Context) (err error) {
	p, err := b.t.node.Principals.Get(ctx, "load")
	if err != nil {
		return err
	}
	b.who = &p.Principal
	if b.db, err = b.connect("rwc"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.db.Close()) }()
	if err := sqliterelay.Install(ctx, b.db); err != nil {
		return err
	}
	_, err = b.db.ExecContext(ctx, `CREATE TABLE business (id INTEGER PRIMARY KEY, note TEXT);
		CREATE TABLE polled (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, key TEXT, data TEXT)`)
	if err != nil {
		return err
	}
	if b.source, err = sqliterelay.New(sqliterelay.Config{Path: b.path, Connect: func() (*sql.DB, error) { return b.connect("rw") }}); err != nil {
		return err
	}
	if err := b.latency(ctx); err != nil {
		return err
	}
	return b.drain(ctx)
}

func (b *fileBench) connect(mode string) (*sql.DB, error) {
	q := url.Values{"mode": {mode}, "_pragma": {"busy_timeout(20000)", "synchronous(full)"}}
	return driver.Open((&url.URL{Scheme: "file", Opaque: (&url.URL{Path: b.path}).EscapedPath(), RawQuery: q.Encode()}).String())
}

// The event of each of the two ways.
const (
	fileOutbox = `INSERT INTO headgate_outbox (id, type, key, data) VALUES (?, 'order.placed', ?, ?)`
	filePolled = `INSERT INTO polled (id, key, data) VALUES (?, ?, ?)`
)

// write runs one transaction: the business row and its event.
func (b *fileBench) write(ctx context.Context, event string, n int, wake func()) (id string, err error) {
	id, key, data := fmt.Sprintf("file-%d", n), fmt.Sprint("k", n%97), payload(n, 400, "")
	err = outboxsqlite.DB{SQL: b.db, Committed: wake}.Do(ctx, "", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO business VALUES (?, 'a note of the business')`, n); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, event, id, key, string(data))
		return err
	})
	return id, err
}

// paced writes at 500 transactions a second, if the disk allows.
func (b *fileBench) paced(ctx context.Context, event string, first, count int, a *acks, wake func()) error {
	tick := time.NewTicker(time.Second / 500)
	defer tick.Stop()
	for i := range count {
		<-tick.C
		id, err := b.write(ctx, event, first+i, wake)
		if err != nil {
			return err
		}
		a.commit(id, time.Now())
	}
	return a.wait(ctx, count)
}

func (b *fileBench) latency(ctx context.Context) error {
	count := b.r.long(5000)
	took := map[string]Latency{}
	for i, way := range []struct {
		name  string
		event string
		relay func(context.Context, *acks) (func() error, error)
		wake  func()
	}{
		{"woken", fileOutbox, b.relay, b.source.Wake},
		{"another process", fileOutbox, b.relay, nil},
		{"polling", filePolled, b.polling, nil},
	} {
		a := newAcks()
		stop, err := way.relay(ctx, a)
		if err != nil {
			return err
		}
		if err := errors.Join(b.paced(ctx, way.event, (i+1)*1_000_000, count, a, way.wake), stop()); err != nil {
			return err
		}
		took[way.name] = a.latency()
	}
	for _, row := range []struct{ id, work, name string }{
		{"outbox-sqlite-latency", "SQLite: commit → durable ack at 500 tx/s, writer in the same process, median", "woken"},
		{"outbox-sqlite-latency-other", "the same, writer in another process", "another process"},
	} {
		ours, theirs := took[row.name], took["polling"]
		b.r.add(Row{
			ID: row.id, Work: row.work, Ours: ours.P50, Baseline: theirs.P50, Unit: "µs", P50: ours.P50, P99: ours.P99,
			Against: "a relay that polls every 100 ms", Note: fmt.Sprintf("the baseline's p99 is %.0f µs", theirs.P99),
		})
	}
	return nil
}

// relay runs our relay until stop.
func (b *fileBench) relay(ctx context.Context, a *acks) (stop func() error, err error) {
	r, err := relay.New(relay.Config{
		Name: "bench", Source: b.source, Admit: b.t.node.Perimeter, Keep: b.t.node.Quarantine,
		Principal: func(string) (*headgate.Principal, error) { return b.who, nil },
		Done:      func(d relay.Done) { a.ack(d.Row.Event.ID, d.At) },
	})
	if err != nil {
		return nil, err
	}
	return background(ctx, r.Run), nil
}

// polling runs the baseline until stop: rows are read, published, and deleted.
func (b *fileBench) polling(ctx context.Context, a *acks) (stop func() error, err error) {
	return background(ctx, func(ctx context.Context) error {
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			n, err := b.poll(ctx, a)
			if ctx.Err() != nil {
				return nil
			}
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
	}), nil
}

func (b *fileBench) poll(ctx context.Context, a *acks) (n int, err error) {
	rows, err := b.db.QueryContext(ctx, `SELECT seq, id, key, data FROM polled ORDER BY seq LIMIT 500`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	s := perimeter.Submission{Principal: b.who, Door: "poll"}
	var last int64
	for rows.Next() {
		var id, key, data string
		if err := rows.Scan(&last, &id, &key, &data); err != nil {
			return 0, err
		}
		s.Items = append(s.Items, perimeter.Item{Event: &headgate.Event{ID: id, Type: "order.placed", Key: key, Data: []byte(data)}})
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(s.Items) == 0 {
		return 0, err
	}
	for _, res := range b.t.node.Perimeter.Admit(ctx, s) {
		if res.Err != nil {
			return 0, res.Err
		}
		a.ack(res.Event.ID, time.Now())
	}
	_, err = b.db.ExecContext(ctx, `DELETE FROM polled WHERE seq <= ?`, last)
	return len(s.Items), err
}

// drain carries a backlog.
func (b *fileBench) drain(ctx context.Context) error {
	count := b.r.long(100_000)
	fill := func(into, prefix string) error {
		_, err := b.db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO %s WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			SELECT '%s' || i, %s'k' || (i %% 97), CAST(? AS BLOB) FROM n`, into, prefix, map[bool]string{true: "'order.placed', "}[prefix == "ours-"]),
			count, string(payload(1, 400, "")))
		return err
	}
	rate := func(into, prefix string, start func(context.Context, *acks) (func() error, error)) (rate, cpu float64, err error) {
		if err := fill(into, prefix); err != nil {
			return 0, 0, err
		}
		a := newAcks()
		began, before := time.Now(), usage()
		stop, err := start(ctx, a)
		if err != nil {
			return 0, 0, err
		}
		err = a.wait(ctx, count)
		rate, cpu = float64(count)/time.Since(began).Seconds(), float64(usage()-before)/float64(count)/1e3
		return rate, cpu, errors.Join(err, stop())
	}
	ours, cpu, err := rate("headgate_outbox_rows (id, type, key, data)", "ours-", b.relay)
	if err != nil {
		return err
	}
	theirs, theirCPU, err := rate("polled (id, key, data)", "theirs-", b.polling)
	if err != nil {
		return err
	}
	b.r.add(Row{
		ID: "outbox-sqlite-drain", Work: fmt.Sprintf("SQLite: backlog of %d events of 400 B", count), Ours: ours, Baseline: theirs, Unit: "events/s", CPU: cpu,
		Against: "a relay that polls without pause while there are rows, 500 at once", Note: fmt.Sprintf("the baseline spends %.1f µs of CPU per event", theirCPU),
	})
	return nil
}
