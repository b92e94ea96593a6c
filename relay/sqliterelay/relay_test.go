package sqliterelay

import (
	"encoding/json"
	"testing"
	"time"
)

func TestEventsReachTheBroker(t *testing.T) {
	r := newRig(t)
	x := r.run(nil)
	emit(t, r.db, 1, 3, "k")
	run(t, r.db, `INSERT INTO headgate_outbox (id, type, source, subject, key, attributes, data) VALUES
		('E-1', 'order.placed', '/shop', 'order 7', 'k', '{"time":"2026-01-02T03:04:05Z","count":7}', ?)`, []byte(`{"n":4}`))
	x.Wait(t, 4)
	got := r.Stored()
	if len(got) != 4 {
		t.Fatalf("%d events are stored", len(got))
	}
	for i, s := range got {
		var d struct{ N int }
		must(t, json.Unmarshal(s.Event.Data, &d))
		if d.N != i+1 || s.Event.Header.Principal != "orders" || s.Event.Header.Hop != 0 {
			t.Errorf("event %d: %s by %s", i, s.Event.Data, s.Event.Header.Principal)
		}
	}
	e := got[3].Event
	if e.ID != "E-1" || e.Source != "/shop" || e.Subject != "order 7" || e.Time.UTC() != time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) || len(e.Extensions) != 1 {
		t.Errorf("%+v", e)
	}
	until(t, "everything is confirmed", func() bool { return value[int64](t, r.db, `SELECT confirmed FROM headgate_outbox_state`) == 4 })
	if id := value[string](t, r.db, `SELECT confirmed_id FROM headgate_outbox_state`); id != "E-1" {
		t.Errorf("confirmed is %q", id)
	}
	x.Stop()
	y := r.run(nil)
	emit(t, r.db, 5, 1, "k")
	y.Wait(t, 1)
	if n := len(r.Stored()); n != 5 {
		t.Errorf("%d events are stored", n)
	}
}
