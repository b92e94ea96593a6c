package sqlitestore

import (
	"context"
	"slices"

	"github.com/headgate/headgate/store"
)

// Append implements store.Outbox.
func (r outbox) Append(_ context.Context, rows []store.OutboxRow) error {
	for i := range rows {
		q := r.query("INSERT INTO outbox (stream, event) VALUES (?, ?)")
		q.text(rows[i].Stream)
		q.blob(rows[i].Event)
		if err := q.run(); err != nil {
			return err
		}
		rows[i].Seq = r.conn.db.LastInsertRowID()
	}
	return nil
}

// Pending implements store.Outbox.
func (r outbox) Pending(_ context.Context, after int64, limit int) ([]store.OutboxRow, error) {
	q := r.query("SELECT seq, stream, event FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?")
	q.int(after)
	q.int(int64(max(limit, 0)))
	var all []store.OutboxRow
	for q.next() {
		all = append(all, store.OutboxRow{Seq: q.colInt(), Stream: q.colText(), Event: q.colBlob()})
	}
	return all, q.close()
}

// Delete implements store.Outbox. Rows are published in order, so that what is
// deleted is mostly runs: one statement ends a whole run.
func (r outbox) Delete(_ context.Context, seqs []int64) error {
	sorted := slices.Sorted(slices.Values(seqs))
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n]-sorted[n-1] <= 1 {
			n++
		}
		q := r.query("DELETE FROM outbox WHERE seq BETWEEN ? AND ?")
		q.int(sorted[0])
		q.int(sorted[n-1])
		if err := q.run(); err != nil {
			return err
		}
		sorted = sorted[n:]
	}
	return nil
}

// Count implements store.Outbox.
func (r outbox) Count(context.Context) (int, error) {
	q := r.query("SELECT count(*) FROM outbox")
	n := 0
	if q.next() {
		n = int(q.colInt())
	}
	return n, q.close()
}
