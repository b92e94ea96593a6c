package pgrelay_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/topology"
)

// forgetful is a rig whose broker knows an id for no longer than the window.
func forgetful(t *testing.T, cfg membroker.Config) *rig {
	t.Helper()
	r := newRigOn(t, database(t, pgtest.URL(t)), membroker.New(cfg))
	return r
}

// unconfirmed leaves n events stored and not confirmed, and waits until the
// broker has forgotten them.
func (r *rig) unconfirmed(n int) {
	r.t.Helper()
	r.emit(1, n)
	x := r.run(r.mute)
	x.Wait(r.t, n)
	x.Stop()
	last := r.Stored()
	e := last[len(last)-1].Event
	r.until("the broker forgets", func() bool {
		_, known := r.Broker.Known(topology.DefaultStream, e.Source, e.ID)
		return !known
	})
}

// A relay that was away for longer than the broker remembers ids finds in the
// streams what it had submitted before.
func TestTrap03DowntimeBeyondTheWindow(t *testing.T) {
	r := forgetful(t, membroker.Config{DedupeWindow: 300 * time.Millisecond})
	r.unconfirmed(2000)
	r.emit(2001, 2100)
	x := r.run(nil)
	rows := x.Wait(t, 2100)
	r.Verify(2100)
	if s := x.Status(); s.Duplicate != 2000 || s.Stored != 100 {
		t.Errorf("%d rows were known, %d stored; want 2000 and 100", s.Duplicate, s.Stored)
	}
	for _, d := range rows {
		if d.Result.Duplicate && (d.Result.Event == nil || d.Result.Event.ID != d.Row.Event.ID || d.Result.Stream == "") {
			t.Fatalf("the result of a known row is %+v", d.Result)
		}
	}
	// What is read again from the table is known in the same way.
	x.Stop()
	r.exec(`UPDATE headgate.relay_state SET repair = 'a test', proven_snapshot = NULL`)
	x = r.run(nil)
	x.Wait(t, 2100)
	r.Verify(2100)
}

// Without that look the same rows are stored twice: the test above can fail.
func TestTrap03CatchesARelayThatDoesNotLook(t *testing.T) {
	r := forgetful(t, membroker.Config{DedupeWindow: 300 * time.Millisecond})
	r.unconfirmed(100)
	x := r.run(func(c *relay.Config) { c.Broker = nil })
	x.Wait(t, 100)
	if n := len(r.Stored()); n != 200 {
		t.Errorf("%d events are stored, want each of 100 twice", n)
	}
}

// An answer of the broker is lost, and when the row is repeated the broker has
// forgotten that it stored it.
func TestTrap03UnsureBeyondTheWindow(t *testing.T) {
	r := forgetful(t, membroker.Config{DedupeWindow: time.Nanosecond, Faults: &membroker.Faults{Seed: 5, UnknownStored: 0.3, UnknownLost: 0.2}})
	x := r.run(nil)
	for i := range 10 {
		r.emit(i*50+1, i*50+50)
	}
	x.Wait(t, 500)
	r.Verify(500)
	if x.Status().Retried == 0 {
		t.Error("no answer was lost")
	}
}

// An id that another event has is not taken for a repetition, however long ago.
func TestTrap03AnotherEventOfTheSameID(t *testing.T) {
	r := forgetful(t, membroker.Config{DedupeWindow: 300 * time.Millisecond})
	write := func(n string) {
		r.exec(`SELECT headgate.emit_event('one', 'order.placed', '/s', NULL, 'k1', NULL, convert_to('{"n":` + n + `}', 'UTF8'))`)
	}
	write("1")
	x := r.run(r.mute)
	x.Wait(t, 1)
	x.Stop()
	r.until("the broker forgets", func() bool { _, known := r.Broker.Known(topology.DefaultStream, "/s", "one"); return !known })
	write("2")
	x = r.run(nil)
	rows := x.Wait(t, 2)
	if !rows[0].Result.Duplicate || rows[1].QID == "" {
		t.Errorf("the rows ended as %+v and %+v", rows[0].Result, rows[1].Result)
	}
	r.Verify(1)
}
