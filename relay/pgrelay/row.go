package pgrelay

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
)

// column is one of those that the relay reads.
type column int

const (
	colSeq column = iota
	colID
	colRole
	colType
	colSource
	colSubject
	colKey
	colAttributes
	colCause
	colOrigin
	colData
	colCreated
	columnCount
)

// outboxColumns are their names. They are found by them: the table may gain some,
// and in any order.
var outboxColumns = [columnCount]string{"seq", "id", "role", "type", "source", "subject", "key", "attributes", "cause", "origin", "data", "created"}

// columns are the values of one row.
type columns interface {
	// get returns a value as text; ok is false when it is null or missing. It is
	// not for the data.
	get(c column) (value []byte, ok bool)
	// size is how many bytes the data has in the table.
	size() int
	// payload returns the data, which is the caller's: whole, or the beginning of
	// what is beyond the bounds. Not ok: it is null or missing.
	payload() (data []byte, ok bool, err error)
	// created is when the row was written; zero when that cannot be read.
	created() time.Time
}

// text returns a value as a string; empty when there is none.
func text(c columns, of column) string {
	v, _ := c.get(of)
	return string(v)
}

// Bounds of a row, in bytes. Writers cannot insert as much by the functions of
// the schema; rows of before, and those of the table's owner, can be anything.
const (
	maxData = 8 << 20
	maxText = 64 << 10 // of every other value
	// What is kept of a row beyond them, for people.
	keptData = 1 << 20
	keptText = 4 << 10
	maxName  = 63 // PostgreSQL has no longer ones
)

// oversized names a value that is larger than any event's, and its size.
func oversized(c columns) (name string, size int) {
	for i, name := range outboxColumns {
		if column(i) == colData {
			if size := c.size(); size > maxData {
				return name, size
			}
			continue
		}
		if v, _ := c.get(column(i)); len(v) > maxText {
			return name, len(v)
		}
	}
	return "", 0
}

// refuseOversized makes a row of one that is too large to be an event: its head
// and where the whole of it lies. Memory and the quarantine hold no more.
func refuseOversized(row *relay.Row, c columns, name string, size int) {
	row.Err = headgate.NewError(headgate.CodeTooLarge, "row %d of the outbox: %s has %d bytes; the row stays in headgate.outbox of its database, and its head is kept here", row.Seq, name, size)
	all := map[string]any{"truncated": true, "oversized": name, "bytes": size}
	for i, name := range outboxColumns {
		if column(i) == colData {
			if v, ok, _ := c.payload(); ok {
				all[name] = hexText(v[:min(len(v), keptData)])
			}
		} else if v, ok := c.get(column(i)); ok {
			all[name] = clip(string(v[:min(len(v), keptText)]), keptText)
		}
	}
	row.Raw, _ = json.Marshal(all) // such values always marshal
}

func clip(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "") }

// rowOf reads a row. What cannot be read is told in the row itself, so that it
// is kept and does not stop the ones behind it.
func rowOf(c columns, committed time.Time) *relay.Row {
	row := &relay.Row{Committed: committed}
	row.Seq, _ = strconv.ParseInt(text(c, colSeq), 10, 64) // only shown
	row.Written = committed
	if at := c.created(); !at.IsZero() {
		row.Written = at
	}
	if committed.IsZero() {
		row.Committed = row.Written
	}
	if name, size := oversized(c); name != "" {
		role, _ := c.get(colRole)
		row.Role = clip(string(role[:min(len(role), maxName)]), maxName)
		refuseOversized(row, c, name, size)
		return row
	}
	row.Role, row.Cause, row.Origin = text(c, colRole), text(c, colCause), headgate.Origin(text(c, colOrigin))
	e := &headgate.Event{
		ID: text(c, colID), Type: text(c, colType), Source: text(c, colSource), Subject: text(c, colSubject), Key: text(c, colKey),
	}
	err := readData(e, c)
	if err == nil {
		if v, ok := c.get(colAttributes); ok {
			err = relay.SetAttributes(e, v)
		}
	}
	if err == nil && e.ID == "" {
		err = errors.New("the row has no id, so that it could not be told from another")
	}
	if err != nil {
		row.Err = headgate.NewError(headgate.CodeBadEnvelope, "row %d of the outbox: %v", row.Seq, err)
		row.Raw = rawOf(c)
		return row
	}
	row.Event = e
	return row
}

func readData(e *headgate.Event, c columns) error {
	v, ok, err := c.payload()
	if ok && err == nil {
		e.Data = v
	}
	return err
}

// hexText is the text of a bytea.
func hexText(v []byte) string { return `\x` + hex.EncodeToString(v) }

// hexSize is how many bytes such a text stands for.
func hexSize(v []byte) int { return hex.DecodedLen(max(len(v)-len(`\x`), 0)) }

// fromHex reads the text of a bytea.
func fromHex(v []byte) ([]byte, error) {
	digits, ok := bytes.CutPrefix(v, []byte(`\x`))
	if !ok {
		return nil, errors.New("data is no bytea in hexadecimal form")
	}
	data := make([]byte, hex.DecodedLen(len(digits)))
	_, err := hex.Decode(data, digits)
	return data, err
}

// rawOf keeps a row that cannot be read, for people.
func rawOf(c columns) []byte {
	all := map[string]string{}
	for i, name := range outboxColumns {
		if column(i) == colData {
			if v, ok, err := c.payload(); ok && err == nil {
				all[name] = hexText(v)
			}
		} else if v, ok := c.get(column(i)); ok {
			all[name] = string(v)
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil // strings always marshal
	}
	return b
}

// parseTime reads a timestamp with time zone in ISO style; zero: it is none.
func parseTime(s string) time.Time {
	for _, layout := range [...]string{"2006-01-02 15:04:05.999999-07", "2006-01-02 15:04:05.999999-07:00"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}
