package pgrelay_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/powerloss"
	"github.com/headgate/headgate/internal/relaytest"
)

// cutPower runs the node under strace while events are written, kills it when
// it has stored enough, takes away what was not synced, and lets another node go
// on with what is left.
func cutPower(t *testing.T, d broker.Durability, rounds int) (relaytest.Verdict, int64) {
	t.Helper()
	powerloss.Require(t)
	h := newKilling(t)
	h.Durability, h.Tell = d, true
	h.StartWriter()
	lost := int64(0)
	for range rounds {
		var last relaytest.Told
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		trace, err := powerloss.Record(ctx, h.Command("node", ""), h.Dir, func(line string) bool {
			told, ok := relaytest.ReadTold(line)
			rose := told.Confirmed > last.Confirmed
			last = told
			return !ok || told.Stored < 400 || !rose
		})
		cancel()
		must(t, err)
		report, err := trace.Cut(powerloss.Options{LoseUnsyncedNames: d != broker.DurabilityProcess})
		must(t, err)
		lost += report.Lost
	}
	h.StartNode("")
	return h.Finish(), lost
}

// The host of the broker loses its power: what the relay had confirmed to the
// database is there.
func TestTrap34PowerLossAtTheBroker(t *testing.T) {
	rounds := 2
	if relaytest.Campaign() {
		rounds = 20
	}
	v, lost := cutPower(t, broker.DurabilityFsync, rounds)
	t.Logf("%+v after %d cuts that took %d bytes", v, rounds, lost)
	if v.Committed == 0 || v.Faults() > 0 {
		t.Errorf("%+v", v)
	}
}

// The same on a broker that does not sync must find loss: it can.
func TestTrap34FindsLossWithoutSyncing(t *testing.T) {
	v, lost := cutPower(t, broker.DurabilityProcess, 1)
	t.Logf("%+v; the cut took %d bytes", v, lost)
	if v.Missing == 0 {
		t.Error("nothing was lost without syncing")
	}
}
