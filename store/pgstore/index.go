package pgstore

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const indexColumns = `stream, partition, "offset", id, source, type, subject, root, causes, ttl, hop, origin, principal, contract, recorded`

func scanIndex(q *query) ([]store.IndexRow, error) {
	var all []store.IndexRow
	for q.next() {
		all = append(all, store.IndexRow{
			Stream: q.colText(), Position: headgate.Position{Partition: uint32(q.colInt()), Offset: q.colUint()},
			ID: q.colText(), Source: q.colText(), Type: q.colText(), Subject: q.colText(), Root: q.colText(), Causes: q.colText(),
			TTL: int(q.colInt()), Hop: int(q.colInt()), Origin: headgate.Origin(q.colText()), Principal: q.colText(),
			Contract: q.colText(), Recorded: q.colTime(),
		})
	}
	return all, q.close()
}

// Put implements store.Index.
func (r index) Put(_ context.Context, rows []store.IndexRow) error {
	for i := range rows {
		if err := r.put(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r index) put(row *store.IndexRow) error {
	q := r.query("INSERT INTO @event_index (" + indexColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (stream, partition, "offset") DO UPDATE SET id = excluded.id, source = excluded.source, type = excluded.type,
		subject = excluded.subject, root = excluded.root, causes = excluded.causes, ttl = excluded.ttl, hop = excluded.hop,
		origin = excluded.origin, principal = excluded.principal, contract = excluded.contract, recorded = excluded.recorded`)
	q.text(row.Stream)
	q.int(int64(row.Position.Partition))
	q.uint(row.Position.Offset)
	q.text(row.ID)
	q.text(row.Source)
	q.text(row.Type)
	q.text(row.Subject)
	q.text(row.Root)
	q.text(row.Causes)
	q.int(int64(row.TTL))
	q.int(int64(row.Hop))
	q.text(string(row.Origin))
	q.text(row.Principal)
	q.text(row.Contract)
	q.time(row.Recorded)
	return q.run()
}

// ByID implements store.Index.
func (r index) ByID(_ context.Context, id string) ([]store.IndexRow, error) {
	q := r.query("SELECT " + indexColumns + ` FROM @event_index WHERE id = ? ORDER BY stream, partition, "offset"`)
	q.text(id)
	return scanIndex(&q)
}

// ByRoot implements store.Index.
func (r index) ByRoot(_ context.Context, root string, skip, limit int) ([]store.IndexRow, error) {
	q := r.query("SELECT " + indexColumns + ` FROM @event_index WHERE root = ? ORDER BY recorded, stream, partition, "offset" LIMIT ? OFFSET ?`)
	q.text(root)
	q.int(int64(max(limit, 0)))
	q.int(int64(max(skip, 0)))
	return scanIndex(&q)
}

// Cursor implements store.Index.
func (r index) Cursor(_ context.Context, stream string, partition uint32) (uint64, error) {
	q := r.query("SELECT next FROM @event_index_cursors WHERE stream = ? AND partition = ?")
	q.text(stream)
	q.int(int64(partition))
	var next uint64
	if q.next() {
		next = q.colUint()
	}
	return next, q.close()
}

// SetCursor implements store.Index.
func (r index) SetCursor(_ context.Context, stream string, partition uint32, next uint64) error {
	q := r.query(`INSERT INTO @event_index_cursors (stream, partition, next) VALUES (?, ?, ?)
		ON CONFLICT (stream, partition) DO UPDATE SET next = excluded.next`)
	q.text(stream)
	q.int(int64(partition))
	q.uint(next)
	return q.run()
}

// Prune implements store.Index. The row limit places ahead of the first one
// bounds what is deleted.
func (r index) Prune(_ context.Context, stream string, partition uint32, below uint64, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	q := r.query(`DELETE FROM @event_index WHERE stream = ?1 AND partition = ?2 AND "offset" < least(?3, coalesce(
		(SELECT "offset" FROM @event_index WHERE stream = ?1 AND partition = ?2 ORDER BY "offset" LIMIT 1 OFFSET ?4), ?3))`)
	q.text(stream)
	q.int(int64(partition))
	q.bound(below)
	q.int(int64(limit))
	return q.change()
}

// Reset implements store.Index.
func (r index) Reset(context.Context) error {
	q := r.query("DELETE FROM @event_index")
	if err := q.run(); err != nil {
		return err
	}
	q = r.query("DELETE FROM @event_index_cursors")
	return q.run()
}
