package brokertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// ChildEnv names the environment variable that holds, in a child process, the
// folder of the store to publish to.
const ChildEnv = "HEADGATE_BROKERTEST_CHILD"

// roundEnv numbers the lives of a child, so that its ids never repeat.
const roundEnv = "HEADGATE_BROKERTEST_ROUND"

func testCrash(t *testing.T, h Harness) {
	tests := map[string]func(*testing.T, *bench){"SIGKILL in a loop": sigkill}
	if h.Cut != nil {
		tests["connections are cut"] = cutConnections
	}
	cases(t, h, tests)
}

// ChildMain publishes to the broker for ever, from several goroutines, and
// prints a line for each acknowledgement once it came: the id and the
// position. A driver's TestMain calls it when [ChildEnv] is set.
func ChildMain(b broker.Broker, out io.Writer) error {
	ctx := context.Background()
	if _, err := b.Ensure(ctx, []broker.StreamSpec{{Name: stream, Partitions: 3}}); err != nil {
		return err
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		fault error
	)
	for w := range 6 {
		wg.Go(func() {
			for n := 0; ; n++ {
				size := 1
				if w >= 3 {
					size = 1 + (n*13)%200
				}
				events := eventsOf(size, fmt.Sprintf("%s/%d/%d", os.Getenv(roundEnv), w, n), fmt.Sprint(n%11))
				results, err := b.Publish(ctx, stream, events)
				var lines strings.Builder
				for i, r := range results {
					if r.Outcome == broker.OutcomeStored {
						fmt.Fprintf(&lines, "%s %s\n", events[i].ID, r.Position)
					} else {
						err = fmt.Errorf("%s: %w", r.Outcome, r.Err)
					}
				}
				mu.Lock()
				if err == nil {
					_, err = io.WriteString(out, lines.String())
				}
				if err != nil {
					fault = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return fault
}

// ChildEnviron returns the environment in which a driver's test binary runs
// [ChildMain] on the store. Rounds number the lives of one store's children.
func ChildEnviron(cmd *exec.Cmd, dir string, round int) []string {
	return append(cmd.Environ(), ChildEnv+"="+dir, fmt.Sprintf("%s=%d", roundEnv, round))
}

// StoredBy returns the position of every event that children of [ChildMain]
// stored and that is still there, by id. It is an error when offsets have gaps
// or an id is there twice.
func StoredBy(ctx context.Context, b broker.Broker) (map[string]headgate.Position, error) {
	if _, err := b.Ensure(ctx, []broker.StreamSpec{{Name: stream, Partitions: 3}}); err != nil {
		return nil, err
	}
	all, err := readAll(ctx, b)
	if err != nil {
		return nil, err
	}
	at := map[string]headgate.Position{}
	for _, part := range all {
		for _, s := range part {
			at[s.Event.ID] = s.Position
		}
	}
	return at, nil
}

func sigkill(t *testing.T, b *bench) {
	if b.h.Child == nil {
		b.open(1)
		if b.b.Caps().Durability == broker.DurabilityMemory {
			return // nothing survives, nothing to kill
		}
		t.Fatal("the driver claims durability, the harness has no child")
	}
	rounds := 6
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds = 60
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	acked := map[string]headgate.Position{}
	for round := range rounds {
		before := len(acked)
		b.liveAndDie(round, 200+rng.IntN(4000), acked)
		b.open(3)
		b.checkAcked(acked)
		if round == 0 || round == rounds-1 {
			b.checkRemembered(acked)
		}
		b.close()
		t.Logf("round %d: %d acknowledged before the kill", round, len(acked)-before)
	}
}

// liveAndDie runs a child until it acknowledged n events, kills it, and adds
// what it acknowledged.
func (b *bench) liveAndDie(round, n int, acked map[string]headgate.Position) {
	b.t.Helper()
	cmd := b.h.Child(b.t, b.dir)
	cmd.Env = ChildEnviron(cmd, b.dir, round)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	lines, killed := bufio.NewScanner(out), false
	for got := 0; lines.Scan(); got++ {
		// Lines that were in the pipe when it died count: they were printed
		// after the acknowledgement.
		id, pos, _ := strings.Cut(lines.Text(), " ")
		at, err := headgate.ParsePosition(pos)
		if err != nil {
			if killed {
				break // the last line may be cut off
			}
			b.t.Fatalf("child printed %q", lines.Text())
		}
		acked[id] = at
		if got == n {
			killed = true
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if !killed {
		b.t.Fatalf("the child ended by itself:\n%s", stderr.String())
	}
}

// checkAcked compares what is stored with what was acknowledged: stored holds
// every acknowledged event at its position, without gaps or doubles.
func (b *bench) checkAcked(acked map[string]headgate.Position) {
	b.t.Helper()
	stored := map[string]headgate.Position{}
	for _, part := range b.stored() {
		for _, s := range part {
			stored[s.Event.ID] = s.Position
		}
	}
	for id, at := range acked {
		if got, ok := stored[id]; !ok {
			b.t.Fatalf("%s was acknowledged at %s and is lost (%d acknowledged, %d stored)", id, at, len(acked), len(stored))
		} else if got != at {
			b.t.Fatalf("%s was acknowledged at %s and is at %s", id, at, got)
		}
	}
}

func (b *bench) checkRemembered(acked map[string]headgate.Position) {
	b.t.Helper()
	if !b.b.Caps().DedupeSurvivesRestart {
		return
	}
	for id, at := range acked {
		key := "" // any key: the id alone decides
		results, err := b.b.Publish(b.ctx(), stream, []*headgate.Event{event(id, key)})
		if err != nil {
			b.t.Fatal(err)
		}
		wantDuplicate(b.t, results[0], at)
	}
}

// The connection is cut again and again while events are published: every
// outcome is Stored, Duplicate, Throttled or Unknown, and after repeating the
// open ones every event is there once.
func cutConnections(t *testing.T, b *bench) {
	drv := b.open(3)
	r := b.subscribe(broker.SubscribeSpec{})
	const publishers, calls, each = 4, 60, 20
	var wg sync.WaitGroup
	progress := make(chan struct{})
	for p := range publishers {
		wg.Go(func() {
			for n := range calls {
				progress <- struct{}{}
				b.untilStored(drv, eventsOf(each, fmt.Sprintf("cut-%d-%d", p, n), fmt.Sprint(p)))
			}
		})
	}
	for i := range publishers * calls {
		<-progress
		if i%20 == 19 {
			b.h.Cut(t, drv)
		}
	}
	wg.Wait()
	total := 0
	for _, part := range b.stored() {
		total += len(part)
	}
	if want := publishers * calls * each; total != want {
		t.Errorf("%d events stored, want %d", total, want)
	}
	seen := map[headgate.Position]bool{}
	for len(seen) < total {
		ds, err := r.sub.Receive(b.ctx(), 100)
		if err != nil {
			t.Fatalf("receive after %d of %d: %v", len(seen), total, err)
		}
		for _, d := range ds {
			seen[d.Position] = true
		}
		r.settle(broker.Ack, 0, ds...)
	}
}

// untilStored repeats a call until every event is stored, as a client would.
func (b *bench) untilStored(drv broker.Broker, events []*headgate.Event) {
	for len(events) > 0 {
		if b.ctx().Err() != nil {
			return
		}
		results, err := drv.Publish(b.ctx(), stream, events)
		if err != nil {
			b.t.Errorf("publish: %v", err)
			return
		}
		var open []*headgate.Event
		for i, r := range results {
			switch r.Outcome {
			case broker.OutcomeStored, broker.OutcomeDuplicate:
			case broker.OutcomeUnknown, broker.OutcomeThrottled:
				open = append(open, events[i])
			default:
				b.t.Errorf("a cut connection made an event %s: %v", r.Outcome, r.Err)
			}
		}
		events = open
	}
}
