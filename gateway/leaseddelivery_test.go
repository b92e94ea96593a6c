package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/router"
)

const leasedWait = 20 * time.Second

func leasedSubscription(t *testing.T, n *nodetest.Node, names ...string) {
	t.Helper()
	for _, name := range names {
		_, _, err := n.Client(t, "triage").PutSubscription(t.Context(), name, api.SubscriptionSpec{
			Types: []string{"ticket.opened"}, Lease: "ticket/{data.ticket_id}", Backoff: "1ms..2ms",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func openTicket(t *testing.T, n *nodetest.Node, id, ticket string) {
	t.Helper()
	if status, body := publishFenced(t, n, id, ticket); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
}

func pullOne(t *testing.T, n *nodetest.Node, name string) api.Delivery {
	t.Helper()
	ds, err := n.Client(t, "triage").Pull(t.Context(), name, 1, leasedWait)
	if err != nil || len(ds) != 1 {
		t.Fatalf("%s: %d deliveries, %v", name, len(ds), err)
	}
	return ds[0]
}

// TestOneWorkerPerTicket: two subscriptions that lease by ticket never have the
// same ticket at once.
func TestOneWorkerPerTicket(t *testing.T) {
	n := nodetest.Start(t, nil)
	leasedSubscription(t, n, "one", "two")
	triage := n.Client(t, "triage")
	openTicket(t, n, "e1", "7")
	first := pullOne(t, n, "one")
	if first.Lease == nil || first.Lease.Resource != "ticket/7" || first.Lease.Token == "" || first.Lease.EpochText == "" {
		t.Fatalf("%+v", first.Lease)
	}
	if st, err := triage.Lease(t.Context(), "ticket/7"); err != nil || !st.Held || st.Holder != "triage" || st.Worker != "subscription one" {
		t.Errorf("%+v, %v", st, err)
	}
	if ds, err := triage.Pull(t.Context(), "two", 1, 300*time.Millisecond); err != nil || len(ds) != 0 {
		t.Errorf("the other subscription got %d deliveries, %v", len(ds), err)
	}
	emit := json.RawMessage(`{"type":"ticket.triaged","data":{"ticket_id":"7","team":"billing"}}`)
	out, err := triage.Settle(t.Context(), "one", api.Settlement{Claim: first.Claim, Outcome: "ack", Emit: []json.RawMessage{emit}})
	if err != nil || out.Settled != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	second := pullOne(t, n, "two")
	if second.Lease.Epoch <= first.Lease.Epoch {
		t.Errorf("epoch %d after %d", second.Lease.Epoch, first.Lease.Epoch)
	}
	if _, err := triage.VerifyFence(t.Context(), first.Lease.Token, ""); headgate.CodeOf(err) != headgate.CodeStaleFence {
		t.Errorf("the settled delivery's lease: %v", err)
	}
	if out, err = triage.Settle(t.Context(), "two", api.Settlement{Claim: second.Claim, Outcome: "ack"}); err != nil || out.Settled != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if st, err := triage.Lease(t.Context(), "ticket/7"); err != nil || st.Held {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestSupersededWorkerSettlesNothing: neither an ack with events nor a retry
// nor a reject passes once the lease was taken away.
func TestSupersededWorkerSettlesNothing(t *testing.T) {
	for _, outcome := range []string{"ack", "ack with an event", "retry", "reject"} {
		t.Run(outcome, func(t *testing.T) {
			n := nodetest.Start(t, nil)
			leasedSubscription(t, n, "one")
			triage, admin := n.Client(t, "triage"), n.Client(t, "admin")
			openTicket(t, n, "e1", "7")
			d := pullOne(t, n, "one")
			if _, err := admin.Revoke(t.Context(), "ticket/7", api.RevokeRequest{Mode: "terminate"}); err != nil {
				t.Fatal(err)
			}
			taken, err := admin.Acquire(t.Context(), "ticket/7", api.AcquireRequest{})
			if err != nil {
				t.Fatal(err)
			}
			verb, _, emits := strings.Cut(outcome, " ")
			s := api.Settlement{Claim: d.Claim, Outcome: verb}
			if emits {
				s.Emit = []json.RawMessage{json.RawMessage(`{"type":"ticket.triaged","data":{"ticket_id":"7","team":"billing"}}`)}
			}
			out, err := triage.Settle(t.Context(), "one", s)
			if headgate.CodeOf(err) != headgate.CodeStaleFence || out.Settled != 0 {
				t.Errorf("%+v, %v", out, err)
			}
			if status, body := publishFenced(t, n, "e2", "7", taken.Token); status != 202 {
				t.Errorf("the new holder: %d %s", status, body)
			}
			stats, err := n.Broker.Stat(t.Context(), "events")
			if err != nil {
				t.Fatal(err)
			}
			total := uint64(0)
			for _, st := range stats {
				total += st.Next
			}
			if total != 2 {
				t.Errorf("%d events are stored, want the two that were opened", total)
			}
			balance, err := n.Router.Conservation(t.Context())
			if err != nil || len(balance) != 1 || balance[0].InFlight != 0 || balance[0].Pending != 2 {
				t.Errorf("%+v, %v", balance, err)
			}
		})
	}
}

// TestSupersededDeliveryGoesOnAtOnce: without waiting for its claim's end, and
// without using up an attempt, however often.
func TestSupersededDeliveryGoesOnAtOnce(t *testing.T) {
	n := nodetest.Start(t, nil)
	triage, admin := n.Client(t, "triage"), n.Client(t, "admin")
	_, _, err := triage.PutSubscription(t.Context(), "one", api.SubscriptionSpec{
		Types: []string{"ticket.opened"}, Lease: "ticket/{data.ticket_id}", Attempts: 1, Claim: api.Duration(time.Hour / 2),
	})
	if err != nil {
		t.Fatal(err)
	}
	openTicket(t, n, "e1", "7")
	var claims []string
	for i := range 4 {
		d := pullOne(t, n, "one")
		if d.Attempt != i+1 {
			t.Errorf("attempt %d of delivery %d", d.Attempt, i)
		}
		claims = append(claims, d.Claim)
		if i < 3 {
			if out, err := admin.Revoke(t.Context(), "ticket/7", api.RevokeRequest{Mode: "terminate"}); err != nil || !out.Killed {
				t.Fatalf("%+v, %v", out, err)
			}
		}
	}
	for i, claim := range claims {
		out, err := triage.Settle(t.Context(), "one", api.Settlement{Claim: claim, Outcome: "ack"})
		if last := i == len(claims)-1; last && (err != nil || out.Settled != 1) || !last && headgate.CodeOf(err) != headgate.CodeStaleFence {
			t.Errorf("claim %d: %+v, %v", i, out, err)
		}
	}
	if page, err := admin.Quarantine(t.Context(), client.QuarantineFilter{Subscription: "one"}, client.Page{}); err != nil || len(page.Records) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestDrainWaitsForTheDelivery: once the gate is closed nobody gets the ticket
// and nothing of its worker passes, but the end of its delivery, with the
// events that it emits; that ends the revocation.
func TestDrainWaitsForTheDelivery(t *testing.T) {
	n := nodetest.Start(t, nil)
	leasedSubscription(t, n, "one", "two")
	triage, admin := n.Client(t, "triage"), n.Client(t, "admin")
	openTicket(t, n, "e1", "7")
	d := pullOne(t, n, "one")
	watch, err := triage.WatchLease(t.Context(), "ticket/7")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	revoked := make(chan api.Revoked, 1)
	go func() {
		out, err := admin.Revoke(t.Context(), "ticket/7", api.RevokeRequest{DeadlineMS: 60_000})
		if err != nil {
			t.Error(err)
		}
		revoked <- out
	}()
	for st := (api.LeaseState{}); !st.Closing; {
		if st, err = watch.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if ds, err := triage.Pull(t.Context(), "two", 1, 200*time.Millisecond); err != nil || len(ds) != 0 {
		t.Errorf("%d deliveries while the gate is closed, %v", len(ds), err)
	}
	_, err = triage.Fenced(d.Lease.Token).Publish(t.Context(), &headgate.Event{Type: "ticket.triaged", Data: []byte(`{"ticket_id":"7","team":"billing"}`)})
	if err == nil {
		t.Error("a write of the worker passed while the gate was closed")
	}
	select {
	case out := <-revoked:
		t.Fatalf("the revocation did not wait: %+v", out)
	default:
	}
	emit := json.RawMessage(`{"type":"ticket.triaged","data":{"ticket_id":"7","team":"billing"}}`)
	out, err := triage.Settle(t.Context(), "one", api.Settlement{Claim: d.Claim, Outcome: "ack", Emit: []json.RawMessage{emit}})
	if err != nil || out.Settled != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if out := <-revoked; out.Killed || out.Epoch <= d.Lease.Epoch {
		t.Errorf("%+v", out)
	}
	pullOne(t, n, "two")
}

// TestEmittedEventsCarryTheFence: what is emitted with a settlement says under
// which lease.
func TestEmittedEventsCarryTheFence(t *testing.T) {
	n := nodetest.Start(t, nil)
	leasedSubscription(t, n, "one")
	openTicket(t, n, "e1", "7")
	d := pullOne(t, n, "one")
	emit := json.RawMessage(`{"type":"ticket.triaged","data":{"ticket_id":"7","team":"billing"}}`)
	tail, err := n.Client(t, "admin").Tail(t.Context(), client.TailOpts{Types: []string{"ticket.triaged"}, From: "beginning"})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if _, err := n.Client(t, "triage").Settle(t.Context(), "one", api.Settlement{Claim: d.Claim, Outcome: "ack", Emit: []json.RawMessage{emit}}); err != nil {
		t.Fatal(err)
	}
	m, err := tail.Next()
	if err != nil || m.Event == nil || !strings.Contains(string(m.Event.Event), `"fence":"ticket/7@`+d.Lease.EpochText+`"`) {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestUnreadableResourceParks: an event without the member that names the
// resource would otherwise be tried for ever.
func TestUnreadableResourceParks(t *testing.T) {
	n := nodetest.Start(t, nil)
	_, _, err := n.Client(t, "triage").PutSubscription(t.Context(), "one", api.SubscriptionSpec{Types: []string{"ticket.opened"}, Lease: "ticket/{data.nothing}"})
	if err != nil {
		t.Fatal(err)
	}
	openTicket(t, n, "e1", "7")
	if ds, err := n.Client(t, "triage").Pull(t.Context(), "one", 1, 200*time.Millisecond); err != nil || len(ds) != 0 {
		t.Errorf("%d, %v", len(ds), err)
	}
	page, err := n.Client(t, "admin").Quarantine(t.Context(), client.QuarantineFilter{Subscription: "one"}, client.Page{})
	if err != nil || len(page.Records) != 1 || page.Records[0].Reason != "lease_unreadable" {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestHandlerUnderALease: a handler of the node's process works under the
// lease, too, and what it emits after it lost the lease is not stored.
func TestHandlerUnderALease(t *testing.T) {
	n := nodetest.Start(t, nil)
	admin := n.Client(t, "admin")
	got := make(chan *router.DeliveryLease, 16)
	revoked := make(chan error, 16)
	attempt := 0
	err := n.Router.Handle("inside", func(ctx context.Context, d *router.Delivery, out *router.Emitter) error {
		got <- d.Lease
		if attempt++; attempt == 1 { // it loses its lease in the middle
			_, err := admin.Revoke(context.WithoutCancel(ctx), "ticket/7", api.RevokeRequest{Mode: "terminate"})
			if cause := headgate.CodeOf(context.Cause(ctx)); err == nil && cause != headgate.CodeStaleFence {
				err = fmt.Errorf("the handler's context ended for %q", cause)
			}
			revoked <- err
		}
		out.Emit(&headgate.Event{Type: "ticket.triaged", Data: []byte(`{"ticket_id":"7","team":"billing"}`)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = n.Client(t, "triage").PutSubscription(t.Context(), "inside", api.SubscriptionSpec{
		Types: []string{"ticket.opened"}, Lease: "ticket/{data.ticket_id}", Backoff: "1ms..2ms",
		Attempts: 1, Deliver: api.Deliver{Handler: &struct{}{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	openTicket(t, n, "e1", "7")
	first := <-got
	if err := <-revoked; err != nil || first == nil || first.Resource != "ticket/7" {
		t.Fatalf("%+v, %v", first, err)
	}
	second := <-got
	if second == nil || second.Epoch <= first.Epoch {
		t.Errorf("%+v after %+v", second, first)
	}
	tail, err := admin.Tail(t.Context(), client.TailOpts{Types: []string{"ticket.triaged"}, From: "beginning"})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	m, err := tail.Next()
	if err != nil || m.Event == nil || !strings.Contains(string(m.Event.Event), fmt.Sprintf(`"fence":"ticket/7@%d"`, second.Epoch)) {
		t.Errorf("%+v, %v", m, err)
	}
	total := uint64(0)
	stats, err := n.Broker.Stat(t.Context(), "events")
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range stats {
		total += st.Next
	}
	if total != 2 {
		t.Errorf("%d events are stored, want the ticket and one answer", total)
	}
}
