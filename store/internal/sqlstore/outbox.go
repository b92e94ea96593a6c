package sqlstore

import (
	"context"
	"slices"

	"github.com/headgate/headgate/store"
)

// Append implements store.Outbox.
func (r outbox) Append(_ context.Context, rows []store.OutboxRow) error {
	for i := range rows {
		q := r.query("INSERT INTO @outbox (stream, event) VALUES (?, ?) RETURNING seq")
		q.Text(rows[i].Stream)
		q.Blob(rows[i].Event)
		if q.Next() {
			rows[i].Seq = q.ColInt()
		}
		if err := q.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Pending implements store.Outbox.
func (r outbox) Pending(_ context.Context, after int64, limit int) ([]store.OutboxRow, error) {
	q := r.query("SELECT seq, stream, event FROM @outbox WHERE seq > ? ORDER BY seq LIMIT ?")
	q.Int(after)
	q.Int(int64(max(limit, 0)))
	var all []store.OutboxRow
	for q.Next() {
		all = append(all, store.OutboxRow{Seq: q.ColInt(), Stream: q.ColText(), Event: q.ColBlob()})
	}
	return all, q.Close()
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
		q := r.query("DELETE FROM @outbox WHERE seq BETWEEN ? AND ?")
		q.Int(sorted[0])
		q.Int(sorted[n-1])
		if err := q.Run(); err != nil {
			return err
		}
		sorted = sorted[n:]
	}
	return nil
}

// Count implements store.Outbox.
func (r outbox) Count(context.Context) (int, error) {
	q := r.query("SELECT count(*) FROM @outbox")
	n := 0
	if q.Next() {
		n = int(q.ColInt())
	}
	return n, q.Close()
}
