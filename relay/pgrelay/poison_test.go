package pgrelay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

// poison writes one event of each kind that is refused for good, all of one key.
func (r *rig) poison(key string) (big string) {
	r.t.Helper()
	big = `{"n":1,"pad":"` + strings.Repeat("x", 2<<20) + `"}`
	r.exec(`SELECT headgate.emit_event('big', 'order.placed', NULL, NULL, $2, NULL, convert_to($1, 'UTF8'))`, big, key)
	r.exec(`SELECT headgate.emit_event('bytes', 'order.placed', NULL, NULL, $1, NULL, '\xff00fe')`, key)
	r.exec(`SELECT headgate.emit('order.unheard', '{"n":1}', $1)`, key)
	r.exec(`SELECT headgate.emit('order.placed', '{"n":"one"}', $1)`, key)
	r.exec(`SELECT headgate.emit('stranger.came', '{"n":1}', $1)`, key) // goes nowhere from here
	return big
}

func TestTrap27PoisonIsKeptWholeAndPassed(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	big := r.poison("k1")
	r.emit(1, 3)
	behind := pgtest.Exec(t, r.db, `SELECT pg_current_wal_insert_lsn()`)[0][0]
	x.Wait(t, 8)
	r.Verify(3)
	kept := r.Kept()
	if len(kept) != 5 {
		t.Fatalf("%d records are kept, want 5", len(kept))
	}
	for _, k := range kept {
		if k.ID == "big" && string(k.Body) != big {
			t.Error("the large event is not kept whole")
		}
		if k.ID == "bytes" && string(k.Body) != "\xff\x00\xfe" {
			t.Errorf("the bytes are kept as %q", k.Body)
		}
	}
	r.until("the position passes them", func() bool {
		return pgtest.Exec(t, r.db, `SELECT confirmed_flush_lsn >= '`+behind+`' FROM pg_replication_slots WHERE database = current_database()`)[0][0] == "t"
	})
	// The same rows again make no second record.
	x.Stop()
	r.exec(`UPDATE headgate.relay_state SET repair = 'a test', proven_snapshot = NULL`)
	x = r.run(nil)
	x.Wait(t, 8)
	if again := r.Kept(); len(again) != 5 {
		t.Errorf("%d records are kept after the rows came again", len(again))
	}
}

// Poison of one key is among the rows of others, and the quarantine takes its
// time: none of the other lanes waits for it, however long that is.
func TestTrap27PoisonDelaysNoOtherKey(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	q := &shut{Keeper: r.Quarantine}
	q.broken.Store(true)
	// A lane has one worker: keys that share one with the poison do wait.
	x := r.run(func(c *relay.Config) { c.Keep, c.Lanes = q, 1<<16 })
	r.poison("bad")
	r.until("it is refused", func() bool { return q.tried.Load() > 0 })
	for i := range 50 {
		r.exec(`SELECT headgate.emit('order.placed', '{"n":"bad"}', 'bad')`)
		r.emit(i*20+1, i*20+20)
	}
	for _, d := range x.Wait(t, 1000) {
		if d.Row.Event.Key == "bad" || d.QID != "" || d.Result.Err != nil {
			t.Fatalf("event %s of key %s ended as %+v", d.Row.Event.ID, d.Row.Event.Key, d.Result.Err)
		}
	}
	r.Verify(1000)
	if n := len(r.Kept()); n != 0 {
		t.Errorf("%d records are kept by a quarantine that keeps nothing", n)
	}
	if s := x.Status(); s.Sessions != 1 || s.InFlight != 55 {
		t.Errorf("%d sessions, %d rows in flight; want one session and the poison", s.Sessions, s.InFlight)
	}
	q.broken.Store(false)
	x.Wait(t, 1055)
	if n := len(r.Kept()); n != 55 {
		t.Errorf("%d records are kept, want 55", n)
	}
	r.Verify(1000)
	x.Stop()
}

// An old partition with a row that was not published: retention was reached long
// ago.
func (r *rig) retained() (rows func() string) {
	r.t.Helper()
	r.exec(`CREATE TABLE headgate.outbox_20200101 PARTITION OF headgate.outbox FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	r.exec(`INSERT INTO headgate.outbox (id, role, type, key, data, created) VALUES ('old', 'headgate', 'order.placed', 'k1', '{"n":1}', '2020-01-01 12:00+00')`)
	return func() string { return pgtest.Exec(r.t, r.db, `SELECT count(*) FROM headgate.outbox`)[0][0] }
}

func TestTrap25PartitionsWaitForTheProof(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	rows := r.retained()
	clean := func() string {
		r.t.Helper()
		return pgtest.Exec(t, r.db, `SELECT cardinality(headgate.maintain('1 day'))`)[0][0]
	}
	if n := clean(); n != "0" || rows() != "1" {
		t.Fatal("a row that nobody has published was dropped")
	}
	// A relay runs, and has proven what it can, but the broker is away.
	g := newGate(r.Door)
	x := r.Run(r.sourceOf(pgrelay.Config{Retain: time.Hour}), func(c *relay.Config) { c.Admit = g; c.Drain = time.Millisecond })
	<-g.entered
	if n := clean(); n != "0" || rows() != "1" {
		t.Fatal("a row in flight was dropped")
	}
	alarm := r.findings("nothing is proven to be published")
	if len(alarm) != 1 || alarm[0].Severity != "error" || !strings.Contains(alarm[0].What, "1 row(s) wait, the first since 2020-01-01") {
		t.Errorf("the doctor says %+v", alarm)
	}
	if s := x.Status(); s.InFlight != 1 || s.Oldest.IsZero() {
		t.Errorf("the relay says %+v", s)
	}
	x.Stop()
	x = r.run(func(c *relay.Config) { c.Admit = g })
	r.until("the relay is restarted", func() bool { return x.Status().InFlight == 1 })
	if n := clean(); n != "0" || rows() != "1" {
		t.Fatal("a row in flight was dropped after a restart")
	}
	g.lift()
	x.Wait(t, 1)
	r.until("the published partition is dropped", func() bool { return clean() != "0" })
	if n := rows(); n != "0" || len(r.findings("nothing is proven")) > 0 {
		t.Errorf("%s rows are left", n)
	}
	r.Verify(1)
}

// A relay that proves what was not published loses the row to the cleaner: the
// test above looks at the right thing.
func TestTrap25CatchesAProofTooEarly(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	rows := r.retained()
	r.exec(`UPDATE headgate.relay_state SET proven_snapshot = pg_current_snapshot()`)
	r.exec(`SELECT headgate.maintain('1 day')`)
	if n := rows(); n != "0" {
		t.Errorf("%s rows are left: the partition is kept for another reason", n)
	}
}
