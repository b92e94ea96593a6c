package pgrelay_test

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

// finding returns the first finding that says what.
func (r *rig) finding(url, what string) *pgrelay.Finding {
	r.t.Helper()
	found, err := pgrelay.Doctor(context.Background(), url)
	must(r.t, err)
	for _, f := range found {
		if strings.Contains(f.What, what) {
			return &f
		}
	}
	return nil
}

func TestDoctorNamesAStuckRelay(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	g := newGate(r.Door)
	x := r.run(func(c *relay.Config) { c.Admit = g })
	const stuck = "nothing is proven to be published since"
	r.until("a heartbeat is proven", func() bool {
		return pgtest.Exec(t, r.db, `SELECT proven IS NOT NULL FROM headgate.relay_state`)[0][0] == "t"
	})
	if f := r.finding(r.db, stuck); f != nil {
		t.Errorf("all is well, and the doctor says %+v", f)
	}
	r.emit(1, 3)
	<-g.entered
	r.until("the doctor names it", func() bool {
		r.exec(`UPDATE headgate.relay_state SET proven = clock_timestamp() - interval '31 seconds'`) // not waited for
		f := r.finding(r.db, stuck)
		return f != nil && f.Severity == "error" && strings.Contains(f.What, "3 row(s) wait, the first since")
	})
	g.lift()
	x.Wait(t, 3)
	r.until("it goes on", func() bool { return r.finding(r.db, stuck) == nil })
	// A relay that never proved anything is judged by the oldest row.
	x.Stop()
	r.exec(`UPDATE headgate.relay_state SET proven = NULL, proven_snapshot = NULL, renewed = clock_timestamp()`)
	if f := r.finding(r.db, stuck); f != nil {
		t.Errorf("rows that were just written are late: %+v", f)
	}
}

// One name of a slot for two databases is refused before anything is changed;
// where it happened earlier, nobody is told to drop the other's slot, and init
// gives the outbox one of its own.
func TestSlotOfAnotherDatabase(t *testing.T) {
	ctx := context.Background()
	theirs := newRig(t, pgtest.URL(t))
	slot := pgtest.Exec(t, theirs.db, `SELECT slot FROM headgate.installation`)[0][0]
	r := &rig{Rig: relaytest.New(t, membroker.New(membroker.Config{})), t: t, db: database(t, pgtest.URL(t))}
	err := pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Slot: slot})
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeConflict || !strings.Contains(e.Fix, "--slot") {
		t.Fatalf("the name is taken: %v", err)
	}
	if n := pgtest.Exec(t, r.db, `SELECT count(*) FROM pg_namespace WHERE nspname = 'headgate'`)[0][0]; n != "0" {
		t.Fatal("the schema was made although the slot cannot be")
	}
	must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{}))
	r.exec(`SELECT pg_drop_replication_slot(slot) FROM headgate.installation`)
	r.exec(`UPDATE headgate.relay_state SET slot = $1`, slot)
	r.exec(`UPDATE headgate.installation SET slot = $1`, slot)
	r.emit(1, 10)

	s, err := pgrelay.Inspect(ctx, r.db)
	must(t, err)
	if s.SlotStatus != "foreign" || s.SlotDatabase != theirs.connect().Config().Database || s.Active || s.Confirmed != "" {
		t.Errorf("the state is %+v", s)
	}
	f := r.finding(r.db, "belongs to database "+s.SlotDatabase)
	if f == nil || !strings.Contains(f.Fix, "--slot") || strings.Contains(f.Fix, "drop") {
		t.Errorf("the doctor says %+v", f)
	}
	_, err = r.source().Open(ctx)
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidConfig || strings.Contains(e.Detail+e.Fix, "drop") || !strings.Contains(e.Fix, "--slot") {
		t.Errorf("the relay says %v", err)
	}

	must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Slot: slot + "_b"}))
	x := r.run(nil)
	x.Wait(t, 10)
	r.Verify(10)
	x.Stop()
	if n := pgtest.Exec(t, theirs.db, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = '`+slot+`' AND database = current_database()`)[0][0]; n != "1" {
		t.Error("the other database lost its slot")
	}
}

// Somebody makes the slot after init has looked for it. One that serves the
// outbox is taken, and the table read first; of another the owner is told, and
// init gives the outbox one of its own.
func TestSlotMadeWhileTheDatabaseIsPrepared(t *testing.T) {
	for name, c := range map[string]struct {
		make   string // not waiting for transactions, or in the background
		serves bool
	}{
		"by a relay":         {`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, true},
		"for something else": {`SELECT pg_create_physical_replication_slot($1)`, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			r := &rig{Rig: relaytest.New(t, membroker.New(membroker.Config{})), t: t, db: database(t, pgtest.URL(t))}
			slot := "taken_" + r.connect().Config().Database
			t.Cleanup(func() {
				pgtest.Exec(t, pgtest.URL(t), `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database IS NULL AND slot_name = '`+slot+`'`)
			})
			blocker, err := r.connect().Begin(ctx)
			must(t, err)
			_, err = blocker.Exec(ctx, `CREATE SCHEMA headgate`)
			must(t, err)
			installed, made := make(chan error, 1), make(chan error, 1)
			go func() { installed <- pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Slot: slot}) }()
			r.until("init has looked for the slot and waits", func() bool {
				return pgtest.Exec(t, r.db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)[0][0] == "1"
			})
			maker := r.connect()
			go func() { _, err := maker.Exec(ctx, c.make, slot); made <- err }() // it may wait for init
			r.until("the slot is there", func() bool {
				return len(pgtest.Exec(t, r.db, `SELECT 1 FROM pg_replication_slots WHERE slot_name = '`+slot+`'`)) == 1
			})
			must(t, blocker.Rollback(ctx))
			err = <-installed
			must(t, <-made)
			if e := headgate.AsError(err); !c.serves && (e == nil || e.Code != headgate.CodeConflict || !strings.Contains(e.Fix, "--slot")) || c.serves && err != nil {
				t.Fatalf("init says %v", err)
			}
			r.emit(1, 10)
			if c.serves {
				pgtest.Exec(t, r.db, `SELECT pg_replication_slot_advance('`+slot+`', pg_current_wal_lsn())`) // its maker has used it
			} else {
				must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Slot: slot + "_b"}))
			}
			x := r.run(nil)
			x.Wait(t, 10)
			r.until("the stream is back", r.quiet)
			r.Verify(10)
			x.Stop()
		})
	}
}

// What a database that was prepared earlier lacks is told, and granted by
// another init.
func TestInitGrantsWhatWasAddedSince(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	ctx := context.Background()
	cfg := r.connect().Config()
	role := "d" + strings.TrimPrefix(cfg.Database, "t_")
	r.exec(`CREATE ROLE ` + role + ` LOGIN REPLICATION`)
	t.Cleanup(func() { pgtest.Exec(t, pgtest.URL(t), `DROP ROLE `+role) })
	t.Cleanup(func() { pgtest.Exec(t, pgtest.URL(t), `REVOKE headgate_relay FROM `+role) })
	must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Relay: role}))
	r.exec(`REVOKE SELECT ON headgate.outbox_rest FROM headgate_relay`)
	r.exec(`UPDATE headgate.installation SET revision = 1`)
	url := strings.Replace(r.db, cfg.User+"@", role+"@", 1)
	const refused = "not everything can be examined"
	if f := r.finding(url, refused); f == nil || !strings.Contains(f.Fix, "init") {
		t.Errorf("the doctor says %+v", f)
	}
	must(t, pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{}))
	if f := r.finding(url, refused); f != nil {
		t.Errorf("the doctor still says %+v", f)
	}
}

// Trying again later mends no argument and no missing right.
func TestRefusedArgumentsAreNotUnavailable(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	ctx := context.Background()
	fresh := database(t, pgtest.URL(t))
	r.stranger() // makes the role
	cfg := r.connect().Config()
	weak := strings.Replace(fresh, cfg.User+"@", "x"+strings.TrimPrefix(cfg.Database, "t_")+"@", 1)
	for _, c := range []struct {
		what string
		err  error
		want headgate.Code
	}{
		{"a writer that does not exist", pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Writers: []string{"nosuch"}}), headgate.CodeInvalidArgument},
		{"the same at first", pgrelay.Install(ctx, fresh, pgrelay.InstallOptions{Writers: []string{"nosuch"}}), headgate.CodeInvalidArgument},
		{"a relay that does not exist", pgrelay.Install(ctx, r.db, pgrelay.InstallOptions{Relay: "nosuch"}), headgate.CodeInvalidArgument},
		{"no name of a table", pgrelay.Watch(ctx, r.db, "a.b.c.d..", "orders"), headgate.CodeInvalidArgument},
		{"nor this", pgrelay.Watch(ctx, r.db, "two words", "orders"), headgate.CodeInvalidArgument},
		{"a role that may not prepare", pgrelay.Install(ctx, weak, pgrelay.InstallOptions{}), headgate.CodeForbidden},
	} {
		if e := headgate.AsError(c.err); e == nil || e.Code != c.want {
			t.Errorf("%s: %v", c.what, c.err)
		}
	}
}
