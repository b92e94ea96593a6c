package telemetry

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("scrape: status %d: %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

func TestObserverCounts(t *testing.T) {
	m := New(Config{Version: "v1.2.3"})
	o := m.Observer()
	ev := &headgate.Event{Type: "ticket.opened", ID: "secret-id"}
	o.Admitted(headgate.AdmittedInfo{Stream: "support", Event: ev, Door: "http"})
	o.Admitted(headgate.AdmittedInfo{Stream: "support", Event: ev, Door: "http"})
	o.Admitted(headgate.AdmittedInfo{Stream: "support", Event: ev, Door: "http", Duplicate: true})
	mended := &headgate.Event{Type: "ticket.opened", Extensions: []headgate.Extension{{Name: headgate.AttributeMended, Value: "secret-id"}}}
	o.Admitted(headgate.AdmittedInfo{Stream: "mended", Event: mended, Door: "http"})
	o.Refused(headgate.RefusedInfo{Principal: "triage", Type: "x.y", Stage: "contract", Code: headgate.CodeContractViolation, Door: "http", Took: 400 * time.Microsecond})
	o.Dispatched(headgate.DeliveryInfo{Subscription: "triage"})
	o.Settled(headgate.DeliveryInfo{Subscription: "triage", Outcome: "ack"})
	o.Ignored(headgate.IgnoredInfo{Principal: "triage", What: "ttl", Door: "http"})
	o.Relayed(headgate.RelayedInfo{Outbox: "orders", Type: "x.y", ID: "secret-id", Took: 3 * time.Millisecond})
	o.Relayed(headgate.RelayedInfo{Outbox: "orders", Duplicate: true, Took: time.Hour})
	o.Relayed(headgate.RelayedInfo{Outbox: "orders", Code: headgate.CodeForbidden, Took: time.Hour})
	m.Gauges(map[string]string{"test_size": "A size."}, []string{"outbox"}, func() map[string][]Series {
		return map[string][]Series{"test_size": {{[]string{"orders"}, 7}, {[]string{"stock"}, 8}}, "test_undeclared": {{[]string{"orders"}, 1}}}
	})
	m.Request("POST /v1/events", 202, 2*time.Millisecond, 400)
	m.Request("", 404, time.Millisecond, 0)
	m.Gauge("test_value", "A value.", func() float64 { return 42 })

	text := scrape(t, m)
	for _, want := range []string{
		`headgate_events_admitted_total{door="http",stream="support"} 2`,
		`headgate_events_duplicate_total{door="http",stream="support"} 1`,
		`headgate_events_mended_total{door="http",stream="mended"} 1`,
		`headgate_events_refused_total{code="contract_violation",door="http",stage="contract"} 1`,
		`headgate_refusal_seconds_bucket{stage="contract",le="0.0005"} 1`,
		`headgate_refusal_seconds_bucket{stage="contract",le="0.00025"} 0`,
		`headgate_deliveries_dispatched_total{subscription="triage"} 1`,
		`headgate_deliveries_settled_total{outcome="ack",subscription="triage"} 1`,
		`headgate_forged_total{door="http",what="ttl"} 1`,
		`headgate_http_requests_total{route="POST /v1/events",status="202"} 1`,
		`headgate_http_requests_total{route="none",status="404"} 1`,
		`headgate_http_body_bytes_total 400`,
		`headgate_build_info{version="v1.2.3"} 1`,
		`headgate_test_value 42`,
		`headgate_outbox_rows_total{code="",outbox="orders",outcome="stored"} 1`,
		`headgate_outbox_rows_total{code="",outbox="orders",outcome="duplicate"} 1`,
		`headgate_outbox_rows_total{code="forbidden",outbox="orders",outcome="kept"} 1`,
		`headgate_outbox_commit_to_ack_seconds_bucket{outbox="orders",le="0.002"} 0`,
		`headgate_outbox_commit_to_ack_seconds_bucket{outbox="orders",le="0.005"} 1`,
		`headgate_outbox_commit_to_ack_seconds_count{outbox="orders"} 1`,
		`headgate_test_size{outbox="orders"} 7`,
		`headgate_test_size{outbox="stock"} 8`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("scrape lacks %s", want)
		}
	}
	// Nothing that a client chooses may become a label.
	for _, leak := range []string{"secret-id", "ticket.opened", "x.y"} {
		if strings.Contains(text, leak) {
			t.Errorf("scrape shows %q", leak)
		}
	}
}

// Whoever may create subscriptions, such as every headgate listen does, cannot
// grow the metrics without end.
func TestSubscriptionLabelsAreBounded(t *testing.T) {
	m := New(Config{})
	o := m.Observer()
	for i := range 3 * maxSubscriptions {
		o.Dispatched(headgate.DeliveryInfo{Subscription: "listen-" + strconv.Itoa(i)})
		o.Settled(headgate.DeliveryInfo{Subscription: "listen-" + strconv.Itoa(i), Outcome: "ack"})
	}
	o.Dispatched(headgate.DeliveryInfo{Subscription: "listen-7"})
	text := scrape(t, m)
	if n := strings.Count(text, "headgate_deliveries_dispatched_total{"); n != maxSubscriptions+1 {
		t.Errorf("%d series", n)
	}
	for _, want := range []string{
		`headgate_deliveries_dispatched_total{subscription="listen-7"} 2`,
		`headgate_deliveries_dispatched_total{subscription="other"} ` + strconv.Itoa(2*maxSubscriptions),
		`headgate_deliveries_settled_total{outcome="ack",subscription="other"} ` + strconv.Itoa(2*maxSubscriptions),
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("scrape lacks %s", want)
		}
	}
}
