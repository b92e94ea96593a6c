package router

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

// whole is a router behind the real perimeter, causal engine and quarantine.
type whole struct {
	*rig
	perimeter *perimeter.Perimeter
	causal    *causal.Engine
}

type schemas map[string]*contract.Contract

func (s schemas) Lookup(subject string) *contract.Contract { return s[subject] }

func (schemas) Broken(string) error { return nil }

func (schemas) Named(context.Context, string, contract.Frame) (*contract.Contract, error) {
	return nil, nil
}

func newWhole(t *testing.T, ttl, gas int) *whole {
	t.Helper()
	st, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	table, err := topology.New([]topology.Stream{{Name: "events", Partitions: 2}}, nil, topology.Defaults{TTL: ttl, Gas: gas, Repeats: topology.MaxRepeats})
	if err != nil {
		t.Fatal(err)
	}
	w := &whole{rig: newRig(t)}
	if err := w.rig.store.Close(); err != nil {
		t.Fatal(err)
	}
	w.rig.store = st
	w.gate = &gate{Store: st}
	ctx := t.Context()
	if w.causal, err = causal.Open(ctx, causal.Config{Store: st}); err != nil {
		t.Fatal(err)
	}
	if w.quar, err = quarantine.Open(ctx, quarantine.Config{Store: st}); err != nil {
		t.Fatal(err)
	}
	known := schemas{}
	for _, subject := range []string{"ping", "pong"} {
		c, _, err := contract.Compile(subject, 1, []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		known[subject] = c
	}
	w.perimeter, err = perimeter.New(perimeter.Config{
		Broker: w.broker, Contracts: known, Causal: w.causal, Quarantine: w.quar, Topology: table, Observer: w.observer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	dev := w.people["dev"]
	dev.Roots = headgate.RootRight{Allowed: true, Rate: 1000, Burst: 1000}
	w.people["dev"] = dev
	rt, err := New(Config{
		Store: w.gate, Broker: w.broker, Perimeter: w.perimeter, Causal: w.causal, Quarantine: w.quar, Topology: table,
		Principals: w.people, Observer: w.observer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.causal.SetClaims(rt)
	run, cancel := context.WithCancel(context.Background())
	w.router, w.cancel, w.ended = rt, cancel, make(chan error, 1)
	go func() { w.ended <- rt.Run(run) }()
	<-rt.Started()
	return w
}

func (w *whole) root(id, eventType string) perimeter.Result {
	w.t.Helper()
	res := w.perimeter.Admit(w.t.Context(), perimeter.Submission{
		Principal: w.people.get("dev"), Door: "test",
		Items: []perimeter.Item{{Event: &headgate.Event{ID: id, Source: "/root", Type: eventType, Data: []byte(`{"n":1}`)}}},
	})
	if res[0].Err != nil {
		w.t.Fatal(res[0].Err)
	}
	return res[0]
}

// answering returns a handler that answers every event with n others.
func answering(eventType string, n int) HandlerFunc {
	return func(_ context.Context, d *Delivery, out *Emitter) error {
		for i := range n {
			out.Emit(&headgate.Event{
				ID: fmt.Sprintf("%s.%d", d.Event.ID, i), Source: "/answer", Type: eventType, Data: []byte(`{"n":2}`),
			})
		}
		return nil
	}
}

// TestLoopDies: two handlers that answer each other for ever stop by the TTL,
// at exactly that depth, or by the gas, at exactly that many events.
func TestLoopDies(t *testing.T) {
	for _, c := range []struct{ fan, ttl, gas, want int }{
		{fan: 1, ttl: 6, gas: 1000, want: 6},
		{fan: 3, ttl: 12, gas: 100, want: 100},
	} {
		t.Run(fmt.Sprintf("fan %d", c.fan), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWhole(t, c.ttl, c.gas)
				defer w.end()
				for name, answer := range map[string]string{"ping": "pong", "pong": "ping"} {
					if err := w.router.Handle(name, answering(answer, c.fan)); err != nil {
						t.Fatal(err)
					}
					w.put(name, Spec{Types: []string{name}, Deliver: Deliver{Handler: &Handler{}}})
				}
				w.root("r", "ping")
				time.Sleep(time.Minute)
				stats, err := w.broker.Stat(t.Context(), "events")
				if err != nil {
					t.Fatal(err)
				}
				if got := int(stats[0].Next + stats[1].Next); got != c.want {
					t.Errorf("%d events were admitted, want %d", got, c.want)
				}
				cut, err := w.quar.List(t.Context(), store.QuarantineFilter{Kind: store.KindExtinguished})
				if err != nil || len(cut) == 0 {
					t.Errorf("no record says where it ended: %v", err)
				}
				if b := w.balance(); b.Pending+b.InFlight != 0 {
					t.Errorf("%+v", b)
				}
			})
		})
	}
}

// TestSettleThroughPerimeter: a child that breaks its contract leaves the claim
// open and comes back with its report; mended, it is admitted and published.
// The token of an attempt that was superseded is void.
func TestSettleThroughPerimeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWhole(t, 8, 100)
		defer w.end()
		w.put("s", Spec{Types: []string{"ping"}, Claim: Duration(10 * time.Second), Backoff: "1s..1s"})
		w.root("r", "ping")
		first := w.pull("s", 1, time.Second)
		time.Sleep(11 * time.Second)
		second := w.pull("s", 1, time.Minute)
		if _, err := w.causal.Verify(first[0].Cause(), "worker"); headgate.CodeOf(err) != headgate.CodeTokenSuperseded {
			t.Errorf("the token of the first attempt: %v", err)
		}
		if _, err := w.causal.Verify(second[0].Cause(), "worker"); err != nil {
			t.Errorf("the token of the second attempt: %v", err)
		}
		child := func(data string) []perimeter.Item {
			return []perimeter.Item{{Event: &headgate.Event{ID: "k", Source: "/worker", Type: "pong", Data: []byte(data)}}}
		}
		res := w.settle("s", Settlement{Claim: second[0].Claim, Outcome: OutcomeAck, Emit: child(`{"n":"x"}`)})
		if res[0].Err == nil || res[0].Err.Code != headgate.CodeContractViolation || res[0].Emitted[0].Err.Verdict == nil {
			t.Fatalf("%+v", res[0])
		}
		before, err := w.causal.Gas(t.Context(), first[0].Event)
		if err != nil {
			t.Fatal(err)
		}
		for range 200 { // more often than the root has gas: each refusal returns what it took
			res = w.settle("s", Settlement{Claim: second[0].Claim, Outcome: OutcomeAck, Emit: append(child(`{"n":3}`), perimeter.Item{
				Event: &headgate.Event{ID: "bad", Source: "/worker", Type: "pong", Data: []byte(`{}`)},
			})})
			if res[0].Err == nil || res[0].Err.Code != headgate.CodeContractViolation {
				t.Fatalf("%+v", res[0])
			}
		}
		if after, err := w.causal.Gas(t.Context(), first[0].Event); err != nil || after != before {
			t.Errorf("gas was %+v, is %+v after refusals only: %v", before, after, err)
		}
		res = w.settle("s", Settlement{Claim: second[0].Claim, Outcome: OutcomeAck, Emit: child(`{"n":3}`)})
		if res[0].Err != nil {
			t.Fatal(res[0].Err)
		}
		synctest.Wait()
		stored, err := w.broker.Browse(t.Context(), "events", headgate.Position{Partition: 0}, 10)
		if err != nil {
			t.Fatal(err)
		}
		more, _ := w.broker.Browse(t.Context(), "events", headgate.Position{Partition: 1}, 10)
		found := false
		for _, s := range append(stored, more...) {
			if s.Event.ID == "k" {
				found = s.Event.Header.Hop == 1 && s.Event.Header.TTL == 7 && s.Event.Header.RootID == "r"
			}
		}
		if !found {
			t.Error("the child is not in the stream, or not as a child")
		}
		if b := w.balance(); b.Counts.Settled != 1 || b.Counts.Unmatched != 1 {
			t.Errorf("%+v", b)
		}
	})
}

// TestParseSpec: strict, and it reads what it writes.
func TestParseSpec(t *testing.T) {
	full := Spec{
		Types: []string{"a.*"}, When: "data.n > 1", As: "x", From: "beginning", Order: OrderRelease, MaxBlock: Duration(time.Hour),
		Concurrency: 3, Attempts: 4, Backoff: "1s..2s", Claim: Duration(time.Minute), Deliver: Deliver{Pull: &Pull{}},
		Dedupe: DedupeWindow, Expire: Duration(time.Hour),
	}
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(back); string(again) != string(text) {
		t.Errorf("%s became %s", text, again)
	}
	if err := back.Validate(); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]headgate.Code{
		`{"types":["a"],"colour":"red"}`:          headgate.CodeInvalidArgument,
		`{"types":["a"],"types":["b"]}`:           headgate.CodeSyntax,
		`{"types":["a"]} {}`:                      headgate.CodeSyntax,
		`{"types":["a"],"claim":30}`:              headgate.CodeInvalidArgument,
		`{"types":["a"],"claim":"soon"}`:          headgate.CodeInvalidArgument,
		`{"types":"a"}`:                           headgate.CodeInvalidArgument,
		`{"deliver":{"push":{"url":"http://x"}}}`: headgate.CodeInvalidArgument,
		``:     headgate.CodeSyntax,
		`null`: headgate.CodeInvalidArgument,
	} {
		spec, err := ParseSpec([]byte(text))
		if err == nil {
			err = spec.Validate()
		}
		if headgate.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestBackoff: doubling, capped, jittered within its upper half, never zero.
func TestBackoff(t *testing.T) {
	p, bad := Spec{Types: []string{"a"}, Backoff: "1s..10s"}.compile(Defaults{})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	for attempt, full := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1000: 10 * time.Second} {
		if lo, hi := p.delay(attempt, 0), p.delay(attempt, 0.999999); lo != full/2 || hi > full || hi < full*9/10 {
			t.Errorf("attempt %d: %s to %s, want %s to %s", attempt, lo, hi, full/2, full)
		}
	}
}

// TestRights: who may manage and consume.
func TestRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		ctx := t.Context()
		own := Spec{Types: []string{"other.thing"}}
		if s, err := r.router.Put(ctx, r.people.get("other"), "mine", own, "api"); err != nil || s.Spec.As != "other" {
			t.Errorf("an agent's own subscription: %+v %v", s, err)
		}
		for name, want := range map[string]struct {
			spec Spec
			code headgate.Code
		}{
			"as another":       {Spec{Types: []string{"other.thing"}, As: "worker"}, headgate.CodeForbidden},
			"types not its":    {Spec{Types: []string{"*"}}, headgate.CodeInvalidArgument},
			"unknown as":       {Spec{Types: []string{"x"}, As: "ghost"}, headgate.CodeForbidden},
			"../../etc/passwd": {own, headgate.CodeInvalidArgument},
		} {
			if _, err := r.router.Put(ctx, r.people.get("other"), name, want.spec, "api"); headgate.CodeOf(err) != want.code {
				t.Errorf("%s: %v, want %s", name, err, want.code)
			}
		}
		if _, err := r.router.Put(ctx, r.people.get("worker"), "mine", Spec{Types: []string{"x"}, As: "worker"}, "api"); headgate.CodeOf(err) != headgate.CodeForbidden {
			t.Errorf("taking over a subscription: %v", err)
		}
		for who, want := range map[string]headgate.Code{"other": "", "worker": headgate.CodeForbidden, "dev": ""} {
			if _, err := r.router.Pull(ctx, r.people.get(who), "mine", 1, 0); headgate.CodeOf(err) != want {
				t.Errorf("%s pulls: %v", who, err)
			}
			if _, err := r.router.Settle(ctx, r.people.get(who), "mine", nil); headgate.CodeOf(err) != want {
				t.Errorf("%s settles: %v", who, err)
			}
		}
		less := r.people["other"]
		less.Listen = nil
		if _, err := r.router.Pull(ctx, &less, "mine", 1, 0); headgate.CodeOf(err) != headgate.CodeTypeNotAllowed {
			t.Errorf("after its right was taken: %v", err)
		}
		if _, err := r.router.Pull(ctx, nil, "mine", 1, 0); headgate.CodeOf(err) != headgate.CodeForbidden {
			t.Errorf("nobody pulls: %v", err)
		}
		if _, err := r.router.Pull(ctx, r.people.get("dev"), "mine", 1_000_000, 0); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
			t.Errorf("a million at once: %v", err)
		}
	})
}

// TestOwnSubscriptionsAreBounded: an agent that makes a subscription for each
// task cannot take the node's memory; developers may.
func TestOwnSubscriptionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		put := func(who string, i int) error {
			_, err := r.router.Put(t.Context(), r.people.get(who), fmt.Sprintf("s%d", i), Spec{Types: []string{"other.thing"}, As: "other"}, "api")
			return err
		}
		for i := range maxOwn {
			if err := put("other", i); err != nil {
				t.Fatalf("subscription %d: %v", i, err)
			}
		}
		if err := put("other", maxOwn); headgate.CodeOf(err) != headgate.CodeForbidden {
			t.Errorf("one more: %v", err)
		}
		if _, err := r.router.Put(t.Context(), r.people.get("other"), "s1", Spec{Types: []string{"other.thing"}, Attempts: 3}, "api"); err != nil {
			t.Errorf("a change: %v", err)
		}
		if err := put("dev", maxOwn); err != nil {
			t.Errorf("a developer: %v", err)
		}
		for _, name := range []string{"s0", "s1"} {
			if err := r.router.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if err := put("other", 0); err != nil {
			t.Errorf("after a deletion: %v", err)
		}
	})
}

// TestSettleTwiceInOneCall: the same claim twice in one call is refused, not
// waited for.
func TestSettleTwiceInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		r.start()
		defer r.end()
		r.put("s", Spec{})
		r.publish(event("a", "x", ""))
		d := r.pull("s", 1, time.Second)
		res := r.settle("s", Settlement{Claim: d[0].Claim, Outcome: OutcomeAck}, Settlement{Claim: d[0].Claim, Outcome: OutcomeRetry})
		if res[0].Err != nil || res[1].Err == nil || res[1].Err.Code != headgate.CodeInvalidArgument {
			t.Fatalf("%+v", res)
		}
	})
}
