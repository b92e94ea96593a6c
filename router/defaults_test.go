package router

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/store"
)

// TestSubscriptionsFollowTheDefaults: a limit that a subscription does not name
// is the node's, and is not stored with it; one that it names stays.
func TestSubscriptionsFollowTheDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, membroker.Config{}, 1)
		var now Defaults
		r.tune = func(rt *Router) { rt.defaults = now }
		// fails lets one event fail once and returns whether that was its last
		// attempt, and after how long it comes again.
		fails := func(sub, id string) (parked bool, after time.Duration) {
			t.Helper()
			r.publish(event(id, "x", id))
			got := r.pull(sub, 1, time.Second)
			if len(got) != 1 {
				t.Fatalf("%s: %d deliveries", sub, len(got))
			}
			began := time.Now()
			r.settle(sub, Settlement{Claim: got[0].Claim, Outcome: OutcomeRetry})
			again := r.pull(sub, 1, time.Minute)
			if len(again) == 0 {
				return true, 0
			}
			r.settle(sub, Settlement{Claim: again[0].Claim, Outcome: OutcomeAck})
			return false, time.Since(began)
		}
		now = Defaults{Attempts: 1}
		r.start()
		r.put("plain", Spec{})
		if parked, _ := fails("plain", "a"); !parked {
			t.Error("a subscription that names no attempts has more than the node's one")
		}
		r.put("own", Spec{Attempts: 3, Backoff: "5s..5s"})
		if parked, after := fails("own", "b"); parked || after != 5*time.Second {
			t.Errorf("a subscription of 3 attempts, 5s apart: parked %t, after %s", parked, after)
		}
		var spec Spec
		r.update(func(ctx context.Context, tx *store.Tx) error {
			row, err := tx.Subscriptions.Get(ctx, "plain")
			if err != nil {
				return err
			}
			return json.Unmarshal(row.Spec, &spec)
		})
		if spec.Attempts != 0 || spec.Backoff != "" {
			t.Errorf("defaults are stored: %+v", spec)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		now = Defaults{Attempts: 2, Backoff: "7s..7s"}
		r.start()
		defer r.end()
		r.settle("plain", Settlement{Claim: r.pull("plain", 1, time.Second)[0].Claim, Outcome: OutcomeAck}) // b
		if parked, after := fails("plain", "c"); parked || after != 7*time.Second {
			t.Errorf("the changed defaults do not apply: parked %t, after %s", parked, after)
		}
	})
}

// TestDefaultsAreChecked: a router takes no defaults that no subscription could
// name itself.
func TestDefaultsAreChecked(t *testing.T) {
	for _, d := range []Defaults{
		{Attempts: -1}, {Attempts: maxAttempts + 1}, {Backoff: "hello"}, {Backoff: "10m..1s"}, {Backoff: "-1s..1s"}, {Backoff: "1s..\x00"}, {Backoff: "1s..1000h"},
	} {
		if err := d.Validate(); headgate.CodeOf(err) != headgate.CodeInvalidConfig {
			t.Errorf("%+v: %v", d, err)
		}
	}
	for _, d := range []Defaults{{}, {Attempts: maxAttempts}, {Backoff: "1ms..24h"}} {
		if err := d.Validate(); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
}
