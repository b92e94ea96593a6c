package pgrelay

import (
	"context"
	"time"

	"github.com/headgate/headgate/relay"
	"github.com/jackc/pgx/v5"
)

// repairWindow is how many sequence numbers one query of a repair covers.
const repairWindow = 5000

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
		x.sqlMu.Lock()
		rows, err := readRows(ctx, x.sql, `seq >= $1 AND seq < $2 AND ($3::text IS NULL OR NOT pg_visible_in_snapshot(xid, $3::pg_snapshot)) AND pg_visible_in_snapshot(xid, $4::pg_snapshot)`,
			low, low+repairWindow, since, now)
		x.sqlMu.Unlock()
		if err != nil {
			return "", err
		}
		for _, row := range rows {
			if err := x.push(ctx, relay.Change{Kind: relay.Insert, Row: row}); err != nil {
				return "", err
			}
		}
	}
	return now, x.push(ctx, relay.Change{Kind: relay.Commit})
}

// stored is a row of the table, as text.
type stored map[string]*string

func (s stored) get(name string) ([]byte, bool) {
	if v := s[name]; v != nil {
		return []byte(*v), true
	}
	return nil, false
}

// outboxColumns are read by name and as text, so that both ways to a row share
// one reader.
var outboxColumns = [...]string{"seq", "id", "role", "type", "source", "subject", "key", "attributes", "cause", "origin", "data", "created"}

const selectRows = `SELECT seq::text, id, role, type, source, subject, key, attributes::text, cause, origin,
	'\x' || encode(data, 'hex'), to_char(created AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"') FROM headgate.outbox WHERE `

// readRows returns the rows that a condition selects, in the order of their
// numbers.
func readRows(ctx context.Context, conn *pgx.Conn, where string, args ...any) ([]*relay.Row, error) {
	// The plain name would be that of the selected text, where 10 is before 9.
	rows, err := conn.Query(ctx, selectRows+where+" ORDER BY headgate.outbox.seq", args...)
	if err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	defer rows.Close()
	var all []*relay.Row
	for rows.Next() {
		values := make([]*string, len(outboxColumns))
		into := make([]any, len(values))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, sqlError("reading the outbox", err)
		}
		s := stored{}
		for i, name := range outboxColumns {
			s[name] = values[i]
		}
		all = append(all, rowOf(s, time.Time{}))
	}
	if err := rows.Err(); err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	return all, nil
}
