package pgrelay_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
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

// The database's clock is off by an hour: order, lead, the lifetime of causal
// tokens and the figures stay as they are.
func TestTrap20ClockSkew(t *testing.T) {
	for _, offset := range []string{"+1h", "-1h"} {
		t.Run(offset, func(t *testing.T) {
			r := newRig(t, skewed(t, offset).URL())
			off := pgtest.Exec(t, r.db, `SELECT round(extract(epoch FROM clock_timestamp() - '`+time.Now().UTC().Format(time.RFC3339)+`'::timestamptz) / 3600)`)[0][0]
			if off != "1" && off != "-1" {
				t.Fatalf("the clock is off by %s h", off)
			}
			orders := *r.Who["headgate"]
			orders.Roots = headgate.RootRight{} // nothing but reactions
			r.Who["headgate"] = &orders
			fresh := r.token(0)
			old := r.token(-90 * time.Minute) // it expired half an hour ago
			first := r.run(func(c *relay.Config) { c.Name = "first" })
			second := r.run(func(c *relay.Config) { c.Name = "second" })
			c := r.connect()
			for i, token := range []string{fresh, old} {
				for _, sql := range []string{
					`BEGIN`, `SELECT headgate.set_cause('` + token + `')`, `SELECT headgate.emit('order.placed', '{"n":` + []string{"1", "99"}[i] + `}', 'k1')`, `COMMIT`,
				} {
					_, err := c.Exec(context.Background(), sql)
					must(t, err)
				}
			}
			r.until("both rows are done", func() bool { return len(first.Wait(t, 0))+len(second.Wait(t, 0)) == 2 })
			leader, standby := first, second
			if second.Status().Leads {
				leader, standby = second, first
			}
			rows := leader.Wait(t, 2)
			if rows[0].QID != "" || rows[1].QID == "" {
				t.Errorf("with a living and with an expired token the rows ended as %+v and %+v", rows[0].Result.Err, rows[1].Result.Err)
			}
			for _, d := range rows {
				if lag := d.At.Sub(d.Row.Committed); lag < -time.Second || lag > time.Minute {
					t.Errorf("from commit to acknowledgement: %v", lag)
				}
			}
			if e := pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0]; e != "1" {
				t.Errorf("the lead changed: epoch %s", e)
			}
			leader.Stop()
			r.exec(`SELECT set_config('headgate.cause', $1, false), headgate.emit('order.placed', '{"n":2}', 'k1')`, fresh)
			standby.Wait(t, 1)
			r.Verify(2)
		})
	}
}

// token returns the causal token of a delivery to the principal orders, minted
// by a node whose clock is off by so much.
func (r *rig) token(off time.Duration) string {
	r.t.Helper()
	r.Mints.Store(int64(off))
	defer r.Mints.Store(0)
	parent := &headgate.Event{ID: "parent" + off.String(), Source: "/s", Type: "order.placed"}
	res, err := r.Causal.Reserve(context.Background(), causal.Request{
		Principal: &headgate.Principal{Name: "root", Kind: headgate.KindHuman, Roots: headgate.RootRight{Allowed: true}}, Type: parent.Type, EventID: parent.ID,
	})
	must(r.t, err)
	res.Commit()
	parent.Header = res.Header
	return r.Causal.Mint(causal.Delivered{Event: parent, Stream: "events", Subscription: "s", Principal: "orders", Attempt: 1})
}
