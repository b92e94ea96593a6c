package pgrelay_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/internal/pgtest"
)

func TestEmitInSQLReachesTheBroker(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.exec(`SELECT headgate.emit('order.placed', '{"n":1}', 'k1', 'order 1')`)
	d := x.Wait(t, 1)[0]
	if d.Result.Err != nil || d.QID != "" {
		t.Fatalf("the row ended as %+v", d.Result)
	}
	x.Stop()
	got := r.Stored()
	if len(got) != 1 || got[0].Event.Type != "order.placed" || got[0].Event.Key != "k1" || got[0].Event.Subject != "order 1" ||
		string(got[0].Event.Data) != `{"n": 1}` || got[0].Event.Header.Principal != "orders" {
		t.Fatalf("stored: %+v", got)
	}
}

func TestCauseCountsAsOfTheCommit(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	orders := *r.Who["headgate"]
	orders.Roots = headgate.RootRight{}
	r.Who["headgate"] = &orders // nothing but reactions
	parent := &headgate.Event{ID: "parent", Source: "/s", Type: "order.placed"}
	res, err := r.Causal.Reserve(context.Background(), causal.Request{
		Principal: &headgate.Principal{Name: "root", Kind: headgate.KindHuman, Roots: headgate.RootRight{Allowed: true}}, Type: "order.placed", EventID: "parent",
	})
	must(t, err)
	res.Commit()
	parent.Header = res.Header
	token := r.Causal.Mint(causal.Delivered{Event: parent, Stream: "events", Subscription: "s", Principal: "orders", Attempt: 1})
	c := r.connect()
	for _, sql := range []string{
		`BEGIN`, `SELECT headgate.set_cause('` + token + `')`, `SELECT headgate.emit('order.placed', '{"n":1}', 'k1')`, `COMMIT`,
		`SELECT headgate.emit('order.placed', '{"n":2}', 'k1')`, // a root, which it may not start
	} {
		_, err := c.Exec(context.Background(), sql)
		must(t, err)
	}
	x := r.run(nil)
	rows := x.Wait(t, 2)
	r.Verify(1)
	e := r.Stored()[0].Event
	if e.Header.RootID != "parent" || e.Header.Hop != 1 {
		t.Errorf("the header is %+v", e.Header)
	}
	if rows[1].QID == "" || rows[1].Result.Err.Code != headgate.CodeRootNotAllowed {
		t.Errorf("the root ended as %+v", rows[1].Result)
	}
}

func TestUnknownRoleIsKept(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	delete(r.Who, "headgate")
	x := r.run(nil)
	r.emit(1, 3)
	for _, d := range x.Wait(t, 3) {
		if d.QID == "" || d.Result.Err.Code != headgate.CodeForbidden {
			t.Errorf("the row ended as %+v", d.Result)
		}
	}
	if n := len(r.Kept()); n != 3 {
		t.Errorf("%d records are kept", n)
	}
}

// A principal that writes faster than it may start roots is slowed down, not
// refused.
func TestRateOfRootsSlowsDown(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	orders := *r.Who["headgate"]
	orders.Roots = headgate.RootRight{Allowed: true, Rate: 40, Burst: 10}
	r.Who["headgate"] = &orders
	x := r.run(nil)
	r.emit(1, 50)
	x.Wait(t, 50)
	r.Verify(50)
	if kept := r.Kept(); len(kept) != 0 {
		t.Errorf("%d rows were refused", len(kept))
	}
	if x.Status().Retried == 0 {
		t.Error("the rate was not met")
	}
}
