package sqliterelay

import (
	"database/sql"
	"encoding/json"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
)

// maxRow bounds the payload that is read, in bytes. Writers cannot insert as
// much through the view.
const maxRow = 8 << 20

const selectColumns = `SELECT seq, id, type, coalesce(source, ''), coalesce(subject, ''), coalesce(key, ''), attributes,
	coalesce(cause, ''), coalesce(origin, ''), created, coalesce(length(data), -1), CASE WHEN length(data) <= 8388608 THEN data END
	FROM headgate_outbox_rows `

// selectRows takes the number behind which it reads, and how many rows;
// selectAside the numbers as a JSON array.
const (
	selectRows  = selectColumns + `WHERE seq > ? ORDER BY seq LIMIT ?`
	selectAside = selectColumns + `WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq`
)

// read is one row.
type read struct {
	place place
	row   *relay.Row
}

// scanRow reads a row. What cannot be read is told in the row itself, so that
// it is kept and does not stop the ones behind it.
func scanRow(rows *sql.Rows) (r read, size int, err error) {
	e := &headgate.Event{}
	row := &relay.Row{}
	var origin string
	var created, length int64
	var attributes, data []byte
	err = rows.Scan(&row.Seq, &e.ID, &e.Type, &e.Source, &e.Subject, &e.Key, &attributes, &row.Cause, &origin, &created, &length, &data)
	if err != nil {
		return r, 0, err
	}
	row.Origin = headgate.Origin(origin)
	row.Written = time.UnixMilli(created).UTC()
	// SQLite does not keep when a transaction was committed. No later than
	// that, and close to it, its rows were written.
	row.Committed = row.Written
	r = read{place{row.Seq, e.ID}, row}
	size = len(data) + len(attributes) + len(row.Cause) + 512
	if length >= 0 && length <= maxRow {
		e.Data = data
		if data == nil {
			e.Data = []byte{} // some drivers return nil for an empty blob
		}
	}
	if refused := readEvent(e, row.Seq, attributes, length); refused != nil {
		row.Err, row.Raw = refused, rawOf(e, row, attributes, length)
		return r, size, nil
	}
	row.Event = e
	return r, size, nil
}

// readEvent completes the event and says why it is none.
func readEvent(e *headgate.Event, seq int64, attributes []byte, length int64) *headgate.Error {
	switch {
	case e.ID == "":
		return headgate.NewError(headgate.CodeBadEnvelope, "row %d of the outbox: the row has no id, so that it could not be told from another", seq)
	case length > maxRow:
		return headgate.NewError(headgate.CodeTooLarge, "row %d of the outbox: the payload has %d bytes", seq, length)
	case attributes != nil:
		if err := relay.SetAttributes(e, attributes); err != nil {
			return headgate.NewError(headgate.CodeBadEnvelope, "row %d of the outbox: %v", seq, err)
		}
	}
	return nil
}

// rawOf keeps a row that cannot be read, for people. A payload that is too
// large to be read stays in the database.
func rawOf(e *headgate.Event, row *relay.Row, attributes []byte, length int64) []byte {
	all := map[string]any{
		"seq": row.Seq, "id": e.ID, "type": e.Type, "source": e.Source, "subject": e.Subject, "key": e.Key,
		"attributes": string(attributes), "cause": row.Cause, "origin": row.Origin, "data": e.Data, "data_bytes": length, "created": row.Written,
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil // such values always marshal
	}
	return b
}
