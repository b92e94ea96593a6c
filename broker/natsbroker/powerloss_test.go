package natsbroker

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
	"github.com/headgate/headgate/internal/powerloss"
)

// childDurability selects the mode of a child's driver.
const childDurability = "HEADGATE_NATSBROKER_CHILD_DURABILITY"

// After a power cut, fsync mode has everything that was acknowledged, at its
// position.
func TestPowerLossSparesWhatWasAcknowledged(t *testing.T) {
	powerloss.Require(t)
	rounds := 3
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds = 100
	}
	dir := t.TempDir()
	acked := map[string]headgate.Position{}
	for round := range rounds {
		report := cutPower(t, dir, round, broker.DurabilityFsync, 3000, acked)
		missing := missingAfter(t, dir, acked)
		if len(missing) != 0 {
			t.Fatalf("round %d: %d of %d acknowledged events are lost, among them %s; cut %+v", round, len(missing), len(acked), missing[0], report)
		}
		t.Logf("round %d: %d acknowledged so far, all there; the cut took %d bytes from %d files and %d whole files", round, len(acked), report.Lost, len(report.Truncated), len(report.Removed))
	}
}

// The same harness on the relaxed mode must find loss: it can.
func TestPowerLossTakesFromRelaxedMode(t *testing.T) {
	powerloss.Require(t)
	dir := t.TempDir()
	acked := map[string]headgate.Position{}
	report := cutPower(t, dir, 0, broker.DurabilityProcess, 3000, acked)
	missing := missingAfter(t, dir, acked)
	if len(missing) == 0 {
		t.Fatalf("nothing of %d acknowledged events was lost without syncing; cut %+v", len(acked), report)
	}
	t.Logf("%d of %d acknowledged events are lost, as the mode says", len(missing), len(acked))
}

// cutPower runs a child until it acknowledged n events, kills it, and takes
// away what was not synced.
func cutPower(t *testing.T, dir string, round int, d broker.Durability, n int, acked map[string]headgate.Position) powerloss.Report {
	t.Helper()
	cmd := selfAsChild(t, dir)
	cmd.Env = brokertest.ChildEnviron(cmd, dir, round)
	cmd.Env = append(cmd.Env, childDurability+"="+string(d))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got := 0
	trace, err := powerloss.Record(ctx, cmd, dir, func(line string) bool {
		id, pos, _ := strings.Cut(line, " ")
		if at, err := headgate.ParsePosition(pos); err == nil {
			acked[id] = at
			got++
		}
		return got < n
	})
	if err != nil {
		t.Fatal(err)
	}
	if d == broker.DurabilityFsync && trace.Syncs == 0 {
		t.Fatal("the trace holds no sync at all")
	}
	report, err := trace.Cut(powerloss.Options{LoseUnsyncedNames: d == broker.DurabilityFsync})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// missingAfter opens what is left and returns the acknowledged events that are
// not there, or not where they were.
func missingAfter(t *testing.T, dir string, acked map[string]headgate.Position) []string {
	t.Helper()
	b := open(t, Config{Dir: dir}, brokertest.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer func() {
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	stored, err := brokertest.StoredBy(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for id, at := range acked {
		if got, ok := stored[id]; !ok || got != at {
			missing = append(missing, id)
		}
	}
	return missing
}
