package pgrelay_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/powerloss"
)

// cutPower runs the node under strace while events are written, kills it when
// it has stored enough, takes away what was not synced, and lets another node go
// on with what is left.
func cutPower(t *testing.T, d broker.Durability, rounds int) (verdict, int64) {
	t.Helper()
	powerloss.Require(t)
	h := newKilling(t)
	h.durability = string(d)
	t.Setenv("HEADGATE_KILL_TELL", "1")
	h.writer = h.start("writer", "")
	t.Cleanup(func() { h.kill(h.writer) })
	lost := int64(0)
	for range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := h.command("node", "")
		cmd.Stderr = nil // strace's
		trace, err := powerloss.Record(ctx, cmd, h.dir, func(line string) bool {
			var confirmed, stored uint64
			_, err := fmt.Sscan(line, &confirmed, &stored)
			return err != nil || stored < 400
		})
		cancel()
		must(t, err)
		report, err := trace.Cut(powerloss.Options{LoseUnsyncedNames: d != broker.DurabilityProcess})
		must(t, err)
		lost += report.Lost
	}
	h.startNode("")
	t.Cleanup(func() { h.kill(h.node) })
	h.finish()
	return h.verdict(), lost
}

// The host of the broker loses its power: what the relay had confirmed to the
// database is there.
func TestTrap34PowerLossAtTheBroker(t *testing.T) {
	rounds := 2
	if campaign() {
		rounds = 20
	}
	v, lost := cutPower(t, broker.DurabilityFsync, rounds)
	t.Logf("%+v after %d cuts that took %d bytes", v, rounds, lost)
	if v.committed == 0 || v.faults() > 0 {
		t.Errorf("%+v", v)
	}
}

// The same on a broker that does not sync must find loss: it can.
func TestTrap34FindsLossWithoutSyncing(t *testing.T) {
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		t.Log("as in the short form")
	}
	v, lost := cutPower(t, broker.DurabilityProcess, 1)
	t.Logf("%+v; the cut took %d bytes", v, lost)
	if v.missing == 0 {
		t.Error("nothing was lost without syncing")
	}
}
