package sqlstore

import (
	"encoding/binary"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// The rows of the event index are kept in chunks: up to chunkRows rows of one
// partition in the order of their offsets are one row of the database. A row
// for each event would make the index cost more than all else that is done for
// an event together. Keys lead to the chunks: one for each id, and one for each
// root and chunk; a root that is its own id is found by the id.
//
// A chunk's rows are: version, count, and then for each row the difference of
// its offset, of its time, its numbers, and its texts, where one that equals
// that of the row before takes one byte.
const (
	chunkRows    = 64
	chunkVersion = 1

	keyOfID   = "i"
	keyOfRoot = "r"
	// manyKeys is how many keys are written by one statement.
	manyKeys = 16
)

// chunkable returns how many of the first rows can be a chunk together.
func chunkable(rows []store.IndexRow) int {
	n := 1
	for n < len(rows) && n < chunkRows && rows[n].Stream == rows[0].Stream &&
		rows[n].Position.Partition == rows[0].Position.Partition && rows[n].Position.Offset > rows[n-1].Position.Offset {
		n++
	}
	return n
}

// mergeRows returns both in the order of their offsets; fresh ones win.
func mergeRows(stored, fresh []store.IndexRow) []store.IndexRow {
	all := make([]store.IndexRow, 0, len(stored)+len(fresh))
	for len(stored) > 0 && len(fresh) > 0 {
		switch a, b := stored[0].Position.Offset, fresh[0].Position.Offset; {
		case a < b:
			all, stored = append(all, stored[0]), stored[1:]
		case a == b:
			stored = stored[1:]
		default:
			all, fresh = append(all, fresh[0]), fresh[1:]
		}
	}
	return append(append(all, stored...), fresh...)
}

// chunkKey leads to a chunk. At is the time of the earliest row that has the
// key, as nanos gives it.
type chunkKey struct {
	text string
	at   int64
}

// keysOf returns the different keys of a chunk.
func keysOf(rows []store.IndexRow) []chunkKey {
	keys := make([]chunkKey, 0, len(rows)+1)
	have := make(map[string]int, len(rows)+1)
	add := func(text string, at int64) {
		if i, ok := have[text]; ok {
			keys[i].at = min(keys[i].at, at)
			return
		}
		have[text] = len(keys)
		keys = append(keys, chunkKey{text, at})
	}
	for i := range rows {
		at := nanos(rows[i].Recorded)
		add(keyOfID+rows[i].ID, at)
		if rows[i].Root != rows[i].ID {
			add(keyOfRoot+rows[i].Root, at)
		}
	}
	return keys
}

// texts returns the texts of a row that chunks keep.
func texts(r *store.IndexRow) [9]*string {
	return [...]*string{
		&r.ID, &r.Root, &r.Source, &r.Type, &r.Subject, &r.Causes, (*string)(&r.Origin), &r.Principal, &r.Contract,
	}
}

// encodeRows writes the rows of a chunk.
func encodeRows(rows []store.IndexRow) ([]byte, error) {
	b := make([]byte, 0, 80*len(rows)+200)
	b = append(b, chunkVersion)
	b = binary.AppendUvarint(b, uint64(len(rows)))
	var before store.IndexRow
	at := int64(0)
	for i := range rows {
		row := &rows[i]
		if err := keepable(row.Recorded); err != nil {
			return nil, err
		}
		recorded := nanos(row.Recorded)
		b = binary.AppendUvarint(b, row.Position.Offset-before.Position.Offset)
		b = binary.AppendVarint(b, recorded-at)
		b = binary.AppendVarint(b, int64(row.TTL))
		b = binary.AppendVarint(b, int64(row.Hop))
		old := texts(&before)
		for k, text := range texts(row) {
			switch {
			case *text == *old[k]:
				b = append(b, 0)
			case k == 1 && *text == row.ID:
				b = append(b, 1)
			default:
				b = binary.AppendUvarint(b, uint64(len(*text))+2)
				b = append(b, *text...)
			}
		}
		before, at = *row, recorded
	}
	return b, nil
}

// decodeRows appends the rows of a chunk to dst. They share the memory of one
// copy of the text.
func decodeRows(dst []store.IndexRow, stream string, partition uint32, blob []byte) ([]store.IndexRow, error) {
	d := chunkReader{b: blob, text: string(blob)}
	version := d.take(1)
	n := d.uvarint()
	if len(version) != 1 || version[0] != chunkVersion || n > uint64(len(blob)) {
		return nil, errChunk()
	}
	before := store.IndexRow{Stream: stream, Position: headgate.Position{Partition: partition}}
	at := int64(0)
	for range n {
		row := before
		row.Position.Offset += d.uvarint()
		at += d.varint()
		row.Recorded = time.Time{}
		if at != zeroTime {
			row.Recorded = time.Unix(0, at).UTC()
		}
		row.TTL, row.Hop = int(d.varint()), int(d.varint())
		for k, text := range texts(&row) {
			switch size := d.uvarint(); {
			case size == 0:
			case size == 1 && k == 1:
				row.Root = row.ID
			default:
				*text = d.take(size - 2)
			}
		}
		if d.bad {
			return nil, errChunk()
		}
		dst, before = append(dst, row), row
	}
	return dst, nil
}

func errChunk() error {
	return headgate.NewError(headgate.CodeInternal, "a chunk of the event index is damaged: rebuild the index")
}

// chunkReader reads from the front of b; text is what b was at first. After
// the first fault bad is set.
type chunkReader struct {
	b    []byte
	text string
	bad  bool
}

func (d *chunkReader) skip(n int) {
	if n <= 0 {
		d.bad, d.b = true, nil
		return
	}
	d.b = d.b[n:]
}

func (d *chunkReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	d.skip(n)
	return v
}

func (d *chunkReader) varint() int64 {
	v, n := binary.Varint(d.b)
	d.skip(n)
	return v
}

func (d *chunkReader) take(n uint64) string {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	from := len(d.text) - len(d.b)
	d.b = d.b[n:]
	return d.text[from : from+int(n)]
}
