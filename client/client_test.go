package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/nodetest"
)

func event(id, data string) *headgate.Event {
	return &headgate.Event{ID: id, Source: "/client", Type: "ticket.opened", Data: []byte(data)}
}

func TestPublishForms(t *testing.T) {
	n := nodetest.Start(t, nil)
	c, ctx := n.Client(t, "desk"), context.Background()
	p, err := c.Publish(ctx, event("one", `{"ticket_id":"T"}`))
	if err != nil || p.ID != "one" || p.RootID != "one" {
		t.Errorf("%+v, %v", p, err)
	}
	good, bad := event("g", `{"ticket_id":"T"}`), event("b", `{}`)
	r, err := c.PublishBatch(ctx, []*headgate.Event{good, bad})
	if err != nil || r.Accepted != 1 || r.Refused != 1 || r.Results[1].Code != headgate.CodeContractViolation {
		t.Errorf("mixed: %+v, %v", r, err)
	}
	// That all are refused is no error of the request either.
	if r, err = c.PublishBatch(ctx, []*headgate.Event{bad}); err != nil || r.Refused != 1 || len(r.Results) != 1 {
		t.Errorf("none: %+v, %v", r, err)
	}
	pr, pw := io.Pipe()
	go func() {
		for i := range 2500 {
			_, _ = pw.Write(headgate.AppendLine(nil, event(fmt.Sprint("l", i), `{"ticket_id":"T"}`)))
		}
		_ = pw.Close()
	}()
	if r, err = c.PublishLines(ctx, pr); err != nil || r.Accepted != 2500 || r.Results[2499].ID != "l2499" {
		t.Errorf("lines: %d, %v", r.Accepted, err)
	}
}

func TestRefusalIsAnError(t *testing.T) {
	n := nodetest.Start(t, nil)
	_, err := n.Client(t, "desk").Publish(context.Background(), event("bad", `{"ticket_idd":"T"}`))
	e := headgate.AsError(err)
	if e == nil || e.Code != headgate.CodeContractViolation || e.Verdict == nil || len(e.Verdict.Violations) == 0 || e.Verdict.Contract.Subject != "ticket.opened" {
		t.Fatalf("%+v", e)
	}
	if !errors.Is(err, &headgate.Error{Code: headgate.CodeContractViolation}) || e.Info().Retry != headgate.RetryAfterFix || e.Info().Outcome != headgate.NotApplied {
		t.Errorf("%+v", e.Info())
	}
}

func TestSettleTellsBoth(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := context.Background()
	if _, _, err := n.Client(t, "admin").PutSubscription(ctx, "s", api.SubscriptionSpec{Types: []string{"ticket.opened"}, As: "triage", From: "beginning"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Client(t, "desk").Publish(ctx, event("one", `{"ticket_id":"T"}`)); err != nil {
		t.Fatal(err)
	}
	c := n.Client(t, "triage")
	ds, err := c.Pull(ctx, "s", 5, 20*time.Second)
	if err != nil || len(ds) != 1 {
		t.Fatalf("%+v, %v", ds, err)
	}
	r, err := c.Settle(ctx, "s", api.Settlement{Claim: ds[0].Claim, Outcome: "ack", Emit: []json.RawMessage{[]byte(`{"type":"ticket.triaged","data":{}}`)}})
	if headgate.CodeOf(err) != headgate.CodeContractViolation || r.Open != 1 || len(r.Results) != 1 || len(r.Results[0].Emitted) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = c.Settle(ctx, "s", api.Settlement{Claim: ds[0].Claim, Outcome: "ack"})
	if err != nil || r.Settled != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// What a server answers that is no Headgate, or no good one.
func TestForeignAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		status      int
		media, body string
		header      http.Header
		code        headgate.Code
	}{
		"proxy":             {502, "text/html", "<html>bad gateway</html>", nil, headgate.CodeUnavailable},
		"proxy without":     {504, "", "", nil, headgate.CodeUnavailable},
		"redirect":          {302, "", "", http.Header{"Location": {"http://127.0.0.1:1/steal"}}, headgate.CodeInternal},
		"too many requests": {429, "text/plain", "slow down", nil, headgate.CodeOverloaded},
		"no JSON":           {200, "application/json", "hello", nil, headgate.CodeUnknownOutcome},
		"cut JSON":          {202, "application/json", `{"id":"x"`, nil, headgate.CodeUnknownOutcome},
		"no problem":        {422, "application/problem+json", `{}`, nil, headgate.CodeInvalidArgument},
		"endless problem":   {422, "application/problem+json", `{"code":"` + strings.Repeat("a", 2<<20), nil, headgate.CodeInvalidArgument},
		"teapot":            {418, "", "", nil, headgate.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tc.header {
					w.Header()[k] = v
				}
				w.Header().Set("Content-Type", tc.media)
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer srv.Close()
			c, err := client.New(client.Config{URL: srv.URL, Token: "t"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.PublishRaw(context.Background(), []byte(`{}`))
			if headgate.CodeOf(err) != tc.code || headgate.AsError(err) == nil {
				t.Errorf("%v; want %s", err, tc.code)
			}
		})
	}
}

func TestNoAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer srv.Close()
	c, err := client.New(client.Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = c.Whoami(ctx)
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeCanceled || e.Info().Outcome != headgate.Unknown {
		t.Errorf("cancelled: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err = c.Whoami(ctx); headgate.CodeOf(err) != headgate.CodeTimeout {
		t.Errorf("timed out: %v", err)
	}
	gone, err := client.New(client.Config{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Whoami(context.Background()); headgate.CodeOf(err) != headgate.CodeUnavailable {
		t.Errorf("nobody there: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:7420", "ftp://x", "http://", "http://x/?a=b", "://"} {
		if _, err := client.New(client.Config{URL: bad}); headgate.CodeOf(err) != headgate.CodeInvalidConfig {
			t.Errorf("URL %q: %v", bad, err)
		}
	}
}

// The token goes nowhere else, whatever the server says.
func TestTokenIsNotForwarded(t *testing.T) {
	stolen := make(chan string, 1)
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen <- r.Header.Get("Authorization") }))
	defer thief.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	c, err := client.New(client.Config{URL: srv.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Whoami(context.Background()); err == nil {
		t.Error("a redirect was followed")
	}
	select {
	case got := <-stolen:
		t.Errorf("another host was called with %q", got)
	default:
	}
}

func TestTailReadsWhatServersSend(t *testing.T) {
	const text = "retry: 1000\r\nid: a=0:1\r\nevent: start\r\ndata: {}\r\n\r\n: heartbeat\nid: a=0:2\n\n" +
		"id: a=0:3\nevent: event\ndata: {\"stream\":\"a\",\ndata: \"position\":\"0:2\",\"event\":{\"id\":\"x\"}}\n\n" +
		"event: gap\ndata: {\"stream\":\"a\",\"from\":\"0:3\",\"to\":\"0:5\",\"missing\":2}\n\nevent: event\ndata: nonsense\n\n"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.TypeSSE)
		_, _ = io.WriteString(w, text)
	}))
	defer srv.Close()
	c, err := client.New(client.Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tail, err := c.Tail(context.Background(), client.TailOpts{Types: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tail.Close() }()
	m, err := tail.Next()
	if err != nil || m.Event == nil || !bytes.Contains(m.Event.Event, []byte(`"x"`)) || tail.Cursor() != "a=0:3" {
		t.Errorf("%+v, %v, cursor %s", m, err, tail.Cursor())
	}
	if m, err = tail.Next(); err != nil || m.Gap == nil || m.Gap.Missing != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err = tail.Next(); headgate.CodeOf(err) != headgate.CodeUnavailable {
		t.Errorf("nonsense: %v", err)
	}
	if _, err = tail.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}
