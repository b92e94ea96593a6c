package pgstore

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// outbox is the role with numbers of our own.
type outbox struct {
	store.Outbox
	t *tx
}

// reserve is how many numbers a group takes at once. They are taken under the
// writers' lock, so that they rise in the order of commits; what a group does
// not use is never used.
const reserve = 64

// numbers are those that a group took for its outbox rows.
type numbers struct{ free []int64 }

// take returns n numbers.
func (r outbox) take(n int) ([]int64, error) {
	seqs := r.t.seqs
	if n > len(seqs.free) {
		seqs.free = seqs.free[:0]
		q := r.t.query("SELECT nextval('@outbox_seq') FROM generate_series(1, ?)")
		q.Int(int64(max(n, reserve)))
		for q.Next() {
			seqs.free = append(seqs.free, q.ColInt())
		}
		if err := q.Close(); err != nil {
			return nil, err
		}
	}
	if n > len(seqs.free) {
		return nil, headgate.NewError(headgate.CodeInternal, "the database gave %d numbers for %d rows", len(seqs.free), n)
	}
	taken := seqs.free[:n]
	seqs.free = seqs.free[n:]
	return taken, nil
}

// Append implements store.Outbox. To have the database number the rows would
// be a round trip for each.
func (r outbox) Append(_ context.Context, rows []store.OutboxRow) error {
	if err := r.t.mayWrite(); err != nil || len(rows) == 0 {
		return err
	}
	seqs, err := r.take(len(rows))
	if err != nil {
		return err
	}
	for i := range rows {
		q := r.t.query("INSERT INTO @outbox (seq, stream, event) VALUES (?, ?, ?)")
		q.Int(seqs[i])
		q.Text(rows[i].Stream)
		q.Blob(rows[i].Event)
		if err := q.Run(); err != nil {
			return err
		}
		rows[i].Seq = seqs[i]
	}
	return nil
}
