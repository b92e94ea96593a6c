package natsbroker

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

// TestOutsideConformance runs the suite against the real NATS server that
// scripts/services starts.
func TestOutsideConformance(t *testing.T) {
	runOutside(t, outsideURL(t))
}

// TestListeningConformance runs it against a server of the same version that
// a child process runs, so that the outside path is tested everywhere.
func TestListeningConformance(t *testing.T) {
	runOutside(t, startListening(t))
}

func outsideURL(t testing.TB) string {
	t.Helper()
	u := os.Getenv("HEADGATE_TEST_NATS")
	if u == "" {
		if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
			t.Fatal("HEADGATE_TEST_NATS is not set: run by scripts/services")
		}
		t.Skip("HEADGATE_TEST_NATS is not set: no outside NATS server")
	}
	return u
}

func runOutside(t *testing.T, serverURL string) {
	brokertest.Run(t, brokertest.Harness{
		Open: func(t testing.TB, dir string, o brokertest.Options) broker.Broker {
			cleanOutside(t, serverURL, dir)
			p := newProxy(t, serverURL)
			b := open(t, Config{URL: p.url(), Prefix: prefixOf(dir)}, o)
			return &proxied{Broker: b, proxy: p}
		},
		Child: func(t testing.TB, dir string) *exec.Cmd {
			cleanOutside(t, serverURL, dir)
			cmd := selfAsChild(t, dir)
			cmd.Env = append(cmd.Environ(), childURL+"="+serverURL)
			return cmd
		},
		Cut: func(_ testing.TB, b broker.Broker) { b.(*proxied).proxy.cut() },
	})
}

// proxied ends its proxy when it is closed, so that no goroutine is left.
type proxied struct {
	*Broker
	proxy *proxy
}

// Close implements [broker.Broker].
func (p *proxied) Close(ctx context.Context) error {
	err := p.Broker.Close(ctx)
	p.proxy.close()
	return err
}

// cleanOutside removes the test's streams at its end. A mark in the test's
// folder makes sure that it is asked for once.
func cleanOutside(t testing.TB, serverURL, dir string) {
	t.Helper()
	mark := filepath.Join(dir, "cleaned-later")
	if _, err := os.Stat(mark); err == nil {
		return
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc, err := nats.Connect(serverURL)
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		names := js.StreamNames(ctx)
		for name := range names.Name() {
			if strings.HasPrefix(name, prefixOf(dir)+"_") {
				if err := js.DeleteStream(ctx, name); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// proxy forwards TCP to the server, and can cut every connection.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	done  bool
}

func newProxy(t testing.TB, serverURL string) *proxy {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: u.Host, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		srv, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.add(client, srv) {
			return
		}
		p.wg.Go(func() { p.forward(client, srv) })
		p.wg.Go(func() { p.forward(srv, client) })
	}
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.done {
			_ = c.Close()
		} else {
			p.conns[c] = struct{}{}
		}
	}
	return !p.done
}

func (p *proxy) forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, to)
	delete(p.conns, from)
}

// cut closes every connection; new ones are welcome.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		// Reset rather than close in order: what is under way is lost.
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.cut()
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	p.cut()
	p.wg.Wait()
}
