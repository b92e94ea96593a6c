package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/lease/fencesqlite"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
	"github.com/headgate/headgate/store/sqlitestore"
)

// leases measures what fences cost and how fast they refuse. The Postgres
// rows need a server that HEADGATE_TEST_POSTGRES names, and make a database of
// their own on it.
func (r *run) leases(ctx context.Context) error {
	if err := errors.Join(r.staleSQLite(ctx), r.heartbeats(ctx, "sqlite", func() (store.Store, error) {
		return sqlitestore.Open(ctx, sqlitestore.Config{Path: filepath.Join(r.dir, "leases.db")})
	})); err != nil {
		return err
	}
	server := os.Getenv("HEADGATE_TEST_POSTGRES")
	if server == "" {
		r.add(Row{ID: "lease-postgres", Work: "leases and fences on Postgres", Unit: "-", Note: "not measured: HEADGATE_TEST_POSTGRES names no server (scripts/services run starts one)."})
		return nil
	}
	db, err := newLeaseDB(ctx, server)
	if err != nil {
		return err
	}
	return errors.Join(db.hold(ctx), r.stalePostgres(ctx, db), r.fencedWrites(ctx, db), r.takeovers(ctx, db),
		r.heartbeats(ctx, "postgres", func() (store.Store, error) {
			return pgstore.Open(ctx, pgstore.Config{URL: db.url, Schema: "heartbeats"})
		}), db.close(ctx))
}

// leaseDB is a database whose leases lie in the node's store within it.
type leaseDB struct {
	server, url, name string
	pool              *pgxpool.Pool
	store             *pgstore.Store
	service           *lease.Service
	held              []fence.Fence // of job/0 to job/7
	fences            fencepg.DB    // one for the program, as it is documented
}

func newLeaseDB(ctx context.Context, server string) (*leaseDB, error) {
	d := &leaseDB{server: server, name: fmt.Sprintf("bench_leases_%d", os.Getpid())}
	if err := d.admin(ctx, "CREATE DATABASE "+d.name); err != nil {
		return nil, err
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	u.Path = "/" + d.name
	d.url = u.String()
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 20
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if d.store, err = pgstore.Open(ctx, pgstore.Config{URL: d.url}); err != nil {
		return nil, err
	}
	if d.service, err = lease.Open(ctx, lease.Config{Store: d.store}); err != nil {
		return nil, err
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	if err := fencepg.Install(ctx, conn.Conn(), fencepg.Config{Node: "headgate"}); err != nil {
		return nil, err
	}
	for _, table := range []string{"plain", "fenced"} {
		_, err := conn.Exec(ctx, "CREATE TABLE public."+table+" (id int PRIMARY KEY, resource text NOT NULL, n int NOT NULL); INSERT INTO public."+table+" SELECT i, 'job/' || i, 0 FROM generate_series(0, 63) i")
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// fenceTable puts a table under fences: from then on the guard leaves a note
// for its triggers, also in transactions on other tables.
func (d *leaseDB) fenceTable(ctx context.Context) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = fencepg.FenceTable(ctx, conn.Conn(), "", "public.fenced", "{resource}", false)
	return err
}

func (d *leaseDB) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, d.server)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func (d *leaseDB) close(ctx context.Context) error {
	d.pool.Close()
	return errors.Join(d.store.Close(), d.admin(ctx, "DROP DATABASE "+d.name+" WITH (FORCE)"))
}

var holder = &headgate.Principal{Name: "bench", Kind: headgate.KindAgent, Lease: []string{"*"}}

// grant acquires a lease, as often as a fenced write is in the way.
func grant(ctx context.Context, s *lease.Service, resource string, ttl time.Duration) (fence.Fence, string, error) {
	for {
		g, err := s.Acquire(ctx, holder, lease.Request{Resources: []string{resource}, TTL: ttl})
		if code := headgate.CodeOf(err); (code == headgate.CodeUnavailable || code == headgate.CodeLeaseHeld) && ctx.Err() == nil {
			timer := time.NewTimer(time.Millisecond)
			<-timer.C
			continue
		}
		if err != nil {
			return fence.Fence{}, "", err
		}
		f, err := fence.Parse(g[0].Token)
		return f, g[0].Token, err
	}
}

// beside runs a load until it is stopped.
func beside(workers int, fn func(worker int) error) (stop func() error) {
	var over atomic.Bool
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for w := range workers {
		wg.Go(func() {
			for !over.Load() {
				if err := fn(w); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
			}
		})
	}
	return func() error {
		over.Store(true)
		wg.Wait()
		return failed
	}
}

// rejections measures how long a superseded fence takes to be refused.
func (r *run) rejections(id, work, note string, n int, try func() error) error {
	took, wall, cpu, err := load(1, n, func(int) error {
		if err := try(); headgate.CodeOf(err) != headgate.CodeStaleFence {
			return fmt.Errorf("a stale write was not refused as such: %w", errors.Join(err, errors.New("see before")))
		}
		return nil
	})
	if err != nil {
		return err
	}
	l := latency(took)
	r.add(Row{ID: id, Work: work, Ours: float64(n) / wall.Seconds(), Unit: "refusals/s", P50: l.P50, P99: l.P99, P999: l.P999, CPU: float64(cpu.Microseconds()) / float64(n), Note: note})
	return nil
}

func (r *run) stalePostgres(ctx context.Context, d *leaseDB) error {
	old, token, err := grant(ctx, d.service, "job/63", time.Minute)
	if err != nil {
		return err
	}
	if err := d.service.Release(ctx, holder, old.Resource, token); err != nil {
		return err
	}
	try := func() error {
		return new(fencepg.DB).Tx(ctx, d.pool, old, pgx.TxOptions{}, func(pgx.Tx) error { return nil })
	}
	n := r.long(10_000)
	if err := r.rejections("lease-stale-pg-idle", "superseded write refused by Postgres, whole round trip, idle", "Promise: p99 below 4 ms.", n, try); err != nil {
		return err
	}
	stop := beside(6, func(w int) error { return d.call(ctx, d.held[w], w) })
	err = r.rejections("lease-stale-pg-load", "the same beside 6 busy fenced writers", "Promise: p99 below 4 ms.", n, try)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	db := &fencepg.DB{}
	return r.rejections("lease-stale-known", "the same, known to the process", "", n, func() error {
		return db.Tx(ctx, d.pool, old, pgx.TxOptions{}, func(pgx.Tx) error { return nil })
	})
}

// hold acquires the leases of the writers.
func (d *leaseDB) hold(ctx context.Context) error {
	for i := range 8 {
		f, _, err := grant(ctx, d.service, fmt.Sprintf("job/%d", i), time.Hour)
		if err != nil {
			return err
		}
		d.held = append(d.held, f)
	}
	return nil
}

// The ways to write the row of a worker.
func (d *leaseDB) unfenced(ctx context.Context, _ fence.Fence, w int) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE public.plain SET n = n + 1 WHERE id = $1", w)
		return err
	})
}

func (d *leaseDB) call(ctx context.Context, f fence.Fence, w int) error {
	return d.fences.Tx(ctx, d.pool, f, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE public.plain SET n = n + 1 WHERE id = $1", w)
		return err
	})
}

// alone is call by a worker that writes seldom: the guard goes before.
func (d *leaseDB) alone(ctx context.Context, f fence.Fence, w int) error {
	return fencepg.Tx(ctx, d.pool, f, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE public.plain SET n = n + 1 WHERE id = $1", w)
		return err
	})
}

func (d *leaseDB) triggered(ctx context.Context, f fence.Fence, w int) error {
	return d.fences.Tx(ctx, d.pool, f, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE public.fenced SET n = n + 1 WHERE id = $1", w)
		return err
	})
}

func (d *leaseDB) single(ctx context.Context, _ fence.Fence, w int) error {
	_, err := d.pool.Exec(ctx, "UPDATE public.plain SET n = n + 1 WHERE id = $1", w)
	return err
}

func (d *leaseDB) inline(ctx context.Context, f fence.Fence, w int) error {
	item, args := new(fencepg.DB).Inline(f, 2)
	_, err := d.pool.Exec(ctx, "UPDATE public.plain SET n = n + 1 FROM "+item+" WHERE id = $1", append([]any{w}, args...)...)
	return err
}

// fencedWrites compares fenced with unfenced writes in slices that alternate,
// so that both meet the same machine; the rates are medians.
func (r *run) fencedWrites(ctx context.Context, d *leaseDB) error {
	const clients = 8
	free := make(chan int, clients) // each client has a lease and a row
	for w := range clients {
		free <- w
	}
	for _, c := range []struct {
		id, work, against string
		base, ours        func(context.Context, fence.Fence, int) error
	}{
		{"lease-write-tx", "durable fenced transactions (fencepg.DB.Tx), 8 clients, each with a lease", "the same transaction without a fence", d.unfenced, d.call},
		{"lease-write-first", "the same, each the first of its lease in 100 ms: the guard before the function", "the same transaction without a fence", d.unfenced, d.alone},
		{"lease-write-inline", "durable single statements with the guard inside, 8 clients", "the same statement without a guard", d.single, d.inline},
		{"lease-write-trigger", "as lease-write-tx, on a fenced table", "the same transaction without a fence", d.unfenced, d.triggered},
	} {
		if c.id == "lease-write-trigger" {
			if err := d.fenceTable(ctx); err != nil {
				return err
			}
		}
		var took, wall, baseWall []time.Duration // the last two of the slices
		var cpu time.Duration
		n, slices := r.long(400), 20
		for range slices {
			work := func(fn func(context.Context, fence.Fence, int) error) ([]time.Duration, time.Duration, time.Duration, error) {
				return load(clients, n, func(int) error {
					w := <-free
					defer func() { free <- w }()
					return fn(ctx, d.held[w], w)
				})
			}
			_, b, _, err := work(c.base)
			if err != nil {
				return err
			}
			t, w, used, err := work(c.ours)
			if err != nil {
				return err
			}
			took, wall, baseWall, cpu = append(took, t...), append(wall, w), append(baseWall, b), cpu+used
		}
		l := latency(took)
		r.add(Row{
			ID: c.id, Work: c.work, Ours: float64(n) / median(wall).Seconds(), Baseline: float64(n) / median(baseWall).Seconds(), Unit: "writes/s", Against: c.against,
			P50: l.P50, P99: l.P99, P999: l.P999, CPU: float64(cpu.Microseconds()) / float64(n*slices), Note: "Aim: at least 0.90×. CPU is the client's.",
		})
	}
	return nil
}

// median returns the middle one; of none, 0.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// takeovers measures how long a successor waits beyond the end of the lease,
// when the holder was stopped or cut off within a transaction.
func (r *run) takeovers(ctx context.Context, d *leaseDB) error {
	const ttl = 300 * time.Millisecond
	for _, c := range []struct {
		id, work string
		die      bool
	}{
		{"lease-takeover-pause", "takeover from a holder that is stopped within a transaction, beyond the end of its lease of 300 ms", false},
		{"lease-takeover-kill", "the same, the holder's connection broken", true},
	} {
		var took []time.Duration
		for i := range max(r.long(40), 3) {
			extra, err := d.takeover(ctx, fmt.Sprintf("job/%s-%d", c.id, i), ttl, c.die)
			if err != nil {
				return err
			}
			took = append(took, max(extra, 0))
		}
		l := latency(took)
		r.add(Row{ID: c.id, Work: c.work, Ours: l.P50 / 1000, Unit: "ms p50", P50: l.P50, P99: l.P99, P999: l.P999})
	}
	return nil
}

func (d *leaseDB) takeover(ctx context.Context, resource string, ttl time.Duration, die bool) (extra time.Duration, err error) {
	begun := time.Now()
	f, _, err := grant(ctx, d.service, resource, ttl)
	if err != nil {
		return 0, err
	}
	f.Deadline = begun.Add(ttl)
	within, resume, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- fencepg.Tx(ctx, d.pool, f, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE public.plain SET n = n + 1 WHERE id = 60"); err != nil {
				return err
			}
			if die {
				_ = tx.Conn().PgConn().Conn().Close() // as a killed process does
			}
			close(within)
			<-resume
			_, err := tx.Exec(ctx, "UPDATE public.plain SET n = n + 1 WHERE id = 60")
			return err
		})
	}()
	<-within
	_, _, err = grant(ctx, d.service, resource, time.Minute)
	extra = time.Since(begun) - ttl
	close(resume)
	if <-ended == nil {
		err = errors.Join(err, errors.New("the stopped holder committed"))
	}
	return extra, err
}

// heartbeats renews 10,000 live leases as fast as it goes.
func (r *run) heartbeats(ctx context.Context, name string, open func() (store.Store, error)) (err error) {
	st, err := open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	s, err := lease.Open(ctx, lease.Config{Store: st})
	if err != nil {
		return err
	}
	tokens := make([]string, r.long(10_000))
	if _, _, _, err := load(64, len(tokens), func(i int) error {
		g, err := s.Acquire(ctx, holder, lease.Request{Resources: []string{fmt.Sprintf("job/%d", i)}, TTL: time.Hour})
		if err == nil {
			tokens[i] = g[0].Token
		}
		return err
	}); err != nil {
		return err
	}
	n := r.long(10_000)
	took, wall, cpu, err := load(256, n, func(i int) error {
		_, err := s.Renew(ctx, holder, "", tokens[i%len(tokens)], 0)
		return err
	})
	if err != nil {
		return err
	}
	l := latency(took)
	r.add(Row{
		ID: "lease-heartbeat-" + name, Work: fmt.Sprintf("durable renewals of %d live leases on %s, 256 at once", len(tokens), name), Ours: float64(n) / wall.Seconds(), Unit: "renewals/s",
		P50: l.P50, P99: l.P99, P999: l.P999, CPU: float64(cpu.Microseconds()) / float64(n),
	})
	return nil
}

// staleSQLite measures refusals by a user's SQLite database.
func (r *run) staleSQLite(ctx context.Context) (err error) {
	db, err := driver.Open("file:" + filepath.Join(r.dir, "user.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := fencesqlite.Install(ctx, db); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE plain (id INTEGER PRIMARY KEY, n INTEGER)"); err != nil {
		return err
	}
	fences := make([]fence.Fence, 3)
	for i := range fences {
		fences[i] = fence.Fence{Resource: fmt.Sprintf("job/%d", i), Epoch: 2, Nonce: make([]byte, fence.NonceSize)}
		if err := new(fencesqlite.DB).Seal(ctx, db, fences[i]); err != nil {
			return err
		}
	}
	old := fences[2]
	old.Epoch = 1
	write := func(f fence.Fence) error {
		return new(fencesqlite.DB).Tx(ctx, db, f, func(c *sql.Conn) error {
			_, err := c.ExecContext(ctx, "INSERT INTO plain (n) VALUES (1)")
			return err
		})
	}
	n := r.long(10_000)
	if err := r.rejections("lease-stale-sqlite-idle", "superseded write refused by a user's SQLite database, idle", "Promise: p99 below 4 ms.", n, func() error { return write(old) }); err != nil {
		return err
	}
	var mu sync.Mutex // writers stand in line in the process, as SQLite wants it
	stop := beside(2, func(w int) error {
		mu.Lock()
		defer mu.Unlock()
		return write(fences[w])
	})
	err = r.rejections("lease-stale-sqlite-load", "the same beside busy fenced writers", "Promise: p99 below 4 ms.", n, func() error { return write(old) })
	return errors.Join(err, stop())
}
