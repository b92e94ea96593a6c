package fencepg_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fencepg"
)

// poolerSessions is how many sessions of the server all clients share.
const poolerSessions = 3

// throughPooler is a pool of clients whose statements need no session of
// their own.
func throughPooler(t *testing.T, url string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 16
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Behind a pooler of transactions the guards hold, and nothing of one client's
// transaction is met by the next client: no fence, no bound, no lock.
func TestPooler(t *testing.T) {
	ctx := t.Context()
	direct := newDatabase(t)
	r := newRig(t, direct, byCall, byInline, byRows, byPartition)
	server, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	through := pgtest.Pooler(t, server.String(), poolerSessions)
	for name, mode := range map[string]pgx.QueryExecMode{"unnamed statements": pgx.QueryExecModeExec, "simple protocol": pgx.QueryExecModeSimpleProtocol} {
		pool := throughPooler(t, through, mode)
		f := r.acquire(ctx, 1, 7, time.Minute)
		if f == nil {
			t.Fatal("the lease was not granted")
		}
		insert := func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO rows (id, resource, epoch) VALUES ($1, $2, $3)", -r.ids.Add(1), f.Resource, f.Epoch)
			return err
		}
		for range 3 * poolerSessions { // each session has been this client's
			want(t, name, fencepg.Tx(ctx, pool, *f, insert), "")
		}
		for range 3 * poolerSessions {
			_, err := pool.Exec(ctx, "INSERT INTO rows (id, resource, epoch) VALUES (-1000, $1, 1)", f.Resource)
			want(t, name+": another client without a fence", fencepg.Error(err), headgate.CodeFenceMissing)
		}
		r.nothingLeft(t, pool)
		pgtest.Exec(t, direct, "UPDATE headgate.leases SET epoch = epoch + 1, nonce = NULL, expires = 0 WHERE resource = 'job/7'")
		want(t, name+": after the release", fencepg.Tx(ctx, pool, *f, insert), headgate.CodeStaleFence)
	}
	r.pool.Close()
	r.pool = throughPooler(t, through, pgx.QueryExecModeExec)
	r.slot()
	begun := time.Now()
	r.stress(10, 3, func() bool {
		return r.fenced.Load() >= 300 && r.stale.Load() >= 300 || time.Since(begun) > 20*time.Second || t.Failed()
	})
	p := r.prove()
	t.Logf("%d accepted, %d refused as stale; in the log %d writes, %d raised epochs, %d stale writes, %d epochs fell",
		r.fenced.Load(), r.stale.Load(), p.writes, p.raises, p.violations, p.falls)
	if p.violations != 0 || p.falls != 0 || int64(p.writes) != r.fenced.Load() || p.writes < 50 {
		t.Errorf("%d stale writes, %d epochs fell, %d writes in the log of %d acknowledged", p.violations, p.falls, p.writes, r.fenced.Load())
	}
	r.verify()
	r.nothingLeft(t, r.pool)
}

// nothingLeft looks into every session that the pooler shares.
func (r *rig) nothingLeft(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	seen := map[string]bool{}
	for range 20 * poolerSessions {
		var pid, note, idle, statement string
		if err := pool.QueryRow(t.Context(), `SELECT pg_backend_pid()::text, coalesce(current_setting('headgate.fences', true), ''),
			current_setting('idle_in_transaction_session_timeout'), current_setting('statement_timeout') FROM pg_sleep(0)`).Scan(&pid, &note, &idle, &statement); err != nil {
			t.Fatal(err)
		}
		seen[pid] = true
		if note != "" || idle != "0" || statement != "0" {
			t.Errorf("a session kept fence %q and bounds %s, %s", note, idle, statement)
		}
	}
	for pid := range seen {
		if left := pgtest.Exec(t, r.url, "SELECT locktype FROM pg_locks WHERE pid = "+pid+" AND locktype <> 'virtualxid'"); len(left) > 0 {
			t.Errorf("a session holds locks on: %v", left)
		}
	}
	if len(seen) == 0 || len(seen) > poolerSessions {
		t.Errorf("%d sessions, want at most the pooler's %d", len(seen), poolerSessions)
	}
}

// What a client left in its session, against the rules, is no fence for the
// next one.
func TestPoolerLeak(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	direct := newDatabase(t)
	r := newRig(t, direct, byRows)
	pool := throughPooler(t, pgtest.Pooler(t, direct, poolerSessions), pgx.QueryExecModeExec)
	f := r.acquire(ctx, 1, 1, time.Minute)
	if f == nil {
		t.Fatal("the lease was not granted")
	}
	for range 2 * poolerSessions {
		want(t, "a client that leaks", fencepg.Tx(ctx, pool, *f, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT set_config('headgate.fences', current_setting('headgate.fences'), false)")
			return err
		}), "")
	}
	leaked := 0
	for range 4 * poolerSessions {
		var note string
		if err := pool.QueryRow(ctx, "SELECT coalesce(current_setting('headgate.fences', true), '')").Scan(&note); err != nil {
			t.Fatal(err)
		}
		if note != "" {
			leaked++
		}
		_, err := pool.Exec(ctx, "INSERT INTO rows (id, resource, epoch) VALUES (1, $1, $2)", f.Resource, f.Epoch)
		want(t, "the next client", fencepg.Error(err), headgate.CodeFenceMissing)
	}
	if leaked == 0 {
		t.Error("nothing leaked: the test shows nothing")
	}
}
