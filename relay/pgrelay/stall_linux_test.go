package pgrelay_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

func signal(t *testing.T, pid string, sig syscall.Signal) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	must(t, err)
	must(t, syscall.Kill(n, sig))
}

// A server process that stops without ending its connection is noticed by the
// heartbeats that do not come back; when it goes on, so does the relay.
func TestTrap38SilentStall(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "wal_sender_timeout=0")
	r := newRig(t, server.URL())
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	pid := pgtest.Exec(t, r.db, `SELECT active_pid FROM pg_replication_slots`)[0][0]
	signal(t, pid, syscall.SIGSTOP)
	defer func() { _ = syscall.Kill(atoi(pid), syscall.SIGCONT) }() // it may have ended
	r.emit(11, 20)
	r.until("the stall is told", func() bool {
		s := x.Status()
		return !s.Leads && strings.Contains(s.Error, "the log stands still")
	})
	signal(t, pid, syscall.SIGCONT)
	// Rows that were not confirmed come again, so that done ones say nothing.
	r.until("all are stored", func() bool { return len(r.Stored()) >= 20 })
	r.Verify(20)
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // 0 is not signalled
	return n
}

// The network of the leader's host swallows everything without a word: nothing
// says that the host is gone. Another relay takes over as soon as a lead is over,
// the first submits nothing more, and when its network speaks again it waits
// like any other.
func TestTrap18HalfOpenNetwork(t *testing.T) {
	t.Parallel() // it has a server of its own
	const beat = time.Second
	server := pgtest.Start(t, "wal_level=logical")
	br, prefix := outsideNATS(t, natsURL(t))
	r := newRigOn(t, server.URL(), br)
	w, through := newWire(t, r.db)
	h := relaytest.NewKilling(t, relaytest.Target{Place: through})
	h.NATS, h.Prefix = natsURL(t), prefix
	first := h.Listen()
	r.emit(1, 10)
	first.Await("it relays", func(t relaytest.Told) bool { return t.Stored == 10 })
	second := r.Run(r.sourceOf(pgrelay.Config{Beat: beat}), func(c *relay.Config) { c.Name = "second" })
	r.until("the second waits", func() bool {
		return pgtest.Exec(t, r.db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`)[0][0] == "1"
	})
	w.hush()
	gone := time.Now()
	r.emit(11, 20)
	r.until("the second relays", func() bool { return len(r.Stored()) >= 20 })
	took := second.Status().Since.Sub(gone)
	bound := 3*beat + 10*time.Second // of a machine that is busy with other tests
	if relaytest.Campaign() {
		bound = 3*beat + 2*time.Second
	}
	if t.Logf("it took over after %v; a lead lasts %v", took, 3*beat); took > bound {
		t.Errorf("it took over after %v, want at most %v", took, bound)
	}
	r.Verify(20)
	first.Await("the first knows that it does not lead", func(t relaytest.Told) bool { return !t.Leads })
	w.speak()
	r.emit(21, 30)
	r.until("the second goes on", func() bool { return len(r.Stored()) >= 30 })
	if s := second.Status(); s.Stored != 20 || s.Duplicate != 0 {
		t.Errorf("the second stored %d events, and %d were known: the first stored some", s.Stored, s.Duplicate)
	}
	second.Stop()
	r.emit(31, 40)
	first.Await("the first relays again", func(t relaytest.Told) bool { return t.Leads && t.Stored == 20 })
	r.Verify(40)
}

// A process that leads is stopped in the middle of its work, another takes over,
// and the first goes on later: nothing is stored that it submits then.
func TestTrap17StoppedProcess(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical")
	br, prefix := outsideNATS(t, natsURL(t))
	r := newRigOn(t, server.URL(), br)
	h := relaytest.NewKilling(t, relaytest.Target{Place: r.db})
	h.NATS, h.Prefix = natsURL(t), prefix
	zombie := h.Listen()
	writing := r.write()
	zombie.Await("it is in the middle of its work", func(t relaytest.Told) bool { return t.Leads && t.Stored > 100 })
	h.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	g := newGate(r.Door)
	x := r.Run(r.sourceOf(pgrelay.Config{Beat: time.Second}), func(c *relay.Config) { c.Admit, c.InFlight = g, 1000 })
	<-g.entered
	before := map[string]bool{} // what it had stored, and all that was on its way
	for _, s := range r.Stored() {
		before[s.Event.ID] = true
	}
	g.lift()
	x.Wait(t, 600)
	if relaytest.Campaign() {
		r.until("half a minute has passed", func() bool { return time.Since(stopped) > 30*time.Second })
	}
	h.Signal(syscall.SIGCONT)
	zombie.Await("it knows that it does not lead", func(t relaytest.Told) bool { return !t.Leads })
	h.KillNode() // or it would lead again when the second stops
	n := writing.end()
	r.until("all are stored", func() bool { return len(r.Stored()) >= n })
	x.Stop()
	r.Verify(n)
	if s := x.Status(); len(before)+int(s.Stored) != n {
		t.Errorf("%d events were stored when the first was stopped, %d by the second, and %d in the end: the first stored the others", len(before), s.Stored, n)
	}
	if len(before) <= 100 || len(before) >= n {
		t.Errorf("%d of %d events were stored when the first was stopped", len(before), n)
	}
	if e := pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0]; e != "2" {
		t.Errorf("the epoch is %s, want 2: one take-over", e)
	}
}
