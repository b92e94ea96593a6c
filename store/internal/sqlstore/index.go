package sqlstore

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const indexColumns = `stream, partition, "offset", id, source, type, subject, root, causes, ttl, hop, origin, principal, contract, recorded`

func scanIndex(q query) ([]store.IndexRow, error) {
	var all []store.IndexRow
	for q.Next() {
		all = append(all, store.IndexRow{
			Stream: q.ColText(), Position: headgate.Position{Partition: uint32(q.ColInt()), Offset: q.colUint()},
			ID: q.ColText(), Source: q.ColText(), Type: q.ColText(), Subject: q.ColText(), Root: q.ColText(), Causes: q.ColText(),
			TTL: int(q.ColInt()), Hop: int(q.ColInt()), Origin: headgate.Origin(q.ColText()), Principal: q.ColText(),
			Contract: q.ColText(), Recorded: q.colTime(),
		})
	}
	return all, q.Close()
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
	q.Text(row.Stream)
	q.Int(int64(row.Position.Partition))
	q.uint(row.Position.Offset)
	q.Text(row.ID)
	q.Text(row.Source)
	q.Text(row.Type)
	q.Text(row.Subject)
	q.Text(row.Root)
	q.Text(row.Causes)
	q.Int(int64(row.TTL))
	q.Int(int64(row.Hop))
	q.Text(string(row.Origin))
	q.Text(row.Principal)
	q.Text(row.Contract)
	q.time(row.Recorded)
	return q.Run()
}

// ByID implements store.Index.
func (r index) ByID(_ context.Context, id string) ([]store.IndexRow, error) {
	q := r.query("SELECT " + indexColumns + ` FROM @event_index WHERE id = ? ORDER BY stream, partition, "offset"`)
	q.Text(id)
	return scanIndex(q)
}

// ByRoot implements store.Index.
func (r index) ByRoot(_ context.Context, root string, skip, limit int) ([]store.IndexRow, error) {
	q := r.query("SELECT " + indexColumns + ` FROM @event_index WHERE root = ? ORDER BY recorded, stream, partition, "offset" LIMIT ? OFFSET ?`)
	q.Text(root)
	q.Int(int64(max(limit, 0)))
	q.Int(int64(max(skip, 0)))
	return scanIndex(q)
}

// Cursor implements store.Index.
func (r index) Cursor(_ context.Context, stream string, partition uint32) (uint64, error) {
	q := r.query("SELECT next FROM @event_index_cursors WHERE stream = ? AND partition = ?")
	q.Text(stream)
	q.Int(int64(partition))
	var next uint64
	if q.Next() {
		next = q.colUint()
	}
	return next, q.Close()
}

// SetCursor implements store.Index.
func (r index) SetCursor(_ context.Context, stream string, partition uint32, next uint64) error {
	q := r.query(`INSERT INTO @event_index_cursors (stream, partition, next) VALUES (?, ?, ?)
		ON CONFLICT (stream, partition) DO UPDATE SET next = excluded.next`)
	q.Text(stream)
	q.Int(int64(partition))
	q.uint(next)
	return q.Run()
}

// Prune implements store.Index. The row limit places ahead of the first one
// bounds what is deleted.
func (r index) Prune(_ context.Context, stream string, partition uint32, below uint64, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	q := r.query(`DELETE FROM @event_index WHERE stream = ?1 AND partition = ?2 AND "offset" < ` + r.dialect.Least + `(?3, coalesce(
		(SELECT "offset" FROM @event_index WHERE stream = ?1 AND partition = ?2 ORDER BY "offset" LIMIT 1 OFFSET ?4), ?3))`)
	q.Text(stream)
	q.Int(int64(partition))
	q.bound(below)
	q.Int(int64(limit))
	return q.Change()
}

// Reset implements store.Index.
func (r index) Reset(context.Context) error {
	q := r.query("DELETE FROM @event_index")
	if err := q.Run(); err != nil {
		return err
	}
	q = r.query("DELETE FROM @event_index_cursors")
	return q.Run()
}
