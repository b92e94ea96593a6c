package relaytest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store/sqlitestore"
)

// Target is one prepared database, with the tables that the writer fills.
type Target struct {
	Place string
	// Points are named points of the source, beside those of the relay.
	Points []string
	// Crash kills the database's server and starts it again; nil when there is
	// no server.
	Crash func()
	// Committed returns kKEY/NUMBER of every business row, Poisoned of those whose
	// events are refused.
	Committed, Poisoned func() []string
	// Rest returns, once no writer lives, what tells how much of the log is not
	// confirmed yet.
	Rest func() func() int64
	// Aside counts the rows that are set aside.
	Aside func() int
}

// Points are the named points of relay.Config.Fault.
func Points() []string {
	return []string{"before publish", "after publish", "before confirm", "after confirm"}
}

// Killing is one run of the harness. Its fields may be changed before the first
// process is started.
type Killing struct {
	Target
	T   testing.TB
	Dir string
	// Variant is what is wrong with the nodes.
	Variant Variant
	// NATS and Prefix name an outside broker, Durability a weaker one.
	NATS, Prefix string
	Durability   broker.Durability
	// Tell makes nodes tell of their relay on their output.
	Tell bool
	// Slow gives the writer a rate far below what it writes, so that most rows are
	// set aside, until it was killed for good.
	Slow bool

	kills                map[string]int
	rng                  *rand.Rand
	node, writer, server *exec.Cmd
}

// NewKilling prepares a run; nothing is started yet. What is started ends with
// the test.
func NewKilling(t testing.TB, target Target) *Killing {
	h := &Killing{T: t, Target: target, Dir: t.TempDir(), kills: map[string]int{}}
	t.Cleanup(func() { h.kill(h.node); h.kill(h.writer); h.kill(h.server) })
	return h
}

// Command returns a process that was not started.
func (h *Killing) Command(what, at string) *exec.Cmd {
	h.T.Helper()
	text, err := json.Marshal(process{
		What: what, Place: h.Place, Dir: h.Dir, At: at, NATS: h.NATS, Prefix: h.Prefix, Durability: h.Durability, Variant: h.Variant, Tell: h.Tell, Slow: h.Slow,
	})
	Must(h.T, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	return cmd
}

func (h *Killing) start(what, at string) *exec.Cmd {
	h.T.Helper()
	cmd := h.Command(what, at)
	cmd.Stderr = Writer{h.T}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Must(h.T, cmd.Start())
	return cmd
}

// StartNode starts the node; at POINT:N it kills itself when it comes to the
// point for the nth time.
func (h *Killing) StartNode(at string) { h.T.Helper(); h.node = h.start("node", at) }

// StartWriter starts the writer.
func (h *Killing) StartWriter() { h.T.Helper(); h.writer = h.start("writer", "") }

// Apart starts a broker in a process of its own, for the nodes to use.
func (h *Killing) Apart() {
	h.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(h.T, err)
	h.NATS = "nats://" + l.Addr().String()
	Must(h.T, l.Close())
	h.StartBroker()
}

// StartBroker starts the broker that is apart and waits until it takes
// connections.
func (h *Killing) StartBroker() {
	h.T.Helper()
	h.server = h.start("broker", "")
	Until(h.T, "the broker takes connections", func() bool {
		c, err := net.Dial("tcp", h.NATS[len("nats://"):])
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

func (h *Killing) kill(cmd *exec.Cmd) {
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // it may have ended by itself, at its named point
	_ = cmd.Wait()         // says that it was killed
}

// KillNode kills the node.
func (h *Killing) KillNode() { h.kill(h.node) }

// KillWriter kills the writer.
func (h *Killing) KillWriter() { h.kill(h.writer) }

// KillBroker kills the broker that is apart.
func (h *Killing) KillBroker() { h.kill(h.server) }

// StallBroker stops the broker that is apart, without ending a connection.
func (h *Killing) StallBroker() {
	h.T.Helper()
	Must(h.T, h.server.Process.Signal(syscall.SIGSTOP))
}

// ResumeBroker lets it go on.
func (h *Killing) ResumeBroker() {
	h.T.Helper()
	Must(h.T, h.server.Process.Signal(syscall.SIGCONT))
}

// Killed reports whether the node, which has ended, was killed and did not fail.
func (h *Killing) Killed() bool {
	status, ok := h.node.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Signal sends the node a signal.
func (h *Killing) Signal(s syscall.Signal) {
	h.T.Helper()
	Must(h.T, h.node.Process.Signal(s))
}

// AwaitEnd waits until the node has killed itself, or kills it.
func (h *Killing) AwaitEnd(most time.Duration) {
	node := h.node
	late := time.AfterFunc(most, func() { _ = node.Process.Kill() }) // it may just have ended
	defer late.Stop()
	_ = node.Wait() // says that it was killed
}

// Listened is a node whose output is read.
type Listened struct {
	h     *Killing
	lines chan string
	last  Told
}

// Listen starts a node that tells.
func (h *Killing) Listen() *Listened {
	h.T.Helper()
	h.Tell = true
	cmd := h.Command("node", "")
	cmd.Stderr = Writer{h.T}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	Must(h.T, err)
	Must(h.T, cmd.Start())
	h.node = cmd
	l := &Listened{h: h, lines: make(chan string, 1000)}
	go func() {
		defer close(l.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			l.lines <- s.Text()
		}
	}()
	return l
}

// Await reads until the node told something.
func (l *Listened) Await(what string, ok func(Told) bool) {
	l.h.T.Helper()
	timeout := time.After(time.Minute)
	for !ok(l.last) {
		select {
		case line, open := <-l.lines:
			if !open {
				l.h.T.Fatalf("the node ended before this: %s; it told %+v", what, l.last)
			}
			if t, is := ReadTold(line); is {
				l.last = t
			}
		case <-timeout:
			l.h.T.Fatalf("in vain: %s; the node told %+v", what, l.last)
		}
	}
}

// Terminate asks the node to end, by SIGTERM, and returns what it told last. It
// fails unless the node ends well.
func (l *Listened) Terminate() Told {
	l.h.T.Helper()
	l.h.Signal(syscall.SIGTERM)
	node := l.h.node
	timeout := time.AfterFunc(time.Minute, func() { _ = node.Process.Kill() }) // then it ends badly
	defer timeout.Stop()
	for line := range l.lines {
		if t, ok := ReadTold(line); ok {
			l.last = t
		}
	}
	if err := node.Wait(); err != nil {
		l.h.T.Fatalf("the node ended badly: %v", err)
	}
	return l.last
}

// once kills one process in one way and starts it again.
func (h *Killing) once() {
	<-time.NewTimer(time.Duration(20+h.rng.IntN(250)) * time.Millisecond).C
	switch way := h.rng.IntN(7); {
	case way == 0 && h.Crash != nil:
		h.kills["database"]++
		h.Crash()
	case way == 1 && h.server != nil:
		h.kills["broker"]++
		h.kill(h.server)
		h.StartBroker()
	case way == 3 && h.server != nil:
		h.kills["node and stalled broker"]++
		h.StallBroker()
		<-time.NewTimer(time.Duration(h.rng.IntN(250)) * time.Millisecond).C
		h.kill(h.node)
		h.kill(h.server) // with what was sent and not read yet
		h.StartBroker()
		h.StartNode("")
	case way <= 2:
		h.kills["writer"]++
		h.kill(h.writer)
		h.StartWriter()
	case way == 3:
		h.kills["node"]++
		h.kill(h.node)
		h.StartNode("")
	default:
		// The node kills itself at a point, or is killed while it gets there.
		all := slices.Concat(Points(), h.Points)
		point := all[h.rng.IntN(len(all))]
		h.kills[point]++
		h.kill(h.node)
		h.StartNode(point + ":" + strconv.Itoa(h.rng.IntN(40)))
		h.AwaitEnd(3 * time.Second)
		h.StartNode("")
	}
}

// LoseNothing kills so many processes and fails unless every promise was kept.
// HEADGATE_KILL_SEED repeats the schedule of a run.
func (h *Killing) LoseNothing(kills int) {
	h.T.Helper()
	seed := uint64(20260101)
	if Campaign() {
		seed = uint64(time.Now().UnixNano())
	}
	if s := os.Getenv("HEADGATE_KILL_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		Must(h.T, err)
	}
	h.T.Logf("seed %d: HEADGATE_KILL_SEED=%d repeats the schedule", seed, seed)
	h.rng = rand.New(rand.NewPCG(seed, 5))
	if h.Slow {
		h.Points = append(h.Points, "before aside", "after aside")
	}
	h.StartNode("")
	h.StartWriter()
	if h.Slow {
		Until(h.T, "rows are set aside", func() bool { return h.Aside() > 50 })
	}
	for range kills {
		h.once()
	}
	v := h.Finish()
	h.T.Logf("%d kills %v: %+v", kills, h.kills, v)
	if v.Committed == 0 || v.Faults() > 0 {
		h.T.Errorf("%+v", v)
	}
}

// Finish kills the writer, waits until the relay has confirmed everything, for
// as long as it gets on, kills the node and compares.
func (h *Killing) Finish() Verdict {
	h.T.Helper()
	h.kill(h.writer)
	rest := h.Rest()
	if h.Slow {
		log := rest
		rest = func() int64 { return log() + int64(h.Aside()) }
		h.T.Logf("%d rows are set aside in the end", h.Aside())
		h.kill(h.node)
		h.Slow = false
		h.StartNode("")
	}
	left := rest()
	since := time.Now()
	for tick := time.NewTicker(50 * time.Millisecond); left > 0; <-tick.C {
		now := rest()
		if now != left {
			left, since = now, time.Now()
		}
		if time.Since(since) > 90*time.Second {
			h.T.Fatalf("the relay does not come to its end: %d are left", left)
		}
	}
	h.kill(h.node)
	return h.Verdict()
}

// Verdict compares what was committed with what the broker and the quarantine
// hold.
type Verdict struct{ Committed, Stored, Kept, Missing, Uncommitted, Twice, Disorder int }

// Faults is how often a promise was broken.
func (v Verdict) Faults() int { return v.Missing + v.Uncommitted + v.Twice + v.Disorder }

// Verdict looks into the broker and the store, which no node may have open.
func (h *Killing) Verdict() Verdict {
	h.T.Helper()
	ctx := context.Background()
	br, err := process{Dir: h.Dir, NATS: h.NATS, Prefix: h.Prefix}.broker(ctx)
	Must(h.T, err)
	defer br.Close(ctx)
	all, err := events(ctx, br)
	Must(h.T, err)
	last := map[string]int{}
	var v Verdict
	var stored []string
	for _, s := range all {
		n, key := Number(h.T, s), s.Event.Key
		if n < last[key] {
			v.Disorder++
		}
		last[key] = n
		stored = append(stored, fmt.Sprint(key, "/", n))
	}
	st, err := sqlitestore.Open(ctx, sqlitestore.Config{Path: filepath.Join(h.Dir, "store.db")})
	Must(h.T, err)
	defer st.Close()
	var kept []string
	for _, k := range records(h.T, st) {
		var d struct{ N string }
		Must(h.T, json.Unmarshal(k.Body, &d))
		kept = append(kept, d.N)
	}
	v.Stored, v.Kept = len(stored), len(kept)
	v.compare(h.Committed(), stored)
	v.compare(h.Poisoned(), kept)
	return v
}

// compare counts what is wrong with what should be there once each.
func (v *Verdict) compare(committed, have []string) {
	v.Committed += len(committed)
	seen := make(map[string]int, len(committed))
	for _, id := range committed {
		seen[id] = 0
	}
	for _, id := range have {
		if _, ok := seen[id]; !ok {
			v.Uncommitted++
		}
		if seen[id]++; seen[id] > 1 {
			v.Twice++
		}
	}
	for _, id := range committed {
		if seen[id] == 0 {
			v.Missing++
		}
	}
}
