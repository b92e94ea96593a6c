package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/topology"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/handler"
	"github.com/headgate/headgate/unit/worker"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func subscribe(t *testing.T, n *nodetest.Node, name string, spec api.SubscriptionSpec) {
	t.Helper()
	spec.Types, spec.As, spec.From, spec.Order = []string{"ticket.opened"}, "triage", "beginning", "none"
	_, _, err := n.Client(t, "admin").PutSubscription(t.Context(), name, spec)
	must(t, err)
}

func open(t *testing.T, n *nodetest.Node, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, err := n.Client(t, "desk").Publish(t.Context(), &headgate.Event{ID: id, Source: "/desk", Type: "ticket.opened", Data: []byte(`{"ticket_id":"` + id + `"}`)})
		must(t, err)
	}
}

// settledAs waits until every event of the subscription has ended.
func settledAs(t *testing.T, n *nodetest.Node, name string) router.Balance {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		all, err := n.Router.Conservation(t.Context())
		must(t, err)
		for _, b := range all {
			if b.Subscription == name && b.Lag == 0 {
				return b
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to an end: %+v", all)
		}
	}
}

// Each delivery is settled by what came of it, and tells what it is.
func TestWorkerSettles(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "s", api.SubscriptionSpec{Backoff: "1ms..5ms", Claim: api.Duration(300 * time.Millisecond), Attempts: 5})
	open(t, n, "ok", "flaky", "later", "bad", "rejected", "panics", "taken")
	var mu sync.Mutex
	seen := map[string]int{}
	fn := func(_ context.Context, d *worker.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		id := d.Event.ID
		seen[id]++
		if d.Consumer != "s" || d.ID != id || d.Source != "/desk" || d.Cause == "" || d.Recorded.IsZero() || d.Attempt != seen[id] || d.Stream == "" || d.Position == "" {
			t.Errorf("delivery %+v", d)
		}
		if seen[id] > 1 && id != "bad" && id != "rejected" {
			return nil
		}
		switch id {
		case "flaky":
			return errors.New("the network is away")
		case "later":
			return &headgate.Error{Code: headgate.CodeInProgress, RetryAfter: time.Millisecond}
		case "bad":
			return headgate.NewError(headgate.CodeContractViolation, "no")
		case "rejected":
			return fmt.Errorf("wrapped: %w", unit.Rejected(errors.New("no")))
		case "panics":
			panic("boom")
		case "taken":
			return headgate.NewError(headgate.CodeStaleFence, "superseded")
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	maintained := make(chan struct{}, 1)
	go func() {
		ended <- worker.Run(ctx, worker.Config{
			Client: n.Client(t, "triage"), Subscription: "s", Wait: 100 * time.Millisecond, Log: quiet(),
			Maintain: func(context.Context) error { maintained <- struct{}{}; return errors.New("later") },
		}, fn)
	}()
	<-maintained
	b := settledAs(t, n, "s")
	cancel()
	must(t, <-ended)
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{"ok": 1, "flaky": 2, "later": 2, "bad": 1, "rejected": 1, "panics": 2, "taken": 2}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("handled %v, want %v", seen, want)
	}
	if b.Counts.Settled != 5 || b.Counts.Parked != 2 || !b.Holds {
		t.Errorf("%+v", b)
	}
}

// A worker that is to end finishes what it has, and settles it.
func TestWorkerDrains(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "s", api.SubscriptionSpec{})
	open(t, n, "a")
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(ctx, worker.Config{Client: n.Client(t, "triage"), Subscription: "s", Log: quiet()}, func(ctx context.Context, _ *worker.Delivery) error {
			close(begun)
			cancel()
			return ctx.Err() // it may go on
		})
	}()
	<-begun
	must(t, <-ended)
	if b := settledAs(t, n, "s"); b.Counts.Settled != 1 {
		t.Errorf("%+v", b)
	}
}

// One that hangs is told to stop after the time to drain.
func TestWorkerDoesNotDrainForEver(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "s", api.SubscriptionSpec{})
	open(t, n, "a")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(ctx, worker.Config{Client: n.Client(t, "triage"), Subscription: "s", Drain: 10 * time.Millisecond, Log: quiet()}, func(ctx context.Context, _ *worker.Delivery) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	must(t, <-ended)
}

// A worker compares how long its inbox remembers with how long the streams that
// the subscription reads keep their events, and with no others.
func TestWorkerComparesItsInboxWithTheStreams(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Streams: []topology.Stream{
		{Name: "tickets", Types: []string{"ticket.*"}, Retain: 10 * 24 * time.Hour}, {Name: "slow", Types: []string{"slow.*"}, Retain: 90 * 24 * time.Hour},
	}})
	subscribe(t, n, "s", api.SubscriptionSpec{})
	for remembers, warns := range map[time.Duration]string{
		10 * 24 * time.Hour: "inbox=240h0m0s streams=240h0m0s", 11 * 24 * time.Hour: "", 0: "not compared",
	} {
		var said strings.Builder
		ctx, cancel := context.WithCancel(t.Context())
		must(t, worker.Run(ctx, worker.Config{
			Client: n.Client(t, "triage"), Subscription: "s", Log: slog.New(slog.NewTextHandler(&said, nil)),
			Remembers: func(context.Context) (time.Duration, error) {
				defer cancel() // what was begun goes on
				if remembers == 0 {
					return 0, errors.New("the database is away")
				}
				return remembers, nil
			},
		}, func(context.Context, *worker.Delivery) error { return nil }))
		if !strings.Contains(said.String(), warns) || (warns == "") != (said.String() == "") {
			t.Errorf("remembers %s: it says %q", remembers, said.String())
		}
	}
}

// What waiting does not mend ends the worker.
func TestWorkerRefusals(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "s", api.SubscriptionSpec{})
	nothing := func(context.Context, *worker.Delivery) error { return nil }
	for _, c := range []struct {
		who, subscription string
		code              headgate.Code
	}{{"triage", "none", headgate.CodeNotFound}, {"desk", "s", headgate.CodeForbidden}, {"triage", "", headgate.CodeInvalidArgument}} {
		err := worker.Run(t.Context(), worker.Config{Client: n.Client(t, c.who), Subscription: c.subscription, Log: quiet()}, nothing)
		if headgate.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The router's own handlers settle by the same rules.
func TestHandler(t *testing.T) {
	n := nodetest.Start(t, nil)
	subscribe(t, n, "s", api.SubscriptionSpec{Deliver: api.Deliver{Handler: &struct{}{}}, Backoff: "1ms..5ms"})
	var mu sync.Mutex
	var seen []string
	must(t, n.Router.Handle("s", handler.Func("billing", func(_ context.Context, d unit.Delivery, in *router.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, d.ID)
		if d.Consumer != "billing" || d.Cause == "" || d.ID != in.Event.ID || d.Recorded.IsZero() {
			t.Errorf("%+v", d)
		}
		switch {
		case d.ID == "bad":
			return headgate.NewError(headgate.CodeTooOld, "no")
		case d.ID == "busy" && in.Attempt == 1:
			return &headgate.Error{Code: headgate.CodeInProgress, RetryAfter: time.Millisecond}
		}
		return nil
	})))
	open(t, n, "ok", "bad", "busy")
	b := settledAs(t, n, "s")
	mu.Lock()
	defer mu.Unlock()
	if b.Counts.Settled != 2 || b.Counts.Parked != 1 || len(seen) != 4 || strings.Count(strings.Join(seen, " "), "busy") != 2 {
		t.Errorf("%v, %+v", seen, b)
	}
}
