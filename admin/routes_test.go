package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/store"
)

// ask makes one request and returns status and body.
func ask(t *testing.T, n *nodetest.Node, who, method, path, body string, header ...string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequest(method, n.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+n.Tokens[who])
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

func publish(t *testing.T, n *nodetest.Node, who, eventType, id, data string, causes ...string) api.Published {
	t.Helper()
	p, err := n.Client(t, who).Publish(context.Background(), &headgate.Event{ID: id, Source: "/t", Type: eventType, Data: []byte(data)}, causes...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Who may call what: the status of every route for every kind of caller, with
// a request that is otherwise good.
func TestRoles(t *testing.T) {
	n := nodetest.Start(t, nil)
	publish(t, n, "desk", "ticket.opened", "e1", `{"ticket_id":"T"}`)
	ctx := context.Background()
	c := n.Client(t, "admin")
	if _, _, err := c.PutSubscription(ctx, "triage", api.SubscriptionSpec{Types: []string{"ticket.opened"}, As: "triage"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Event(ctx, "e1", true); err != nil {
		t.Fatal(err)
	}
	const none, admin, viewer, desk, triage = "", "admin", "viewer", "desk", "triage"
	for _, tc := range []struct {
		method, path, body string
		want               map[string]int
	}{
		{"GET", "/v1/contracts", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 200, triage: 200}},
		{"PUT", "/v1/contracts/new.type", `{"type":"object"}`, map[string]int{none: 401, viewer: 403, desk: 403, triage: 403, admin: 201}},
		{"GET", "/v1/contracts/ticket.opened", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 200, triage: 200}},
		{"GET", "/v1/contracts/ticket.triaged", "", map[string]int{desk: 404, triage: 200}},
		{"GET", "/v1/contracts/ticket.triaged/versions", "", map[string]int{none: 401, desk: 404, triage: 200, viewer: 200}},
		{"DELETE", "/v1/contracts/ticket.none", "", map[string]int{none: 401, viewer: 403, desk: 403, admin: 404}},
		{"POST", "/v1/contracts/ticket.opened/check", `{"ticket_id":"T"}`, map[string]int{none: 401, admin: 200, viewer: 200, desk: 200, triage: 200}},
		{"POST", "/v1/contracts/ticket.triaged/check", `{}`, map[string]int{desk: 403, triage: 422}},
		{"GET", "/v1/subscriptions", "", map[string]int{none: 401, admin: 200, desk: 200}},
		{"GET", "/v1/subscriptions/triage", "", map[string]int{none: 401, admin: 200, viewer: 200, triage: 200, desk: 404}},
		{"POST", "/v1/subscriptions/triage/pause", "", map[string]int{none: 401, viewer: 403, desk: 404, admin: 200, triage: 200}},
		{"POST", "/v1/subscriptions/triage/resume", "", map[string]int{none: 401, viewer: 403, desk: 404, admin: 200, triage: 200}},
		{"DELETE", "/v1/subscriptions/nobody", "", map[string]int{none: 401, admin: 404, desk: 404}},
		{"GET", "/v1/events/e1", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 200, triage: 200}},
		{"GET", "/v1/events/none", "", map[string]int{admin: 404, desk: 404}},
		{"GET", "/v1/events/e1/explain", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 200}},
		{"GET", "/v1/roots/e1", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 200}},
		{"GET", "/v1/roots/none", "", map[string]int{admin: 404}},
		{"GET", "/v1/quarantine", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 200}},
		{"GET", "/v1/quarantine/groups", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 403, triage: 403}},
		{"GET", "/v1/quarantine/none", "", map[string]int{none: 401, admin: 404, desk: 404}},
		{"GET", "/v1/whoami", "", map[string]int{none: 401, admin: 200, desk: 200, triage: 200}},
		{"GET", "/v1/principals", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 403, triage: 403}},
		{"GET", "/v1/principals/desk", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 403}},
		{"GET", "/v1/principals/none", "", map[string]int{admin: 404}},
		{"POST", "/v1/principals", `{"name":"new","kind":"agent"}`, map[string]int{none: 401, viewer: 403, desk: 403, triage: 403, admin: 201}},
		{"POST", "/v1/principals", `{"name":"desk","kind":"agent"}`, map[string]int{admin: 409}},
		{"POST", "/v1/principals", `{"name":"x","kind":"robot"}`, map[string]int{admin: 400}},
		{"PUT", "/v1/principals/none", `{"kind":"agent"}`, map[string]int{none: 401, viewer: 403, admin: 404}},
		{"POST", "/v1/principals/new/rotate", "", map[string]int{none: 401, viewer: 403, desk: 403, admin: 200}},
		{"POST", "/v1/principals/new/rotate", `{"grace":"9000h"}`, map[string]int{admin: 400}},
		{"POST", "/v1/principals/new/disable", "", map[string]int{none: 401, viewer: 403, desk: 403, admin: 200}},
		{"GET", "/v1/doctor", "", map[string]int{none: 401, admin: 200, viewer: 200, desk: 403, triage: 403}},
		{"GET", "/v1/contracts?limit=0", "", map[string]int{admin: 400}},
		{"GET", "/v1/contracts?limit=many", "", map[string]int{admin: 400}},
		{"GET", "/v1/events/e1?wait=perhaps", "", map[string]int{admin: 400}},
	} {
		// The caller with the most rights comes last, because it changes things.
		for _, who := range []string{none, viewer, desk, triage, admin} {
			want, ok := tc.want[who]
			if !ok {
				continue
			}
			status, body := ask(t, n, who, tc.method, tc.path, tc.body, "Content-Type", "application/json")
			if status != want {
				t.Errorf("%s %s as %q: %d; want %d: %s", tc.method, tc.path, who, status, want, body)
			}
			if status >= 400 && !bytes.Contains(body, []byte(`"code":`)) {
				t.Errorf("%s %s as %q: no problem: %s", tc.method, tc.path, who, body)
			}
		}
	}
}

// A payload that publishing mends passes the check, which says so.
func TestCheckTellsOfMending(t *testing.T) {
	n := nodetest.Start(t, nil)
	schema := `{"x-headgate-repair":"apply-lossless","type":"object","properties":{"sub_path":{"type":"string","x-headgate-aliases":["path"]}},"required":["sub_path"],"additionalProperties":false}`
	status, b := ask(t, n, "admin", "PUT", "/v1/contracts/ticket.opened", schema, "Content-Type", "application/schema+json")
	if status/100 != 2 {
		t.Fatalf("%d %s", status, b)
	}
	for payload, want := range map[string]int{`{"path":"a"}`: 200, `{"sub_path":"a"}`: 200, `{"path":1}`: 422, `{"wrap":{"sub_path":"a"}}`: 422} {
		status, b := ask(t, n, "desk", "POST", "/v1/contracts/ticket.opened/check", payload, "Content-Type", "application/json")
		var got api.Checked
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		mends := payload == `{"path":"a"}`
		if status != want || status == 200 && !got.Valid || got.WouldBeMended != mends || mends && (len(got.Violations) == 0 || len(got.Proposals) != 1) {
			t.Errorf("%s: %d %s", payload, status, b)
		}
		status, b = ask(t, n, "desk", "POST", "/v1/events", payload, "Content-Type", "application/json", "ce-specversion", "1.0", "ce-type", "ticket.opened", "ce-source", "/s")
		if (status/100 == 2) != (want == 200) || bytes.Contains(b, []byte(`"mended"`)) != mends {
			t.Errorf("%s published: %d %s", payload, status, b)
		}
	}
}

// Checking gives the same problem as publishing.
func TestCheckEqualsPublish(t *testing.T) {
	n := nodetest.Start(t, nil)
	for _, payload := range []string{
		`{}`, `{"ticket_id":""}`, `{"ticket_id":5,"extra":true}`, `[]`, `{"ticket_id":"T","ticket_id":"U"}`, `{"ticket_id":"T","n":1e999999}`,
		`{"ticketid":"T"}`, `null`,
	} {
		_, b := ask(t, n, "desk", "POST", "/v1/contracts/ticket.opened/check", payload, "Content-Type", "application/json")
		var checked, published api.Problem
		if err := json.Unmarshal(b, &checked); err != nil {
			t.Fatal(err)
		}
		_, b = ask(t, n, "desk", "POST", "/v1/events", payload, "Content-Type", "application/json", "ce-specversion", "1.0", "ce-type", "ticket.opened", "ce-id", "c", "ce-source", "/s")
		if err := json.Unmarshal(b, &published); err != nil {
			t.Fatal(err)
		}
		// What belongs to the event, not to the check.
		published.ID, published.Stage, published.Quarantine, published.Instance, checked.Instance = "", "", "", "", ""
		want, _ := json.Marshal(published)
		got, _ := json.Marshal(checked)
		if published.Status != 422 || !bytes.Equal(got, want) {
			t.Errorf("payload %s\ncheck   %s\npublish %s", payload, got, want)
		}
	}
	// Nothing was stored by the checks.
	d, err := n.Client(t, "viewer").Doctor(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.Streams {
		if s.Stored != 0 {
			t.Errorf("%d events in %s", s.Stored, s.Stream)
		}
	}
}

func TestContracts(t *testing.T) {
	n := nodetest.Start(t, nil)
	c, ctx := n.Client(t, "admin"), context.Background()
	schema := []byte(`{"type":"object","properties":{"a":{"type":"integer"}}}`)
	first, created, err := c.PutContract(ctx, "order.placed", schema)
	if err != nil || !created || first.Version != 1 || first.Digest == "" || first.Engine == "" {
		t.Fatalf("%+v, %v, %v", first, created, err)
	}
	if len(first.Warnings) == 0 {
		t.Error("an open object was registered without a warning")
	}
	if again, created, err := c.PutContract(ctx, "order.placed", schema); err != nil || created || again.Version != 1 {
		t.Errorf("same schema: %+v, %v, %v", again, created, err)
	}
	whole, err := c.Contract(ctx, "order.placed", 0)
	if err != nil || !bytes.Equal(whole.Schema, schema) || whole.By != "admin" || whole.Created.IsZero() {
		t.Errorf("%+v, %v", whole, err)
	}
	if _, err := c.CheckContract(ctx, "order.placed", "", []byte(`{"a":1}`)); err != nil {
		t.Error(err)
	}
	e := headgate.AsError(checkOf(c, "order.placed", `{"a":"x"}`))
	if e == nil || e.Code != headgate.CodeContractViolation || e.Verdict == nil || len(e.Verdict.Violations) != 1 || e.Verdict.Violations[0].At != "/a" {
		t.Errorf("violation %+v", e)
	}
	if _, _, err := c.PutContract(ctx, "order.bad", []byte(`{"type":"objekt"}`)); headgate.CodeOf(err) != headgate.CodeContractInvalid {
		t.Errorf("bad schema: %v", err)
	}
	if _, _, err := c.PutContract(ctx, "bad..subject", schema); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Errorf("bad subject: %v", err)
	}
	if status, _ := ask(t, n, "admin", "PUT", "/v1/contracts/order.proto", `x`, "Content-Type", "application/x-protobuf"); status != 415 {
		t.Errorf("Protobuf: %d", status)
	}
	if n, err := c.DeleteContract(ctx, "order.placed", 0); err != nil || n != 1 {
		t.Errorf("deleted %d, %v", n, err)
	}
	if err := checkOf(c, "order.placed", `{"a":1}`); headgate.CodeOf(err) != headgate.CodeContractUnknown {
		t.Errorf("after deletion: %v", err)
	}
	versions, err := c.ContractVersions(ctx, "order.placed", client.Page{})
	if err != nil || len(versions.Contracts) != 1 || !versions.Contracts[0].Deleted {
		t.Errorf("%+v, %v", versions, err)
	}
}

func checkOf(c *client.Client, subject, payload string) error {
	_, err := c.CheckContract(context.Background(), subject, "", []byte(payload))
	return err
}

// Pages neither repeat nor leave out.
func TestPaging(t *testing.T) {
	n := nodetest.Start(t, nil)
	c, ctx := n.Client(t, "admin"), context.Background()
	for i := range 7 {
		if _, _, err := c.PutContract(ctx, fmt.Sprintf("page.t%d", i), []byte(`{"type":"object"}`)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.PutContract(ctx, "many.versions", fmt.Appendf(nil, `{"type":"object","maxProperties":%d}`, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	for p := (client.Page{Limit: 2}); ; {
		out, err := c.Contracts(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range out.Contracts {
			seen = append(seen, x.Subject)
		}
		if len(out.Contracts) > 2 {
			t.Errorf("a page of 2 has %d", len(out.Contracts))
		}
		if out.Next == "" {
			break
		}
		p.Cursor = out.Next
	}
	if want := "many.versions page.t0 page.t1 page.t2 page.t3 page.t4 page.t5 page.t6 ticket.opened ticket.triaged"; strings.Join(seen, " ") != want {
		t.Errorf("pages give %v", seen)
	}
	v1, err := c.ContractVersions(ctx, "many.versions", client.Page{Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	v2, err := c.ContractVersions(ctx, "many.versions", client.Page{Limit: 5, Cursor: v1.Next})
	if err != nil || len(v1.Contracts) != 5 || len(v2.Contracts) != 2 || v2.Contracts[1].Version != 7 || v2.Next != "" {
		t.Errorf("%+v %+v %v", v1, v2, err)
	}
}

func TestSubscriptions(t *testing.T) {
	n := nodetest.Start(t, nil)
	c, ctx := n.Client(t, "admin"), context.Background()
	spec := api.SubscriptionSpec{Types: []string{"ticket.opened"}, As: "triage", Claim: api.Duration(20 * time.Second), Attempts: 3}
	s, created, err := c.PutSubscription(ctx, "one", spec)
	if err != nil || !created || s.Name != "one" || s.As != "triage" || s.Claim != spec.Claim || s.Attempts != 3 || s.Deliver.Pull == nil {
		t.Fatalf("%+v, %v, %v", s, created, err)
	}
	spec.Attempts = 5
	if s, created, err = c.PutSubscription(ctx, "one", spec); err != nil || created || s.Attempts != 5 {
		t.Errorf("%+v, %v, %v", s, created, err)
	}
	if s, err = c.PauseSubscription(ctx, "one"); err != nil || !s.Paused {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = c.ResumeSubscription(ctx, "one"); err != nil || s.Paused {
		t.Errorf("%+v, %v", s, err)
	}
	mine, err := n.Client(t, "triage").Subscriptions(ctx, client.Page{})
	if err != nil || len(mine.Subscriptions) != 1 {
		t.Errorf("%+v, %v", mine, err)
	}
	if other, err := n.Client(t, "desk").Subscriptions(ctx, client.Page{}); err != nil || len(other.Subscriptions) != 0 {
		t.Errorf("desk sees %+v, %v", other, err)
	}
	if _, _, err := n.Client(t, "triage").PutSubscription(ctx, "own", api.SubscriptionSpec{Types: []string{"ticket.opened"}}); err != nil {
		t.Errorf("an agent's own subscription: %v", err)
	}
	if _, _, err := n.Client(t, "triage").PutSubscription(ctx, "foreign", api.SubscriptionSpec{Types: []string{"ticket.triaged"}}); err == nil {
		t.Error("an agent subscribed to what it may not listen to")
	}
	if _, _, err := c.PutSubscription(ctx, "bad", api.SubscriptionSpec{Types: []string{"ticket.opened"}, When: "((("}); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Errorf("bad condition: %v", err)
	}
	if err := c.DeleteSubscription(ctx, "one"); err != nil {
		t.Error(err)
	}
	if _, err := c.Subscription(ctx, "one"); headgate.CodeOf(err) != headgate.CodeNotFound {
		t.Errorf("after deletion: %v", err)
	}
}

func TestPrincipalLife(t *testing.T) {
	n := nodetest.Start(t, nil)
	c, ctx := n.Client(t, "admin"), context.Background()
	p, err := c.AddPrincipal(ctx, api.Principal{Name: "bot", Kind: headgate.KindAgent, Emit: []string{"ticket.*"}, Roots: &api.RootRight{Rate: 5}})
	if err != nil || p.Token == "" || p.Managed != "api" || p.Roots == nil || p.Roots.Rate != 5 {
		t.Fatalf("%+v, %v", p, err)
	}
	who := func(token string) error {
		c, err := client.New(client.Config{URL: n.URL, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		w, err := c.Whoami(ctx)
		if err == nil && w.Name != "bot" {
			t.Errorf("whoami %+v", w)
		}
		return err
	}
	if err := who(p.Token); err != nil {
		t.Error(err)
	}
	next, err := c.RotatePrincipal(ctx, "bot", 0)
	if err != nil || next.Token == p.Token {
		t.Fatalf("%+v, %v", next, err)
	}
	if err := who(p.Token); headgate.CodeOf(err) != headgate.CodeUnauthenticated {
		t.Errorf("old token: %v", err)
	}
	if err := who(next.Token); err != nil {
		t.Error(err)
	}
	changed, err := c.PutPrincipal(ctx, api.Principal{Name: "bot", Kind: headgate.KindAgent, Listen: []string{"a.b"}})
	if err != nil || changed.Roots != nil || len(changed.Emit) != 0 || len(changed.Listen) != 1 {
		t.Errorf("%+v, %v", changed, err)
	}
	if d, err := c.DisablePrincipal(ctx, "bot"); err != nil || !d.Disabled {
		t.Errorf("%+v, %v", d, err)
	}
	if err := who(next.Token); err == nil {
		t.Error("a disabled principal got in")
	}
	// Tokens are in no list.
	if _, b := ask(t, n, "admin", "GET", "/v1/principals", ""); bytes.Contains(b, []byte(next.Token)) || bytes.Contains(b, []byte("token")) {
		t.Errorf("the list shows tokens: %s", b)
	}
}

func TestQuarantineIsShownWhole(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := context.Background()
	const payload = `{"ticket_id":"T","n":1.00000000000000000001}`
	_, err := n.Client(t, "desk").Publish(ctx, &headgate.Event{ID: "q1", Source: "/s", Type: "ticket.opened", Data: []byte(payload)})
	if headgate.CodeOf(err) != headgate.CodeContractViolation {
		t.Fatal(err)
	}
	v := n.Client(t, "viewer")
	list, err := v.Quarantine(ctx, client.QuarantineFilter{Type: "ticket.opened"}, client.Page{})
	if err != nil || len(list.Records) != 1 || list.Records[0].Reason != "contract_violation" || list.Records[0].Principal != "desk" {
		t.Fatalf("%+v, %v", list, err)
	}
	whole, err := v.Quarantined(ctx, list.Records[0].QID)
	if err != nil || !strings.Contains(whole.Body, "1.00000000000000000001") || len(whole.Detail) == 0 {
		t.Errorf("%+v, %v", whole, err)
	}
	groups, err := v.QuarantineGroups(ctx, client.QuarantineFilter{})
	if err != nil || len(groups.Groups) != 1 || groups.Groups[0].Count != 1 || groups.Groups[0].Sample != whole.QID {
		t.Errorf("%+v, %v", groups, err)
	}
	// The publisher sees its own refusal, another agent does not.
	if _, err := n.Client(t, "desk").Quarantined(ctx, whole.QID); err != nil {
		t.Error(err)
	}
	if _, err := n.Client(t, "triage").Quarantined(ctx, whole.QID); headgate.CodeOf(err) != headgate.CodeNotFound {
		t.Errorf("triage: %v", err)
	}
	if list, err := n.Client(t, "triage").Quarantine(ctx, client.QuarantineFilter{Principal: "desk"}, client.Page{}); err != nil || len(list.Records) != 0 {
		t.Errorf("triage lists %+v, %v", list, err)
	}
}

// What a consumer could not handle is its own to read, not the publisher's.
func TestParkedBelongsToTheConsumer(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := context.Background()
	if _, _, err := n.Client(t, "admin").PutSubscription(ctx, "triage", api.SubscriptionSpec{Types: []string{"ticket.opened"}, As: "triage", From: "beginning"}); err != nil {
		t.Fatal(err)
	}
	publish(t, n, "desk", "ticket.opened", "p1", `{"ticket_id":"T"}`)
	agent, desk := n.Client(t, "triage"), n.Client(t, "desk")
	ds, err := agent.Pull(ctx, "triage", 1, 20*time.Second)
	if err != nil || len(ds) != 1 {
		t.Fatalf("%+v, %v", ds, err)
	}
	if _, err := agent.Settle(ctx, "triage", api.Settlement{Claim: ds[0].Claim, Outcome: "reject", Reason: "secret of the consumer"}); err != nil {
		t.Fatal(err)
	}
	own := client.QuarantineFilter{Subscription: "triage"}
	list, err := agent.Quarantine(ctx, own, client.Page{})
	if err != nil || len(list.Records) != 1 {
		t.Fatalf("the consumer lists %+v, %v", list, err)
	}
	if _, err := agent.Quarantined(ctx, list.Records[0].QID); err != nil {
		t.Error(err)
	}
	if _, err := desk.Quarantined(ctx, list.Records[0].QID); headgate.CodeOf(err) != headgate.CodeNotFound {
		t.Errorf("the publisher shows it: %v", err)
	}
	if _, err := desk.Quarantine(ctx, own, client.Page{}); headgate.CodeOf(err) != headgate.CodeNotFound {
		t.Errorf("the publisher lists the subscription: %v", err)
	}
	if _, err := desk.Quarantine(ctx, client.QuarantineFilter{Kind: "parked"}, client.Page{}); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
		t.Errorf("the publisher lists parked events: %v", err)
	}
	for _, f := range []client.QuarantineFilter{{}, {Kind: "refused"}, {ID: "p1"}} {
		if list, err := desk.Quarantine(ctx, f, client.Page{}); err != nil || len(list.Records) != 0 {
			t.Errorf("the publisher lists %+v, %v", list, err)
		}
	}
}

func TestExplainAndTree(t *testing.T) {
	n := nodetest.Start(t, nil)
	c, ctx := n.Client(t, "admin"), context.Background()
	if _, _, err := c.PutSubscription(ctx, "triage", api.SubscriptionSpec{Types: []string{"ticket.opened"}, As: "triage", From: "beginning"}); err != nil {
		t.Fatal(err)
	}
	publish(t, n, "desk", "ticket.opened", "root/1 ü", `{"ticket_id":"T"}`) // an id that needs escapes
	agent := n.Client(t, "triage")
	ds, err := agent.Pull(ctx, "triage", 1, 20*time.Second)
	if err != nil || len(ds) != 1 {
		t.Fatalf("%+v, %v", ds, err)
	}
	publish(t, n, "triage", "ticket.triaged", "child", `{"ticket_id":"T","team":"billing"}`, ds[0].Cause)
	if _, err := agent.Settle(ctx, "triage", api.Settlement{Claim: ds[0].Claim, Outcome: "ack"}); err != nil {
		t.Fatal(err)
	}
	tree, err := c.Tree(ctx, "root/1 ü", 0, true)
	if err != nil || tree.Root == nil || tree.Root.ID != "root/1 ü" || len(tree.Root.Children) != 1 || tree.Root.Children[0].ID != "child" || tree.Depth != 1 || tree.Events != 2 {
		t.Fatalf("%+v, %v", tree, err)
	}
	if !tree.Gas.Known || tree.Gas.Total == 0 || tree.Gas.Left != tree.Gas.Total-2 {
		t.Errorf("gas %+v", tree.Gas)
	}
	// desk may see the root, and no more than that there is a child.
	seen, err := n.Client(t, "desk").Tree(ctx, "root/1 ü", 0, true)
	if err != nil || len(seen.Root.Children) != 1 || !seen.Root.Children[0].Hidden || seen.Root.Children[0].ID != "" {
		t.Errorf("%+v, %v", seen.Root, err)
	}
	x, err := c.Explain(ctx, "root/1 ü", true)
	if err != nil || len(x.Subscriptions) != 1 || !x.Subscriptions[0].Matched || x.Subscriptions[0].State != "settled" || x.Event.Contract != "ticket.opened@1" {
		t.Errorf("%+v, %v", x, err)
	}
	if x, err := n.Client(t, "desk").Explain(ctx, "root/1 ü", true); err != nil || len(x.Subscriptions) != 0 {
		t.Errorf("desk sees foreign subscriptions: %+v, %v", x, err)
	}
}

// An event that was only ever refused is explained to who published it and to
// viewers, and to nobody else.
func TestExplainRefused(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := context.Background()
	_, err := n.Client(t, "desk").Publish(ctx, &headgate.Event{Type: "ticket.opened", ID: "refused", Data: []byte(`{"ticket":7}`)})
	if headgate.CodeOf(err) != headgate.CodeContractViolation {
		t.Fatal(err)
	}
	for name, sees := range map[string]bool{"admin": true, "desk": true, "triage": false} {
		x, err := n.Client(t, name).Explain(ctx, "refused", true)
		if !sees {
			if headgate.CodeOf(err) != headgate.CodeNotFound {
				t.Errorf("%s: %+v, %v", name, x, err)
			}
			continue
		}
		if err != nil || x.Admitted || len(x.Quarantine) != 1 || x.Quarantine[0].Reason != string(headgate.CodeContractViolation) {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
	}
}

// Two sources may use one id; the explanation names both events.
func TestExplainTwins(t *testing.T) {
	n := nodetest.Start(t, nil)
	c, ctx := n.Client(t, "admin"), context.Background()
	for _, source := range []string{"/one", "/two"} {
		if _, err := n.Client(t, "desk").Publish(ctx, &headgate.Event{Type: "ticket.opened", ID: "twin", Source: source, Data: []byte(`{"ticket_id":"T"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	x, err := c.Explain(ctx, "twin", true)
	if err != nil || !x.Admitted || len(x.Others) != 1 || x.Others[0].Source == x.Event.Source {
		t.Errorf("%+v, %v", x, err)
	}
	// An event of another publisher never hides one's own.
	for i, who := range []string{"admin", "desk"} {
		if _, err := n.Client(t, who).Publish(ctx, &headgate.Event{Type: "ticket.opened", ID: "shared", Source: "/of/" + who, Data: []byte(`{"ticket_id":"T"}`)}); err != nil {
			t.Fatal(i, err)
		}
	}
	x, err = n.Client(t, "desk").Explain(ctx, "shared", true)
	if err != nil || x.Event.Source != "/of/desk" || len(x.Others) != 0 {
		t.Errorf("%+v, %v", x, err)
	}
}

func TestDoctor(t *testing.T) {
	n := nodetest.Start(t, nil)
	ctx := context.Background()
	if _, _, err := n.Client(t, "admin").PutSubscription(ctx, "triage", api.SubscriptionSpec{Types: []string{"ticket.opened"}, As: "triage", From: "beginning"}); err != nil {
		t.Fatal(err)
	}
	publish(t, n, "desk", "ticket.opened", "d1", `{"ticket_id":"T"}`)
	d, err := n.Client(t, "viewer").Doctor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d.Durability.Mode != "memory" || d.Durability.Streams == "" || d.Durability.State == "" || d.Version != "test" || d.Time.IsZero() {
		t.Errorf("%+v", d.Durability)
	}
	if len(d.Conservation) != 1 || !d.Conservation[0].Holds || d.Conservation[0].Accepted != 1 {
		t.Errorf("%+v", d.Conservation)
	}
	if len(d.Problems) == 0 {
		t.Error("a node in memory is called safe")
	}
	if !d.OK {
		t.Errorf("warnings alone make the node sick: %+v", d.Problems)
	}
}

// away is a store that can be made to fail.
type away struct {
	store.Store
	failing atomic.Bool
}

func (a *away) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	if a.failing.Load() {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the store is away", Err: errors.New("dial tcp 127.0.0.1:5432")}
	}
	return a.Store.View(ctx, fn)
}

// TestDoctorOfASickNode: the diagnosis comes when store and broker do not answer,
// names both, keeps what it does know, and shows no one's address.
func TestDoctorOfASickNode(t *testing.T) {
	st := &away{}
	n := nodetest.Start(t, &nodetest.Opts{Store: func(s store.Store) store.Store { st.Store = s; return st }})
	look := func(want ...string) api.Doctor {
		t.Helper()
		status, body := ask(t, n, "viewer", http.MethodGet, "/v1/doctor", "")
		var d api.Doctor
		if err := json.Unmarshal(body, &d); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		if d.OK != (len(want) == 0) || d.Version != "test" || d.Durability.Mode != "memory" {
			t.Errorf("%s", body)
		}
		for _, w := range want {
			if !slices.ContainsFunc(d.Problems, func(f api.Finding) bool {
				return f.Severity == "error" && strings.Contains(f.What, w) && f.Fix != ""
			}) {
				t.Errorf("%q is not told: %s", w, body)
			}
		}
		if strings.Contains(string(body), "5432") {
			t.Errorf("the driver's words: %s", body)
		}
		return d
	}
	look()
	st.failing.Store(true)
	if d := look("counts of the subscriptions cannot be checked: the store is away", "beyond quotas cannot be told: the store is away"); len(d.Streams) == 0 {
		t.Error("the streams are not told of, though the broker answers")
	}
	if err := n.Broker.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	look("What the streams hold cannot be told", "the store is away")
}

// Who may publish a type but not listen to it cannot read what others
// published, by guessing ids.
func TestEmittingIsNotReading(t *testing.T) {
	n := nodetest.Start(t, nil)
	for who, id := range map[string]string{"admin": "theirs", "desk": "own"} {
		status, body := ask(t, n, who, "POST", "/v1/events",
			`{"specversion":"1.0","id":"`+id+`","source":"/`+who+`","type":"ticket.opened","data":{"ticket_id":"SECRET"}}`, "Content-Type", api.TypeEvent)
		if status != 202 {
			t.Fatalf("%d %s", status, body)
		}
	}
	for _, path := range []string{"/v1/events/", "/v1/events/%/explain", "/v1/roots/"} {
		at := func(id string) string {
			if strings.Contains(path, "%") {
				return strings.Replace(path, "%", id, 1) + "?wait=true"
			}
			return path + id + "?wait=true"
		}
		for _, tc := range []struct {
			who, id string
			want    int
		}{{"desk", "theirs", 404}, {"desk", "own", 200}, {"triage", "theirs", 200}, {"viewer", "theirs", 200}} {
			if status, body := ask(t, n, tc.who, "GET", at(tc.id), ""); status != tc.want {
				t.Errorf("%s as %s: %d %s", at(tc.id), tc.who, status, body)
			}
		}
	}
}
