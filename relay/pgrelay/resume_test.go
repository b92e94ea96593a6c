package pgrelay_test

import (
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
)

// progress is before which number a repair that is under way is done; 0: nothing
// is known.
func (r *rig) progress() int {
	r.t.Helper()
	rows := pgtest.Exec(r.t, r.db, `SELECT seq FROM headgate.relay_repair`)
	if len(rows) == 0 {
		return 0
	}
	return atoi(rows[0][0])
}

// breakOff begins a repair of the whole table, lets a part of it be done, and
// ends it as a kill does. What was written since is not in its first pass.
func (r *rig) breakOff(n int, wrap func(relay.Source) relay.Source) (done int) {
	r.t.Helper()
	r.exec(`UPDATE headgate.relay_state SET repair = 'a test', proven_snapshot = NULL`)
	var count atomic.Int64
	g := newGate(r.Door)
	x := r.Run(wrap(r.source()), func(c *relay.Config) {
		c.Drain, c.Admit = 1, g
		c.Done = func(relay.Done) { count.Add(1) }
	})
	<-g.entered
	r.emit(n+1, n+100)
	g.lift()
	r.until("a part of the repair is done", func() bool { return r.progress() > 0 })
	x.Stop()
	r.emit(n+101, n+200)
	return int(count.Load())
}

// A repair that is broken off goes on where it was; what was written meanwhile
// comes behind it.
func TestRepairGoesOnWhereItWasBrokenOff(t *testing.T) {
	const rows = 30_000
	r := newRig(t, pgtest.URL(t))
	r.emit(1, rows)
	done := r.breakOff(rows, relaytest.HastyEnd)
	at := r.progress()
	t.Logf("of %d rows %d were done and %d noted when the repair was broken off", rows, done, at-1)
	if at > done+1 || done == rows {
		t.Errorf("%d rows are noted, %d were done", at-1, done)
	}
	x := r.run(nil)
	r.until("the stream is back", r.quiet)
	x.Wait(t, rows+200-at+1)
	x.Stop()
	r.Verify(rows + 200)
	if s := x.Status(); int(s.Stored+s.Duplicate) != rows+200-at+1 {
		t.Errorf("the second relay did %d rows, want the %d that are left", s.Stored+s.Duplicate, rows+200-at+1)
	}
	if r.progress() != 0 {
		t.Error("the progress of a repair that has ended is kept")
	}
}

// Progress that is noted before the broker has the rows loses them: the test
// above looks at the right thing.
func TestRepairCatchesProgressTooEarly(t *testing.T) {
	const rows, inFlight = 12_000, 6_000
	r := newRig(t, pgtest.URL(t))
	r.emit(1, rows)
	r.exec(`UPDATE headgate.relay_state SET repair = 'a test', proven_snapshot = NULL`)
	g := newGate(r.Door)
	x := r.Run(relaytest.TooEarly(relaytest.HastyEnd(r.source())), func(c *relay.Config) { c.Drain, c.Admit, c.InFlight = 1, g, inFlight })
	r.until("a part of the repair is noted", func() bool { return r.progress() > 0 })
	x.Stop()
	x = r.run(nil)
	r.until("the stream is back", r.quiet)
	if n := len(r.Stored()); n == rows {
		t.Error("nothing is missing: the test sees nothing")
	}
	x.Stop()
}

// What another server had proven says nothing of this one's rows, also when the
// first repair after a move was broken off: its transactions have numbers that
// come again.
func TestRepairAfterAMoveIsBrokenOff(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
	r.emit(11, 20)
	r.exec(`UPDATE headgate.relay_state SET system_id = 'another', proven_snapshot = pg_current_snapshot()`)
	g := newGate(r.Door)
	x = r.Run(relaytest.HastyEnd(r.source()), func(c *relay.Config) { c.Drain, c.Admit = 1, g })
	<-g.entered
	x.Stop()
	if n := len(r.Stored()); n != 10 {
		t.Fatalf("%d events are stored before the second session", n)
	}
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slotName()) // nothing comes from the log
	x = r.run(nil)
	r.until("the stream is back", r.quiet)
	x.Stop()
	r.Verify(20)
}
