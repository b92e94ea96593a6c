package pgrelay

import (
	"context"
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

// repair hands out the rows whose transactions are not visible in the proven
// snapshot, in the order of their numbers, until a pass was not overtaken by
// the slot being advanced. The slot exists before the pass looks at the table,
// so that every later commit is in the stream.
func (x *session) repair(ctx context.Context) error {
	if x.advanced.Swap(false) {
		x.cfg.Log.DebugContext(ctx, "outbox slot was advanced before the repair", "slot", x.slot)
	}
	for {
		next, err := x.pass(ctx, x.snapshot)
		if err != nil {
			return err
		}
		if err := x.push(ctx, relay.Change{Kind: relay.Beat, Mark: relay.Mark{Number: repairMark, Text: next}}); err != nil {
			return err
		}
		select {
		case <-x.proven:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		x.snapshot = &next
		done, err := x.endRepair(ctx)
		if err != nil {
			return err
		}
		if done {
			return nil
		}
	}
}

// endRepair clears the reason, unless the slot was advanced since the pass began.
func (x *session) endRepair(ctx context.Context) (bool, error) {
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	if x.advanced.Swap(false) {
		return false, nil
	}
	if _, err := x.sql.Exec(ctx, `UPDATE headgate.relay_state SET repair = NULL WHERE slot = $1 AND epoch = $2`, x.slot, x.epoch); err != nil {
		return false, sqlError("ending the repair", err)
	}
	x.why.Store(nil)
	x.cfg.Log.InfoContext(ctx, "outbox is repaired", "slot", x.slot)
	return true, nil
}

// pass hands out the rows between two snapshots and returns the later one. The
// queries are short, so that no old snapshot holds back the vacuum.
func (x *session) pass(ctx context.Context, since *string) (string, error) {
	var now string
	var low, high int64
	x.sqlMu.Lock()
	err := x.sql.QueryRow(ctx, `SELECT pg_current_snapshot()::text, coalesce(min(seq), 0), coalesce(max(seq), -1) FROM headgate.outbox`).Scan(&now, &low, &high)
	x.sqlMu.Unlock()
	if err != nil {
		return "", sqlError("reading the outbox", err)
	}
	if err := x.push(ctx, relay.Change{Kind: relay.Begin}); err != nil {
		return "", err
	}
	for ; low <= high; low += repairWindow {
		if err := x.window(ctx, low, low+repairWindow, since, now); err != nil {
			return "", err
		}
	}
	return now, x.push(ctx, relay.Change{Kind: relay.Commit})
}

// between selects the rows whose transactions ended between two snapshots.
const between = `seq >= $1 AND seq < $2 AND ($3::text IS NULL OR NOT pg_visible_in_snapshot(xid, $3::pg_snapshot)) AND pg_visible_in_snapshot(xid, $4::pg_snapshot)`

// window hands out the rows from a sequence number to before another.
func (x *session) window(ctx context.Context, from, before int64, since *string, now string) error {
	x.sqlMu.Lock()
	sizes, err := readSizes(ctx, x.sql, from, before, since, now)
	x.sqlMu.Unlock()
	if err != nil {
		return err
	}
	for len(sizes) > 0 {
		n, bytes := 1, sizes[0].bytes
		for n < len(sizes) && bytes+sizes[n].bytes <= repairBytes {
			bytes += sizes[n].bytes
			n++
		}
		x.sqlMu.Lock()
		rows, err := readRows(ctx, x.sql, between, sizes[0].seq, sizes[n-1].seq+1, since, now)
		x.sqlMu.Unlock()
		if err != nil {
			return err
		}
		for i, row := range rows {
			rows[i] = nil // it is the relay's now, and may be gone before the last is
			if err := x.push(ctx, relay.Change{Kind: relay.Insert, Row: row}); err != nil {
				return err
			}
		}
		sizes = sizes[n:]
	}
	return nil
}

// rowSize says how much a row has. What is stored out of line is not read for it.
type rowSize struct{ seq, bytes int64 }

func readSizes(ctx context.Context, conn *pgx.Conn, from, before int64, since *string, now string) ([]rowSize, error) {
	rows, err := conn.Query(ctx, `
		SELECT seq, coalesce(octet_length(data), 0) + coalesce(octet_length(cause), 0) + coalesce(octet_length(key), 0) +
		       coalesce(octet_length(subject), 0) + coalesce(pg_column_size(attributes), 0) + 512
		FROM headgate.outbox WHERE `+between+` ORDER BY seq`, from, before, since, now)
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

func collectRows(rows pgx.Rows) ([]*relay.Row, error) {
	defer rows.Close()
	var all []*relay.Row
	for rows.Next() {
		var s stored
		into := make([]any, 0, columnCount+1)
		for i := range s.values {
			into = append(into, &s.values[i])
		}
		if err := rows.Scan(append(into, &s.bytes)...); err != nil {
			return nil, sqlError("reading the outbox", err)
		}
		all = append(all, rowOf(&s, time.Time{}))
	}
	if err := rows.Err(); err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	return all, nil
}
