package pgrelay

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
)

// relation is a table as the log describes it.
type relation struct {
	name   string
	ours   bool
	fields []field
}

// field is one column of a relation: which of those that are read, or -1, and the
// object id of its type.
type field struct {
	column column
	oid    uint32
}

func relationOf(m *pglogrepl.RelationMessage) *relation {
	r := &relation{
		name: m.Namespace + "." + m.RelationName, ours: m.Namespace == "headgate" && m.RelationName == "outbox", // another may be added to the publication
		fields: make([]field, len(m.Columns)),
	}
	for i, c := range m.Columns {
		r.fields[i] = field{-1, c.DataType}
		for k, name := range outboxColumns {
			if c.Name == name {
				r.fields[i].column = column(k)
			}
		}
	}
	return r
}

// The types whose binary form is known, by object id. Those of the columns that
// init makes are among them.
const (
	oidBytea       = 17
	oidName        = 19
	oidInt8        = 20
	oidInt4        = 23
	oidText        = 25
	oidJSON        = 114
	oidChar        = 1042
	oidVarchar     = 1043
	oidTimestamptz = 1184
	oidUUID        = 2950
	oidJSONB       = 3802
)

// errForm is a value in binary form of a type that is not known here. Somebody
// has changed the column's type; as text the value can be read.
var errForm = errors.New("a column of the outbox has a type that is read as text only")

// streamed is a row of the log, in the buffer of its message.
type streamed struct {
	values [columnCount]value
}

type value struct {
	oid  uint32 // of a binary value; 0: text
	data []byte // nil: null or missing
}

var errTuple = errors.New("pgrelay: a row of the log cannot be read")

// take reads a tuple (PostgreSQL documentation, 55.9, TupleData), which ends with
// the message.
func (s *streamed) take(rel *relation, b []byte) error {
	if len(b) < 2 {
		return errTuple
	}
	n := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	for i := range n {
		if len(b) == 0 {
			return errTuple
		}
		kind := b[0]
		b = b[1:]
		if kind == pglogrepl.TupleDataTypeNull || kind == pglogrepl.TupleDataTypeToast {
			continue
		}
		if kind != pglogrepl.TupleDataTypeText && kind != pglogrepl.TupleDataTypeBinary || len(b) < 4 {
			return errTuple
		}
		size := binary.BigEndian.Uint32(b)
		if b = b[4:]; uint64(size) > uint64(len(b)) {
			return errTuple
		}
		if i < len(rel.fields) && rel.fields[i].column >= 0 {
			v := value{data: b[:size:size]}
			if kind == pglogrepl.TupleDataTypeBinary {
				v.oid = rel.fields[i].oid
			}
			if !v.readable(rel.fields[i].column) {
				return fmt.Errorf("pgrelay: %w", errForm)
			}
			s.values[rel.fields[i].column] = v
		}
		b = b[size:]
	}
	return nil
}

// readable reports whether the value's form is known.
func (v value) readable(c column) bool {
	switch v.oid {
	case 0, oidName, oidText, oidJSON, oidChar, oidVarchar:
		return true
	case oidBytea:
		return c == colData
	case oidInt4:
		return len(v.data) == 4
	case oidInt8, oidTimestamptz:
		return len(v.data) == 8
	case oidUUID:
		return len(v.data) == 16
	case oidJSONB:
		return len(v.data) > 0 && v.data[0] == 1 // its version
	}
	return false
}

// get implements [columns].
func (s *streamed) get(c column) ([]byte, bool) {
	v := s.values[c]
	if v.data == nil {
		return nil, false
	}
	switch v.oid {
	case oidInt4:
		return strconv.AppendInt(nil, int64(int32(binary.BigEndian.Uint32(v.data))), 10), true
	case oidInt8:
		return strconv.AppendInt(nil, int64(binary.BigEndian.Uint64(v.data)), 10), true
	case oidTimestamptz:
		return timeOf(int64(binary.BigEndian.Uint64(v.data))).AppendFormat(nil, timeLayout), true
	case oidUUID:
		d := hex.EncodeToString(v.data)
		return []byte(d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]), true
	case oidJSONB:
		return v.data[1:], true
	}
	if c == colCreated { // the server leaves zeros out that the table is read with
		if at := parseTime(string(v.data)); !at.IsZero() {
			return at.AppendFormat(nil, timeLayout), true
		}
	}
	return v.data, true
}

// size implements [columns].
func (s *streamed) size() int {
	if v := s.values[colData]; v.oid != 0 {
		return len(v.data)
	}
	return hexSize(s.values[colData].data)
}

// payload implements [columns].
func (s *streamed) payload() ([]byte, bool, error) {
	v := s.values[colData]
	switch {
	case v.data == nil:
		return nil, false, nil
	case v.oid != 0 && v.oid != oidBytea:
		return nil, true, errors.New("data is no bytea")
	case v.oid == oidBytea:
		head := v.data
		if len(head) > maxData {
			head = head[:keptData]
		}
		return append(make([]byte, 0, len(head)), head...), true, nil // never nil
	case s.size() > maxData:
		v.data = v.data[:len(`\x`)+hex.EncodedLen(keptData)]
	}
	data, err := fromHex(v.data)
	return data, true, err
}

// timeLayout is how times are told of rows that cannot be read, wherever they come
// from.
const timeLayout = "2006-01-02 15:04:05.000000-07"

// created implements [columns].
func (s *streamed) created() time.Time {
	v := s.values[colCreated]
	if v.oid == oidTimestamptz {
		return timeOf(int64(binary.BigEndian.Uint64(v.data)))
	}
	return parseTime(string(v.data))
}

// epoch2000 is the server's zero of time, in seconds since 1970.
const epoch2000 = 946_684_800

// timeOf reads a time, in microseconds since 2000; infinite ones are none.
func timeOf(micros int64) time.Time {
	if micros == math.MaxInt64 || micros == math.MinInt64 {
		return time.Time{}
	}
	return time.Unix(epoch2000+micros/1e6, micros%1e6*1e3).UTC()
}
