package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/nodetest"
)

func openTail(t *testing.T, n *nodetest.Node, who string, opts client.TailOpts) *client.Tail {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	tail, err := n.Client(t, who).Tail(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tail.Close() })
	return tail
}

func nextEvent(t *testing.T, tail *client.Tail) string {
	t.Helper()
	m, err := tail.Next()
	if err != nil {
		t.Fatal(err)
	}
	if m.Event == nil {
		t.Fatalf("message %+v is no event", m)
	}
	dec := headgate.Decoder{Trusted: true}
	d, err := dec.Structured(m.Event.Event)
	if err != nil {
		t.Fatal(err)
	}
	if d.Event.Header.RootID == "" || m.Event.Stream == "" || m.Event.Position == "" {
		t.Errorf("message lacks members: %+v", m.Event)
	}
	return d.Event.ID
}

func TestTailLiveAndResumed(t *testing.T) {
	leakFree(t)
	n := nodetest.Start(t, nil)
	publish(t, n, "desk", opened("before", "T"))
	tail := openTail(t, n, "viewer", client.TailOpts{})
	publish(t, n, "desk", opened("t1", "T"))
	if id := nextEvent(t, tail); id != "t1" {
		t.Errorf("first event is %s", id)
	}
	cursor := tail.Cursor()
	_ = tail.Close()
	// What comes while nobody listens is there after resuming, once.
	for i := range 5 {
		publish(t, n, "desk", opened(fmt.Sprint("away", i), "T"))
	}
	again := openTail(t, n, "viewer", client.TailOpts{Cursor: cursor})
	seen := map[string]bool{}
	for range 5 {
		seen[nextEvent(t, again)] = true
	}
	for i := range 5 {
		if !seen[fmt.Sprint("away", i)] {
			t.Errorf("away%d is missing: %v", i, seen)
		}
	}
	all := openTail(t, n, "viewer", client.TailOpts{From: "beginning"})
	seen = map[string]bool{}
	for range 7 {
		seen[nextEvent(t, all)] = true
	}
	if !seen["before"] || len(seen) != 7 {
		t.Errorf("from the beginning: %v", seen)
	}
}

func TestTailFiltersAndGuards(t *testing.T) {
	n := nodetest.Start(t, nil)
	tail := openTail(t, n, "triage", client.TailOpts{Types: []string{"ticket.opened"}})
	if a := publish(t, n, "admin", `{"specversion":"1.0","id":"other","type":"ticket.triaged","data":{"ticket_id":"T","team":"billing"}}`); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	publish(t, n, "desk", opened("mine", "T"))
	if id := nextEvent(t, tail); id != "mine" {
		t.Errorf("got %s", id)
	}
	for name, tc := range map[string]struct {
		who, query string
		code       headgate.Code
	}{
		"type not allowed": {"triage", "?type=ticket.triaged", headgate.CodeTypeNotAllowed},
		"all not allowed":  {"triage", "?type=*", headgate.CodeTypeNotAllowed},
		"no type":          {"triage", "", headgate.CodeInvalidArgument},
		"no pattern":       {"viewer", "?type=a..b", headgate.CodeInvalidArgument},
		"bad cursor":       {"viewer", "?cursor=nonsense", headgate.CodeInvalidArgument},
		"misspelt":         {"viewer", "?typ=a.b", headgate.CodeInvalidArgument},
		"bad from":         {"viewer", "?from=yesterday", headgate.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			if p := ask(t, n, tc.who, "GET", "/v1/tail"+tc.query, "").problem(t); p.Code != tc.code {
				t.Errorf("problem %+v", p)
			}
		})
	}
}

func TestTailGap(t *testing.T) {
	n := nodetest.Start(t, nil)
	for i := range 20 {
		publish(t, n, "desk", `{"specversion":"1.0","id":"g`+fmt.Sprint(i)+`","partitionkey":"k","type":"ticket.opened","data":{"ticket_id":"T"}}`)
	}
	stats, err := n.Broker.Stat(context.Background(), "events")
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range stats {
		if st.Next == 20 {
			if err := n.Broker.Trim(context.Background(), "events", st.Partition, 15); err != nil {
				t.Fatal(err)
			}
			tail := openTail(t, n, "viewer", client.TailOpts{Cursor: fmt.Sprintf("events=%d:3", st.Partition)})
			m, err := tail.Next()
			if err != nil || m.Gap == nil || m.Gap.Missing != 12 || m.Gap.Stream != "events" {
				t.Errorf("message %+v, %v", m.Gap, err)
			}
			if id := nextEvent(t, tail); id != "g15" {
				t.Errorf("after the gap comes %s", id)
			}
			return
		}
	}
	t.Fatal("no partition holds the key's events")
}

func TestTailHeartbeatAndHeaders(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Gateway: func(c *gateway.Config) { c.Limits.Heartbeat = 20 * time.Millisecond }})
	c := dial(t, n)
	c.send(t, "GET /v1/tail HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", n.Addr, n.Tokens["viewer"])
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The stream has no end: its connection is closed, not its body read.
	defer func() { _ = c.Close() }()
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("content type %s", ct)
	}
	buf := make([]byte, 4096)
	var got strings.Builder
	for !strings.Contains(got.String(), ": heartbeat\nid: events=") {
		k, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
		got.Write(buf[:k])
	}
}

func TestTailsAreBounded(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Gateway: func(c *gateway.Config) { c.Limits.Tails = 1 }})
	openTail(t, n, "viewer", client.TailOpts{})
	a := ask(t, n, "viewer", "GET", "/v1/tail", "")
	if p := a.problem(t); p.Code != headgate.CodeOverloaded || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %+v", a.status, p)
	}
}
