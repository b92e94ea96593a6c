package pgrelay_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5/pgconn"
)

// stranger returns a connection of a login that has no right in the database
// but to connect.
func (r *rig) stranger() *pgconn.PgConn {
	r.t.Helper()
	ctx := context.Background()
	cfg := r.connect().Config().Config.Copy()
	role := "x" + strings.TrimPrefix(cfg.Database, "t_")
	r.exec(`CREATE ROLE ` + role + ` LOGIN`)
	r.t.Cleanup(func() { pgtest.Exec(r.t, pgtest.URL(r.t), `DROP ROLE `+role) })
	cfg.User = role
	c, err := pgconn.ConnectConfig(ctx, cfg)
	must(r.t, err)
	r.t.Cleanup(func() { _ = c.Close(ctx) })
	return c
}

// Every login may write messages of any prefix into the log. What only looks
// like a heartbeat neither ends the session, nor holds it up, nor proves
// anything: behind it the slot is dropped, and the repair brings every row.
func TestForgedHeartbeatsProveNothing(t *testing.T) {
	for name, forged := range map[string]string{
		"a snapshot that cannot be read": `"beat":7,"snapshot":"nonsense"`,
		"the mark of a repair":           `"beat":-1,"snapshot":"1:1:"`,
		"a snapshot of the future":       `"beat":7,"snapshot":"1:99999999:"`,
		"a beat that is never reached":   fmt.Sprintf(`"beat":%d,"snapshot":"1:1:"`, math.MaxInt64),
		"no heartbeat at all":            `"beat":{}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			slot := pgtest.Exec(t, r.db, `SELECT slot FROM headgate.installation`)[0][0]
			state := func(sql string) string { return pgtest.Exec(t, r.db, `SELECT `+sql+` FROM headgate.relay_state`)[0][0] }
			evil := r.stranger()
			forge := func() {
				t.Helper()
				for nth := range 30 {
					epoch := 1 + nth%3
					_, err := evil.Exec(context.Background(), fmt.Sprintf(`SELECT pg_logical_emit_message(true, 'headgate.beat', '{"slot":"%s","epoch":%d,"nth":%d,"token":"","at":0,%s}')`, slot, epoch, nth, forged)).ReadAll()
					must(t, err)
				}
			}
			forge() // before there is a relay
			x := r.run(nil)
			r.emit(1, 10)
			x.Wait(t, 10)
			forge() // while it reads
			r.emit(11, 20)
			x.Wait(t, 20)
			beat := state(`beat`)
			r.until("heartbeats are proven", func() bool { return state(fmt.Sprintf(`proven_beat > %s`, beat)) == "t" })
			if got := state(`proven_beat <= beat AND pg_snapshot_xmax(proven_snapshot) <= pg_snapshot_xmax(pg_current_snapshot())`); got != "t" {
				t.Errorf("proven is what the relay never saw: %s", state(`proven_beat || ' ' || proven_snapshot`))
			}
			if s := x.Status(); s.Sessions != 1 {
				t.Errorf("%d sessions were needed", s.Sessions)
			}
			x.Stop()
			r.emit(21, 30)
			forge()
			r.exec(`SELECT pg_drop_replication_slot($1)`, slot)
			r.emit(31, 40)
			r.run(nil)
			r.until("the repair ends", func() bool {
				s, err := pgrelay.Inspect(context.Background(), r.db)
				must(t, err)
				return len(r.Stored()) == 40 && s.Repair == "" && s.Active
			})
			r.Verify(40)
		})
	}
}

// A database whose proven snapshot was forged before it was known to be possible
// is repaired from the whole table.
func TestProvenSnapshotOfTheFutureIsNone(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
	r.exec(`UPDATE headgate.relay_state SET proven_snapshot = '1:99999999:', proven_beat = 9223372036854775807`)
	r.until("the slot is free", func() bool {
		return pgtest.Exec(t, r.db, `SELECT active FROM pg_replication_slots JOIN headgate.installation ON slot = slot_name`)[0][0] == "f"
	})
	r.exec(`SELECT pg_drop_replication_slot(slot) FROM headgate.installation`)
	r.emit(11, 20)
	r.run(nil)
	r.until("all are stored", func() bool { return len(r.Stored()) == 20 })
	r.until("the number is the relay's again", func() bool {
		return pgtest.Exec(t, r.db, `SELECT proven_beat <= beat FROM headgate.relay_state`)[0][0] == "t"
	})
	r.Verify(20)
}

// Init may take the right to write messages from everybody but the relay.
func TestRelayRunsWhereNobodyElseWritesMessages(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	ctx := context.Background()
	cfg := r.connect().Config()
	role := "m" + strings.TrimPrefix(cfg.Database, "t_")
	r.exec(`CREATE ROLE ` + role + ` LOGIN REPLICATION`)
	t.Cleanup(func() { pgtest.Exec(t, pgtest.URL(t), `DROP ROLE `+role) })
	t.Cleanup(func() { pgtest.Exec(t, pgtest.URL(t), `REVOKE headgate_relay FROM `+role) })
	must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Relay: role, Harden: true}))
	if _, err := r.stranger().Exec(ctx, `SELECT pg_logical_emit_message(true, 'headgate.beat', 'x')`).ReadAll(); err == nil {
		t.Error("a stranger writes messages")
	}
	src, err := pgrelay.New(pgrelay.Config{URL: strings.Replace(r.db, cfg.User+"@", role+"@", 1), Beat: 500 * time.Millisecond, Log: r.Log()})
	must(t, err)
	x := r.run(func(c *relay.Config) { c.Source = src })
	r.emit(1, 10)
	x.Wait(t, 10)
	r.until("heartbeats are proven", func() bool {
		return pgtest.Exec(t, r.db, `SELECT proven_beat > 1 FROM headgate.relay_state`)[0][0] == "t"
	})
	x.Stop()
}
