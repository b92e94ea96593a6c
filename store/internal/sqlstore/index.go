package sqlstore

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/headgate/headgate/store"
)

// Put implements store.Index. Rows that come in the order of their offsets
// share chunks; chunks that hold some of the offsets already are merged.
func (r index) Put(_ context.Context, rows []store.IndexRow) error {
	for len(rows) > 0 {
		n := chunkable(rows)
		if err := r.merge(rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// merge writes rows of one partition in the order of their offsets. In the
// place of stored ones they win.
func (r index) merge(rows []store.IndexRow) error {
	stream, partition := rows[0].Stream, rows[0].Position.Partition
	for {
		old, found, err := r.chunk(`SELECT first, last FROM @event_index_chunks
			WHERE stream = ? AND partition = ? AND first <= ? ORDER BY first DESC LIMIT 1`, stream, partition, rows[len(rows)-1].Position.Offset)
		if err != nil {
			return err
		}
		if !found || old.last < rows[0].Position.Offset {
			break
		}
		stored, err := r.remove(old)
		if err != nil {
			return err
		}
		rows = mergeRows(stored, rows)
	}
	for part := range slices.Chunk(rows, chunkRows) {
		if err := r.write(part); err != nil {
			return err
		}
	}
	return nil
}

// chunkID names a stored chunk.
type chunkID struct {
	stream      string
	partition   uint32
	first, last uint64
}

// chunk finds one chunk of a partition by an offset.
func (r index) chunk(sql, stream string, partition uint32, at uint64) (c chunkID, found bool, err error) {
	q := r.query(sql)
	q.Text(stream)
	q.Int(int64(partition))
	q.bound(at)
	if found = q.Next(); found {
		c = chunkID{stream: stream, partition: partition, first: q.colUint(), last: q.colUint()}
	}
	return c, found, q.Close()
}

// remove deletes a chunk with its keys and returns its rows.
func (r index) remove(c chunkID) ([]store.IndexRow, error) {
	q := r.query("SELECT rows FROM @event_index_chunks WHERE stream = ? AND partition = ? AND first = ?")
	q.Text(c.stream)
	q.Int(int64(c.partition))
	q.uint(c.first)
	var rows []store.IndexRow
	var err error
	if q.Next() {
		rows, err = decodeRows(nil, c.stream, c.partition, q.ColBlob())
	}
	if closed := q.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	q = r.query("DELETE FROM @event_index_chunks WHERE stream = ? AND partition = ? AND first = ?")
	q.Text(c.stream)
	q.Int(int64(c.partition))
	q.uint(c.first)
	if err := q.Run(); err != nil {
		return nil, err
	}
	for _, k := range keysOf(rows) {
		q := r.query("DELETE FROM @event_index_keys WHERE stream = ? AND partition = ? AND first = ? AND key = ? AND at = ?")
		q.Text(c.stream)
		q.Int(int64(c.partition))
		q.uint(c.first)
		q.Text(k.text)
		q.Int(k.at)
		if err := q.Run(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// write stores rows as one new chunk.
func (r index) write(rows []store.IndexRow) error {
	blob, err := encodeRows(rows)
	if err != nil {
		return err
	}
	first, last := &rows[0], &rows[len(rows)-1]
	q := r.query("INSERT INTO @event_index_chunks (stream, partition, first, last, rows) VALUES (?, ?, ?, ?, ?)")
	q.Text(first.Stream)
	q.Int(int64(first.Position.Partition))
	q.uint(first.Position.Offset)
	q.uint(last.Position.Offset)
	q.Blob(blob)
	if err := q.Run(); err != nil {
		return err
	}
	for keys := keysOf(rows); len(keys) > 0; {
		n := manyKeys
		q := query{}
		if len(keys) >= n {
			q = r.query(`INSERT INTO @event_index_keys (stream, partition, first, key, at) VALUES
				(?1, ?2, ?3, ?4, ?5), (?1, ?2, ?3, ?6, ?7), (?1, ?2, ?3, ?8, ?9), (?1, ?2, ?3, ?10, ?11),
				(?1, ?2, ?3, ?12, ?13), (?1, ?2, ?3, ?14, ?15), (?1, ?2, ?3, ?16, ?17), (?1, ?2, ?3, ?18, ?19),
				(?1, ?2, ?3, ?20, ?21), (?1, ?2, ?3, ?22, ?23), (?1, ?2, ?3, ?24, ?25), (?1, ?2, ?3, ?26, ?27),
				(?1, ?2, ?3, ?28, ?29), (?1, ?2, ?3, ?30, ?31), (?1, ?2, ?3, ?32, ?33), (?1, ?2, ?3, ?34, ?35)`)
		} else {
			n = 1
			q = r.query("INSERT INTO @event_index_keys (stream, partition, first, key, at) VALUES (?, ?, ?, ?, ?)")
		}
		q.Text(first.Stream)
		q.Int(int64(first.Position.Partition))
		q.uint(first.Position.Offset)
		for _, k := range keys[:n] {
			q.Text(k.text)
			q.Int(k.at)
		}
		if err := q.Run(); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// scan reads every chunk that holds a key, in the order of the earliest row of
// the key in it, until yield answers false. The rows belong to yield, and
// include others of the chunk.
func (r index) scan(key string, yield func(at int64, rows []store.IndexRow) bool) error {
	q := r.query(`SELECT k.at, c.stream, c.partition, c.rows FROM @event_index_keys AS k
		JOIN @event_index_chunks AS c ON c.stream = k.stream AND c.partition = k.partition AND c.first = k.first
		WHERE k.key = ? ORDER BY k.at, k.stream, k.partition, k.first`)
	q.Text(key)
	var room []store.IndexRow
	for q.Next() {
		at, stream, partition := q.ColInt(), q.ColText(), uint32(q.ColInt())
		rows, err := decodeRows(room[:0], stream, partition, q.ColBlob())
		if err != nil {
			q.Fail(err)
			break
		}
		if !yield(at, rows) {
			break
		}
		room = rows
	}
	return q.Close()
}

// ByID implements store.Index.
func (r index) ByID(_ context.Context, id string) ([]store.IndexRow, error) {
	var all []store.IndexRow
	err := r.scan(keyOfID+id, func(_ int64, rows []store.IndexRow) bool {
		for i := range rows {
			if rows[i].ID == id {
				all = append(all, rows[i])
			}
		}
		return true
	})
	slices.SortFunc(all, func(a, b store.IndexRow) int { return comparePlaces(&a, &b) })
	return all, err
}

// ByRoot implements store.Index. Chunks come in the order of their earliest
// row, so that reading ends as soon as no later one can hold a row that is
// asked for.
func (r index) ByRoot(_ context.Context, root string, skip, limit int) ([]store.IndexRow, error) {
	skip, limit = max(skip, 0), max(limit, 0)
	want := min(skip, math.MaxInt32) + min(limit, math.MaxInt32)
	if limit == 0 {
		return nil, nil
	}
	var kept []store.IndexRow
	sorted := func() {
		slices.SortFunc(kept, func(a, b store.IndexRow) int {
			return cmp.Or(cmp.Compare(nanos(a.Recorded), nanos(b.Recorded)), comparePlaces(&a, &b))
		})
		kept = kept[:min(len(kept), want)]
	}
	latest := int64(math.MaxInt64)
	take := func(at int64, rows []store.IndexRow, first bool) bool {
		if at > latest {
			return false
		}
		for i := range rows {
			if rows[i].Root == root && (rows[i].ID == root) == first {
				kept = append(kept, rows[i])
			}
		}
		if len(kept) > want+want/2+chunkRows {
			sorted()
			latest = nanos(kept[want-1].Recorded)
		}
		return true
	}
	// The root itself has no key as a root, since it has one as an id.
	err := r.scan(keyOfID+root, func(_ int64, rows []store.IndexRow) bool { return take(math.MinInt64, rows, true) })
	if err != nil {
		return nil, err
	}
	err = r.scan(keyOfRoot+root, func(at int64, rows []store.IndexRow) bool { return take(at, rows, false) })
	sorted()
	return kept[min(skip, len(kept)):], err
}

func comparePlaces(a, b *store.IndexRow) int {
	return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Position.Partition, b.Position.Partition),
		cmp.Compare(a.Position.Offset, b.Position.Offset))
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

// Prune implements store.Index. A chunk of which a part stays is written anew.
func (r index) Prune(_ context.Context, stream string, partition uint32, below uint64, limit int) (int, error) {
	n := 0
	for n < limit {
		c, found, err := r.chunk(`SELECT first, last FROM @event_index_chunks
			WHERE stream = ? AND partition = ? AND first < ? ORDER BY first LIMIT 1`, stream, partition, below)
		if err != nil || !found {
			return n, err
		}
		rows, err := r.remove(c)
		if err != nil {
			return n, err
		}
		gone := 0
		for gone < len(rows) && rows[gone].Position.Offset < below && n < limit {
			gone, n = gone+1, n+1
		}
		if rows = rows[gone:]; len(rows) > 0 {
			if err := r.write(rows); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// Reset implements store.Index.
func (r index) Reset(context.Context) error {
	for _, sql := range []string{"DELETE FROM @event_index_chunks", "DELETE FROM @event_index_keys", "DELETE FROM @event_index_cursors"} {
		q := r.query(sql)
		if err := q.Run(); err != nil {
			return err
		}
	}
	return nil
}
