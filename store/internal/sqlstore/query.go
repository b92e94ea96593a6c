package sqlstore

import (
	"math"
	"time"

	"github.com/headgate/headgate"
)

// Session is one transaction of a driver. It belongs to one goroutine.
type Session interface {
	// Query begins an execution of a statement, whose text must be constant or
	// from a small closed set. An @ stands before the name of a table, a ? or
	// ?N for a parameter. Statements of one text never overlap.
	Query(sql string) Statement
	// Now returns the database's clock, in microseconds.
	Now() (time.Time, error)
}

// Statement is one execution of a statement: bind in order, then step through
// the rows, then close; or bind and then Run or Change. The first error sticks,
// ends the rows and is what Close, Run and Change return, as a *headgate.Error.
type Statement interface {
	Parameters
	Rows
	Run() error                    // executes a statement that returns no rows
	Change() (rows int, err error) // the same, and says how many rows it changed
}

// Parameters binds values in order.
type Parameters interface {
	Text(v string)
	Blob(v []byte) // nil is NULL
	Int(v int64)
	Float(v float64)
	Bool(v bool)
	Fail(err error) // for a value that cannot be bound or read
}

// Rows steps through what a statement returns. Columns are read in order.
type Rows interface {
	Next() bool // steps to the next row and says whether there is one
	ColText() string
	ColInt() int64 // NULL reads as 0
	ColFloat() float64
	ColBool() bool
	ColBlob() []byte             // a copy: nil for NULL, else never nil
	ColOptional() (uint64, bool) // a number that may be NULL
	Close() error
}

// query adds what the roles bind and read to a driver's statement.
type query struct{ Statement }

// uint binds an offset or a counter. The databases' integers are signed: a
// value that does not fit is refused rather than wrapped, which would break
// order.
func (q query) uint(v uint64) {
	if v > math.MaxInt64 {
		q.Fail(headgate.NewError(headgate.CodeInvalidArgument, "%d is above the greatest number that the store keeps", v))
		return
	}
	q.Int(int64(v))
}

// bound binds an offset that is only compared with: what is too large acts as
// the largest.
func (q query) bound(v uint64) { q.Int(int64(min(v, math.MaxInt64))) }

// zeroTime stands for the zero time: before every other, as in Go.
const zeroTime = math.MinInt64

// The times that nanoseconds since 1970 can express.
var (
	firstTime = time.Unix(0, math.MinInt64+1).UTC()
	lastTime  = time.Unix(0, math.MaxInt64).UTC()
)

// time binds a time to keep. One before 1677 or after 2262 is refused rather
// than changed.
func (q query) time(v time.Time) {
	if err := keepable(v); err != nil {
		q.Fail(err)
		return
	}
	q.Int(nanos(v))
}

// keepable reports a time that the store cannot keep as an error.
func keepable(v time.Time) error {
	if !v.IsZero() && (v.Before(firstTime) || v.After(lastTime)) {
		return headgate.NewError(headgate.CodeInvalidArgument, "the year %d is outside what the store keeps", v.Year())
	}
	return nil
}

// timeBound binds a time that is only compared with.
func (q query) timeBound(v time.Time) {
	switch {
	case v.IsZero():
		q.Int(zeroTime)
	case v.Before(firstTime):
		q.Int(zeroTime + 1)
	case v.After(lastTime):
		q.Int(math.MaxInt64)
	default:
		q.Int(nanos(v))
	}
}

func nanos(v time.Time) int64 {
	if v.IsZero() {
		return zeroTime
	}
	return v.UnixNano()
}

func (q query) colUint() uint64 { return uint64(q.ColInt()) }

func (q query) colTime() time.Time {
	n := q.ColInt()
	if n == zeroTime {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
