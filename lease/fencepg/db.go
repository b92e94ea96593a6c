package fencepg

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

// Bounds of a fenced transaction.
const (
	// DefaultLimit is how long it may wait for its client, and how long one of
	// its statements may take, unless the lease ends before.
	DefaultLimit = 30 * time.Second
	// farewell bounds a rollback after the caller went away.
	farewell = 5 * time.Second
)

// DB runs fenced transactions in one database. The zero value is ready for
// use; a program has one for each database, so that it remembers what is
// superseded.
type DB struct {
	// Schema has the functions; default headgate.
	Schema string
	// Limit bounds the transactions; default 30 s, never longer than what is
	// left of the lease.
	Limit time.Duration

	seen   fence.Seen
	recent recent
}

// Tx is [DB.Tx] with defaults and without a memory of what is superseded.
func Tx(ctx context.Context, pool *pgxpool.Pool, f fence.Fence, fn func(pgx.Tx) error) error {
	return new(DB).Tx(ctx, pool, f, pgx.TxOptions{}, fn)
}

// Tx runs fn in a transaction that commits only under the fence. The guard,
// the bounds and BEGIN travel together: there is no round trip more than in an
// unfenced transaction. When fn returns an error or panics, the transaction is
// rolled back.
//
// fn runs when the guard has passed. A fence that passed within the last 100 ms
// is trusted so far that fn runs at once, and the guard travels with its first
// statement, which then says what the guard says: one round trip less than in
// an unfenced transaction. The guard is asked in every transaction.
//
// Errors: those of [Error] for refusals, of which stale_fence and
// fence_conflict are final; what fn returned; the driver's. A failed COMMIT
// whose connection broke may have taken effect: its error is unavailable with
// an unknown outcome.
func (d *DB) Tx(ctx context.Context, pool *pgxpool.Pool, f fence.Fence, o pgx.TxOptions, fn func(pgx.Tx) error) error {
	if err := d.known(f); err != nil {
		return err
	}
	if o.BeginQuery != "" || o.AccessMode == pgx.ReadOnly {
		return headgate.NewError(headgate.CodeInvalidArgument, "A fenced transaction has its own BEGIN, and writes.")
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx := &pipelined{db: d, conn: conn.Conn(), f: f, o: o}
	if !d.recent.has(f, time.Now()) {
		if err := tx.begin(ctx); err != nil {
			return d.refused(f, err)
		}
	}
	defer func() {
		if tx.tx != nil {
			rollback(ctx, tx.tx) // after a commit it does nothing
		}
	}()
	if err = fn(tx); err == nil {
		_ = tx.begin(ctx) // fn may have sent no statement; the fence counts all the same
	}
	if tx.err != nil {
		err = tx.err // whatever fn made of it
	}
	if err != nil {
		return d.refused(f, err)
	}
	err = tx.Commit(ctx)
	if err != nil && conn.Conn().IsClosed() && !pgconn.SafeToRetry(err) { // also when the server said why: it may have committed before
		return &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.Unknown, Detail: "The connection broke while the transaction committed.", Err: err}
	}
	return d.refused(f, err)
}

func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = tx.Rollback(ctx) // pgx closes a connection whose rollback fails
}

// known refuses without asking the database.
func (d *DB) known(f fence.Fence) error {
	if err := f.Check(time.Now()); err != nil {
		return err
	}
	return d.seen.Check(f)
}

// refused remembers what is final. Only a refusal of this very fence counts:
// fn may have met another.
func (d *DB) refused(f fence.Fence, err error) error {
	if err != nil {
		d.recent.drop(f) // ask before the next function runs
	}
	if State(err) == StateStale && strings.Contains(err.Error(), fmt.Sprintf("epoch %d of %s is superseded", f.Epoch, f.Resource)) {
		d.seen.Note(f)
	}
	return Error(err)
}

// begin opens the transaction, bounded and guarded, in one round trip. Under
// repeatable read and above a takeover that committed after the snapshot is
// told as a conflict: once more, with a new snapshot, tells what it is. With an
// error the transaction is closed.
func (d *DB) begin(ctx context.Context, conn *pgx.Conn, f fence.Fence, o pgx.TxOptions) (pgx.Tx, error) {
	for again := false; ; again = true {
		sent := time.Now()
		sql, args := d.guard(f, conn.PgConn().ParameterStatus("server_version"))
		b := &pgx.Batch{}
		b.BeginTx(o)
		b.Queue(sql, args...)
		results := conn.SendBatch(ctx, b)
		tx := results.Tx()
		err := results.Close()
		if err == nil {
			d.recent.note(f, sent)
			return tx, nil
		}
		rollback(ctx, tx)
		if again || !conflict(err) || conn.IsClosed() {
			return tx, err
		}
	}
}

// guard bounds the transaction and passes the fence. The bounds count for
// later statements only: the guard itself waits for a takeover that commits.
func (d *DB) guard(f fence.Fence, server string) (sql string, args []any) {
	left := strconv.FormatInt(max(f.Left(time.Now(), cmp.Or(d.Limit, DefaultLimit)).Milliseconds(), 1), 10)
	names := []string{"idle_in_transaction_session_timeout", "statement_timeout"}
	if major, _, _ := strings.Cut(server, "."); len(major) == 2 && major >= "17" {
		names = []string{"transaction_timeout"} // bounds both: the server passes over longer or equal ones of theirs
	}
	var b strings.Builder
	b.WriteString("SELECT ")
	for _, name := range names {
		b.WriteString("pg_catalog.set_config('" + name + "', $1::text, true), ")
	}
	b.WriteString(fence.Ident(cmp.Or(d.Schema, "headgate")) + ".fence($2::text, $3::bigint, $4::text)")
	return b.String(), []any{left, f.Resource, f.Epoch, f.NonceText()}
}

// Inline returns what makes a single statement its own fenced transaction:
// the item for FROM (or USING, or a SELECT that INSERT takes its rows from),
// with parameters from $n on, and their values. It yields one row when the
// fence passes and fails otherwise:
//
//	item, args := db.Inline(f, 2)
//	pool.Exec(ctx, "UPDATE tickets SET state = 'done' FROM "+item+" WHERE id = $1", append([]any{id}, args...)...)
//
// It is for tables without a trigger of [FenceTable] for a constant resource,
// which fires before the statement's parts are looked at. It sets no bounds: a
// single statement does not wait for its client.
func (d *DB) Inline(f fence.Fence, n int) (item string, args []any) {
	return fmt.Sprintf("%s.fence($%d::text, $%d::bigint, $%d::text) AS headgate_fence(passed)", fence.Ident(cmp.Or(d.Schema, "headgate")), n, n+1, n+2),
		[]any{f.Resource, f.Epoch, f.NonceText()}
}
