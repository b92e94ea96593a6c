package pgrelay_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

// A commit that need not be durable is seen before it is in the log. A repair does
// not hand it on before, since a crash may take it back.
func TestRepairIsOfDurableCommits(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "wal_writer_delay=10s", "wal_writer_flush_after=0")
	r := newRig(t, server.URL())
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
	ctx := context.Background()
	open := r.connect()
	_, err := open.Exec(ctx, `BEGIN; SELECT headgate.emit('order.placed', '{"n":20}', 'open')`)
	must(t, err)
	r.exec(gaveUp)
	epoch := r.epoch()
	var once sync.Once
	published, crashed := make(chan struct{}), make(chan struct{})
	x = r.Run(r.sourceOf(pgrelay.Config{Beat: 5 * time.Second}), func(c *relay.Config) {
		done := c.Done
		c.Done = func(d relay.Done) {
			done(d)
			if d.Row.Event != nil && d.Row.Event.Key == "late" {
				once.Do(func() { close(published) })
				<-crashed
			}
		}
	})
	r.until("the relay waits for who writes", func() bool { return r.epoch() != epoch && len(pgtest.Exec(t, r.db, pickedUp)) > 0 })
	w := r.connect()
	_, err = w.Exec(ctx, `SET synchronous_commit = off`)
	must(t, err)
	_, err = w.Exec(ctx, lateEvent(11))
	must(t, err)
	must(t, open.Close(ctx))
	<-published
	server.Crash()
	close(crashed)
	server.Restart()
	if rows := pgtest.Exec(t, r.db, `SELECT count(*) FROM headgate.outbox WHERE key = 'late'`)[0][0]; rows != "1" {
		t.Errorf("an event is stored, and %s rows of it are left after the crash", rows)
	}
	x.Stop()
}

// pickedUp finds the relay's look at who still writes.
const pickedUp = `SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_visible_in_snapshot((n +%' AND pid <> pg_backend_pid()`

// Limits that the database sets for its sessions do not end a repair.
func TestRepairKeepsNoLimitsOfTheDatabase(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
	r.exec(`INSERT INTO headgate.outbox (id, role, type, key, data) SELECT 'x' || i, session_user, 'order.placed', 'k', convert_to('{"n":0}', 'UTF8') FROM generate_series(1, 100000) i`)
	r.exec(`UPDATE headgate.relay_state SET proven_snapshot = pg_current_snapshot()`)
	r.emit(11, 20)
	r.exec(gaveUp)
	name := r.connect().Config().Database
	limits := []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"}
	if len(pgtest.Exec(t, r.db, `SELECT FROM pg_settings WHERE name = 'transaction_timeout'`)) > 0 { // since 17
		limits = append(limits, "transaction_timeout")
	}
	for _, limit := range limits {
		r.exec(`ALTER DATABASE ` + name + ` SET ` + limit + ` = '5ms'`)
	}
	x = r.Run(r.sourceOf(pgrelay.Config{Beat: 10 * time.Second}), nil)
	r.until("the repair ends", func() bool { return len(r.Stored()) >= 20 && r.quiet() })
	if n := x.Status().Sessions; n != 1 {
		t.Errorf("%d sessions", n)
	}
	x.Stop()
}

// To look at the whole table may take much longer than a lead lasts: heartbeats do
// not wait for it, neither at a new pass nor at one that goes on.
func TestLeadOutlastsALongLook(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	r.until("all of it is proven", r.allProven)
	x.Stop()
	for n, begun := range []string{``, `
		INSERT INTO headgate.relay_repair (slot, system_id, since, until, seq)
		SELECT slot, system_id, proven_snapshot, pg_current_snapshot(), 0 FROM headgate.relay_state; `} {
		n = 10 * (n + 1)
		r.emit(n+1, n+10)
		r.exec(begun + gaveUp)
		c := r.connect()
		_, err := c.Exec(t.Context(), `BEGIN; LOCK TABLE headgate.outbox_rest`)
		must(t, err)
		x = r.run(nil)
		r.until("the relay waits for the table", func() bool {
			return len(pgtest.Exec(t, r.db, `SELECT FROM pg_locks WHERE relation = 'headgate.outbox_rest'::regclass AND NOT granted`)) == 1
		})
		first := pgtest.Exec(t, r.db, `SELECT beat FROM headgate.relay_state`)[0][0]
		r.until("the lead is renewed", func() bool {
			return pgtest.Exec(t, r.db, `SELECT beat >= `+first+` + 4 FROM headgate.relay_state`)[0][0] == "t" || x.Status().Sessions > 1
		})
		_, err = c.Exec(t.Context(), `COMMIT`)
		must(t, err)
		r.until("all are stored", func() bool { return len(r.Stored()) >= n+10 && r.quiet() })
		if s := x.Status().Sessions; s != 1 {
			t.Errorf("%d sessions", s)
		}
		r.Verify(n + 10)
		x.Stop()
	}
}

// What the relay notes does not wait for a standby that is away: what others see is
// relayed meanwhile, from the log and from the table.
func TestStandbyAwayStopsNoRelay(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := stalling(t, "synchronous_commit=on")
	r := newRigOn(t, database(t, server.url), membroker.New(membroker.Config{}))
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	server.stall()
	defer server.arrive()
	c := r.connect()
	exec := func(sql string) {
		t.Helper()
		_, err := c.Exec(t.Context(), sql)
		must(t, err)
	}
	exec(`SET synchronous_commit = local`)
	for n := 11; n <= 20; n++ {
		exec(lateEvent(n))
	}
	r.until("they are stored and proven", func() bool { return len(r.Stored()) >= 20 && r.allProven() })
	x.Stop()
	for n := 21; n <= 30; n++ {
		exec(lateEvent(n))
	}
	exec(gaveUp)
	x = r.run(nil)
	r.until("they are read from the table", func() bool { return len(r.Stored()) >= 30 && r.quiet() })
	r.Verify(30)
	x.Stop()
}

// asRelay is the rig of a login that may do what a relay needs, and no more.
func (r *rig) asRelay() *rig {
	r.t.Helper()
	cfg := r.connect().Config()
	role := "r" + strings.TrimPrefix(cfg.Database, "t_")
	r.exec(`CREATE ROLE ` + role + ` LOGIN REPLICATION`)
	r.t.Cleanup(func() { pgtest.Exec(r.t, pgtest.URL(r.t), `DROP ROLE `+role) })
	r.t.Cleanup(func() { pgtest.Exec(r.t, pgtest.URL(r.t), `REVOKE headgate_relay FROM `+role) })
	must(r.t, pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{Relay: role}))
	u := *r
	u.db = strings.Replace(r.db, cfg.User+"@", role+"@", 1)
	return &u
}

// Rows that a policy hides from the relay are no rows that are not there: a repair
// that may not see them says so, and goes on when it may.
func TestRowSecurityIsAnError(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	u := r.asRelay()
	x := u.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
	r.exec(`ALTER TABLE headgate.outbox ENABLE ROW LEVEL SECURITY`)
	r.emit(11, 20)
	r.exec(gaveUp)
	x = u.run(nil)
	r.until("the relay says why it cannot", func() bool { return strings.Contains(x.Status().Error, "row-level security") })
	r.exec(`ALTER TABLE headgate.outbox DISABLE ROW LEVEL SECURITY`)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 20 })
	r.Verify(20)
	x.Stop()
}
