package fencepg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// traced is a statement that the driver's tracer for single statements is told
// of: for the driver it is a part of a batch, for who wrote it it is not.
type traced struct {
	tracer pgx.QueryTracer
	conn   *pgx.Conn
	ctx    context.Context // of the tracer, from start to end
	over   bool
}

// trace begins a statement. What is sent for it is sent with the context that
// it returns, so that the tracer sees the batch within the statement.
func trace(ctx context.Context, conn *pgx.Conn, sql string, args []any) (context.Context, *traced) {
	tracer := conn.Config().Tracer
	if tracer == nil {
		return ctx, nil
	}
	ctx = tracer.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: sql, Args: args})
	return ctx, &traced{tracer: tracer, conn: conn, ctx: ctx}
}

// reads is called with the rows of the statement: without a tracer for batches
// the driver ends what it takes for a single query when it closes them.
func (t *traced) reads() {
	if t == nil {
		return
	}
	if _, batches := t.tracer.(pgx.BatchTracer); !batches {
		t.over = true
	}
}

// end ends it, once.
func (t *traced) end(tag pgconn.CommandTag, err error) {
	if t == nil || t.over {
		return
	}
	t.over = true
	t.tracer.TraceQueryEnd(t.ctx, t.conn, pgx.TraceQueryEndData{CommandTag: tag, Err: err})
}
