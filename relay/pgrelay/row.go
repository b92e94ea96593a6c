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
	"github.com/jackc/pglogrepl"
)

// columns are the values of one row by name, as text.
type columns interface {
	// get returns a value; ok is false when it is null or missing.
	get(name string) (value []byte, ok bool)
}

// streamed is a row of the log. Columns are found by name: the table may gain
// some.
type streamed struct {
	rel   *pglogrepl.RelationMessage
	tuple *pglogrepl.TupleData
}

func (s streamed) get(name string) ([]byte, bool) {
	for i, c := range s.rel.Columns {
		if c.Name == name && i < len(s.tuple.Columns) {
			v := s.tuple.Columns[i]
			return v.Data, v.DataType == pglogrepl.TupleDataTypeText
		}
	}
	return nil, false
}

// text returns a value as a string; empty when there is none.
func text(c columns, name string) string {
	v, _ := c.get(name)
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
	for _, name := range outboxColumns {
		v, _ := c.get(name)
		switch size := valueSize(c, name, v); {
		case name == "data" && size > maxData, name != "data" && size > maxText:
			return name, size
		}
	}
	return "", 0
}

// valueSize is how many bytes a value takes in the table.
func valueSize(c columns, name string, v []byte) int {
	if name != "data" {
		return len(v)
	}
	if n, err := strconv.Atoi(text(c, "data_bytes")); err == nil {
		return n // the text is cut
	}
	return hex.DecodedLen(max(len(v)-len(`\x`), 0))
}

// refuseOversized makes a row of one that is too large to be an event: its head
// and where the whole of it lies. Memory and the quarantine hold no more.
func refuseOversized(row *relay.Row, c columns, name string, size int) {
	row.Err = headgate.NewError(headgate.CodeTooLarge, "row %d of the outbox: %s has %d bytes; the row stays in headgate.outbox of its database, and its head is kept here", row.Seq, name, size)
	all := map[string]any{"truncated": true, "oversized": name, "bytes": size}
	for _, name := range outboxColumns {
		limit := keptText
		if name == "data" {
			limit = len(`\x`) + hex.EncodedLen(keptData)
		}
		if v, ok := c.get(name); ok {
			all[name] = clip(string(v[:min(len(v), limit)]), limit)
		}
	}
	row.Raw, _ = json.Marshal(all) // such values always marshal
}

func clip(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "") }

// rowOf reads a row. What cannot be read is told in the row itself, so that it
// is kept and does not stop the ones behind it.
func rowOf(c columns, committed time.Time) *relay.Row {
	row := &relay.Row{Committed: committed}
	row.Seq, _ = strconv.ParseInt(text(c, "seq"), 10, 64) // only shown
	row.Written = committed
	if at, err := parseTime(text(c, "created")); err == nil {
		row.Written = at
	}
	if committed.IsZero() {
		row.Committed = row.Written
	}
	if name, size := oversized(c); name != "" {
		role, _ := c.get("role")
		row.Role = clip(string(role[:min(len(role), maxName)]), maxName)
		refuseOversized(row, c, name, size)
		return row
	}
	row.Role, row.Cause, row.Origin = text(c, "role"), text(c, "cause"), headgate.Origin(text(c, "origin"))
	e := &headgate.Event{
		ID: text(c, "id"), Type: text(c, "type"), Source: text(c, "source"), Subject: text(c, "subject"), Key: text(c, "key"),
	}
	err := readData(e, c)
	if err == nil {
		if v, ok := c.get("attributes"); ok {
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
	v, ok := c.get("data")
	if !ok {
		return nil
	}
	digits, ok := bytes.CutPrefix(v, []byte(`\x`))
	if !ok {
		return errors.New("data is no bytea in hexadecimal form")
	}
	e.Data = make([]byte, hex.DecodedLen(len(digits)))
	_, err := hex.Decode(e.Data, digits)
	return err
}

// rawOf keeps a row that cannot be read, for people.
func rawOf(c columns) []byte {
	all := map[string]string{}
	for _, name := range outboxColumns {
		if v, ok := c.get(name); ok {
			all[name] = string(v)
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil // strings always marshal
	}
	return b
}

// parseTime reads a timestamp with time zone in ISO style.
func parseTime(s string) (time.Time, error) {
	for _, layout := range [...]string{"2006-01-02 15:04:05.999999-07", "2006-01-02 15:04:05.999999-07:00"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, errors.New("no timestamp")
}
