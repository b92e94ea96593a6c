package pgrelay

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// slotState is a replication slot as the server shows it.
type slotState struct {
	confirmed pglogrepl.LSN
	status    string // wal_status
	active    *int   // pid
	plugin    string
	database  string
}

// serves reports whether the outbox of a database can be read from the slot.
func (s *slotState) serves(database string) bool {
	return s.plugin == "pgoutput" && s.database == database
}

// owner names whom a slot belongs to.
func (s *slotState) owner() string {
	if s.database == "" {
		return "no database: it is physical"
	}
	return fmt.Sprintf("database %s (plugin %s)", s.database, s.plugin)
}

func readSlot(ctx context.Context, conn *pgx.Conn, name string) (*slotState, error) {
	var s slotState
	var confirmed *string
	err := conn.QueryRow(ctx, `
		SELECT confirmed_flush_lsn::text, coalesce(wal_status, ''), active_pid, coalesce(plugin, ''), coalesce(database::text, '')
		FROM pg_replication_slots WHERE slot_name = $1`, name).
		Scan(&confirmed, &s.status, &s.active, &s.plugin, &s.database)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, sqlError("reading the slot", err)
	}
	if confirmed != nil {
		if s.confirmed, err = pglogrepl.ParseLSN(*confirmed); err != nil {
			return nil, headgate.NewError(headgate.CodeInternal, "the slot's position cannot be read: %v", err)
		}
	}
	return &s, nil
}

// state is headgate.relay_state as the session found it. A proven snapshot of
// transactions that did not begin yet is none.
type state struct {
	beatLSN  pglogrepl.LSN
	snapshot *string
	repair   *string
	systemID *string
	timeline *int
	stopped  pglogrepl.LSN
	sends    *sending // as of the snapshot
}

func (x *session) readState(ctx context.Context) (state, error) {
	var s state
	var beat, stopped, sends *string
	err := x.sql.QueryRow(ctx, `
		SELECT beat_lsn::text,
		       CASE WHEN pg_snapshot_xmax(proven_snapshot) <= pg_snapshot_xmax(pg_current_snapshot()) THEN proven_snapshot::text END, repair, system_id, timeline, stopped_lsn::text,
		       to_jsonb(s) ->> 'proven_sending' -- since revision 9
		FROM headgate.relay_state s WHERE slot = $1`, x.slot).
		Scan(&beat, &s.snapshot, &s.repair, &s.systemID, &s.timeline, &stopped, &sends)
	if err != nil {
		return s, sqlError("reading headgate.relay_state", err)
	}
	s.sends = sendingOf(sends)
	for _, p := range []struct {
		text *string
		lsn  *pglogrepl.LSN
	}{{beat, &s.beatLSN}, {stopped, &s.stopped}} {
		if p.text == nil {
			continue
		}
		if *p.lsn, err = pglogrepl.ParseLSN(*p.text); err != nil {
			return s, headgate.NewError(headgate.CodeInternal, "a position in headgate.relay_state cannot be read: %v", err)
		}
	}
	return s, nil
}

// prepare compares slot and state, and decides whether the stream alone can be
// trusted. What speaks against it is written down before anything is changed.
func (x *session) prepare(ctx context.Context) error {
	st, err := x.readState(ctx)
	if err != nil {
		return err
	}
	slot, err := readSlot(ctx, x.sql, x.slot)
	if err != nil {
		return err
	}
	if slot != nil && !slot.serves(x.sql.Config().Database) {
		return slotOfOthers(x.slot, slot)
	}
	x.sends = st.sends
	reason := x.distrust(st, slot)
	if st.repair != nil && reason == "" {
		reason = *st.repair
	}
	if reason == "" { // so that nothing from the log goes before what it has not
		if reason, err = x.changedMeanwhile(ctx); err != nil {
			return err
		}
	}
	if reason != "" {
		x.cfg.Log.WarnContext(ctx, "outbox is repaired from its table", "slot", x.slot, "reason", reason)
		if err := x.setRepair(ctx, reason); err != nil {
			return err
		}
		x.snapshot = st.snapshot
		if st.systemID != nil && *st.systemID != x.systemID {
			x.snapshot = nil // transaction numbers of another server
		}
	}
	x.repairing = reason != ""
	if slot != nil && slot.status == "lost" {
		tag, err := x.sql.Exec(ctx, `
			WITH leads AS MATERIALIZED (SELECT slot FROM headgate.relay_state WHERE slot = $1 AND epoch = $2 FOR NO KEY UPDATE)
			SELECT pg_drop_replication_slot(slot) FROM leads`, x.slot, x.epoch)
		if err != nil {
			return sqlError("dropping the lost slot", err)
		}
		if tag.RowsAffected() == 0 {
			return errSuperseded
		}
		slot = nil
	}
	if slot == nil {
		if err := x.createSlot(ctx); err != nil {
			return err
		}
	} else if x.repairing && st.repair != nil {
		// Its log was given up, or the reason still stands: the table has it all.
		if err := x.advance(ctx); err != nil {
			return err
		}
	}
	// A snapshot of another server means nothing here, also to the next session
	// when this one's repair is broken off.
	_, err = x.sql.Exec(ctx, `
		UPDATE headgate.relay_state SET system_id = $2, timeline = $3, stopped_lsn = NULL, beat_lsn = pg_current_wal_insert_lsn(),
		       proven_snapshot = CASE WHEN coalesce(system_id, $2) = $2 THEN proven_snapshot END
		WHERE slot = $1 AND epoch = $4`,
		x.slot, x.systemID, x.timeline, x.epoch)
	if err != nil {
		return sqlError("noting the session", err)
	}
	if slot, err = readSlot(ctx, x.sql, x.slot); err != nil {
		return err
	}
	if slot == nil {
		return slotGone(x.slot)
	}
	x.Confirm(relay.Position(slot.confirmed)) // nothing is told before the stream runs
	return nil
}

func slotGone(name string) error { return fmt.Errorf("pgrelay: the slot %s is gone", name) }

// slotOfOthers refuses a slot that this outbox did not make. Whoever made it
// needs it.
func slotOfOthers(name string, slot *slotState) error {
	e := headgate.NewError(headgate.CodeInvalidConfig, "the slot %s belongs to %s, not to this outbox", name, slot.owner())
	e.Fix = otherSlotFix
	return e
}

const otherSlotFix = "Leave that slot alone and give this database another: headgate outbox init --slot NAME."

// distrust returns why rows may be missing from the stream; "" when none are.
//
// After an orderly stop the slot stands where the relay left it, and after an
// installation where that did. After any other end it does not stand behind the
// last heartbeat, since no relay tells the server more than that.
func (x *session) distrust(st state, slot *slotState) string {
	fresh := st.systemID == nil // no relay ever ran: the slot is the installer's
	switch {
	case slot == nil && fresh:
		return "the slot is missing"
	case slot == nil:
		return "the slot is gone: it was dropped, or the server failed over without it"
	case slot.status == "lost":
		return "the slot was invalidated: it held back more log than the server keeps"
	case !fresh && *st.systemID != x.systemID:
		return "the database was moved to another server"
	case !fresh && *st.timeline != x.timeline:
		return fmt.Sprintf("the server was promoted or restored: timeline %d became %d", *st.timeline, x.timeline)
	case st.stopped != 0 && slot.confirmed != st.stopped:
		return movedReason(slot.confirmed, st.stopped)
	case fresh && st.stopped == 0:
		return "no relay ever ran, and it is not known whether the slot is older than the events"
	case st.stopped == 0 && st.beatLSN != 0 && slot.confirmed > st.beatLSN:
		return "the slot was moved or made anew: it stands behind a heartbeat, where no relay has left it"
	}
	return ""
}

func movedReason(at, left pglogrepl.LSN) string {
	return fmt.Sprintf("the slot was moved or made anew: it stands at %s, the relay left it at %s", at, left)
}

func (x *session) setRepair(ctx context.Context, reason string) error {
	tag, err := x.sql.Exec(ctx, `UPDATE headgate.relay_state SET repair = $2 WHERE slot = $1 AND epoch = $3`, x.slot, reason, x.epoch)
	if err != nil {
		return sqlError("noting the repair", err)
	}
	if tag.RowsAffected() == 0 {
		return errSuperseded
	}
	x.why.Store(&reason)
	return nil
}

// createSlot makes the slot.
func (x *session) createSlot(ctx context.Context) error {
	if _, err := x.sql.Exec(ctx, slotStatement(x.slot, x.server)); err != nil {
		return sqlError("creating the slot", err)
	}
	return nil
}
