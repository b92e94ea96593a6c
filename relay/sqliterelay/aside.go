package sqliterelay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headgate/headgate/relay"
)

var _ relay.Aside = (*session)(nil)

// asideRevision is the first revision of what is installed that has a place for
// rows that are set aside.
const asideRevision = 3

// LoadAside implements [relay.Aside].
func (x *session) LoadAside(ctx context.Context) ([]relay.AsidePage, error) {
	if x.revision < asideRevision {
		return nil, fmt.Errorf("revision %d of the database's outbox: %w", x.revision, errors.ErrUnsupported)
	}
	return readAside(ctx, x.again)
}

func readAside(ctx context.Context, q querier) ([]relay.AsidePage, error) {
	rows, err := q.QueryContext(ctx, `SELECT role, roots, page, bits FROM headgate_outbox_aside`)
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

// SaveAside implements [relay.Aside].
func (x *session) SaveAside(ctx context.Context, pages []relay.AsidePage) error {
	return patient(ctx, func() error {
		x.writing.Lock()
		defer x.writing.Unlock()
		return immediate(ctx, x.write, func() error { return x.savePages(ctx, pages) })
	})
}

func (x *session) savePages(ctx context.Context, pages []relay.AsidePage) error {
	var leads bool
	err := x.write.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM headgate_outbox_state WHERE epoch = ? AND identity = ?)`, x.epoch, x.identity).Scan(&leads)
	if err != nil {
		return sqlError("setting rows aside", err)
	}
	if !leads {
		return errSuperseded
	}
	for i := range pages {
		p := &pages[i]
		if len(p.Bits) == 0 {
			_, err = x.write.ExecContext(ctx, `DELETE FROM headgate_outbox_aside WHERE page = ? AND role = ? AND roots = ?`, p.Number, p.Role, p.Roots)
		} else {
			_, err = x.write.ExecContext(ctx, `INSERT OR REPLACE INTO headgate_outbox_aside (page, role, roots, bits) VALUES (?, ?, ?, ?)`, p.Number, p.Role, p.Roots, p.Bits)
		}
		if err != nil {
			return sqlError("setting rows aside", err)
		}
	}
	return nil
}

// ReadAside implements [relay.Aside]. What was committed can be seen, so that
// what is not there is gone.
func (x *session) ReadAside(ctx context.Context, numbers []int64, bytes int) (rows []*relay.Row, gone []int64, err error) {
	list, err := json.Marshal(numbers)
	if err != nil {
		return nil, nil, err
	}
	got, err := x.again.QueryContext(ctx, selectAside, string(list))
	if err != nil {
		return nil, nil, sqlError("reading what is set aside", err)
	}
	defer got.Close()
	last := numbers[len(numbers)-1]
	for total := 0; got.Next(); {
		r, size, err := scanRow(got)
		if err != nil {
			return nil, nil, sqlError("reading what is set aside", err)
		}
		rows = append(rows, r.row)
		if total += size; total >= bytes {
			last = r.row.Seq
			break
		}
	}
	if err := got.Err(); err != nil {
		return nil, nil, sqlError("reading what is set aside", err)
	}
	at := 0
	for _, n := range numbers {
		switch {
		case at < len(rows) && rows[at].Seq == n:
			at++
		case n <= last:
			gone = append(gone, n)
		}
	}
	return rows, gone, nil
}
