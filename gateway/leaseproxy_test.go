package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/lease/hold"
)

// What a proxy does with the answers of the node.
const (
	passes    = iota
	delays    // by netDelay
	swallows  // the request arrives, the answer is lost, the connection breaks
	resets    // the same, with a reset
	freezes   // nothing moves any more, and nothing is closed
	netDelay  = 150 * time.Millisecond
	proxyTTL  = 2 * time.Second
	proxyMost = 30 * time.Second
)

// proxy is a network between a client and the node.
type proxy struct {
	net.Listener
	to      string
	mode    atomic.Int64
	answers chan struct{} // one for each piece of an answer that came by
	ended   chan struct{}
	all     sync.WaitGroup
}

// through starts a proxy and returns it with a client behind it.
func through(t *testing.T, n *nodetest.Node, who string) (*proxy, *client.Client) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: n.Addr, answers: make(chan struct{}, 1000), ended: make(chan struct{})}
	p.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		close(p.ended)
		_ = l.Close()
		p.all.Wait()
	})
	c, err := client.New(client.Config{URL: "http://" + l.Addr().String(), Token: n.Tokens[who], HTTP: &http.Client{Transport: &http.Transport{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return p, c
}

func (p *proxy) serve(c *net.TCPConn) {
	defer c.Close()
	up, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer up.Close()
	var both sync.WaitGroup
	done := make(chan struct{})
	once := sync.OnceFunc(func() { close(done) })
	both.Go(func() { defer once(); p.pump(up, c, false) })
	both.Go(func() { defer once(); p.pump(c, up, true) })
	select {
	case <-done:
	case <-p.ended:
	}
	_ = c.Close()
	_ = up.Close()
	both.Wait()
}

// pump moves bytes, as the mode of the moment says.
func (p *proxy) pump(to, from net.Conn, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		mode := p.mode.Load()
		if mode == freezes {
			<-p.ended
			return
		}
		if answers {
			switch mode {
			case delays:
				wait := time.NewTimer(netDelay)
				select {
				case <-wait.C:
				case <-p.ended:
				}
				wait.Stop()
			case swallows, resets:
				if mode == resets {
					_ = to.(*net.TCPConn).SetLinger(0)
				}
				p.mode.Store(passes)
				return
			}
			p.answers <- struct{}{}
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// waitFor waits until so many answers came by.
func (p *proxy) waitFor(t *testing.T, n int) {
	t.Helper()
	end := time.After(proxyMost)
	for range n {
		select {
		case <-p.answers:
		case <-end:
			t.Fatal("no more answers come by")
		}
	}
}

func heldThrough(t *testing.T, c *client.Client) (context.Context, *hold.Lease) {
	t.Helper()
	ctx, l, err := hold.Acquire(t.Context(), c, "ticket/1", &hold.Opts{Want: hold.Want{TTL: proxyTTL}})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, l
}

// TestLostAcquireAnswer (T21): whoever never learnt of its grant is not locked
// out by it, and gets this very grant.
func TestLostAcquireAnswer(t *testing.T) {
	for name, mode := range map[string]int64{"closed": swallows, "reset": resets} {
		t.Run(name, func(t *testing.T) {
			n := nodetest.Start(t, nil)
			p, c := through(t, n, "triage")
			p.mode.Store(mode)
			ctx, l := heldThrough(t, c)
			if got := n.Leases.Stats().Granted.Load(); got != 1 {
				t.Errorf("%d grants were made", got)
			}
			if st, err := n.Leases.Get(t.Context(), "ticket/1"); err != nil || st.Epoch != l.Epoch() || ctx.Err() != nil {
				t.Errorf("%+v, %v; held at epoch %d", st, err, l.Epoch())
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSlowNetwork: a lease lives on over a network that takes its time, and
// over connections that break.
func TestSlowNetwork(t *testing.T) {
	n := nodetest.Start(t, nil)
	p, c := through(t, n, "triage")
	ctx, l := heldThrough(t, c)
	epoch := l.Epoch()
	p.mode.Store(delays)
	p.waitFor(t, 6) // longer than the TTL
	for range 3 {
		p.mode.Store(resets)
		p.waitFor(t, 2)
	}
	if st, err := n.Leases.Get(t.Context(), "ticket/1"); ctx.Err() != nil || err != nil || st.Epoch != epoch || !st.Held() {
		t.Errorf("%v; %+v, %v", context.Cause(ctx), st, err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHalfOpenNetwork (R7): a holder whose network stands still stops before
// anybody else may begin, and what it sends later is refused.
func TestHalfOpenNetwork(t *testing.T) {
	n := nodetest.Start(t, nil)
	p, c := through(t, n, "triage")
	ctx, l := heldThrough(t, c)
	p.mode.Store(freezes)
	var ended, taken time.Time
	over := make(chan struct{})
	go func() {
		<-ctx.Done()
		ended = time.Now()
		close(over)
	}()
	next, err := n.Client(t, "admin").Acquire(t.Context(), "ticket/1", api.AcquireRequest{WaitMS: 20_000, TTLMS: 60_000})
	taken = time.Now()
	if err != nil || next.Epoch <= l.Epoch() {
		t.Fatalf("%+v, %v", next, err)
	}
	select {
	case <-over:
		if ended.After(taken) {
			t.Errorf("the holder went on for %s after another had begun", ended.Sub(taken))
		}
	case <-time.After(proxyMost):
		t.Fatal("the holder was never told")
	}
	if code := headgate.CodeOf(context.Cause(ctx)); code != headgate.CodeLeaseExpired {
		t.Errorf("the holder's context ended with %v", context.Cause(ctx))
	}
	_, err = n.Client(t, "triage").VerifyFence(t.Context(), l.Token(), "")
	wantCode(t, "the old token", err, headgate.CodeStaleFence)
	gone, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Release(gone); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("release over a dead network: %v", err)
	}
}
