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

// The leader's network swallows everything without a word. Another relay takes
// over, the first submits nothing more, and when its network speaks again it
// waits like any other.
func TestTrap18HalfOpenNetwork(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical")
	r := newRig(t, server.URL())
	w, through := newWire(t, r.db)
	src, err := pgrelay.New(pgrelay.Config{URL: through, Beat: 500 * time.Millisecond, Log: r.Log()})
	must(t, err)
	first := r.run(func(c *relay.Config) { c.Source = src; c.Name = "first" })
	r.emit(1, 10)
	first.Wait(t, 10)
	second := r.run(func(c *relay.Config) { c.Name = "second" })
	w.hush()
	r.emit(11, 20)
	r.until("the second relays", func() bool { return len(r.Stored()) >= 20 })
	r.Verify(20)
	if n := len(first.Wait(t, 0)); n != 10 {
		t.Errorf("the relay without a network did %d rows", n)
	}
	r.until("the first knows that it does not lead", func() bool { return !first.Status().Leads })
	w.speak()
	r.emit(21, 30)
	r.until("the second goes on", func() bool { return len(r.Stored()) >= 30 })
	second.Stop()
	r.emit(31, 40)
	r.until("the first relays again", func() bool { return len(r.Stored()) >= 40 })
	r.Verify(40)
}

// A process that leads is stopped in the middle of its work, another takes over,
// and the first goes on later: what it had in hand are ids that the broker
// knows.
func TestTrap17StoppedProcess(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical")
	br, prefix := outsideNATS(t, natsURL(t))
	r := newRigOn(t, server.URL(), br)
	h := relaytest.NewKilling(t, relaytest.Target{Place: r.db})
	h.NATS, h.Prefix = natsURL(t), prefix
	h.StartNode("")
	writing := r.write()
	r.until("the process relays", func() bool { return len(r.Stored()) > 100 })
	h.Signal(syscall.SIGSTOP)
	x := r.run(nil)
	x.Wait(t, 200)
	h.Signal(syscall.SIGCONT)
	x.Wait(t, 600)
	n := writing.end()
	r.until("all are stored", func() bool { return len(r.Stored()) >= n })
	r.Verify(n)
	if e := pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0]; e != "2" {
		t.Errorf("the epoch is %s, want 2: one take-over", e)
	}
}
