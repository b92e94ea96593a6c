package pgstore

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/headgate/headgate/store/internal/sqlstore"
)

// The types of parameters and columns.
const (
	oidBool  = 16
	oidBytea = 17
	oidInt8  = 20
	oidFloat = 701
)

// query is one execution of a statement.
type query struct {
	request
	t   *tx
	res result
	ran bool
	at  int // of the row after this one
	n   int // columns read
	err error
}

func (q *query) bind(oid uint32, v []byte) {
	q.oids = append(q.oids, oid)
	q.params = append(q.params, v)
}

var _ sqlstore.Statement = (*query)(nil)

func (q *query) Fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *query) Text(v string) { q.bind(oidBytea, append(make([]byte, 0, len(v)), v...)) }

// blob binds a copy: it is sent later.
func (q *query) Blob(v []byte) {
	if v != nil {
		v = append(make([]byte, 0, len(v)), v...)
	}
	q.bind(oidBytea, v)
}

func (q *query) Int(v int64) { q.bind(oidInt8, binary.BigEndian.AppendUint64(nil, uint64(v))) }

func (q *query) Float(v float64) {
	q.bind(oidFloat, binary.BigEndian.AppendUint64(nil, math.Float64bits(v)))
}

func (q *query) Bool(v bool) {
	b := []byte{0}
	if v {
		b[0] = 1
	}
	q.bind(oidBool, b)
}

func (q *query) Next() bool {
	if q.err == nil && !q.ran {
		q.ran = true
		q.res, q.err = q.t.conn.read(q.request, false)
	}
	if q.err != nil || q.at >= len(q.res.rows) {
		return false
	}
	q.at, q.n = q.at+1, -1
	return true
}

func (q *query) column() []byte {
	q.n++
	return q.res.rows[q.at-1][q.n]
}

func (q *query) ColText() string { return string(q.column()) }

func (q *query) ColInt() int64 {
	n, _ := q.ColOptional()
	return int64(n)
}

func (q *query) ColBool() bool {
	b := q.column()
	return len(b) == 1 && b[0] != 0
}

func (q *query) ColFloat() float64 { return math.Float64frombits(uint64(q.ColInt())) }

func (q *query) ColBlob() []byte { return q.column() }

func (q *query) ColOptional() (uint64, bool) {
	b := q.column()
	if len(b) != 8 {
		if b != nil && q.err == nil {
			q.err = errors.New("a number of the database is not of 8 bytes")
		}
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

func (q *query) Close() error { return storeError(q.err) }

func (q *query) Run() error {
	if q.err != nil {
		return q.Close()
	}
	if q.err = q.t.mayWrite(); q.err == nil {
		q.err = q.t.conn.write(q.request)
	}
	return q.Close()
}

func (q *query) Change() (int, error) {
	if q.err == nil {
		q.err = q.t.mayWrite()
	}
	if q.err == nil {
		q.res, q.err = q.t.conn.read(q.request, true)
	}
	return int(q.res.tag.RowsAffected()), q.Close()
}
