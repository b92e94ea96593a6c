package sqlitestore

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/headgate/headgate"
)

// maxVariants bounds the statements that a connection keeps prepared. The
// fixed ones are about fifty; the rest are filters of the quarantine.
const maxVariants = 256

// conn is one connection with its prepared statements. It belongs to one
// goroutine at a time.
type conn struct {
	db    *sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
	clock *clock // of the store
}

// openConn opens a connection and sets it up. The pragmas run in order. An
// empty vfs is the host's file system.
func openConn(file, vfs string, pragmas ...string) (*conn, error) {
	flags := sqlite3.OPEN_READWRITE | sqlite3.OPEN_CREATE
	if vfs != "" {
		uri := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: "vfs=" + url.QueryEscape(vfs)}
		file, flags = uri.String(), flags|sqlite3.OPEN_URI
	}
	db, err := sqlite3.OpenFlags(file, flags)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db, stmts: make(map[string]*sqlite3.Stmt)}
	for _, p := range pragmas {
		if err := db.Exec("PRAGMA " + p); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// close finalises the statements and closes the connection.
func (c *conn) close() error {
	c.forget()
	return c.db.Close()
}

func (c *conn) forget() {
	for _, s := range c.stmts {
		_ = s.Close() // reports the statement's last failure, which its user saw
	}
	clear(c.stmts)
}

// stmt returns the prepared statement of an SQL text, which must be constant
// or from a small closed set.
func (c *conn) stmt(sql string) (*sqlite3.Stmt, error) {
	if s, ok := c.stmts[sql]; ok {
		return s, nil
	}
	s, _, err := c.db.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
	if err != nil {
		return nil, err
	}
	c.stmts[sql] = s
	return s, nil
}

// exec runs a statement without parameters.
func (c *conn) exec(sql string) error {
	s, err := c.stmt(sql)
	if err != nil {
		return err
	}
	return s.Exec()
}

// reset ends statements that a function left half read when it panicked, and
// drops them all when there are too many. It must not run within a query.
func (c *conn) reset() {
	if len(c.stmts) > maxVariants {
		c.forget()
		return
	}
	for _, s := range c.stmts {
		_ = s.Reset()
	}
}

// useLog switches the database to a write-ahead log, which some file systems
// cannot carry.
func (c *conn) useLog() error {
	s, _, err := c.db.Prepare("PRAGMA journal_mode=WAL")
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.Step() {
		return s.Err()
	}
	if mode := s.ColumnText(0); mode != "wal" {
		return fmt.Errorf("the file system cannot carry a write-ahead log (SQLite offers %q)", mode)
	}
	return nil
}

// int64Pragma returns the value of a numeric pragma.
func (c *conn) int64Pragma(name string) (int64, error) {
	s, _, err := c.db.Prepare("PRAGMA " + name)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if !s.Step() {
		return 0, s.Err()
	}
	return s.ColumnInt64(0), nil
}

// query is one execution of a prepared statement: bind in order, then step,
// then close. The first error sticks and ends the rows.
type query struct {
	s   *sqlite3.Stmt
	n   int // parameters bound, or columns read
	err error
}

func (q *query) text(v string) {
	if q.err == nil {
		q.n++
		q.err = q.s.BindText(q.n, v)
	}
}

func (q *query) blob(v []byte) {
	if q.err == nil {
		q.n++
		q.err = q.s.BindBlob(q.n, v)
	}
}

func (q *query) int(v int64) {
	if q.err == nil {
		q.n++
		q.err = q.s.BindInt64(q.n, v)
	}
}

func (q *query) float(v float64) {
	if q.err == nil {
		q.n++
		q.err = q.s.BindFloat(q.n, v)
	}
}

func (q *query) bool(v bool) {
	if v {
		q.int(1)
	} else {
		q.int(0)
	}
}

// uint binds an offset or a counter. SQLite's integers are signed: a value
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
	if q.err != nil {
		return false
	}
	q.n = -1
	if q.s.Step() {
		return true
	}
	q.err = q.s.Err()
	return false
}

func (q *query) colText() string {
	q.n++
	return q.s.ColumnText(q.n)
}

func (q *query) colInt() int64 {
	q.n++
	return q.s.ColumnInt64(q.n)
}

func (q *query) colUint() uint64 { return uint64(q.colInt()) }

func (q *query) colBool() bool { return q.colInt() != 0 }

func (q *query) colFloat() float64 {
	q.n++
	return q.s.ColumnFloat(q.n)
}

func (q *query) colTime() time.Time {
	n := q.colInt()
	if n == zeroTime {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// colBlob returns a copy: nil for NULL, else never nil.
func (q *query) colBlob() []byte {
	q.n++
	if q.s.ColumnType(q.n) == sqlite3.NULL {
		return nil
	}
	raw := q.s.ColumnRawBlob(q.n)
	return append(make([]byte, 0, len(raw)), raw...)
}

// colOptional returns a number that may be NULL.
func (q *query) colOptional() (uint64, bool) {
	q.n++
	if q.s.ColumnType(q.n) == sqlite3.NULL {
		return 0, false
	}
	return uint64(q.s.ColumnInt64(q.n)), true
}

// close resets the statement for its next use and returns the first error.
func (q *query) close() error {
	if q.s == nil {
		return storeError(q.err)
	}
	if err := q.s.Reset(); q.err == nil && err != nil {
		q.err = err
	}
	return storeError(q.err)
}

// run executes a statement that returns no rows.
func (q *query) run() error {
	if q.err != nil {
		return q.close()
	}
	return storeError(q.s.Exec())
}

// interruptible ties long queries of a connection to a context.
func (c *conn) interruptible(ctx context.Context) (restore func()) {
	old := c.db.SetInterrupt(ctx)
	return func() { c.db.SetInterrupt(old) }
}
