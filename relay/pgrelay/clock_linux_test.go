package pgrelay_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

const fakeTime = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

// skewed starts a server whose clock is off.
func skewed(t *testing.T, offset string) *pgtest.Cluster {
	t.Helper()
	if _, err := os.Stat(fakeTime); err != nil {
		t.Fatalf("the package faketime is needed: %v", err)
	}
	for name, value := range map[string]string{"LD_PRELOAD": fakeTime, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"} {
		t.Setenv(name, value) // for the server; this process is not affected any more
	}
	return pgtest.Start(t, "wal_level=logical")
}

// Clocks are off by an hour: the database's, the nodes', those of two nodes
// against each other, those of programs that write. Order, lead, the lifetime of
// causal tokens and the figures stay as they are. The tokens of a node are judged
// by a node with its clock: they are the one thing that nodes must agree on.
func TestTrap20ClockSkew(t *testing.T) {
	for name, c := range map[string]struct {
		database    string
		nodes, next time.Duration // next is how far the standby's clock is from the leader's
	}{
		"database ahead":               {"+1h", 0, 0},
		"database behind":              {"-1h", 0, 0},
		"nodes behind, database ahead": {"+1h", -time.Hour, 0},
		"standby two hours ahead":      {"", -time.Hour, 2 * time.Hour},
		"standby two hours behind":     {"", time.Hour, -2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.URL(t)
			if c.database != "" {
				server = skewed(t, c.database).URL()
			}
			clockSkew(t, newRig(t, server), c.nodes, c.next)
		})
	}
}

func clockSkew(t *testing.T, r *rig, nodes, next time.Duration) {
	t.Helper()
	orders := *r.Who["headgate"]
	orders.Roots = headgate.RootRight{} // nothing but reactions
	r.Who["headgate"] = &orders
	r.Mints.Store(int64(nodes))
	fresh := r.token(nodes)
	old := r.token(nodes - 90*time.Minute) // it expired half an hour ago
	start := func(name string, off time.Duration) *relaytest.Running {
		now := func() time.Time { return time.Now().Add(off) }
		return r.Run(r.sourceOf(pgrelay.Config{Beat: time.Second, Now: now}), func(c *relay.Config) { c.Name, c.Now = name, now })
	}
	first := start("first", nodes)
	r.until("the first leads", func() bool { return first.Status().Leads })
	second := start("second", nodes+next)
	c := r.connect()
	write := func(token, sql string, args ...any) {
		t.Helper()
		tx, err := c.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), `SELECT headgate.set_cause($1)`, token)
		must(t, err)
		_, err = tx.Exec(t.Context(), sql, args...)
		must(t, err)
		must(t, tx.Commit(t.Context()))
	}
	write(fresh, `SELECT headgate.emit('order.placed', '{"n":1}', 'k1')`)
	write(old, `SELECT headgate.emit('order.placed', '{"n":99}', 'k1')`)
	rows := first.Wait(t, 2)
	if rows[0].QID != "" || rows[1].QID == "" {
		t.Errorf("with a living and with an expired token the rows ended as %+v and %+v", rows[0].Result.Err, rows[1].Result.Err)
	}
	// Programs with clocks of their own name times and ids made of times.
	for i, off := range []time.Duration{time.Hour, -time.Hour, 0} {
		at := time.Now().Add(off).UTC()
		write(fresh, `SELECT headgate.emit_event($1, 'order.placed', '/app', NULL, 'k1', jsonb_build_object('time', $2::text), convert_to(jsonb_build_object('n', $3::int)::text, 'UTF8'))`,
			fmt.Sprintf("%012x", at.UnixMilli()), at.Format(time.RFC3339), i+2)
	}
	for _, d := range first.Wait(t, 5) {
		if lag := d.At.Sub(d.Row.Committed); lag < -time.Second || lag > time.Minute {
			t.Errorf("from commit to acknowledgement: %v", lag)
		}
	}
	state := func() (epoch, beat int) {
		row := pgtest.Exec(t, r.db, `SELECT epoch, beat FROM headgate.relay_state`)[0]
		return atoi(row[0]), atoi(row[1])
	}
	_, beat := state()
	r.until("heartbeats go on for longer than a standby waits", func() bool { _, now := state(); return now > beat+3 })
	if epoch, _ := state(); epoch != 1 || second.Status().Leads {
		t.Errorf("the lead changed: epoch %d", epoch)
	}
	first.Stop()
	// A token lives by the clock of the node that made it: the second makes one.
	r.Mints.Store(int64(nodes + next))
	write(r.token(nodes+next), `SELECT headgate.emit('order.placed', '{"n":5}', 'k1')`)
	for _, d := range second.Wait(t, 1) {
		if lag := d.At.Sub(d.Row.Committed); lag < -time.Second || lag > time.Minute {
			t.Errorf("from commit to acknowledgement by the second: %v", lag)
		}
	}
	r.Verify(5)
}

// token returns the causal token of a delivery to the principal orders, minted
// by a node whose clock is off by so much.
func (r *rig) token(off time.Duration) string {
	r.t.Helper()
	defer r.Mints.Store(r.Mints.Swap(int64(off)))
	parent := &headgate.Event{ID: fmt.Sprint("parent", off, time.Now().UnixNano()), Source: "/s", Type: "order.placed"}
	res, err := r.Causal.Reserve(context.Background(), causal.Request{
		Principal: &headgate.Principal{Name: "root", Kind: headgate.KindHuman, Roots: headgate.RootRight{Allowed: true}}, Type: parent.Type, EventID: parent.ID,
	})
	must(r.t, err)
	res.Commit()
	parent.Header = res.Header
	return r.Causal.Mint(causal.Delivered{Event: parent, Stream: "events", Subscription: "s", Principal: "orders", Attempt: 1})
}
