package gateway_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/topology"
)

// answer is one answer, read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a *answer) problem(t *testing.T) api.Problem {
	t.Helper()
	if ct := a.header.Get("Content-Type"); ct != api.TypeProblem {
		t.Errorf("content type %q of a problem: %s", ct, a.body)
	}
	var p api.Problem
	a.decode(t, &p)
	if p.Status != a.status {
		t.Errorf("problem says %d, answer %d", p.Status, a.status)
	}
	if p.Type == "" || p.Title == "" || p.Fix == "" || p.Retryable == "" || !strings.Contains(p.Instance, a.header.Get(api.HeaderRequestID)) {
		t.Errorf("problem lacks members: %s", a.body)
	}
	return p
}

func (a *answer) decode(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("answer %d is no JSON: %v: %s", a.status, err, a.body)
	}
}

// ask makes one request. Headers come in pairs.
func ask(t testing.TB, n *nodetest.Node, who, method, path, body string, header ...string) *answer {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, n.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+n.Tokens[who])
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &answer{resp.StatusCode, resp.Header, b}
}

func publish(t testing.TB, n *nodetest.Node, who, body string, header ...string) *answer {
	t.Helper()
	return ask(t, n, who, "POST", "/v1/events", body, append([]string{"Content-Type", api.TypeEvent}, header...)...)
}

// opened is a good event, as a line.
func opened(id, ticket string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/desk","type":"ticket.opened","data":{"ticket_id":%q}}`, id, ticket)
}

func TestPublishOneStructured(t *testing.T) {
	n := nodetest.Start(t, nil)
	a := publish(t, n, "desk", opened("e1", "T-1"), "X-Request-Id", "my-request-1")
	if a.status != http.StatusAccepted {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	var p api.Published
	a.decode(t, &p)
	if p.ID != "e1" || p.RootID != "e1" || p.Hop != 0 || p.TTL != 16 || p.Duplicate || p.Stream != topology.DefaultStream || p.Contract != "ticket.opened@1" {
		t.Errorf("answer %s", a.body)
	}
	if _, err := headgate.ParsePosition(p.Position); err != nil {
		t.Error(err)
	}
	if got := a.header.Get(api.HeaderRequestID); got != "my-request-1" {
		t.Errorf("request id %q", got)
	}
	again := publish(t, n, "desk", opened("e1", "T-1"))
	var d api.Published
	again.decode(t, &d)
	if again.status != http.StatusAccepted || !d.Duplicate || d.Position != p.Position || d.Contract != p.Contract {
		t.Errorf("repeated: %d %s", again.status, again.body)
	}
}

func TestPublishOneBinary(t *testing.T) {
	n := nodetest.Start(t, nil)
	a := ask(t, n, "desk", "POST", "/v1/events", `{"ticket_id":"T-2"}`, "Content-Type", "application/json",
		"ce-specversion", "1.0", "ce-type", "ticket.opened", "ce-source", "/desk", "ce-id", "b1", "ce-ttl", "99", "ce-rootid", "forged")
	if a.status != http.StatusAccepted {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	var p api.Published
	a.decode(t, &p)
	if p.ID != "b1" || p.TTL != 16 || p.RootID != "b1" {
		t.Errorf("client's header attributes were believed: %s", a.body)
	}
	if fmt.Sprint(p.Ignored) != "[rootid ttl]" {
		t.Errorf("ignored %v", p.Ignored)
	}
}

func TestPublishMintsIDs(t *testing.T) {
	n := nodetest.Start(t, nil)
	a := publish(t, n, "desk", `{"specversion":"1.0","type":"ticket.opened","data":{"ticket_id":"T"}}`)
	var p api.Published
	a.decode(t, &p)
	if a.status != http.StatusAccepted || len(p.ID) != 36 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestPublishRefusals(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Types: []topology.Type{{Pattern: "ticket.opened", PayloadMax: 2000}}})
	for name, tc := range map[string]struct {
		who, body string
		header    []string
		status    int
		code      headgate.Code
		record    bool // kept in quarantine
	}{
		"no token":            {"", opened("x", "T"), nil, 401, headgate.CodeUnauthenticated, false},
		"wrong token":         {"", opened("x", "T"), []string{"Authorization", "Bearer nonsense"}, 401, headgate.CodeUnauthenticated, false},
		"token in query only": {"", opened("x", "T"), nil, 401, headgate.CodeUnauthenticated, false},
		"broken JSON":         {"desk", `{"specversion":`, nil, 400, headgate.CodeSyntax, true},
		"no object":           {"desk", `[1]`, nil, 400, headgate.CodeBadEnvelope, true},
		"no type":             {"desk", `{"specversion":"1.0","id":"a","source":"/s"}`, nil, 400, headgate.CodeBadEnvelope, true},
		"type not allowed":    {"desk", `{"specversion":"1.0","type":"ticket.triaged","data":{}}`, nil, 403, headgate.CodeTypeNotAllowed, true},
		"no right to roots":   {"triage", `{"specversion":"1.0","type":"ticket.triaged","data":{"ticket_id":"T","team":"billing"}}`, nil, 403, headgate.CodeRootNotAllowed, true},
		"forged cause":        {"triage", `{"specversion":"1.0","type":"ticket.triaged","data":{}}`, []string{api.HeaderCause, "forged"}, 403, headgate.CodeTokenInvalid, true},
		"no contract":         {"admin", `{"specversion":"1.0","type":"unknown.type","data":{}}`, nil, 422, headgate.CodeContractUnknown, true},
		"violation":           {"desk", `{"specversion":"1.0","type":"ticket.opened","data":{"ticket":"T"}}`, nil, 422, headgate.CodeContractViolation, true},
		"payload too large":   {"desk", opened("x", strings.Repeat("T", 3000)), nil, 413, headgate.CodeTooLarge, true},
		"no media type":       {"desk", opened("x", "T"), []string{"Content-Type", ""}, 415, headgate.CodeUnsupportedMediaType, false},
		"foreign charset":     {"desk", opened("x", "T"), []string{"Content-Type", api.TypeEvent + "; charset=latin1"}, 415, headgate.CodeUnsupportedMediaType, false},
		"unknown encoding":    {"desk", opened("x", "T"), []string{"Content-Encoding", "br"}, 415, headgate.CodeUnsupportedMediaType, false},
		"no gzip":             {"desk", opened("x", "T"), []string{"Content-Encoding", "gzip"}, 400, headgate.CodeSyntax, false},
		"too many tokens":     {"desk", opened("x", "T"), []string{api.HeaderCause, strings.Repeat("a,", 20)}, 400, headgate.CodeInvalidArgument, false},
	} {
		t.Run(name, func(t *testing.T) {
			header := tc.header
			path := "/v1/events"
			if name == "token in query only" {
				path += "?access_token=" + n.Tokens["desk"]
			}
			if len(header) == 0 || header[0] != "Content-Type" {
				header = append([]string{"Content-Type", api.TypeEvent}, header...)
			}
			a := ask(t, n, tc.who, "POST", path, tc.body, header...)
			p := a.problem(t)
			if a.status != tc.status || p.Code != tc.code {
				t.Errorf("answer %d %s; want %d %s: %s", a.status, p.Code, tc.status, tc.code, a.body)
			}
			if (p.Quarantine != "") != tc.record {
				t.Errorf("quarantine record %q; want one: %v", p.Quarantine, tc.record)
			}
			if got := a.header.Get("WWW-Authenticate"); (got != "") != (tc.status == 401) {
				t.Errorf("WWW-Authenticate %q", got)
			}
		})
	}
}

func TestViolationReport(t *testing.T) {
	n := nodetest.Start(t, nil)
	const bad = `{"specversion":"1.0","id":"v1","source":"/s","type":"ticket.opened","data":{"ticket_idd":"T","n":"x"}}`
	p := publish(t, n, "desk", bad).problem(t)
	if len(p.Violations) < 2 || p.Contract == nil || p.Contract.Subject != "ticket.opened" || p.ID != "v1" || p.Stage != "contract" {
		t.Errorf("problem %+v", p)
	}
	for _, v := range p.Violations {
		if v.Fix == "" || v.Code == "" {
			t.Errorf("violation %+v says nothing to do", v)
		}
	}
	a := publish(t, n, "desk", bad, "Accept", api.TypeAgent)
	lines := strings.Split(strings.TrimSpace(string(a.body)), "\n")
	// A misnamed property is one line, although it is two violations.
	if a.status != 422 || len(p.Violations) != 3 || len(lines) != 2 || !strings.HasPrefix(lines[0], "Rename") || !strings.Contains(lines[1], "/n") {
		t.Errorf("compact report has %d lines for %d violations: %s", len(lines), len(p.Violations), a.body)
	}
	if ct := a.header.Get("Content-Type"); !strings.HasPrefix(ct, "text/plain") {
		t.Errorf("content type %s", ct)
	}
	good := publish(t, n, "desk", opened("ok", "T"), "Accept", api.TypeAgent)
	if good.status != 202 || !strings.HasPrefix(string(good.body), "Accepted") {
		t.Errorf("%d %s", good.status, good.body)
	}
}

func TestPublishMany(t *testing.T) {
	n := nodetest.Start(t, nil)
	const bad = `{"specversion":"1.0","id":"bad","source":"/s","type":"ticket.opened","data":{}}`
	batch := func(events ...string) string { return "[" + strings.Join(events, ",") + "]" }
	lines := func(events ...string) string { return strings.Join(events, "\n") }
	for name, tc := range map[string]struct {
		media, body string
		status      int
		accepted    int
		want        []string // per result: id status
	}{
		"batch, all":      {api.TypeBatch, batch(opened("a1", "T"), opened("a2", "T")), 202, 2, []string{"a1 202", "a2 202"}},
		"batch, mixed":    {api.TypeBatch, batch(opened("b1", "T"), bad, opened("b2", "T")), 207, 2, []string{"b1 202", "bad 422", "b2 202"}},
		"batch, none":     {api.TypeBatch, batch(bad, bad), 422, 0, []string{"bad 422", "bad 422"}},
		"batch, empty":    {api.TypeBatch, `[]`, 202, 0, nil},
		"batch, no event": {api.TypeBatch, `[1,` + opened("c1", "T") + `]`, 207, 1, []string{" 400", "c1 202"}},
		"lines, all":      {api.TypeNDJSON, lines(opened("d1", "T"), "", opened("d2", "T"), ""), 202, 2, []string{"d1 202", "d2 202"}},
		"lines, CRLF":     {api.TypeNDJSON, opened("e1", "T") + "\r\n" + opened("e2", "T") + "\r\n", 202, 2, []string{"e1 202", "e2 202"}},
		"lines, mixed":    {api.TypeNDJSON, lines(opened("f1", "T"), "{broken", bad, opened("f2", "T")), 207, 2, []string{"f1 202", " 400", "bad 422", "f2 202"}},
		"lines, none":     {api.TypeNDJSON, lines(bad), 422, 0, []string{"bad 422"}},
		"lines, in-batch duplicate": {
			api.TypeNDJSON, lines(opened("g1", "T"), opened("g1", "T")), 202, 2,
			[]string{"g1 202", "g1 202"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, n, "desk", "POST", "/v1/events", tc.body, "Content-Type", tc.media)
			var r api.Results
			a.decode(t, &r)
			if a.status != tc.status || r.Accepted != tc.accepted || r.Refused != len(tc.want)-tc.accepted {
				t.Errorf("answer %d: %s", a.status, a.body)
			}
			if r.Results == nil {
				t.Errorf("results are null: %s", a.body)
			}
			for i, res := range r.Results {
				if got := fmt.Sprint(res.ID, " ", res.Status); i >= len(tc.want) || got != tc.want[i] {
					t.Errorf("result %d: %s; want %v", i, got, tc.want)
				}
				if res.Status == 202 && (res.Stream == "" || res.Position == "" || res.RootID == "" || res.Code != "") {
					t.Errorf("accepted result %+v", res)
				}
				if res.Status != 202 && (res.Code == "" || res.Fix == "" || res.Quarantine == "") {
					t.Errorf("refused result %+v", res)
				}
			}
		})
	}
	t.Run("broken batch", func(t *testing.T) {
		p := ask(t, n, "desk", "POST", "/v1/events", `[`+opened("h1", "T")+`,`, "Content-Type", api.TypeBatch).problem(t)
		if p.Code != headgate.CodeSyntax || p.Quarantine == "" {
			t.Errorf("problem %+v", p)
		}
		if a := ask(t, n, "admin", "GET", "/v1/events/h1?wait=true", ""); a.status != 404 {
			t.Errorf("an event of a broken batch was stored: %s", a.body)
		}
	})
	t.Run("no line", func(t *testing.T) {
		if p := ask(t, n, "desk", "POST", "/v1/events", "\n\n", "Content-Type", api.TypeNDJSON).problem(t); p.Code != headgate.CodeSyntax {
			t.Errorf("problem %+v", p)
		}
	})
}

func TestGzipIsTaken(t *testing.T) {
	n := nodetest.Start(t, nil)
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	for i := range 3000 {
		_, _ = fmt.Fprintln(zw, opened(fmt.Sprint("z", i), "T"))
	}
	_ = zw.Close()
	a := ask(t, n, "desk", "POST", "/v1/events", z.String(), "Content-Type", api.TypeNDJSON, "Content-Encoding", "gzip")
	var r api.Results
	a.decode(t, &r)
	if a.status != 202 || r.Accepted != 3000 || r.Results[2999].ID != "z2999" {
		t.Errorf("%d %d", a.status, r.Accepted)
	}
}

// Results beyond what is kept in memory come back whole and in order.
func TestSpooledResults(t *testing.T) {
	n := nodetest.Start(t, nil)
	var b strings.Builder
	const events = 12_000
	for i := range events {
		if i%100 == 99 {
			b.WriteString(`{"specversion":"1.0","type":"ticket.opened","data":{"wrong":1}}` + "\n")
			continue
		}
		b.WriteString(opened(fmt.Sprint("s", i), "T") + "\n")
	}
	a := ask(t, n, "desk", "POST", "/v1/events", b.String(), "Content-Type", api.TypeNDJSON)
	var r api.Results
	a.decode(t, &r)
	if a.status != 207 || r.Accepted != events*99/100 || r.Refused != events/100 || len(r.Results) != events {
		t.Fatalf("%d: %d accepted, %d refused, %d results", a.status, r.Accepted, r.Refused, len(r.Results))
	}
	if len(a.body) < 1<<20 {
		t.Fatalf("only %d bytes: the spool was not needed", len(a.body))
	}
	for i, res := range r.Results {
		if i%100 == 99 {
			if res.Status != 422 {
				t.Fatalf("result %d: %+v", i, res)
			}
		} else if res.ID != fmt.Sprint("s", i) || res.Status != 202 {
			t.Fatalf("result %d: %+v", i, res)
		}
	}
}

func TestBodyBeyondLimits(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Gateway: func(c *gateway.Config) {
		c.Limits = gateway.Limits{Body: 10_000, BulkBody: 40_000, Line: 4000, BatchEvents: 5, BulkEvents: 100}
	}})
	big := opened("x", strings.Repeat("T", 12_000))
	if p := publish(t, n, "desk", big).problem(t); p.Code != headgate.CodeTooLarge {
		t.Errorf("one event: %+v", p)
	}
	six := "[" + strings.Repeat(opened("y", "T")+",", 5) + opened("y", "T") + "]"
	if p := ask(t, n, "desk", "POST", "/v1/events", six, "Content-Type", api.TypeBatch).problem(t); p.Code != headgate.CodeTooLarge {
		t.Errorf("batch of six: %+v", p)
	}
	// One line is too long, the others are fine.
	a := ask(t, n, "desk", "POST", "/v1/events", opened("l1", "T")+"\n"+big+"\n"+opened("l2", "T"), "Content-Type", api.TypeNDJSON)
	var r api.Results
	a.decode(t, &r)
	if a.status != 207 || r.Accepted != 2 || len(r.Results) != 3 || r.Results[1].Code != headgate.CodeTooLarge || r.Results[2].ID != "l2" {
		t.Errorf("long line: %d %s", a.status, a.body)
	}
	// Too many events: those before the bound are stored and answered.
	var many strings.Builder
	for i := range 150 {
		many.WriteString(opened(fmt.Sprint("m", i), "T") + "\n")
	}
	a = ask(t, n, "desk", "POST", "/v1/events", many.String(), "Content-Type", api.TypeNDJSON)
	r = api.Results{}
	a.decode(t, &r)
	if a.status != 207 || r.Accepted != 100 || r.Stopped == nil || r.Stopped.Code != headgate.CodeTooLarge {
		t.Errorf("150 events against 100: %d %d %+v", a.status, r.Accepted, r.Stopped)
	}
	// An announced length beyond the limit is refused before anything is read.
	if p := ask(t, n, "desk", "POST", "/v1/events", strings.Repeat("x", 50_000), "Content-Type", api.TypeNDJSON).problem(t); p.Code != headgate.CodeTooLarge {
		t.Errorf("50 kB against 40 kB: %+v", p)
	}
}

// No 2xx before the durable acknowledgement: a broker that cannot tell makes
// no 2xx, and the answer says that repeating is safe.
func TestUnsureOutcomeIsNeverSuccess(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Broker: membroker.Config{Faults: &membroker.Faults{Seed: 1, UnknownLost: 1}}})
	a := publish(t, n, "desk", opened("u1", "T"))
	p := a.problem(t)
	if a.status != 503 || p.Code != headgate.CodeUnknownOutcome || p.Outcome != headgate.Unknown || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %+v", a.status, p)
	}
	many := ask(t, n, "desk", "POST", "/v1/events", opened("u2", "T")+"\n"+opened("u3", "T"), "Content-Type", api.TypeNDJSON)
	var r api.Results
	many.decode(t, &r)
	if many.status != 503 || r.Accepted != 0 || r.Refused != 2 || many.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", many.status, many.body)
	}
}
