package lockpeers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/headgate/headgate/lease/fencepg"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the server takes the port over
	return l.Addr().String()
}

// etcdServer runs a server of the test's own, with an election timeout that
// lets leases of one second be as short as that.
func etcdServer(t *testing.T) *clientv3.Client {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skipf("etcd is not installed: %v", err)
	}
	addr, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	cmd := exec.Command(path, "--data-dir", t.TempDir(), "--listen-client-urls", addr, "--advertise-client-urls", addr, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no other way to end
		_ = cmd.Wait()         // says that it was killed
	})
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the server is gone by then or soon
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		if _, err = c.Put(ctx, "ready", ""); err == nil {
			return c
		}
		if ctx.Err() != nil {
			t.Fatalf("etcd did not start: %v", err)
		}
	}
}

// owns is what a careful user of the lock asks before a write.
func owns(ctx context.Context, c *clientv3.Client, m *concurrency.Mutex) error {
	r, err := c.Txn(ctx).If(m.IsOwner()).Commit()
	if err == nil && !r.Succeeded {
		err = errors.New("the lock is another's")
	}
	return err
}

// TestPause with etcd's own lock. A process that is stopped sends no keep-alive:
// the session of the paused holder is orphaned for that.
func TestPauseEtcd(t *testing.T) {
	ctx := t.Context()
	pool, service := database(t)
	c := etcdServer(t)
	var wg sync.WaitGroup
	var kept, fenced atomic.Int64
	for i := range rounds {
		wg.Go(func() {
			key := fmt.Sprintf("job/%d", i)
			lock := func() (*concurrency.Session, *concurrency.Mutex) {
				s, err := concurrency.NewSession(c, concurrency.WithTTL(1))
				if err != nil {
					t.Error(err)
					return nil, nil
				}
				m := concurrency.NewMutex(s, key)
				if err := errors.Join(m.Lock(ctx), owns(ctx, c, m)); err != nil {
					t.Error(err)
				}
				return s, m
			}
			first, _ := lock()
			if first == nil {
				return
			}
			first.Orphan()      // here the holder is stopped,
			second, _ := lock() // until its lease has run out and another has the lock
			if second == nil {
				return
			}
			defer second.Close()
			if _, err := pool.Exec(ctx, insert, i, "second"); err != nil {
				t.Error(err)
			}
			if _, err := pool.Exec(ctx, insert, i, "first"); err == nil {
				kept.Add(1)
			}
		})
	}
	wg.Wait()
	for i := range rounds {
		key := fmt.Sprintf("etcd/%d", i)
		first := acquire(t, service, key, ttl)
		wait(pause)
		second := acquire(t, service, key, time.Minute)
		if err := fencepg.Tx(ctx, pool, second, write(ctx, i, "second")); err != nil {
			t.Fatal(err)
		}
		if fencepg.Tx(ctx, pool, first, write(ctx, i, "first")) == nil {
			fenced.Add(1)
		}
	}
	t.Logf("stale writes kept of %d: etcd %d, headgate %d", rounds, kept.Load(), fenced.Load())
	if fenced.Load() != 0 {
		t.Errorf("%d stale writes were kept under fences", fenced.Load())
	}
}

func TestCostEtcd(t *testing.T) {
	ctx := t.Context()
	pool, service := database(t)
	c := etcdServer(t)
	s, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const n = 300
	t.Logf("lock + unlock in one session: etcd %s; acquire + release: headgate %s", p50(n, func(i int) {
		m := concurrency.NewMutex(s, fmt.Sprint("cost/", i))
		if err := errors.Join(m.Lock(ctx), m.Unlock(ctx)); err != nil {
			t.Fatal(err)
		}
	}), p50(n, acquireRelease(t, service)))
	m := concurrency.NewMutex(s, "write")
	if err := m.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	f := acquire(t, service, "write", time.Minute)
	t.Logf("a write in a transaction: etcd, with a check of the lock before it, %s; headgate, checked by the storage, %s", p50(n, func(i int) {
		if err := owns(ctx, c, m); err != nil {
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
