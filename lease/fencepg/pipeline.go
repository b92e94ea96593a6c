package fencepg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/headgate/headgate/lease/fence"
)

// lately is how recently a fence must have passed for the guard to travel with
// the first statement. It bounds how long a holder that was stopped in between
// may go on until it hears that it is superseded; nothing that it writes
// counts either way.
const lately = 100 * time.Millisecond

// maxRecent bounds what recent remembers; beyond it, it forgets everything.
const maxRecent = 1 << 12

// recent remembers which fences passed lately.
type recent struct {
	mu     sync.Mutex
	passes map[string]pass
}

type pass struct {
	epoch int64
	sent  time.Time // by the monotonic clock, before the guard was asked
}

func (r *recent) note(f fence.Fence, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passes == nil || len(r.passes) >= maxRecent {
		r.passes = make(map[string]pass)
	}
	r.passes[f.Resource] = pass{f.Epoch, sent}
}

func (r *recent) drop(f fence.Fence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.passes, f.Resource)
}

func (r *recent) has(f fence.Fence, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.passes[f.Resource]
	return ok && p.epoch == f.Epoch && now.Sub(p.sent) < lately
}

// pipelined is a transaction that is begun, bounded and guarded together with
// its first statement, in one round trip. Whatever is not a plain statement
// with parameters begins it first.
type pipelined struct {
	db   *DB
	conn *pgx.Conn
	f    fence.Fence
	o    pgx.TxOptions

	tx  pgx.Tx // nil: not begun; closed: refused
	err error  // why it was refused
}

// begin begins the transaction if need be. When it is refused tx is a
// transaction that is closed, whose methods say so.
func (p *pipelined) begin(ctx context.Context) error {
	if p.tx == nil {
		p.tx, p.err = p.db.begin(ctx, p.conn, p.f, p.o)
	}
	return p.err
}

// first sends the statement behind the guard. It returns the results, of which
// the next is the statement's, and what to end when that was read; or nil when
// the statement is to be run on tx: that is then begun, unless the error says
// that it cannot be. A statement that is sent again is traced again.
func (p *pipelined) first(ctx context.Context, sql string, args []any) (pgx.BatchResults, *traced, error) {
	if p.tx != nil || !plain(args) || p.conn.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return nil, nil, p.begin(ctx)
	}
	within, t := trace(ctx, p.conn, sql, args)
	results, err := p.send(within, sql, args)
	if results == nil {
		t.end(pgconn.CommandTag{}, err)
		if err == nil || p.tx == nil {
			return nil, nil, p.begin(ctx)
		}
	}
	return results, t, err
}

// send is first without the tracer. Without results tx is nil when the
// transaction is to be begun, and the statement run, as usual.
func (p *pipelined) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	sent := time.Now()
	guard, values := p.db.guard(p.f, p.conn.PgConn().ParameterStatus("server_version"))
	b := &pgx.Batch{}
	b.BeginTx(p.o)
	b.Queue(guard, values...)
	b.Queue(sql, args...)
	results := p.conn.SendBatch(ctx, b)
	if _, err := results.Exec(); err != nil { // not even begun: the statement cannot be prepared, or the connection broke
		_ = results.Close() // says the same
		if p.conn.IsClosed() {
			p.tx = results.Tx()
		}
		return nil, err // begun as usual, the statement fails as it does everywhere
	}
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // says the same
		rollback(ctx, results.Tx())
		if conflict(err) && !p.conn.IsClosed() {
			return nil, err
		}
		p.tx, p.err = results.Tx(), err
		return nil, err
	}
	p.db.recent.note(p.f, sent)
	p.tx = results.Tx()
	return results, nil
}

// plain reports whether arguments make a single statement that can be sent
// with others: without any, a text may hold several, and the driver's options
// are not for batches.
func plain(args []any) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return false
	}
	return true
}

func (p *pipelined) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results, t, err := p.first(ctx, sql, args)
	switch {
	case err != nil:
		return pgconn.CommandTag{}, err
	case results == nil:
		return p.tx.Exec(ctx, sql, args...)
	}
	tag, err := results.Exec()
	if cerr := results.Close(); err == nil {
		err = cerr
	}
	t.end(tag, err)
	return tag, err
}

func (p *pipelined) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results, t, err := p.first(ctx, sql, args)
	switch {
	case err != nil:
		rows, _ := p.tx.Query(ctx, sql) // rows without any, which say that the transaction is closed
		return rows, err
	case results == nil:
		return p.tx.Query(ctx, sql, args...)
	}
	rows, err := results.Query()
	r := &firstRows{Rows: rows, results: results, traced: t}
	if err == nil {
		t.reads()
	} else {
		r.Close()
	}
	return r, err
}

func (p *pipelined) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	results, t, err := p.first(ctx, sql, args)
	switch {
	case err != nil:
		return failedRow{err}
	case results == nil:
		return p.tx.QueryRow(ctx, sql, args...)
	}
	return &firstRow{results, t}
}

// firstRows ends the batch with its last rows.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
	traced  *traced
	err     error
}

func (r *firstRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *firstRows) Close() {
	r.Rows.Close()
	r.err = r.results.Close() // may be repeated
	r.traced.end(r.CommandTag(), r.Err())
}

func (r *firstRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

type firstRow struct {
	results pgx.BatchResults
	traced  *traced
}

// Scan does what that of the driver does, by the rows: these know their tag.
func (r *firstRow) Scan(dest ...any) error {
	rows, err := r.results.Query()
	if err == nil {
		r.traced.reads()
	}
	for _, d := range dest {
		if _, shared := d.(*pgtype.DriverBytes); shared && err == nil {
			err = errors.New("cannot scan into *pgtype.DriverBytes from QueryRow")
		}
	}
	switch {
	case err != nil:
	case rows.Next():
		err = rows.Scan(dest...)
	default:
		if err = rows.Err(); err == nil {
			err = pgx.ErrNoRows
		}
	}
	rows.Close()
	for _, later := range []error{rows.Err(), r.results.Close()} {
		if err == nil {
			err = later
		}
	}
	r.traced.end(rows.CommandTag(), err)
	return err
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

func (p *pipelined) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	return p.tx.Begin(ctx)
}

func (p *pipelined) Commit(ctx context.Context) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	return p.tx.Commit(ctx)
}

func (p *pipelined) Rollback(ctx context.Context) error {
	if p.tx == nil { // so that what comes later finds a closed transaction
		if err := p.begin(ctx); err != nil {
			return nil
		}
	}
	return p.tx.Rollback(ctx)
}

func (p *pipelined) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := p.begin(ctx); err != nil {
		return 0, err
	}
	return p.tx.CopyFrom(ctx, table, columns, rows)
}

func (p *pipelined) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	_ = p.begin(ctx) // a refused transaction is closed, as its results say
	return p.tx.SendBatch(ctx, b)
}

func (p *pipelined) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	return p.tx.Prepare(ctx, name, sql)
}

func (p *pipelined) LargeObjects() pgx.LargeObjects {
	p.now()
	return p.tx.LargeObjects()
}

// Conn is used to write past this type: a connection without the transaction
// must not be had.
func (p *pipelined) Conn() *pgx.Conn {
	if p.now() != nil {
		_ = p.conn.Close(context.Background()) // whatever is run on it fails
	}
	return p.conn
}

// now begins the transaction where there is no context to do it by.
func (p *pipelined) now() error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	return p.begin(ctx)
}
