package pgrelay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/relay"
	"github.com/jackc/pgx/v5"
)

// A repair asks for the sizes of the rows among so many sequence numbers, and
// then for as many of those rows as have so many bytes together, at least one.
const (
	repairWindow = 5000
	repairBytes  = 4 << 20
)

// progressRevision is the first revision of what is installed that has a place
// for the progress of a repair.
const progressRevision = 6

// stretch is what one pass of a repair reads: the rows whose transactions ended
// between two snapshots, from a number on.
type stretch struct {
	since     *string // nil: the whole table
	until     string
	low, high int64
	restored  int64           // of a whole table: up to it rows are of another server, and read as they are seen
	sending   *sending        // as of until; nil: not known
	open      map[uint32]bool // who wrote before it began and had not ended
}

// repair hands out the rows whose transactions are not visible in the proven
// snapshot, in the order of their numbers, until a pass was not overtaken by
// the slot being advanced. The slot exists before the pass looks at the table,
// so that every later commit is in the stream. A pass that was broken off goes on
// where it was; the slot was advanced since it began, so that another follows.
// What it cannot see yet and the stream may not have either keeps it from ending:
// see [writers]. The table is read on a connection of its own: to look at all of it
// may take much longer than a lead lasts.
func (x *session) repair(ctx context.Context) error {
	table, err := x.beside(ctx)
	if err != nil {
		return err
	}
	defer leave(table)
	p, err := x.brokenOff(ctx, table)
	if err != nil {
		return err
	}
	for {
		old := p != nil
		if !old {
			if x.advanced.Swap(false) {
				x.cfg.Log.DebugContext(ctx, "outbox slot was advanced before the repair", "slot", x.slot)
			}
			if p, err = x.nextPass(ctx, table); err != nil {
				return err
			}
		}
		if err := x.pass(ctx, table, p); err != nil {
			return err
		}
		if err := x.push(ctx, relay.Change{Kind: relay.Beat, Mark: relay.Mark{Number: repairMark, Text: proofOf(p.until, p.sending)}}); err != nil {
			return err
		}
		select {
		case <-x.proven:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		open := p.open
		x.snapshot, p = &p.until, nil
		if old {
			continue
		}
		done, err := x.endPass(ctx, open)
		if err != nil {
			return err
		}
		if done {
			return nil
		}
	}
}

// brokenOff returns what is left of a pass that another session began; nil:
// nothing is.
func (x *session) brokenOff(ctx context.Context, table *pgx.Conn) (*stretch, error) {
	if x.revision < progressRevision {
		return nil, nil
	}
	p := &stretch{since: x.snapshot, restored: math.MinInt64}
	err := table.QueryRow(ctx, `
		SELECT r.until::text, r.seq, (SELECT coalesce(max(o.seq), -1) FROM headgate.outbox o) FROM headgate.relay_repair r
		WHERE r.slot = $1 AND r.system_id = $2 AND r.since::text IS NOT DISTINCT FROM $3
		  AND pg_snapshot_xmax(r.until) <= pg_snapshot_xmax(pg_current_snapshot())
		  AND (r.since IS NOT NULL OR NOT EXISTS (SELECT FROM headgate.outbox WHERE NOT pg_visible_in_snapshot(xid, pg_current_snapshot())))`, x.slot, x.systemID, x.snapshot).Scan(&p.until, &p.low, &p.high)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, sqlError("reading the progress of the repair", err)
	}
	x.cfg.Log.InfoContext(ctx, "outbox repair goes on where it was broken off", "slot", x.slot, "row", p.low)
	return p, nil
}

// nextPass begins a pass at the present. A row that is seen although its
// transaction is not was restored from a dump of another server, where that had
// the number; so were those before it, since a dump also sets the sequence.
func (x *session) nextPass(ctx context.Context, table *pgx.Conn) (*stretch, error) {
	open, err := x.settle(ctx)
	if err != nil {
		return nil, err
	}
	p := &stretch{since: x.snapshot, open: open}
	var sends *string
	err = table.QueryRow(ctx, `SELECT pg_current_snapshot()::text, `+selectSending+`, coalesce(min(seq), 0), coalesce(max(seq), -1),
		       coalesce(max(seq) FILTER (WHERE NOT pg_visible_in_snapshot(xid, pg_current_snapshot())), -9223372036854775808) FROM headgate.outbox`).Scan(&p.until, &sends, &p.low, &p.high, &p.restored)
	if err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	if err := x.harden(ctx); err != nil {
		return nil, err
	}
	p.sending = sendingOf(sends)
	x.sends = p.sending
	if p.since != nil {
		p.restored = math.MinInt64 // the first repair on this server has read them
	}
	return p, nil
}

// harden returns when all that was seen so far is durable: a commit that need not
// be (synchronous_commit = off) is seen before it is in the log, and a crash may
// take it back.
func (x *session) harden(ctx context.Context) error {
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	tag, err := x.sql.Exec(ctx, `UPDATE headgate.relay_state SET renewed = clock_timestamp() WHERE slot = $1 AND epoch = $2`, x.slot, x.epoch)
	if err != nil {
		return sqlError("renewing the lead", err)
	}
	if tag.RowsAffected() == 0 {
		return errSuperseded
	}
	return nil
}

// endPass ends the repair, or leaves it open for writers that have not ended. It
// reports whether the stream may begin: not if the slot was advanced since the
// pass began.
func (x *session) endPass(ctx context.Context, open map[uint32]bool) (bool, error) {
	if len(open) == 0 {
		return x.endRepair(ctx, *x.why.Load())
	}
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	if x.advanced.Swap(false) {
		return false, nil
	}
	return true, x.awaitWriters(ctx, open)
}

// endRepair clears the reason, unless the slot was advanced since the pass began
// or there is another one.
func (x *session) endRepair(ctx context.Context, reason string) (bool, error) {
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	if x.advanced.Swap(false) {
		return false, nil
	}
	if _, err := x.sql.Exec(ctx, `UPDATE headgate.relay_state SET repair = NULL WHERE slot = $1 AND epoch = $2 AND repair = $3`, x.slot, x.epoch, reason); err != nil {
		return false, sqlError("ending the repair", err)
	}
	x.why.Store(nil)
	x.cfg.Log.InfoContext(ctx, "outbox is repaired", "slot", x.slot)
	return true, nil
}

// pass hands out the rows of a stretch. The queries are short, so that no old
// snapshot holds back the vacuum. Where parts of it end is noted when they are
// done.
func (x *session) pass(ctx context.Context, table *pgx.Conn, p *stretch) error {
	for low := p.low; low <= p.high; low += repairWindow {
		if err := x.push(ctx, relay.Change{Kind: relay.Begin}); err != nil {
			return err
		}
		some, err := x.window(ctx, table, low, low+repairWindow, p)
		if err != nil {
			return err
		}
		if some && x.revision >= progressRevision {
			mark := relay.Mark{Number: partMark, Text: p.part(low + repairWindow)}
			if err := x.push(ctx, relay.Change{Kind: relay.Stage, Mark: mark}); err != nil {
				return err
			}
		}
		if err := x.push(ctx, relay.Change{Kind: relay.Commit}); err != nil {
			return err
		}
	}
	return nil
}

// part is the text of a mark: the stretch, and before which number it is done.
func (p *stretch) part(before int64) string {
	since := "-"
	if p.since != nil {
		since = *p.since
	}
	return fmt.Sprintf("%s %s %d", since, p.until, before)
}

// noteProgress keeps how far a pass is done.
func (x *session) noteProgress(ctx context.Context, m relay.Mark) error {
	var text, until string
	var before int64
	if _, err := fmt.Sscan(m.Text, &text, &until, &before); err != nil {
		return fmt.Errorf("pgrelay: the mark %q cannot be read: %w", m.Text, err)
	}
	var since *string
	if text != "-" {
		since = &text
	}
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	tag, err := x.sql.Exec(ctx, `
		INSERT INTO headgate.relay_repair AS r (slot, system_id, since, until, seq)
		SELECT s.slot, $3, $4::pg_snapshot, $5::pg_snapshot, $6 FROM headgate.relay_state s WHERE s.slot = $1 AND s.epoch = $2 FOR SHARE
		ON CONFLICT (slot) DO UPDATE SET system_id = $3, since = $4::pg_snapshot, until = $5::pg_snapshot, seq = $6`,
		x.slot, x.epoch, x.systemID, since, until, before)
	if err != nil {
		return sqlError("noting the progress of the repair", err)
	}
	if tag.RowsAffected() == 0 {
		return errSuperseded
	}
	return nil
}

// between selects the rows whose transactions ended between two snapshots.
const between = `seq >= $1 AND seq < $2 AND (seq <= $5 OR ($3::text IS NULL OR NOT pg_visible_in_snapshot(xid, $3::pg_snapshot)) AND pg_visible_in_snapshot(xid, $4::pg_snapshot))`

// window hands out the rows of a stretch from a sequence number to before
// another, and reports whether there are any.
func (x *session) window(ctx context.Context, table *pgx.Conn, from, before int64, p *stretch) (some bool, err error) {
	sizes, err := readSizes(ctx, table, from, before, p.since, p.until, p.restored)
	if err != nil {
		return false, err
	}
	some = len(sizes) > 0
	for len(sizes) > 0 {
		n, bytes := 1, sizes[0].bytes
		for n < len(sizes) && bytes+sizes[n].bytes <= repairBytes {
			bytes += sizes[n].bytes
			n++
		}
		rows, err := readRows(ctx, table, between, sizes[0].seq, sizes[n-1].seq+1, p.since, p.until, p.restored)
		if untold(err) {
			rows, err = readOneByOne(ctx, table, sizes[:n], p)
		}
		if err != nil {
			return false, err
		}
		for i, row := range rows {
			rows[i] = nil // it is the relay's now, and may be gone before the last is
			if err := x.push(ctx, relay.Change{Kind: relay.Insert, Row: row}); err != nil {
				return some, err
			}
		}
		sizes = sizes[n:]
	}
	return some, nil
}

// rowSize says how much a row has. What is stored out of line is not read for it.
type rowSize struct{ seq, bytes int64 }

func readSizes(ctx context.Context, conn *pgx.Conn, from, before int64, since *string, now string, restored int64) ([]rowSize, error) {
	rows, err := conn.Query(ctx, `
		SELECT seq, coalesce(octet_length(data), 0) + coalesce(octet_length(cause), 0) + coalesce(octet_length(key), 0) +
		       coalesce(octet_length(subject), 0) + coalesce(pg_column_size(attributes), 0) + 512
		FROM headgate.outbox WHERE `+between+` ORDER BY seq`, from, before, since, now, restored)
	if err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	sizes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s rowSize, err error) { return s, row.Scan(&s.seq, &s.bytes) })
	if err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	return sizes, nil
}

// stored is a row of the table, as text.
type stored struct {
	values [columnCount]*string
	bytes  *string // of the data, which may be more than its text
}

// get implements [columns].
func (s *stored) get(c column) ([]byte, bool) {
	if v := s.values[c]; v != nil {
		return []byte(*v), true
	}
	return nil, false
}

// size implements [columns].
func (s *stored) size() int {
	if s.bytes != nil {
		if n, err := strconv.Atoi(*s.bytes); err == nil {
			return n
		}
	}
	v, _ := s.get(colData)
	return hexSize(v)
}

// payload implements [columns].
func (s *stored) payload() ([]byte, bool, error) {
	v, ok := s.get(colData)
	if !ok {
		return nil, false, nil
	}
	data, err := fromHex(v)
	return data, true, err
}

// created implements [columns].
func (s *stored) created() time.Time { return parseTime(text(s, colCreated)) }

// Of a row beyond the bounds only the head is read.
const selectColumns = `SELECT seq::text, left(id, 65537), left(role, 65537), left(type, 65537), left(source, 65537), left(subject, 65537),
	left(key, 65537), left(attributes::text, 65537), left(cause, 65537), left(origin, 65537),
	'\x' || encode(CASE WHEN octet_length(data) > 8388608 THEN substring(data FOR 1048576) ELSE data END, 'hex'), to_char(created AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"'),
	octet_length(data)::text FROM `

// readRows returns the rows that a condition selects, in the order of their
// numbers.
func readRows(ctx context.Context, conn *pgx.Conn, where string, args ...any) ([]*relay.Row, error) {
	// The plain name would be that of the selected text, where 10 is before 9.
	rows, err := conn.Query(ctx, selectColumns+"headgate.outbox WHERE "+where+" ORDER BY headgate.outbox.seq", args...)
	if err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	return collectRows(rows)
}

func scanStored(rows pgx.Rows) (*stored, error) {
	var s stored
	into := make([]any, 0, columnCount+1)
	for i := range s.values {
		into = append(into, &s.values[i])
	}
	if err := rows.Scan(append(into, &s.bytes)...); err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	return &s, nil
}

func collectRows(rows pgx.Rows) ([]*relay.Row, error) {
	defer rows.Close()
	var all []*relay.Row
	for rows.Next() {
		s, err := scanStored(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, rowOf(s, time.Time{}))
	}
	if err := rows.Err(); err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	return all, nil
}
