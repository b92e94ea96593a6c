package sqlitestore

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/headgate/headgate/store/internal/sqlstore"
)

// maxVariants bounds the statements that a connection keeps prepared. The
// fixed ones are about fifty; the rest are filters of the quarantine.
const maxVariants = 256

// conn is one connection with its prepared statements. It belongs to one
// goroutine at a time.
type conn struct {
	db      *sqlite3.Conn
	stmts   map[string]*sqlite3.Stmt
	queries map[string]*query // of the roles, by the text before its @ are gone
	clock   *clock            // of the store
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
	c := &conn{db: db, stmts: make(map[string]*sqlite3.Stmt), queries: make(map[string]*query)}
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
	clear(c.queries)
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

// query returns the execution of a statement, which lasts until the next of
// the same text.
func (c *conn) query(sql string) *query {
	q, ok := c.queries[sql]
	if !ok {
		s, err := c.stmt(strings.ReplaceAll(sql, "@", ""))
		if err != nil {
			return &query{err: err}
		}
		q = &query{conn: c, s: s}
		c.queries[sql] = q
	}
	q.n, q.err = 0, nil
	return q
}

// query is one execution of a prepared statement.
type query struct {
	conn *conn
	s    *sqlite3.Stmt
	n    int // parameters bound, or columns read
	err  error
}

var _ sqlstore.Statement = (*query)(nil)

func (q *query) Fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *query) Text(v string) {
	if q.err == nil {
		q.n++
		q.err = q.s.BindText(q.n, v)
	}
}

func (q *query) Blob(v []byte) {
	if q.err == nil {
		q.n++
		q.err = q.s.BindBlob(q.n, v)
	}
}

func (q *query) Int(v int64) {
	if q.err == nil {
		q.n++
		q.err = q.s.BindInt64(q.n, v)
	}
}

func (q *query) Float(v float64) {
	if q.err == nil {
		q.n++
		q.err = q.s.BindFloat(q.n, v)
	}
}

func (q *query) Bool(v bool) {
	if v {
		q.Int(1)
	} else {
		q.Int(0)
	}
}

func (q *query) Next() bool {
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

func (q *query) ColText() string {
	q.n++
	return q.s.ColumnText(q.n)
}

func (q *query) ColInt() int64 {
	q.n++
	return q.s.ColumnInt64(q.n)
}

func (q *query) ColBool() bool { return q.ColInt() != 0 }

func (q *query) ColFloat() float64 {
	q.n++
	return q.s.ColumnFloat(q.n)
}

func (q *query) ColBlob() []byte {
	q.n++
	if q.s.ColumnType(q.n) == sqlite3.NULL {
		return nil
	}
	raw := q.s.ColumnRawBlob(q.n)
	return append(make([]byte, 0, len(raw)), raw...)
}

func (q *query) ColOptional() (uint64, bool) {
	q.n++
	if q.s.ColumnType(q.n) == sqlite3.NULL {
		return 0, false
	}
	return uint64(q.s.ColumnInt64(q.n)), true
}

// Close resets the statement for its next use.
func (q *query) Close() error {
	if q.s == nil {
		return storeError(q.err)
	}
	if err := q.s.Reset(); q.err == nil && err != nil {
		q.err = err
	}
	return storeError(q.err)
}

func (q *query) Run() error {
	if q.err != nil {
		return q.Close()
	}
	return storeError(q.s.Exec())
}

func (q *query) Change() (int, error) {
	if err := q.Run(); err != nil {
		return 0, err
	}
	return int(q.conn.db.Changes()), nil
}

// interruptible ties long queries of a connection to a context.
func (c *conn) interruptible(ctx context.Context) (restore func()) {
	old := c.db.SetInterrupt(ctx)
	return func() { c.db.SetInterrupt(old) }
}
