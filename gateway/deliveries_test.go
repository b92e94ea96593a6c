package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/nodetest"
)

func subscribe(t *testing.T, n *nodetest.Node, name, spec string) {
	t.Helper()
	if a := ask(t, n, "admin", "PUT", "/v1/subscriptions/"+name, spec); a.status != http.StatusCreated {
		t.Fatalf("subscription: %d %s", a.status, a.body)
	}
}

func pull(t *testing.T, n *nodetest.Node, who, name, body string) []api.Delivery {
	t.Helper()
	a := ask(t, n, who, "POST", "/v1/subscriptions/"+name+"/pull", body)
	if a.status != http.StatusOK {
		t.Fatalf("pull: %d %s", a.status, a.body)
	}
	var r api.PullResponse
	a.decode(t, &r)
	if r.Deliveries == nil {
		t.Errorf("deliveries are null: %s", a.body)
	}
	return r.Deliveries
}

func settle(t *testing.T, n *nodetest.Node, who, name string, s ...api.Settlement) (*answer, api.SettleResponse) {
	t.Helper()
	b, err := json.Marshal(api.SettleRequest{Settle: s})
	if err != nil {
		t.Fatal(err)
	}
	a := ask(t, n, who, "POST", "/v1/subscriptions/"+name+"/settle", string(b))
	var r api.SettleResponse
	a.decode(t, &r)
	return a, r
}

const triageSpec = `{"types":["ticket.opened"],"as":"triage","from":"beginning","deliver":{"pull":{}}}`

func TestPullSettleEmit(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "triage", triageSpec)
	if a := publish(t, n, "desk", opened("root", "T-1")); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	ds := pull(t, n, "triage", "triage", `{"max":10,"wait":"10s"}`)
	if len(ds) != 1 || ds[0].Claim == "" || ds[0].Cause == "" || ds[0].Attempt != 1 || !ds[0].Deadline.After(time.Now()) {
		t.Fatalf("deliveries %+v", ds)
	}
	var ev map[string]any
	if err := json.Unmarshal(ds[0].Event, &ev); err != nil {
		t.Fatal(err)
	}
	if ev["id"] != "root" || ev["rootid"] != "root" || ev["principal"] != "desk" || ev["ttl"] == nil || ev["specversion"] != "1.0" {
		t.Errorf("event %s", ds[0].Event)
	}
	a, r := settle(t, n, "triage", "triage", api.Settlement{
		Claim: ds[0].Claim, Outcome: "ack",
		Emit: []json.RawMessage{json.RawMessage(`{"type":"ticket.triaged","data":{"ticket_id":"T-1","team":"billing"}}`)},
	})
	if a.status != 200 || r.Settled != 1 || len(r.Results) != 1 || len(r.Results[0].Emitted) != 1 {
		t.Fatalf("settle: %d %s", a.status, a.body)
	}
	child := r.Results[0].Emitted[0]
	if child.Status != 202 || child.RootID != "root" || child.Hop != 1 || child.ID == "" || child.TTL != 15 {
		t.Errorf("child %+v", child)
	}
	// The child arrives in its stream.
	subscribe(t, n, "all", `{"types":["ticket.triaged"],"as":"admin","from":"beginning","deliver":{"pull":{}}}`)
	got := pull(t, n, "admin", "all", `{"wait":"10s"}`)
	if len(got) != 1 || !strings.Contains(string(got[0].Event), `"causationid":"root"`) {
		t.Errorf("child was not delivered: %+v", got)
	}
	// A second settle of the same claim says why not.
	a, r = settle(t, n, "triage", "triage", api.Settlement{Claim: ds[0].Claim, Outcome: "ack"})
	if r.Settled == 0 && (a.status != 409 || len(r.Results) != 1 || r.Results[0].Code == "") {
		t.Errorf("second settle: %d %s", a.status, a.body)
	}
}

func TestPublishWithCause(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "triage", triageSpec)
	publish(t, n, "desk", opened("root", "T-1"))
	ds := pull(t, n, "triage", "triage", `{"wait":10}`)
	if len(ds) != 1 {
		t.Fatal("no delivery")
	}
	body := `{"specversion":"1.0","type":"ticket.triaged","data":{"ticket_id":"T-1","team":"network"}}`
	a := publish(t, n, "triage", body, api.HeaderCause, ds[0].Cause)
	var p api.Published
	a.decode(t, &p)
	if a.status != 202 || p.RootID != "root" || p.Hop != 1 || p.TTL != 15 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// Another principal cannot use the token.
	if q := publish(t, n, "admin", body, api.HeaderCause, ds[0].Cause).problem(t); q.Code != headgate.CodeTokenForeign {
		t.Errorf("foreign token: %+v", q)
	}
}

// A refusal that can be mended leaves the claim open, and the report is there.
func TestSettleMendable(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "triage", triageSpec)
	publish(t, n, "desk", opened("root", "T-1"))
	d := pull(t, n, "triage", "triage", `{"wait":10}`)[0]
	emit := func(team string) api.Settlement {
		return api.Settlement{Claim: d.Claim, Outcome: "ack", Emit: []json.RawMessage{
			json.RawMessage(fmt.Sprintf(`{"id":"c1","type":"ticket.triaged","data":{"ticket_id":"T-1","team":%q}}`, team)),
		}}
	}
	a, r := settle(t, n, "triage", "triage", emit("biling"))
	if a.status != 422 || r.Open != 1 || len(r.Results) != 1 || len(r.Results[0].Emitted) != 1 || len(r.Results[0].Emitted[0].Violations) == 0 {
		t.Fatalf("settle: %d %s", a.status, a.body)
	}
	if near := r.Results[0].Emitted[0].Violations[0].Near; len(near) == 0 || near[0] != `billing` && near[0] != `"billing"` {
		t.Errorf("near %v", near)
	}
	if a, r = settle(t, n, "triage", "triage", emit("billing")); a.status != 200 || r.Settled != 1 {
		t.Errorf("mended: %d %s", a.status, a.body)
	}
}

func TestPullArguments(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "triage", triageSpec)
	for name, tc := range map[string]struct {
		who, path, body string
		code            headgate.Code
	}{
		"unknown subscription":  {"admin", "/v1/subscriptions/nobody/pull", `{}`, headgate.CodeNotFound},
		"not the principal's":   {"desk", "/v1/subscriptions/triage/pull", `{}`, headgate.CodeForbidden},
		"max too large":         {"triage", "/v1/subscriptions/triage/pull", `{"max":100000}`, headgate.CodeInvalidArgument},
		"max negative":          {"triage", "/v1/subscriptions/triage/pull", `{"max":-1}`, headgate.CodeInvalidArgument},
		"misspelt":              {"triage", "/v1/subscriptions/triage/pull", `{"mxa":1}`, headgate.CodeInvalidArgument},
		"nothing to settle":     {"triage", "/v1/subscriptions/triage/settle", `{"settle":[]}`, headgate.CodeInvalidArgument},
		"no body to settle":     {"triage", "/v1/subscriptions/triage/settle", ``, headgate.CodeSyntax},
		"no claim":              {"triage", "/v1/subscriptions/triage/settle", `{"settle":[{"outcome":"ack"}]}`, headgate.CodeInvalidArgument},
		"unknown outcome":       {"triage", "/v1/subscriptions/triage/settle", `{"settle":[{"claim":"c","outcome":"maybe"}]}`, headgate.CodeInvalidArgument},
		"emit with retry":       {"triage", "/v1/subscriptions/triage/settle", `{"settle":[{"claim":"c","outcome":"retry","emit":[{}]}]}`, headgate.CodeInvalidArgument},
		"settle not one's own":  {"desk", "/v1/subscriptions/triage/settle", `{"settle":[{"claim":"c","outcome":"ack"}]}`, headgate.CodeForbidden},
		"method of the path":    {"triage", "/v1/subscriptions/triage/pulll", `{}`, headgate.CodeNotFound},
		"claim of another node": {"triage", "/v1/subscriptions/triage/settle", `{"settle":[{"claim":"nonsense","outcome":"ack"}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, n, tc.who, "POST", tc.path, tc.body)
			p := a.problem(t)
			if tc.code != "" && p.Code != tc.code || a.status/100 != 4 {
				t.Errorf("%d %s; want %s", a.status, a.body, tc.code)
			}
		})
	}
	start := time.Now()
	if ds := pull(t, n, "triage", "triage", `{"wait":"50ms"}`); len(ds) != 0 {
		t.Errorf("deliveries %+v", ds)
	}
	if ds := pull(t, n, "triage", "triage", ``); len(ds) != 0 {
		t.Errorf("deliveries %+v", ds)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("an empty pull with a wait of 50 ms took %s", took)
	}
}
