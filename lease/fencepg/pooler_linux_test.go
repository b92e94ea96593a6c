package fencepg_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fencepg"
)

// poolerSessions is how many sessions of the server all clients share.
const poolerSessions = 3

// pooler puts PgBouncer before a server, which hands a session to another
// client after each transaction and resets nothing in between. It returns the
// address with which clients reach the database through it.
func pooler(t *testing.T, server string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; exec.Command(program, "--version").Run() != nil {
			absent(t, "the package pgbouncer is not installed")
		}
	}
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "headgate-pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a folder of temporary files
	ini := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%s user=headgate
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`, to.Port(), port, poolerSessions)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody(t), Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // ends with the test
		_ = cmd.Wait()         // says that it was killed
		if t.Failed() {
			t.Logf("PgBouncer said:\n%s", said.String())
		}
	})
	through := *to
	through.Host = fmt.Sprintf("127.0.0.1:%d", port)
	for begun := time.Now(); ; wait(t.Context(), 20*time.Millisecond) {
		conn, err := pgconn.Connect(t.Context(), through.String())
		if err == nil {
			_ = conn.Close(t.Context()) // only looked whether it is there
			return through.String()
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("PgBouncer is not reached: %v", err)
		}
	}
}

// nobody is a user without rights, when root runs the test: some servers
// refuse root.
func nobody(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

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
	through := pooler(t, server.String())
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
	pool := throughPooler(t, pooler(t, direct), pgx.QueryExecModeExec)
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
