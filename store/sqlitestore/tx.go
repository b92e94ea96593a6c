package sqlitestore

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store/internal/sqlstore"
)

// tx is one run of a function.
type tx struct {
	conn *conn
	over atomic.Bool
}

// Query implements sqlstore.Session.
func (t *tx) Query(sql string) sqlstore.Statement {
	if t.over.Load() {
		return &query{err: sqlstore.Over()}
	}
	return t.conn.query(sql)
}

// Now implements sqlstore.Session.
func (t *tx) Now() (time.Time, error) { return t.conn.clock.read(), nil }

// call runs fn with a transaction that ends with it.
func call(ctx context.Context, log *slog.Logger, c *conn, fn sqlstore.Function) error {
	t := &tx{conn: c}
	roles := sqlstore.New(t, &sqlstore.Dialect{NewestQID: "max(qid)"})
	return sqlstore.Call(ctx, log, &roles, fn, func(panicked bool) {
		t.over.Store(true)
		if panicked {
			c.reset()
		}
	})
}
