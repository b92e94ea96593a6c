package pgrelay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/relay"
	"github.com/jackc/pgx/v5"
)

// beats renews the epoch and puts a heartbeat into the log, and looks at what
// the slot holds back. The first heartbeat is the opener's.
func (x *session) beats(ctx context.Context) error {
	tick := time.NewTicker(x.cfg.Beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := x.beat(ctx); err != nil {
			return err
		}
		if x.flowing.Load() && !x.waiting.Load() && x.elapsed()-x.movedAt.Load() > int64(3*x.cfg.Beat+5*time.Second) {
			return errors.New("pgrelay: heartbeats do not come back: the log stands still")
		}
	}
}

// beat is one statement: the epoch is renewed, the message is written in the
// same transaction, and slot and clock are looked at.
func (x *session) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*x.cfg.Beat)
	defer cancel()
	began, clock := x.elapsed(), x.cfg.Now()
	var held, room, end, noted int64
	var status string
	var there time.Time
	nth := x.sent.Add(1)
	x.sqlMu.Lock()
	err := x.sql.QueryRow(ctx, `
		WITH b AS (
		  UPDATE headgate.relay_state SET renewed = clock_timestamp(), beat = beat + 1, beat_lsn = pg_current_wal_insert_lsn()
		  WHERE slot = $1 AND epoch = $2 RETURNING beat, beat_lsn
		), m AS (
		  SELECT pg_logical_emit_message(true, $3, json_build_object('slot', $1::text, 'beat', beat, 'snapshot', pg_current_snapshot()::text, 'nth', $5::bigint, 'token', $6::text, 'at', $4::bigint, 'sending', `+selectSending+`::json)::text), beat_lsn FROM b
		)
		SELECT coalesce(pg_current_wal_lsn() - r.restart_lsn, 0)::bigint, coalesce(r.safe_wal_size, -1), coalesce(r.wal_status, ''),
		       (pg_current_wal_lsn() - '0/0')::bigint, (m.beat_lsn - '0/0')::bigint, clock_timestamp()
		FROM m LEFT JOIN pg_replication_slots r ON r.slot_name = $1`, x.slot, x.epoch, beatPrefix, began, nth, x.token(nth)).Scan(&held, &room, &status, &end, &noted, &there)
	x.sqlMu.Unlock()
	if errors.Is(err, pgx.ErrNoRows) {
		return errSuperseded
	}
	if err != nil {
		return sqlError("renewing the lead", err)
	}
	x.renewed.Store(began)
	x.noted.Store(uint64(noted))
	x.tell()
	x.compareClocks(clock, there)
	x.log.Store(&relay.LogStatus{End: relay.Position(end), Held: held, Room: room, State: status})
	return x.relieve(ctx, held, room, status)
}

// compareClocks notes by how much the database's clock differs from this
// node's. What is less than the question took cannot be told from nothing.
func (x *session) compareClocks(asked, there time.Time) {
	took := x.cfg.Now().Sub(asked)
	ahead := there.Sub(asked.Add(took / 2))
	if ahead.Abs() <= took {
		ahead = 0
	}
	x.ahead.Store(int64(ahead))
}

// LogStatus implements [relay.Teller].
func (x *session) LogStatus() relay.LogStatus {
	var s relay.LogStatus
	if last := x.log.Load(); last != nil {
		s = *last
	}
	s.Epoch, s.Received, s.RoundTrip = x.epoch, relay.Position(x.seen.Load()), time.Duration(x.roundTrip.Load())
	s.End = max(s.End, s.Received)
	if why := x.why.Load(); why != nil {
		s.Repair = *why
	}
	return s
}

// relieve gives up the log that the slot holds back when it becomes a danger.
// Nothing is lost by that: the rows are in the table.
func (x *session) relieve(ctx context.Context, held, room int64, status string) error {
	over := held > x.cfg.WALBudget/5*4
	// safe_wal_size is what is left of max_slot_wal_keep_size.
	tight := room >= 0 && room < (held+room)/5 && held > 16<<20
	if !over && !tight && status != "unreserved" {
		return nil
	}
	reason := fmt.Sprintf("the slot held back %d MiB of log, more than it may", held>>20)
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	if err := x.setRepair(ctx, reason); err != nil {
		return err
	}
	if !x.repairing || x.flowing.Load() {
		// The stream has to end first; the next session advances the slot.
		return errors.New("pgrelay: " + reason + "; it is given up and the rows are read from the table")
	}
	return x.advance(ctx)
}

// advance moves the slot to the present, which a repair makes good. Nobody else
// may come to lead while it does, and prove what the slot then has not.
func (x *session) advance(ctx context.Context) error {
	x.advanced.Store(true)
	tag, err := x.sql.Exec(ctx, `
		WITH leads AS MATERIALIZED (SELECT slot FROM headgate.relay_state WHERE slot = $1 AND epoch = $2 FOR NO KEY UPDATE)
		SELECT pg_replication_slot_advance(slot, pg_current_wal_lsn()) FROM leads`, x.slot, x.epoch)
	if err != nil {
		return sqlError("advancing the slot", err)
	}
	if tag.RowsAffected() == 0 {
		return errSuperseded
	}
	slot, err := readSlot(ctx, x.sql, x.slot)
	if err != nil {
		return err
	}
	if slot == nil {
		return slotGone(x.slot)
	}
	x.noted.Store(uint64(slot.confirmed))
	x.Confirm(relay.Position(slot.confirmed)) // nothing is told before the stream runs
	return nil
}

// Upkeep of the partitions: how often, and for how long at most.
const (
	upkeepEvery  = time.Hour
	upkeepWithin = 10 * time.Minute
)

// upkeep makes and drops partitions, on a connection of its own: heartbeats do
// not wait for locks of the table.
func (x *session) upkeep(ctx context.Context) {
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for {
		dropped, err := x.maintain(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			x.cfg.Log.WarnContext(ctx, "outbox partitions are not maintained; it is tried again within the hour", "slot", x.slot, "error", err)
		case len(dropped) > 0:
			x.cfg.Log.InfoContext(ctx, "outbox partitions are dropped", "slot", x.slot, "partitions", dropped)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (x *session) maintain(ctx context.Context) (dropped []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, upkeepWithin)
	defer cancel()
	conn, err := x.beside(ctx)
	if err != nil {
		return nil, err
	}
	defer leave(conn)
	err = conn.QueryRow(ctx, `SELECT headgate.maintain(make_interval(secs => $1))`, x.cfg.Retain.Seconds()).Scan(&dropped)
	return dropped, err
}

// beside opens a connection on which statements may take long: heartbeats, which
// keep the lead, do not wait for it.
func (x *session) beside(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	conn, err := connectSQL(ctx, x.cfg.URL)
	if err != nil {
		return nil, unreachable(err)
	}
	if err := ready(ctx, conn); err != nil {
		leave(conn)
		return nil, err
	}
	return conn, nil
}

// leave closes a connection without waiting for the server.
func leave(conn *pgx.Conn) {
	now, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(now) // the server ends the session either way
}

// Numbers of the marks that end a repair and a part of it. They never come from
// the log: those of heartbeats are positive.
const (
	repairMark = -1
	partMark   = -2
)

// Prove implements [relay.Session]. The number is taken as it is, not when it is
// greater: one that somebody had forged does not stay.
func (x *session) Prove(ctx context.Context, m relay.Mark) error {
	if m.Number == partMark {
		return x.noteProgress(ctx, m)
	}
	snapshot, sending, _ := strings.Cut(m.Text, " ")
	also, and := "", ""
	args := []any{x.slot, x.epoch, snapshot, m.Number}
	if sending != "" && x.revision >= sendingRevision {
		and = ", proven_sending = $5"
		args = append(args, sending)
	}
	if m.Number == repairMark && x.revision >= progressRevision {
		also = `WITH gone AS (DELETE FROM headgate.relay_repair r USING headgate.relay_state s WHERE r.slot = $1 AND s.slot = $1 AND s.epoch = $2)`
	}
	x.sqlMu.Lock()
	tag, err := x.sql.Exec(ctx, also+`
		UPDATE headgate.relay_state SET proven_snapshot = $3::pg_snapshot, proven = clock_timestamp(), proven_beat = CASE WHEN $4::bigint > 0 THEN $4 ELSE proven_beat END`+and+`
		WHERE slot = $1 AND epoch = $2`, args...)
	x.sqlMu.Unlock()
	if err != nil {
		return sqlError("proving a heartbeat", err)
	}
	if tag.RowsAffected() == 0 {
		return errSuperseded
	}
	if m.Number == repairMark {
		x.proven <- m
	}
	return nil
}
