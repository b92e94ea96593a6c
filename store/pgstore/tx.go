package pgstore

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

// newestQID is the greatest QID of a group. Before version 18 the server has
// no max of byte strings; that of their hexadecimal form is the same.
const newestQID = `decode(max(encode(qid, 'hex') COLLATE "C"), 'hex')`

// tx is one run of a function.
type tx struct {
	conn *conn
	seqs *numbers // of the outbox, in Update alone
	over atomic.Bool
}

// call runs fn in a transaction of its own or as a member of a group.
func call(ctx context.Context, log *slog.Logger, c *conn, seqs *numbers, fn sqlstore.Function) error {
	t := &tx{conn: c, seqs: seqs}
	dialect := sqlstore.Dialect{NewestQID: newestQID}
	if seqs != nil {
		// Our own writers stand in line anyway. The lock holds off statements
		// that others run on the table.
		dialect.LeaseLock = " FOR KEY SHARE"
	}
	roles := sqlstore.New(t, &dialect)
	roles.Outbox, roles.Leases = outbox{roles.Outbox, t}, leases{roles.Leases, t}
	return sqlstore.Call(ctx, log, &roles, fn, func(bool) { t.over.Store(true) })
}

// Query implements sqlstore.Session.
func (t *tx) Query(sql string) sqlstore.Statement { return t.query(sql) }

func (t *tx) query(sql string) *query {
	q := &query{request: request{sql: sql}, t: t}
	if t.over.Load() {
		q.err = sqlstore.Over()
	}
	return q
}

// Now implements sqlstore.Session: the server's clock.
func (t *tx) Now() (time.Time, error) {
	q := t.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
	var now time.Time
	if q.Next() {
		now = time.UnixMicro(q.ColInt()).UTC()
	}
	return now, q.Close()
}

// mayWrite refuses a write in a View, before the server would.
func (t *tx) mayWrite() error {
	if t.seqs != nil {
		return nil
	}
	return headgate.NewError(headgate.CodeInternal, "a View cannot write")
}
