package pgstore

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate"
)

// The types of parameters and columns.
const (
	oidBool  = 16
	oidBytea = 17
	oidInt8  = 20
	oidFloat = 701
)

// query is one execution of a statement: bind in order, then step, then close.
// The first error sticks and ends the rows.
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

func (q *query) text(v string) { q.bind(oidBytea, append(make([]byte, 0, len(v)), v...)) }

// blob binds a copy: it is sent later.
func (q *query) blob(v []byte) {
	if v != nil {
		v = append(make([]byte, 0, len(v)), v...)
	}
	q.bind(oidBytea, v)
}

func (q *query) int(v int64) { q.bind(oidInt8, binary.BigEndian.AppendUint64(nil, uint64(v))) }

func (q *query) float(v float64) {
	q.bind(oidFloat, binary.BigEndian.AppendUint64(nil, math.Float64bits(v)))
}

func (q *query) bool(v bool) {
	b := []byte{0}
	if v {
		b[0] = 1
	}
	q.bind(oidBool, b)
}

// uint binds an offset or a counter. The server's integers are signed: a value
// that does not fit is refused rather than wrapped, which would break order.
func (q *query) uint(v uint64) {
	if v > math.MaxInt64 && q.err == nil {
		q.err = headgate.NewError(headgate.CodeInvalidArgument, "%d is above the greatest number that the store keeps", v)
		return
	}
	q.int(int64(v))
}

// bound binds an offset that is only compared with: what is too large acts as
// the largest.
func (q *query) bound(v uint64) { q.int(int64(min(v, math.MaxInt64))) }

// zeroTime stands for the zero time: before every other, as in Go.
const zeroTime = math.MinInt64

var (
	firstTime = time.Unix(0, math.MinInt64+1).UTC()
	lastTime  = time.Unix(0, math.MaxInt64).UTC()
)

// time binds a time to keep. One that nanoseconds since 1970 cannot express
// (before 1677 or after 2262) is refused rather than changed.
func (q *query) time(v time.Time) {
	if !v.IsZero() && (v.Before(firstTime) || v.After(lastTime)) && q.err == nil {
		q.err = headgate.NewError(headgate.CodeInvalidArgument, "the year %d is outside what the store keeps", v.Year())
		return
	}
	q.int(nanos(v))
}

// timeBound binds a time that is only compared with.
func (q *query) timeBound(v time.Time) {
	switch {
	case v.IsZero():
		q.int(zeroTime)
	case v.Before(firstTime):
		q.int(zeroTime + 1)
	case v.After(lastTime):
		q.int(math.MaxInt64)
	default:
		q.int(nanos(v))
	}
}

func nanos(v time.Time) int64 {
	if v.IsZero() {
		return zeroTime
	}
	return v.UnixNano()
}

// next steps to the next row and says whether there is one.
func (q *query) next() bool {
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

func (q *query) colText() string { return string(q.column()) }

// colInt returns a number; NULL reads as 0.
func (q *query) colInt() int64 {
	n, _ := q.colOptional()
	return int64(n)
}

func (q *query) colUint() uint64 { return uint64(q.colInt()) }

func (q *query) colBool() bool {
	b := q.column()
	return len(b) == 1 && b[0] != 0
}

func (q *query) colFloat() float64 { return math.Float64frombits(q.colUint()) }

func (q *query) colTime() time.Time {
	n := q.colInt()
	if n == zeroTime {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// colBlob returns nil for NULL, else never nil.
func (q *query) colBlob() []byte { return q.column() }

// colOptional returns a number that may be NULL.
func (q *query) colOptional() (uint64, bool) {
	b := q.column()
	if len(b) != 8 {
		if b != nil && q.err == nil {
			q.err = errors.New("a number of the database is not of 8 bytes")
		}
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

// close returns the first error.
func (q *query) close() error { return storeError(q.err) }

// run executes a statement that returns no rows.
func (q *query) run() error {
	if q.err != nil {
		return q.close()
	}
	if q.err = q.t.mayWrite(); q.err == nil {
		q.err = q.t.conn.write(q.request)
	}
	return q.close()
}

// change executes a statement and returns how many rows it changed.
func (q *query) change() (int, error) {
	if q.err == nil {
		q.err = q.t.mayWrite()
	}
	if q.err == nil {
		q.res, q.err = q.t.conn.read(q.request, true)
	}
	return int(q.res.tag.RowsAffected()), q.close()
}
