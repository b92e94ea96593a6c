package pgrelay_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

// said collects what a source logs.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) has(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), what)
}

// told is a source whose log is collected.
func (r *rig) told() (*pgrelay.Source, *said) {
	r.t.Helper()
	s := &said{}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(s, relaytest.Writer{TB: r.t}), nil))
	src, err := pgrelay.New(pgrelay.Config{URL: r.db, Beat: 500 * time.Millisecond, Log: log})
	must(r.t, err)
	return src, s
}

func (r *rig) slotName() string {
	r.t.Helper()
	return pgtest.Exec(r.t, r.db, `SELECT slot FROM headgate.installation`)[0][0]
}

// dropSlot drops the slot as somebody with the rights can, also under a relay,
// and makes it anew if asked for.
func (r *rig) dropSlot(anew bool) {
	r.t.Helper()
	slot := r.slotName()
	end := fmt.Sprintf(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '%s' AND active_pid IS NOT NULL`, slot)
	drop := fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, slot)
	if anew {
		drop += fmt.Sprintf(`; SELECT pg_create_logical_replication_slot('%s', 'pgoutput')`, slot)
	}
	r.until("the slot is dropped", func() bool {
		pgtest.Exec(r.t, r.db, end)
		return r.sqlState(drop) == ""
	})
}

// The slot is dropped, or made anew by somebody else, whichever way the relay
// before it ended: it is told which, and costs no event.
func TestTrap16SlotDroppedOrMadeAnew(t *testing.T) {
	const gone, moved, behind = "the slot is gone: it was dropped", "the slot was moved or made anew: it stands at", "the slot was moved or made anew: it stands behind a heartbeat"
	dropped, anew, alone := func(r *rig) { r.dropSlot(false) }, func(r *rig) { r.dropSlot(true) }, func(*rig) {}
	ahead := func(r *rig) { r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slotName()) }
	read := func(r *rig) {
		r.dropSlot(true)
		r.exec(`SELECT pg_logical_emit_message(true, 'theirs', 'x')`)
		r.exec(`SELECT count(*) FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', 'headgate_outbox')`, r.slotName())
	}
	for _, c := range []struct {
		name, want string
		end        func(relay.Source) relay.Source
		change     func(r *rig)
	}{
		{"dropped after an orderly stop", gone, nil, dropped},
		{"made anew after an orderly stop", moved, nil, anew},
		{"dropped after a kill", gone, relaytest.HastyEnd, dropped},
		{"made anew after a kill", behind, relaytest.HastyEnd, anew},
		{"made anew and read from after a kill", behind, relaytest.HastyEnd, read},
		{"moved after an orderly stop", moved, nil, ahead},
		{"moved after a kill", behind, relaytest.HastyEnd, ahead},
		{"left alone after an orderly stop", "", nil, alone},
		{"left alone after a kill", "", relaytest.HastyEnd, alone},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			src := relay.Source(r.source())
			if c.end != nil {
				src = c.end(src)
			}
			x := r.Run(src, nil)
			r.emit(1, 10)
			x.Wait(t, 10)
			r.until("all of it is proven", func() bool {
				return pgtest.Exec(t, r.db, `SELECT NOT EXISTS (SELECT FROM headgate.outbox, headgate.relay_state WHERE NOT coalesce(pg_visible_in_snapshot(xid, proven_snapshot), false))`)[0][0] == "t"
			})
			x.Stop()
			r.emit(11, 20)
			c.change(r)
			r.emit(21, 30)
			again, log := r.told()
			x = r.Run(again, nil)
			r.until("all are stored", func() bool { return len(r.Stored()) >= 30 })
			r.Verify(30)
			if !log.has(c.want) || c.want == "" && log.has("repaired") {
				t.Errorf("the relay did not say %q", c.want)
			}
			r.until("the stream is back", r.quiet)
			x.Stop()
		})
	}
}

// The same while the relay is at work: its connection is ended for it.
func TestTrap16SlotDroppedUnderTheRelay(t *testing.T) {
	for name, anew := range map[string]bool{"dropped": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			src, log := r.told()
			g := newGate(r.Door)
			x := r.Run(src, func(c *relay.Config) { c.Admit = g; c.Drain = time.Millisecond })
			r.emit(1, 10)
			<-g.entered
			r.dropSlot(anew)
			r.emit(11, 20)
			g.lift()
			r.until("all are stored", func() bool { return len(r.Stored()) >= 20 })
			r.Verify(20)
			if !log.has("the slot is gone") && !log.has("the slot was moved or made anew") && !log.has("the slot is missing") {
				t.Error("the relay did not say what happened")
			}
			x.Stop()
		})
	}
}

// pressed writes 110 MB of log that is not ours, as much at a time as comes
// between two heartbeats, and reports whether the slot was lost.
func (r *rig) pressed(beats bool) (lost bool) {
	r.t.Helper()
	r.exec(`CREATE TABLE IF NOT EXISTS noise (x text)`)
	beat := func() int { return atoi(pgtest.Exec(r.t, r.db, `SELECT beat FROM headgate.relay_state`)[0][0]) }
	for range 28 {
		last := beat()
		pgtest.Exec(r.t, r.db, `INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 3600); CHECKPOINT`)
		if beats {
			r.until("heartbeats go on", func() bool { return beat() > last })
		}
		if s := pgtest.Exec(r.t, r.db, `SELECT 1 FROM pg_replication_slots WHERE wal_status = 'lost'`); len(s) > 0 {
			return true
		}
	}
	return false
}

// The server keeps 64 MB of log for the slot while the broker is away and more
// than that is written: the relay gives the log up before the server does.
func TestTrap14ReliefValveBeforeTheSlotIsLost(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "max_slot_wal_keep_size=64MB", "min_wal_size=32MB", "max_wal_size=32MB", "wal_keep_size=0")
	r := newRig(t, server.URL())
	g := newGate(r.Door)
	x := r.Run(r.sourceOf(pgrelay.Config{Beat: 100 * time.Millisecond}), func(c *relay.Config) { c.Admit = g; c.Drain = time.Millisecond })
	r.emit(1, 50)
	<-g.entered
	if r.pressed(true) {
		t.Fatal("the slot was lost before the relay gave its log up")
	}
	s, err := pgrelay.Inspect(context.Background(), r.db)
	must(t, err)
	if s.Repair == "" || s.Held > 64<<20 {
		t.Errorf("the log was not given up: %+v", s)
	}
	r.emit(51, 100)
	g.lift()
	r.until("all are stored", func() bool { return len(r.Stored()) >= 100 })
	r.until("the stream is back", r.quiet)
	r.emit(101, 110)
	r.until("the stream goes on", func() bool { return len(r.Stored()) >= 110 })
	r.Verify(110)
	x.Stop()
	// So much log does lose a slot that nobody relieves.
	r.emit(111, 120)
	if !r.pressed(false) {
		t.Error("the slot outlived the same without a relay: the test presses too little")
	}
	x = r.run(nil)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 120 })
	r.Verify(120)
	x.Stop()
}

// findings are those of the doctor that hold a text.
func (r *rig) findings(text string) (all []pgrelay.Finding) {
	r.t.Helper()
	found, err := pgrelay.Doctor(context.Background(), r.db)
	must(r.t, err)
	for _, f := range found {
		if strings.Contains(f.What, text) {
			all = append(all, f)
		}
	}
	return all
}

func TestTrap31DoctorNamesWhatIsWrong(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.exec(`DROP PUBLICATION headgate_outbox`)
	slot := r.slotName()
	r.exec(`SELECT pg_drop_replication_slot($1)`, slot)
	for _, want := range []string{"publication headgate_outbox is missing", "slot " + slot + " is missing", "max_slot_wal_keep_size is unlimited"} {
		if len(r.findings(want)) == 0 {
			t.Errorf("the doctor does not say %q", want)
		}
	}
}

// The publication is younger than what the slot has yet to read: rows were
// written, and then the publication was made. The server refuses to decode them,
// for ever.
func TestTrap31PublicationMadeAfterTheSlot(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
	r.youngPublication()
	src, log := r.told()
	x = r.Run(src, nil)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 30 })
	if !log.has("the publication is younger than the slot") && !log.has("rows may be missing from the log") {
		t.Error("the relay did not say what happened")
	}
	r.until("the stream is back", r.quiet)
	r.emit(31, 40)
	r.until("the stream goes on", func() bool { return len(r.Stored()) >= 40 })
	r.Verify(40)
	x.Stop()
}

// youngPublication writes 11 to 20 without a publication, and 21 to 30 with one.
func (r *rig) youngPublication() {
	r.t.Helper()
	r.exec(`DROP PUBLICATION headgate_outbox`)
	r.emit(11, 20)
	r.exec(`CREATE PUBLICATION headgate_outbox FOR TABLE headgate.outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	r.emit(21, 30)
}

// On a server of its own: a new slot takes over how far the others look back, and
// beside one that lags behind looks older than it is.
func TestTrap31DoctorFindsAYoungPublication(t *testing.T) {
	r := newRig(t, pgtest.Start(t, "wal_level=logical").URL())
	if f := r.findings("younger"); len(f) > 0 {
		t.Fatalf("the doctor says of what init made: %+v", f)
	}
	r.emit(1, 10)
	r.youngPublication()
	if f := r.findings("younger"); len(f) != 1 || f[0].Severity != "warning" {
		t.Errorf("the doctor says %+v", f)
	}
	x := r.run(nil)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 30 })
	r.until("the doctor is content", func() bool {
		r.exec(`CHECKPOINT`) // as the server does, so that the slot need not look back
		return len(r.findings("younger")) == 0
	})
	r.Verify(30)
	x.Stop()
}

func TestDoctorNamesRestoredRows(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.emit(1, 10)
	const said = "transaction numbers of another server"
	if f := r.findings(said); len(f) > 0 {
		t.Errorf("the doctor says of rows of this server: %+v", f)
	}
	r.exec(`UPDATE headgate.outbox SET xid = (pg_current_xact_id()::text::bigint + 1000000)::text::xid8`) // as a dump of another server has them
	if f := r.findings(said); len(f) != 1 || f[0].Severity != "warning" {
		t.Errorf("the doctor says %+v", f)
	}
}
