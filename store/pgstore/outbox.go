package pgstore

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// reserve is how many numbers a group takes at once. They are taken under the
// writers' lock, so that they rise in the order of commits; what a group does
// not use is never used.
const reserve = 64

// numbers are those that a group took for its outbox rows.
type numbers struct{ free []int64 }

// take returns n numbers.
func (r outbox) take(n int) ([]int64, error) {
	if n > len(r.seqs.free) {
		r.seqs.free = r.seqs.free[:0]
		q := r.query("SELECT nextval('@outbox_seq') FROM generate_series(1, ?)")
		q.int(int64(max(n, reserve)))
		for q.next() {
			r.seqs.free = append(r.seqs.free, q.colInt())
		}
		if err := q.close(); err != nil {
			return nil, err
		}
	}
	if n > len(r.seqs.free) {
		return nil, headgate.NewError(headgate.CodeInternal, "the database gave %d numbers for %d rows", len(r.seqs.free), n)
	}
	taken := r.seqs.free[:n]
	r.seqs.free = r.seqs.free[n:]
	return taken, nil
}

// Append implements store.Outbox.
func (r outbox) Append(_ context.Context, rows []store.OutboxRow) error {
	if err := r.mayWrite(); err != nil || len(rows) == 0 {
		return err
	}
	seqs, err := r.take(len(rows))
	if err != nil {
		return err
	}
	for i := range rows {
		q := r.query("INSERT INTO @outbox (seq, stream, event) VALUES (?, ?, ?)")
		q.int(seqs[i])
		q.text(rows[i].Stream)
		q.blob(rows[i].Event)
		if err := q.run(); err != nil {
			return err
		}
		rows[i].Seq = seqs[i]
	}
	return nil
}

// Pending implements store.Outbox.
func (r outbox) Pending(_ context.Context, after int64, limit int) ([]store.OutboxRow, error) {
	q := r.query("SELECT seq, stream, event FROM @outbox WHERE seq > ? ORDER BY seq LIMIT ?")
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
		q := r.query("DELETE FROM @outbox WHERE seq BETWEEN ? AND ?")
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
	q := r.query("SELECT count(*) FROM @outbox")
	n := 0
	if q.next() {
		n = int(q.colInt())
	}
	return n, q.close()
}
