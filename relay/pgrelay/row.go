package pgrelay

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
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

// rowOf reads a row. What cannot be read is told in the row itself, so that it
// is kept and does not stop the ones behind it.
func rowOf(c columns, committed time.Time) *relay.Row {
	row := &relay.Row{Role: text(c, "role"), Cause: text(c, "cause"), Origin: headgate.Origin(text(c, "origin")), Committed: committed}
	row.Seq, _ = strconv.ParseInt(text(c, "seq"), 10, 64) // only shown
	row.Written = committed
	if at, err := parseTime(text(c, "created")); err == nil {
		row.Written = at
	}
	if committed.IsZero() {
		row.Committed = row.Written
	}
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
	for _, name := range [...]string{"seq", "id", "role", "type", "source", "subject", "key", "attributes", "cause", "origin", "data", "created"} {
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
