package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/nodetest"
)

func TestHealthAndUnknownPaths(t *testing.T) {
	var notReady error
	n := nodetest.Start(t, &nodetest.Opts{Gateway: func(c *gateway.Config) {
		c.Ready = func(context.Context) error { return notReady }
	}})
	for path, want := range map[string]string{"/healthz": `"ok"`, "/readyz": `"ready"`, "/metrics": "headgate_build_info", "/openapi.json": `"3.1.0"`} {
		if a := ask(t, n, "", "GET", path, ""); a.status != 200 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
	}
	notReady = errors.New("secret detail")
	a := ask(t, n, "", "GET", "/readyz", "")
	if p := a.problem(t); a.status != 503 || p.Code != headgate.CodeUnavailable || strings.Contains(string(a.body), "secret") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if p := ask(t, n, "", "GET", "/nowhere", "").problem(t); p.Code != headgate.CodeNotFound || p.Status != 404 {
		t.Errorf("%+v", p)
	}
	a = ask(t, n, "", "DELETE", "/v1/events", "")
	if p := a.problem(t); p.Status != 405 || a.header.Get("Allow") != "POST" {
		t.Errorf("%+v, Allow %q", p, a.header.Get("Allow"))
	}
	if a := ask(t, n, "", "GET", "/healthz", "", "X-Request-Id", "bad id\"<script>"); !harmless(a.header.Get(api.HeaderRequestID)) {
		t.Errorf("request id %q", a.header.Get(api.HeaderRequestID))
	}
	if a := ask(t, n, "", "GET", "/healthz", "", "Origin", "https://evil.example"); a.status != 403 {
		t.Errorf("foreign origin: %d", a.status)
	}
}

func harmless(id string) bool { return id != "" && !strings.ContainsAny(id, "\"<> ") }

func TestMetricsCanBeProtected(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Gateway: func(c *gateway.Config) { c.ProtectMetrics = true }})
	for who, want := range map[string]int{"": 401, "desk": 403, "viewer": 200} {
		if a := ask(t, n, who, "GET", "/metrics", ""); a.status != want {
			t.Errorf("%q: %d", who, a.status)
		}
	}
}

// occupy starts a request of a principal that is at work until the returned
// function ends it.
func occupy(t *testing.T, n *nodetest.Node, who string) (end func()) {
	t.Helper()
	body := opened("occupy-"+who, "T")
	c := dial(t, n)
	c.send(t, "%s", head(n, who, api.TypeEvent, fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n", len(body))))
	// The server asks for the body once the handler reads it: the request is
	// at work from then on.
	line, err := c.r.ReadString('\n')
	if err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := c.r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return func() {
		c.send(t, "%s", body)
		if a := c.answer(t); a.status != 202 {
			t.Errorf("occupying request: %d %s", a.status, a.body)
		}
		_ = c.Close()
	}
}

func TestOverloadIsRefusedNotQueued(t *testing.T) {
	leakFree(t)
	n := nodetest.Start(t, &nodetest.Opts{Gateway: func(c *gateway.Config) { c.Limits = gateway.Limits{Requests: 2, PrincipalRequests: 1} }})
	end := occupy(t, n, "desk")
	a := publish(t, n, "desk", opened("o1", "T"))
	if p := a.problem(t); a.status != 429 || p.Code != headgate.CodeOverloaded || a.header.Get("Retry-After") != "1" {
		t.Errorf("second of desk: %d %+v", a.status, p)
	}
	end2 := occupy(t, n, "admin")
	if a := ask(t, n, "viewer", "GET", "/v1/whoami", ""); a.status != 429 {
		t.Errorf("third in total: %d", a.status)
	}
	if a := ask(t, n, "", "GET", "/healthz", ""); a.status != 200 {
		t.Errorf("health under load: %d", a.status)
	}
	end()
	end2()
	if a := publish(t, n, "desk", opened("o2", "T")); a.status != 202 {
		t.Errorf("after the load: %d %s", a.status, a.body)
	}
}

func TestBytesInFlightAreBounded(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Gateway: func(c *gateway.Config) { c.Limits.PrincipalBytes = 64 << 10 }})
	big := opened("b", strings.Repeat("T", 200_000))
	if p := publish(t, n, "desk", big).problem(t); p.Code != headgate.CodeOverloaded {
		t.Errorf("%+v", p)
	}
	if a := publish(t, n, "desk", opened("b2", "T")); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	leakFree(t)
	n := nodetest.Start(t, &nodetest.Opts{Serve: gateway.ServeOpts{Connections: 2}})
	end1, end2 := occupy(t, n, "desk"), occupy(t, n, "admin")
	third := dial(t, n)
	third.send(t, "GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", n.Addr)
	if err := third.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if b, err := third.r.ReadByte(); err == nil {
		t.Errorf("a third connection was served: %q", b)
	}
	end1() // and closes its connection, which makes room
	if err := third.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if a := third.answer(t); a.status != 200 {
		t.Errorf("third connection: %d", a.status)
	}
	end2()
}

func TestDrain(t *testing.T) {
	leakFree(t)
	n := nodetest.Start(t, &nodetest.Opts{Serve: gateway.ServeOpts{Lead: 300 * time.Millisecond, Grace: 10 * time.Second}})
	subscribe(t, n, "triage", triageSpec)
	c := n.Client(t, "triage")
	polled := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		close(waiting)
		ds, err := c.Pull(context.Background(), "triage", 1, time.Minute)
		if err == nil && len(ds) != 0 {
			err = fmt.Errorf("deliveries %+v", ds)
		}
		polled <- err
	}()
	<-waiting
	tail := openTail(t, n, "viewer", client.TailOpts{})
	end := occupy(t, n, "desk")
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop() }()
	// During the lead the node answers, but says that it takes no work.
	for {
		a := ask(t, n, "", "GET", "/readyz", "")
		if a.status == 503 {
			if p := a.problem(t); p.Code != headgate.CodeDraining {
				t.Errorf("%+v", p)
			}
			break
		}
	}
	if a := publish(t, n, "admin", opened("late", "T")); a.status != 503 {
		t.Errorf("new work while draining: %d", a.status)
	}
	if err := <-polled; err != nil {
		// The poll either came in time, and ended empty, or was refused.
		if headgate.CodeOf(err) != headgate.CodeDraining {
			t.Errorf("long poll: %v", err)
		}
	}
	if _, err := tail.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("live stream: %v", err)
	}
	end() // a request at work is finished, and answered
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestGraceEnds(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Serve: gateway.ServeOpts{Grace: 50 * time.Millisecond}})
	occupy(t, n, "desk") // never ends
	if err := n.Stop(); err == nil || !strings.Contains(err.Error(), "grace of 50ms") {
		t.Errorf("Serve: %v", err)
	}
}

func TestPanicIsAnswered(t *testing.T) {
	n := nodetest.Start(t, nil)
	n.Gateway.Handle(gateway.Route{Method: "GET", Path: "/panic", Public: true, Handle: func(*gateway.Call) error { panic("secret") }})
	a := ask(t, n, "", "GET", "/panic", "")
	if p := a.problem(t); a.status != 500 || p.Code != headgate.CodeInternal || strings.Contains(string(a.body), "secret") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestKeepAliveAfterRefusal(t *testing.T) {
	n := nodetest.Start(t, nil)
	c := dial(t, n)
	bad := `{"specversion":"1.0","type":"ticket.opened","data":{}}`
	for range 3 {
		c.send(t, "%s%s", head(n, "desk", api.TypeEvent, fmt.Sprintf("Content-Length: %d\r\n", len(bad))), bad)
		if a := c.answer(t); a.status != http.StatusUnprocessableEntity || a.header.Get("Connection") == "close" {
			t.Errorf("%d, connection %q", a.status, a.header.Get("Connection"))
		}
	}
}
