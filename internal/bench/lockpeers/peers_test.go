package lockpeers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/store/pgstore"
)

const (
	rounds = 50
	ttl    = 100 * time.Millisecond
	pause  = 130 * time.Millisecond // of the holder, longer than its lock
)

// redisServer runs a server of the test's own.
func redisServer(t *testing.T) *redis.Client {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skipf("redis-server is not installed: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close() // the server takes the port over
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no other way to end
		_ = cmd.Wait()         // says that it was killed
	})
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() }) // the server is gone by then or soon
	for begun := time.Now(); c.Ping(t.Context()).Err() != nil; wait(10 * time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("redis-server did not start")
		}
	}
	return c
}

func wait(d time.Duration) { <-time.After(d) }

// database is a Postgres database with a node's state and the table that both
// worlds write.
func database(t *testing.T) (*pgxpool.Pool, *lease.Service) {
	t.Helper()
	server := os.Getenv("HEADGATE_TEST_POSTGRES")
	if server == "" {
		t.Skip("HEADGATE_TEST_POSTGRES names no server; scripts/services run starts one")
	}
	name := fmt.Sprintf("lockpeers_%d", os.Getpid())
	admin := func(sql string) {
		conn, err := pgx.Connect(context.Background(), server)
		if err == nil {
			_, err = conn.Exec(context.Background(), sql)
			err = errors.Join(err, conn.Close(context.Background()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	admin("CREATE DATABASE " + name)
	url := strings.Replace(server, "/postgres?", "/"+name+"?", 1)
	st, err := pgstore.Open(t.Context(), pgstore.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	s, err := lease.Open(t.Context(), lease.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		admin("DROP DATABASE " + name + " WITH (FORCE)")
	})
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := fencepg.Install(t.Context(), conn.Conn(), fencepg.Config{Node: "headgate"}); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), "CREATE TABLE public.work (n int, writer text)")
	if err != nil {
		t.Fatal(err)
	}
	return pool, s
}

const insert = "INSERT INTO public.work VALUES ($1, $2)"

// One holder pauses between making sure of its lock and writing, longer than
// the lock lasts; another takes the lock and writes; then the first one goes
// on. How many of its late writes are kept?
func TestPause(t *testing.T) {
	ctx := t.Context()
	pool, service := database(t)
	locker := redislock.New(redisServer(t))
	redisStale, fenceStale := 0, 0
	for i := range rounds {
		key := fmt.Sprintf("job/%d", i)
		first, err := locker.Obtain(ctx, key, ttl, nil)
		if err != nil {
			t.Fatal(err)
		}
		if left, err := first.TTL(ctx); err != nil || left <= 0 { // what a careful user checks
			t.Fatal(left, err)
		}
		wait(pause)
		if _, err := locker.Obtain(ctx, key, time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(ctx, insert, i, "second"); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(ctx, insert, i, "first"); err == nil {
			redisStale++
		}
	}
	for i := range rounds {
		key := fmt.Sprintf("job/%d", i)
		first := acquire(t, service, key, ttl)
		wait(pause)
		second := acquire(t, service, key, time.Minute)
		if err := fencepg.Tx(ctx, pool, second, write(ctx, i, "second")); err != nil {
			t.Fatal(err)
		}
		err := fencepg.Tx(ctx, pool, first, write(ctx, i, "first"))
		if err == nil {
			fenceStale++
		} else if headgate.CodeOf(err) != headgate.CodeStaleFence {
			t.Fatal(err)
		}
	}
	t.Logf("stale writes kept of %d: redislock %d, headgate %d", rounds, redisStale, fenceStale)
	if fenceStale != 0 {
		t.Errorf("%d stale writes were kept under fences", fenceStale)
	}
}

func write(ctx context.Context, i int, who string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insert, i, who)
		return err
	}
}

var agent = &headgate.Principal{Name: "bench", Kind: headgate.KindAgent, Lease: []string{"*"}}

func acquire(t *testing.T, s *lease.Service, key string, ttl time.Duration) fence.Fence {
	t.Helper()
	g, err := s.Acquire(t.Context(), agent, lease.Request{Resources: []string{key}, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	f, err := fence.Parse(g[0].Token)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// What each costs: taking and releasing a lock, and a write under it.
func TestCost(t *testing.T) {
	ctx := t.Context()
	pool, service := database(t)
	locker := redislock.New(redisServer(t))
	const n = 500
	t.Logf("acquire + release: redislock %s, headgate %s", p50(n, func(i int) {
		l, err := locker.Obtain(ctx, fmt.Sprint("cost/", i), time.Minute, nil)
		if err = errors.Join(err, l.Release(ctx)); err != nil {
			t.Fatal(err)
		}
	}), p50(n, acquireRelease(t, service)))
	l, err := locker.Obtain(ctx, "write", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := acquire(t, service, "write", time.Minute)
	t.Logf("a write in a transaction: redislock, with a check of the lock before it, %s; headgate, checked by the storage, %s", p50(n, func(i int) {
		if _, err := l.TTL(ctx); err != nil {
			t.Fatal(err)
		}
		if err := pgx.BeginFunc(ctx, pool, write(ctx, i, "first")); err != nil {
			t.Fatal(err)
		}
	}), p50(n, func(i int) {
		if err := fencepg.Tx(ctx, pool, f, write(ctx, i, "first")); err != nil {
			t.Fatal(err)
		}
	}))
}

func acquireRelease(t *testing.T, s *lease.Service) func(int) {
	return func(i int) {
		g, err := s.Acquire(t.Context(), agent, lease.Request{Resources: []string{fmt.Sprint("cost/", i)}, TTL: time.Minute})
		if err == nil {
			err = s.Release(t.Context(), agent, "", g[0].Token)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func p50(n int, fn func(int)) time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		begun := time.Now()
		fn(i)
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[n/2].Round(time.Microsecond)
}
