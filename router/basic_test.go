package router

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPullAndSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.end()
		r.put("s", Spec{})
		r.publish(event("a", "x", "k"), event("b", "x", "k"), event("c", "x", ""))
		got := r.pull("s", 10, time.Second)
		synctest.Wait()
		got = append(got, r.pull("s", 10, 0)...)
		if len(got) != 2 {
			t.Fatalf("got %d deliveries, want 2: b waits behind a", len(got))
		}
		for _, d := range got {
			if res := r.settle("s", Settlement{Claim: d.Claim, Outcome: OutcomeAck}); res[0].Err != nil {
				t.Fatal(res[0].Err)
			}
		}
		b := r.pull("s", 10, time.Second)
		if len(b) != 1 || b[0].Event.ID != "b" {
			t.Fatalf("got %v", b)
		}
		r.balance()
		r.settle("s", Settlement{Claim: b[0].Claim, Outcome: OutcomeAck})
		if x := r.balance(); x.Counts.Settled != 3 || x.Accepted != 3 {
			t.Fatalf("%+v", x)
		}
	})
}
