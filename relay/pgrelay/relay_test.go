package pgrelay_test

import (
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
)

func TestEmitInSQLReachesTheBroker(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.exec(`SELECT headgate.emit('order.placed', '{"n":1}', 'k1', 'order 1')`)
	d := x.wait(t, 1)[0]
	if d.Result.Err != nil || d.QID != "" {
		t.Fatalf("the row ended as %+v", d.Result)
	}
	x.stop()
	got := r.stored()
	if len(got) != 1 || got[0].Event.Type != "order.placed" || got[0].Event.Key != "k1" || got[0].Event.Subject != "order 1" ||
		string(got[0].Event.Data) != `{"n": 1}` || got[0].Event.Header.Principal != "orders" {
		t.Fatalf("stored: %+v", got)
	}
}
