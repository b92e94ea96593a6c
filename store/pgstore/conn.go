package pgstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
)

const (
	// maxVariants bounds the statements that a connection keeps prepared. The
	// fixed ones are about fifty; the rest are filters of the quarantine.
	maxVariants = 256
	// maxQueued and maxQueuedBytes bound the writes that wait to be sent.
	maxQueued      = 1024
	maxQueuedBytes = 1 << 20
)

var binaryFormat = []int16{1}

// request is one statement with its parameters in binary form.
type request struct {
	sql    string
	params [][]byte
	oids   []uint32
}

// result is what the server answered to one request.
type result struct {
	rows [][][]byte
	tag  pgconn.CommandTag
}

// fate says what became of a transaction whose exchange failed.
type fate int

const (
	fateNone     fate = iota
	fateRefused       // the server refused a statement
	fateConflict      // it asks to run the transaction again
	fateLost          // the connection broke before COMMIT could take effect
	fateUnknown       // it broke after COMMIT was sent
	fateDown          // there is no connection
)

// conn is one connection with its prepared statements and at most one open
// transaction. It belongs to one goroutine at a time.
type conn struct {
	pg     *pgconn.PgConn
	prefix string        // of table names: the quoted schema and a dot
	limit  time.Duration // of one exchange
	stmts  map[string]string
	names  int
	used   time.Time // when the server last answered
	facts  facts

	ctx    context.Context // of the View that runs
	queue  []request       // writes that were not sent yet
	bytes  int             // in the queue
	mark   int             // where in the queue the member's savepoint is; -1 once it was sent
	saved  bool            // the member has a savepoint
	heard  bool            // the server answered within this transaction
	ending bool            // COMMIT is on its way
	doubt  bool            // the server warned while it committed
	fate   fate
	fault  error // what ended the transaction
}

// text writes the schema and the numbers of parameters into a statement.
func (c *conn) text(sql string) string {
	var b strings.Builder
	n := 0
	for i := 0; i < len(sql); i++ {
		switch {
		case sql[i] == '@':
			b.WriteString(c.prefix)
		case sql[i] == '?' && i+1 < len(sql) && sql[i+1] >= '1' && sql[i+1] <= '9':
			b.WriteByte('$') // numbered already
		case sql[i] == '?':
			n++
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
		default:
			b.WriteByte(sql[i])
		}
	}
	return b.String()
}

// begin opens a transaction; its first statements are sent with the first
// exchange.
func (c *conn) begin(ctx context.Context, statements ...string) {
	c.ctx, c.queue, c.bytes, c.mark, c.saved = ctx, c.queue[:0], 0, -1, false
	c.heard, c.ending, c.doubt, c.fate, c.fault = false, false, false, fateNone, nil
	for _, sql := range statements {
		c.queue = append(c.queue, request{sql: sql})
	}
}

// dead reports whether the connection is of no more use.
func (c *conn) dead() bool { return c.pg.IsClosed() || len(c.stmts) > maxVariants }

// exchange sends what is queued and one request more, and returns the answer
// to that one. The first failure ends the transaction and sticks.
func (c *conn) exchange(last request) (result, error) {
	if c.fault != nil {
		return result{}, c.fault
	}
	requests := append(c.queue, last)
	c.queue, c.bytes = requests[:0], 0
	if c.saved {
		c.mark = -1
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.limit)
	defer cancel()
	p := c.pg.StartPipeline(ctx)
	fresh := make([]bool, len(requests))
	for i, r := range requests {
		name, known := c.stmts[r.sql]
		if !known {
			c.names++
			name, fresh[i] = "hg"+strconv.Itoa(c.names), true
			c.stmts[r.sql] = name
			p.SendPrepare(name, c.text(r.sql), r.oids)
		}
		p.SendQueryPrepared(name, r.params, binaryFormat, binaryFormat)
	}
	err := p.Sync()
	var res result
	at := 0
	for ; err == nil && at < len(requests); at++ {
		if fresh[at] {
			if _, err = p.GetResults(); err != nil {
				break
			}
			fresh[at] = false
		}
		if res, err = readResult(p); err != nil {
			break
		}
		c.heard = true
	}
	if cerr := p.Close(); err == nil && !c.ending {
		err = cerr
	}
	for i := range fresh {
		if fresh[i] { // the server may not know it
			delete(c.stmts, requests[i].sql)
		}
	}
	clear(requests) // lets go of the parameters
	if err == nil {
		c.used = time.Now()
		return res, nil
	}
	c.fault, c.fate = err, c.judge(err, at == len(requests)-1)
	if c.ctx.Err() != nil {
		c.fault = &headgate.Error{
			Code: headgate.CodeCanceled, Outcome: headgate.NotApplied,
			Detail: "the caller went away before the store answered", Err: errors.Join(context.Cause(c.ctx), err),
		}
	}
	return result{}, c.fault
}

// judge says what a failed exchange means. Answers come in the order of the
// requests: an answer to an earlier one than COMMIT, be it the last that the
// server ever gave, means that COMMIT was not executed.
func (c *conn) judge(err error, atLast bool) fate {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		switch {
		case !c.pg.IsClosed() && (refused.Code == "40001" || refused.Code == "40P01"):
			return fateConflict
		case !c.pg.IsClosed():
			return fateRefused
		case !c.ending || !atLast:
			return fateLost
		}
		return fateUnknown
	}
	if !c.ending || pgconn.SafeToRetry(err) {
		return fateLost
	}
	return fateUnknown
}

func readResult(p *pgconn.Pipeline) (result, error) {
	got, err := p.GetResults()
	if err != nil {
		return result{}, err
	}
	r, ok := got.(*pgconn.ResultReader)
	if !ok {
		return result{}, errors.New("the server ended its answers early")
	}
	var res result
	for r.NextRow() {
		res.rows = append(res.rows, copyRow(r.Values()))
	}
	res.tag, err = r.Close()
	return res, err
}

// copyRow copies a row, whose memory the next one reuses.
func copyRow(values [][]byte) [][]byte {
	size := 0
	for _, v := range values {
		size += len(v)
	}
	memory := make([]byte, 0, size)
	row := make([][]byte, len(values))
	for i, v := range values {
		if v != nil {
			from := len(memory)
			memory = append(memory, v...)
			row[i] = memory[from:len(memory):len(memory)]
		}
	}
	return row
}

// write queues a statement whose result nobody needs. Its failure comes to
// light with a later one, at the latest with COMMIT.
func (c *conn) write(r request) error {
	if c.fault != nil {
		return c.fault
	}
	if !c.saved {
		c.saved, c.mark = true, len(c.queue)
		c.queue = append(c.queue, request{sql: sqlSavepoint})
	}
	c.queue = append(c.queue, r)
	for _, p := range r.params {
		c.bytes += len(p) + 8
	}
	if len(c.queue) < maxQueued && c.bytes < maxQueuedBytes {
		return nil
	}
	return c.flush()
}

// read sends a statement now. One that changes rows needs the savepoint first.
func (c *conn) read(r request, changes bool) (result, error) {
	if changes && !c.saved && c.fault == nil {
		c.saved, c.mark = true, len(c.queue)
		c.queue = append(c.queue, request{sql: sqlSavepoint})
	}
	return c.exchange(r)
}

// flush sends what is queued.
func (c *conn) flush() error {
	n := len(c.queue)
	if n == 0 || c.fault != nil {
		return c.fault
	}
	last := c.queue[n-1]
	c.queue = c.queue[:n-1]
	_, err := c.exchange(last)
	return err
}

// member begins the part of one function.
func (c *conn) member() { c.saved, c.mark = false, -1 }

// keep ends it and keeps its writes.
func (c *conn) keep() {
	switch {
	case !c.saved || c.fault != nil:
	case c.mark >= 0: // nothing was sent: nothing can be undone any more
		c.queue = slices.Delete(c.queue, c.mark, c.mark+1)
	default:
		c.queue = append(c.queue, request{sql: sqlRelease})
	}
	c.member()
}

// undo ends it and takes its writes back.
func (c *conn) undo() {
	switch {
	case !c.saved || c.fault != nil:
	case c.mark >= 0:
		c.queue = c.queue[:c.mark]
	default:
		c.queue = append(c.queue, request{sql: sqlUndo}, request{sql: sqlRelease})
	}
	c.member()
}

// commit ends the transaction.
func (c *conn) commit() error {
	if c.fault != nil {
		return c.fault
	}
	c.ending = true
	res, err := c.exchange(request{sql: sqlCommit})
	if err != nil {
		return err
	}
	if c.doubt || res.tag.String() != "COMMIT" {
		c.fault, c.fate = errors.New("the server warned that the commit may not be whole"), fateUnknown
		return c.fault
	}
	return nil
}

// rollback ends the transaction, or the connection when it cannot.
func (c *conn) rollback() {
	c.queue, c.bytes = c.queue[:0], 0
	if c.pg.IsClosed() || c.pg.TxStatus() == 'I' {
		return
	}
	c.ctx, c.ending, c.fault = context.Background(), false, nil
	if _, err := c.exchange(request{sql: sqlRollback}); err != nil {
		c.close()
	}
}

// close closes the connection. One that broke is gone already.
func (c *conn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	_ = c.pg.Close(ctx) // says goodbye; the server ends the session either way
}
