package pgrelay_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
)

// A standby of PostgreSQL 17 keeps the relay's slot, which init made so. After
// its promotion the relay goes on with that very slot, and what was committed is
// stored once. Older servers have no such slots, which [TestTrap32Failover] is
// about.
func TestStandbyKeepsTheSlot(t *testing.T) {
	t.Parallel() // it has servers of its own
	primary := pgtest.Start(t, "wal_level=logical", "max_wal_senders=10")
	r, w := behind(t, primary)
	kept := func(url string) string {
		rows := pgtest.Exec(t, url, `SELECT coalesce(to_jsonb(s) ->> 'failover', 'false') || ' ' || coalesce(to_jsonb(s) ->> 'synced', 'false') || ' ' || temporary
			FROM pg_replication_slots s WHERE slot_type = 'logical'`)
		if len(rows) != 1 {
			return ""
		}
		return rows[0][0]
	}
	if pgtest.Version(t, primary.URL()) < 17 {
		if got := kept(primary.URL()); got != "false false false" {
			t.Errorf("the slot is %s", got)
		}
		return
	}
	pgtest.Exec(t, primary.URL(), `SELECT pg_create_physical_replication_slot('standby', true)`)
	if f := r.finding(r.db, "no standby keeps the slot"); f != nil {
		t.Errorf("the doctor says %+v", f)
	}
	x := r.run(nil)
	r.emit(1, 50)
	x.Wait(t, 50)
	x.Stop()
	primary.Stop()
	standby := primary.Clone(false)
	primary.Set("synchronized_standby_slots=standby")
	primary.Restart()
	u, err := url.Parse(primary.URL())
	must(t, err)
	standby.Set("primary_conninfo=host=127.0.0.1 port=" + u.Port() + " user=headgate dbname=postgres")
	standby.Set("primary_slot_name=standby")
	standby.Set("hot_standby_feedback=on")
	standby.Set("sync_replication_slots=on")
	standby.Demote()
	standby.Restart()
	x = r.run(nil)
	r.emit(51, 80)
	x.Wait(t, 30)
	r.until("the standby keeps the slot", func() bool {
		pgtest.Exec(t, primary.URL(), `SELECT pg_log_standby_snapshot()`) // or it takes a server's own time
		return kept(standby.URL()) == "true true false"
	})
	g := newGate(r.Door) // the last rows are read by a relay that submits nothing
	x.Stop()
	x = r.run(func(c *relay.Config) { c.Admit = g; c.Drain = 1 })
	r.emit(81, 100)
	<-g.entered
	r.until("the standby has everything", func() bool {
		return pgtest.Exec(t, standby.URL(), `SELECT count(*) FROM headgate.outbox`)[0][0] == "100"
	})
	primary.Crash()
	pgtest.Exec(t, standby.URL(), `SELECT pg_promote()`)
	w.lead(t, standby)
	g.lift()
	r.until("all are stored, and the stream is back", func() bool { return len(r.Stored()) >= 100 && r.quiet() })
	r.emit(101, 110)
	r.until("the stream goes on", func() bool { return len(r.Stored()) >= 110 })
	r.Verify(110)
	if got := kept(r.db); got != "true true false" { // one that is made anew was not synced
		t.Errorf("after the promotion the slot is %s: not the one that was kept", got)
	}
	x.Stop()
}

// A login that sits on the relay's lock is named, and nobody who waits for it or
// leads.
func TestDoctorNamesWhoSitsOnTheLock(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	const said = "holds the relay's lock"
	if f := r.finding(r.db, said); f != nil {
		t.Errorf("nobody holds it, and the doctor says %+v", f)
	}
	sitter := r.connect()
	_, err := sitter.Exec(context.Background(), `SELECT pg_advisory_lock(hashtextextended('headgate relay ' || slot, 0)) FROM headgate.installation`)
	must(t, err)
	if f := r.finding(r.db, said); f == nil || !strings.Contains(f.Fix, fmt.Sprintf("pg_terminate_backend(%d)", sitter.PgConn().PID())) {
		t.Errorf("the doctor says %+v", f)
	}
	must(t, sitter.Close(context.Background()))
	x := r.run(nil)
	r.emit(1, 3)
	x.Wait(t, 3)
	if f := r.finding(r.db, said); f != nil {
		t.Errorf("a relay leads, and the doctor says %+v", f)
	}
	x.Stop()
}

// A slot that no standby keeps, where there is one, is told of, and made anew as
// one that they may keep when it is dropped.
func TestDoctorNamesASlotThatNoStandbyKeeps(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "max_wal_senders=10")
	if pgtest.Version(t, server.URL()) < 17 {
		return // no slot can be kept there
	}
	r, _ := behind(t, server)
	slot := pgtest.Exec(t, r.db, `SELECT slot FROM headgate.installation`)[0][0]
	pgtest.Exec(t, r.db, `SELECT pg_drop_replication_slot('`+slot+`')`)
	pgtest.Exec(t, r.db, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput'), pg_create_physical_replication_slot('standby')`)
	const said = "no standby keeps the slot"
	if f := r.finding(r.db, said); f == nil {
		t.Error("the doctor does not say so")
	}
	pgtest.Exec(t, r.db, `SELECT pg_drop_replication_slot('`+slot+`')`)
	x := r.run(nil)
	r.emit(1, 5)
	x.Wait(t, 5)
	if f := r.finding(r.db, said); f != nil {
		t.Errorf("the doctor still says %+v", f)
	}
	r.Verify(5)
	x.Stop()
}
