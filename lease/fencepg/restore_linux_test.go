package fencepg_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/lease/hold"
	"github.com/headgate/headgate/store/pgstore"
)

// address is one address in front of servers that take each other's place.
type address struct {
	listener net.Listener
	mu       sync.Mutex
	to       string // empty: nobody answers
	open     map[net.Conn]bool
}

func newAddress(t *testing.T) *address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &address{listener: l, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { a.carry(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends the loop
		a.point("")
		all.Wait()
	})
	return a
}

// carry passes bytes until either side ends.
func (a *address) carry(c net.Conn) {
	defer c.Close()
	a.mu.Lock()
	to := a.to
	a.mu.Unlock()
	if to == "" {
		return
	}
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer s.Close()
	a.mu.Lock()
	if a.to != to {
		a.mu.Unlock()
		return
	}
	a.open[c], a.open[s] = true, true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, c)
		delete(a.open, s)
	}()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // ends with either
			_ = c.Close()
			_ = s.Close()
		})
	}
	both.Wait()
}

// point cuts all connections and sends new ones to another server.
func (a *address) point(to string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to = to
	for c := range a.open {
		_ = c.Close()
	}
}

func host(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// crowd is agents that hold leases and write, whatever happens to the server.
type crowd struct {
	service   *lease.Service
	pool      *pgxpool.Pool
	elsewhere *pgxpool.Pool

	mu     sync.Mutex
	given  map[string]string // nonce by resource@epoch
	high   map[string]int64
	all    []fence.Fence
	faults []string
	counts [4]atomic.Int64
}

type crowded struct {
	hold.Keeper
	c *crowd
}

func (k crowded) AcquireLease(ctx context.Context, resource string, w hold.Want) (hold.Granted, error) {
	g, err := k.Keeper.AcquireLease(ctx, resource, w)
	if err != nil {
		return g, err
	}
	f, err := fence.Parse(g.Token)
	if err != nil {
		return g, err
	}
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	nonce, again := c.given[f.String()]
	if again && nonce != f.NonceText() || !again && f.Epoch <= c.high[f.Resource] {
		c.faults = append(c.faults, fmt.Sprintf("%s was given after %d", f, c.high[f.Resource]))
	}
	c.given[f.String()], c.high[f.Resource] = f.NonceText(), max(c.high[f.Resource], f.Epoch)
	c.all = append(c.all, f)
	return g, nil
}

// work goes on until ctx ends.
func (c *crowd) work(ctx context.Context, i int) {
	k := crowded{c.service.Keeper(agent("agent")), c}
	resource := fmt.Sprint("job/", i%2)
	for ctx.Err() == nil {
		held, l, err := hold.Acquire(ctx, k, resource, &hold.Opts{Want: hold.Want{TTL: 500 * time.Millisecond, Wait: time.Second}})
		if err != nil {
			wait(ctx, 10*time.Millisecond)
			continue
		}
		if f, err := fence.Parse(l.Token()); err == nil && new(fencepg.DB).Seal(held, c.elsewhere, f) == nil {
			for range 4 {
				here := wrote(held, c.pool, "journal", f)
				if there := wrote(held, c.elsewhere, "journal", f); here == nil && there == nil {
					c.counts[i].Add(1)
				}
			}
		}
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		_ = l.Release(release) // the server may be away
		cancel()
	}
}

// moved waits until every agent wrote anew.
func (c *crowd) moved(t *testing.T, what string) {
	t.Helper()
	begun := time.Now()
	for i := range c.counts {
		for from := c.counts[i].Load(); c.counts[i].Load() < from+4; wait(t.Context(), 10*time.Millisecond) {
			if time.Since(begun) > time.Minute {
				t.Fatalf("agent %d does not come back after %s", i, what)
			}
		}
	}
}

// TestRestoreUnderRunningAgents (R13): an old copy takes the place of the
// server that it is a copy of, at the same address, while agents go on. Old
// and lost grants are refused there and in a database that was not restored;
// no epoch falls in either; the agents come back by themselves.
func TestRestoreUnderRunningAgents(t *testing.T) {
	t.Parallel() // it waits for servers most of the time
	server := pgtest.Start(t, "wal_level=replica", "max_connections=60")
	at := newAddress(t)
	at.point(host(t, server.URL()))
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = at.listener.Addr().String()
	st, err := pgstore.Open(t.Context(), pgstore.Config{URL: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() }) // its server is not the one that it began with
	s, err := lease.Open(t.Context(), lease.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, server.URL(), journal)
	fenced(t, server.URL(), fencepg.Config{Node: "headgate"})
	c := &crowd{service: s, pool: connect(t, u.String()), elsewhere: target(t), given: map[string]string{}, high: map[string]int64{}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	for i := range c.counts {
		all.Go(func() { c.work(ctx, i) })
	}
	c.moved(t, "the start")
	server.Stop() // a copy of the files, while agents hold leases
	backup := server.Clone(false)
	server.Restart()
	c.moved(t, "the backup")
	server.Crash()
	at.point("")
	c.mu.Lock()
	lost := slices.Clone(c.all)
	c.mu.Unlock()
	backup.Restart()
	at.point(host(t, backup.URL()))
	c.moved(t, "the restore")
	for _, f := range lost {
		want(t, f.String()+" on the restored server", wrote(ctx, c.pool, "journal", f), headgate.CodeStaleFence)
		want(t, f.String()+" elsewhere", wrote(ctx, c.elsewhere, "journal", f), headgate.CodeStaleFence)
	}
	c.moved(t, "the attempts")
	cancel()
	all.Wait()
	for _, f := range c.faults {
		t.Error(f)
	}
	for name, pool := range map[string]*pgxpool.Pool{"restored": connect(t, backup.URL()), "elsewhere": c.elsewhere} {
		if n := count(t, pool, "SELECT count(*) FROM (SELECT epoch < lag(epoch) OVER (PARTITION BY resource ORDER BY n) AS fell FROM journal) j WHERE fell"); n != 0 {
			t.Errorf("%s: epochs fell %d times", name, n)
		}
	}
	t.Logf("%d grants, %d of them lost or old: %d attempts refused", len(c.all), len(lost), 2*len(lost))
}
