package fencepg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/store/pgstore"
)

// campaign reports whether the long forms run.
func campaign() bool { return os.Getenv("HEADGATE_CAMPAIGN") == "1" }

// How a write of the rig is guarded.
const (
	byCall = iota
	byInline
	byRows
	byPartition
	unguarded // reads the lease without a lock: the control
)

var tables = map[int]string{byCall: "plain", byInline: "plain", byRows: "rows", byPartition: "parted", unguarded: "plain"}

// newDatabase makes a database on the shared server, which keeps its log in
// the detail that proofs need.
func newDatabase(t testing.TB) string {
	t.Helper()
	server := pgtest.URL(t)
	name := fmt.Sprintf("fence_%d_%d", os.Getpid(), time.Now().UnixNano())
	pgtest.Exec(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		pgtest.Exec(t, server, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '"+name+"'")
		pgtest.Exec(t, server, "DROP DATABASE "+name+" WITH (FORCE)")
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// rig is a database with a node's store, its lease service and fenced tables.
type rig struct {
	t       testing.TB
	url     string
	pool    *pgxpool.Pool
	store   *pgstore.Store
	service *lease.Service
	db      *fencepg.DB
	kinds   []int

	fenced, stale, expired, other, unknown atomic.Int64
	ids                                    atomic.Int64
	mu                                     sync.Mutex
	acked, refused                         map[int64]bool
	newest                                 [8]atomic.Int64 // epoch known to be granted, per resource
	history                                *history        // nil: not recorded
}

func newRig(t testing.TB, url string, kinds ...int) *rig {
	t.Helper()
	r := &rig{t: t, url: url, db: &fencepg.DB{}, kinds: kinds, acked: map[int64]bool{}, refused: map[int64]bool{}}
	var err error
	if r.store, err = pgstore.Open(t.Context(), pgstore.Config{URL: url}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() }) // a crashed server has closed it already
	if r.service, err = lease.Open(t.Context(), lease.Config{Store: r.store}); err != nil {
		t.Fatal(err)
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 24
	if r.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.pool.Close)
	pgtest.Exec(t, url, `CREATE TABLE plain (id bigint PRIMARY KEY, resource text NOT NULL, epoch bigint NOT NULL);
		CREATE TABLE rows (LIKE plain INCLUDING ALL);
		CREATE TABLE parted (LIKE plain) PARTITION BY HASH (id);
		CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE TABLE counters (resource text PRIMARY KEY, n bigint NOT NULL)`)
	r.install()
	return r
}

func (r *rig) install() {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(r.t.Context())
	if err := fencepg.Install(r.t.Context(), conn, fencepg.Config{Node: "headgate"}); err != nil {
		r.t.Fatal(err)
	}
	for _, table := range []string{"rows", "parted"} {
		if _, err := fencepg.FenceTable(r.t.Context(), conn, "", table, "{resource}", false); err != nil {
			r.t.Fatal(err)
		}
	}
}

func agent(name string) *headgate.Principal {
	return &headgate.Principal{Name: name, Kind: headgate.KindAgent, Lease: []string{"*"}}
}

func resource(i int) string { return fmt.Sprintf("job/%d", i) }

// acquire takes a lease, and returns nil when somebody has it.
func (r *rig) acquire(ctx context.Context, who, i int, ttl time.Duration) *fence.Fence {
	begun := r.history.now()
	grants, err := r.service.Acquire(ctx, agent(fmt.Sprint("agent-", who)), lease.Request{Resources: []string{resource(i)}, TTL: ttl})
	if err != nil {
		return nil
	}
	f, err := fence.Parse(grants[0].Token)
	if err != nil {
		r.t.Error(err)
		return nil
	}
	r.history.add(who, i, begun, op{kind: opGrant, epoch: f.Epoch}, 0)
	r.raise(i, f.Epoch)
	return &f
}

func (r *rig) raise(i int, epoch int64) {
	for old := r.newest[i].Load(); old < epoch && !r.newest[i].CompareAndSwap(old, epoch); old = r.newest[i].Load() {
	}
}

var isolation = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// write makes one fenced write, and keeps what became of it.
func (r *rig) write(ctx context.Context, who, i int, f fence.Fence, random *rand.Rand, pause time.Duration) error {
	id := r.ids.Add(1)
	kind := r.kinds[random.IntN(len(r.kinds))]
	old := f.Epoch < r.newest[i].Load()
	begun := r.history.now()
	var n int64
	err := r.attempt(ctx, id, kind, f, isolation[random.IntN(len(isolation))], pause, &n)
	e := headgate.AsError(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.acked[id] = true
		r.fenced.Add(1)
		r.history.add(who, i, begun, op{kind: opWrite, epoch: f.Epoch}, n)
		if old && kind != unguarded {
			r.t.Errorf("a write under %s was accepted although epoch %d had been granted before it began", f, r.newest[i].Load())
		}
	case e != nil && e.Code == headgate.CodeStaleFence:
		r.refused[id] = true
		r.stale.Add(1)
		r.history.add(who, i, begun, op{kind: opWrite, epoch: f.Epoch}, refusedAsStale)
	case e != nil && (e.Code == headgate.CodeLeaseExpired || e.Code == headgate.CodeLeaseClosing):
		r.refused[id] = true
		r.expired.Add(1)
	case e != nil && e.Outcome == headgate.Unknown, strings.HasPrefix(fencepg.State(err), "57"):
		r.unknown.Add(1) // it may be there or not
	case fencepg.State(err) != "":
		r.refused[id] = true
		r.other.Add(1)
		if s := fencepg.State(err); strings.HasPrefix(s, "HG") || s == "40P01" {
			r.t.Errorf("%s: %v", f, err)
		}
	default:
		r.other.Add(1) // the connection broke; the caller may not know more
	}
	return err
}

func (r *rig) attempt(ctx context.Context, id int64, kind int, f fence.Fence, level pgx.TxIsoLevel, pause time.Duration, n *int64) error {
	insert := "INSERT INTO " + tables[kind] + " (id, resource, epoch) VALUES ($1, $2, $3)"
	body := func(tx pgx.Tx) error {
		if pause > 0 {
			wait(ctx, pause)
		}
		if err := tx.QueryRow(ctx, "INSERT INTO counters VALUES ($1, 1) ON CONFLICT (resource) DO UPDATE SET n = counters.n + 1 RETURNING n", f.Resource).Scan(n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insert, id, f.Resource, f.Epoch)
		return err
	}
	switch kind {
	case byInline:
		item, args := r.db.Inline(f, 2)
		err := r.pool.QueryRow(ctx, `WITH passed AS MATERIALIZED (SELECT passed FROM `+item+`), counted AS (
				INSERT INTO counters SELECT $2, 1 FROM passed ON CONFLICT (resource) DO UPDATE SET n = counters.n + 1 RETURNING n
			) , kept AS (INSERT INTO plain (id, resource, epoch) SELECT $1, $2, $3 FROM passed) SELECT n FROM counted`, append([]any{id}, args...)...).Scan(n)
		return fencepg.Error(err)
	case unguarded:
		return pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			var one int
			err := tx.QueryRow(ctx, "SELECT 1 FROM headgate.leases WHERE resource = convert_to($1, 'UTF8') AND epoch = $2 AND nonce = $3", f.Resource, f.Epoch, f.Nonce).Scan(&one)
			if errors.Is(err, pgx.ErrNoRows) {
				return headgate.NewError(headgate.CodeStaleFence, "not the current epoch")
			}
			if err != nil {
				return err
			}
			return body(tx)
		})
	}
	// A DB of its own, so that each stale attempt asks the database: before the
	// function runs, or together with its first statement.
	db := new(fencepg.DB)
	if id%2 == 0 {
		db = fencepg.Warm(f)
	}
	return db.Tx(ctx, r.pool, f, pgx.TxOptions{IsoLevel: level}, body)
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// stress lets workers take leases, write under them, walk away, come back and
// write under what they held before, until done says so.
func (r *rig) stress(workers, resources int, done func() bool) {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for who := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(who), 7))
			var past [8]*fence.Fence
			for !done() && ctx.Err() == nil {
				i := random.IntN(resources)
				if f := r.acquire(ctx, who, i, 100*time.Millisecond); f != nil {
					r.hold(ctx, who, i, *f, random, done)
					past[i] = f
				}
				for range 6 { // what a worker does that does not know its lease is gone
					if p := past[i]; p != nil && !done() {
						_ = r.write(ctx, who, i, *p, random, 0) // counted within
					}
				}
				if past[i] == nil {
					wait(ctx, time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

func (r *rig) hold(ctx context.Context, who, i int, f fence.Fence, random *rand.Rand, done func() bool) {
	for range 1 + random.IntN(40) {
		if done() {
			return
		}
		pause := time.Duration(0)
		if random.IntN(40) == 0 {
			pause = time.Duration(random.IntN(130)) * time.Millisecond
		}
		if err := r.write(ctx, who, i, f, random, pause); headgate.CodeOf(err) != "" && err != nil {
			return
		}
	}
}

func newRandom() *rand.Rand { return rand.New(rand.NewPCG(5, 6)) }
