package pgrelay_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay/pgrelay"
)

// Between the tables of init and its slot, for which init waits as long as
// transactions last, writers write: the stream does not have that.
func TestWritersWhileInitMakesTheSlot(t *testing.T) {
	r := &rig{Rig: relaytest.New(t, membroker.New(membroker.Config{})), t: t, db: database(t, pgtest.URL(t))}
	ctx := t.Context()
	open, err := r.connect().Begin(ctx)
	must(t, err)
	_, err = open.Exec(ctx, `SELECT pg_current_xact_id()`)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- pgrelay.Install(context.WithoutCancel(ctx), r.db, pgrelay.InstallOptions{}) }()
	r.until("init makes the slot", func() bool {
		return len(pgtest.Exec(t, r.db, `SELECT FROM pg_replication_slots WHERE database = current_database() AND active`)) == 1
	})
	r.emit(1, 10)
	must(t, open.Rollback(ctx))
	must(t, <-done)
	r.emit(11, 20)
	x := r.run(nil)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 20 })
	r.Verify(20)
	x.Stop()
}

// What becomes of the slot before the first relay costs no event; a slot that is
// left alone is read without a repair.
func TestSlotBeforeTheFirstRelay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig)
		repair bool
	}{
		"left alone": {func(*rig) {}, false},
		"dropped":    {func(r *rig) { r.dropSlot(false) }, true},
		"made anew":  {func(r *rig) { r.dropSlot(true) }, true},
		"moved":      {func(r *rig) { r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slotName()) }, true},
		// As init leaves it that is broken off, or one of before.
		"not noted": {func(r *rig) { r.exec(`UPDATE headgate.relay_state SET stopped_lsn = NULL`) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			r.emit(1, 10)
			c.change(r)
			r.emit(11, 20)
			src, log := r.told()
			x := r.Run(src, nil)
			r.until("all are stored", func() bool { return len(r.Stored()) >= 20 })
			r.until("the stream is back", r.quiet)
			r.Verify(20)
			if got := log.has("outbox is repaired from its table"); got != c.repair {
				t.Errorf("repaired: %v", got)
			}
			x.Stop()
		})
	}
}

// Rows that were restored from a dump have transaction numbers that their server
// has yet to reach, and reaches while the relay works.
func TestRestoredRowsAreRead(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	r.emit(1, 20)
	r.exec(`UPDATE headgate.outbox SET xid = (pg_current_xact_id()::text::bigint + seq * 3 - 10)::text::xid8`)
	r.exec(`UPDATE headgate.relay_state SET system_id = 'another', proven_snapshot = '1000000:1000000:'`)
	r.dropSlot(false)
	x := r.run(nil)
	r.until("the stream is back", r.quiet)
	r.emit(21, 30)
	r.until("all are stored", func() bool { return len(r.Stored()) >= 30 })
	r.Verify(30)
	x.Stop()
}
