package pgrelay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/relay"
)

var _ relay.Aside = (*session)(nil)

// asideRevision is the first revision of what is installed that knows rows that
// are set aside: those before would drop their partitions.
const asideRevision = 3

// LoadAside implements [relay.Aside].
func (x *session) LoadAside(ctx context.Context) ([]relay.AsidePage, error) {
	if x.revision < asideRevision {
		return nil, fmt.Errorf("revision %d of the database's outbox: %w", x.revision, errors.ErrUnsupported)
	}
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	rows, err := x.sql.Query(ctx, `SELECT role, roots, page, bits FROM headgate.outbox_aside`)
	if err != nil {
		return nil, sqlError("reading what is set aside", err)
	}
	defer rows.Close()
	var pages []relay.AsidePage
	for rows.Next() {
		var p relay.AsidePage
		if err := rows.Scan(&p.Role, &p.Roots, &p.Number, &p.Bits); err != nil {
			return nil, sqlError("reading what is set aside", err)
		}
		pages = append(pages, p)
	}
	if err := rows.Err(); err != nil {
		return nil, sqlError("reading what is set aside", err)
	}
	return pages, nil
}

// SaveAside implements [relay.Aside]. The lock on the session's row orders it
// with the epoch of the next: what a superseded relay saved came before that one
// looked, or is refused.
func (x *session) SaveAside(ctx context.Context, pages []relay.AsidePage) error {
	roles, roots, numbers, bits := make([]string, len(pages)), make([]bool, len(pages)), make([]int64, len(pages)), make([][]byte, len(pages))
	for i, p := range pages {
		roles[i], roots[i], numbers[i], bits[i] = p.Role, p.Roots, p.Number, p.Bits
		if bits[i] == nil {
			bits[i] = []byte{}
		}
	}
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	var leads int
	err := x.sql.QueryRow(ctx, `
		WITH lead AS (
		  SELECT FROM headgate.relay_state WHERE slot = $1 AND epoch = $2 FOR SHARE
		), pages AS (
		  SELECT p.* FROM lead, unnest($3::text[], $4::boolean[], $5::bigint[], $6::bytea[]) p (role, roots, page, bits)
		), gone AS (
		  DELETE FROM headgate.outbox_aside a USING pages p
		  WHERE a.role = p.role AND a.roots = p.roots AND a.page = p.page AND octet_length(p.bits) = 0
		), kept AS (
		  INSERT INTO headgate.outbox_aside SELECT role, roots, page, bits FROM pages WHERE octet_length(bits) > 0
		  ON CONFLICT (page, role, roots) DO UPDATE SET bits = excluded.bits
		)
		SELECT count(*) FROM lead`, x.slot, x.epoch, roles, roots, numbers, bits).Scan(&leads)
	switch {
	case err != nil:
		return sqlError("setting rows aside", err)
	case leads == 0:
		return errSuperseded
	}
	return nil
}

// asideRows selects rows by number, the first and then as many as have so many
// bytes together. What is stored out of line is not read for that.
const asideRows = selectColumns + `(
	SELECT *, row_number() OVER w AS nth,
	       sum(coalesce(octet_length(data), 0) + coalesce(octet_length(key), 0) + coalesce(octet_length(cause), 0) + coalesce(pg_column_size(attributes), 0) + 512) OVER w AS total
	FROM headgate.outbox WHERE seq BETWEEN $1 AND $2 AND seq = ANY ($3)
	WINDOW w AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)) o
	WHERE nth = 1 OR total <= $4 ORDER BY o.seq`

// ReadAside implements [relay.Aside]. The log may tell of a commit before it can
// be seen, for as long as it waits for a standby. What is missing is gone when no
// transaction runs any more that ran when it was first missed.
func (x *session) ReadAside(ctx context.Context, numbers []int64, bytes int) ([]*relay.Row, []int64, error) {
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	var running uint64
	if len(x.missed) > 0 {
		var err error
		if running, _, err = x.snapshotBounds(ctx); err != nil {
			return nil, nil, err
		}
	}
	got, err := x.sql.Query(ctx, asideRows, numbers[0], numbers[len(numbers)-1], numbers, bytes)
	if err != nil {
		return nil, nil, sqlError("reading what is set aside", err)
	}
	rows, err := collectRows(got)
	if err != nil {
		return nil, nil, err
	}
	last := numbers[len(numbers)-1]
	if len(rows) > 0 {
		last = rows[len(rows)-1].Seq
	}
	var gone []int64
	at := 0
	for _, n := range numbers {
		if n > last {
			break
		}
		if at < len(rows) && rows[at].Seq == n {
			for at < len(rows) && rows[at].Seq == n {
				rows[at].Committed = rows[at].Committed.Add(-time.Duration(x.ahead.Load()))
				at++
			}
			delete(x.missed, n)
			continue
		}
		since, known := x.missed[n]
		if !known {
			if err := x.miss(ctx, n); err != nil {
				return nil, nil, err
			}
		}
		if !known || running < since {
			return rows[:at], gone, nil // those behind it may be of its key
		}
		gone = append(gone, n)
	}
	return rows[:at], gone, nil
}

// miss notes that a row cannot be seen.
func (x *session) miss(ctx context.Context, number int64) error {
	_, next, err := x.snapshotBounds(ctx)
	if err != nil {
		return err
	}
	if x.missed == nil || len(x.missed) >= 1000 {
		x.missed = map[int64]uint64{} // whoever is missed again is noted again
	}
	x.missed[number] = next
	return nil
}

// snapshotBounds returns the lowest transaction that runs, and the next one.
func (x *session) snapshotBounds(ctx context.Context) (running, next uint64, err error) {
	var low, high string
	if err := x.sql.QueryRow(ctx, `SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text FROM pg_current_snapshot() s`).Scan(&low, &high); err != nil {
		return 0, 0, sqlError("asking what runs", err)
	}
	running, err = strconv.ParseUint(low, 10, 64)
	if err == nil {
		next, err = strconv.ParseUint(high, 10, 64)
	}
	return running, next, err
}

// keepDurable lets no statement of the session return before it is durable, whatever
// the database is set to, and none wait for a standby, which may be away: what the
// relay notes counts on this server, and a standby has of it what it has of the
// log, in its order.
const keepDurable = `SELECT pg_catalog.set_config('synchronous_commit', 'local', false)`
