package pgstore

import (
	"context"
	"log/slog"
	"sync"

	"github.com/headgate/headgate/store/internal/sqlstore"
)

// sqlSnapshot begins a View. Its snapshot is taken with its first query, which
// the same exchange carries.
const sqlSnapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

// readers is a pool of connections that only read, opened on first need.
type readers struct {
	open  func(context.Context) (*conn, error)
	log   *slog.Logger
	slots chan struct{} // one token per View that runs

	mu   sync.Mutex
	idle []*conn
}

func newReaders(n int, log *slog.Logger, open func(context.Context) (*conn, error)) *readers {
	return &readers{open: open, log: log, slots: make(chan struct{}, n)}
}

// view runs fn in one snapshot. When an idle connection turns out to be dead,
// as all are after a restart of the server, fn runs again on a new one.
func (r *readers) view(ctx context.Context, fn sqlstore.Function) error {
	if ctx.Err() != nil {
		return sqlstore.Abandoned(ctx)
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return sqlstore.Abandoned(ctx)
	}
	defer func() { <-r.slots }()
	if c := r.take(); c != nil {
		stale, err := r.once(ctx, c, fn)
		if !stale {
			return err
		}
		r.close() // the others are no better
	}
	c, err := r.open(ctx)
	if err != nil {
		return err
	}
	_, err = r.once(ctx, c, fn)
	return err
}

// once runs fn on a connection, which goes to the pool or is closed. It also
// says whether the connection turned out to be dead before it answered
// anything.
func (r *readers) once(ctx context.Context, c *conn, fn sqlstore.Function) (stale bool, err error) {
	sound := false
	defer func() { r.give(c, sound) }()
	c.begin(ctx, sqlSnapshot)
	err = call(ctx, r.log, c, nil, fn)
	if err == nil && c.fault != nil { // it swallowed the failure
		err = storeError(c.fault)
	}
	stale = c.fate == fateLost && !c.heard && ctx.Err() == nil
	c.rollback()
	sound = !c.dead()
	return stale, err
}

// take returns an idle connection, or nil.
func (r *readers) take() *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.idle)
	if n == 0 {
		return nil
	}
	c := r.idle[n-1]
	r.idle = r.idle[:n-1]
	return c
}

// give returns a connection to the pool; one that is not sound is closed.
func (r *readers) give(c *conn, sound bool) {
	if !sound {
		c.close()
		return
	}
	r.mu.Lock()
	r.idle = append(r.idle, c)
	r.mu.Unlock()
}

// close closes the idle connections; all are idle once no View runs.
func (r *readers) close() {
	r.mu.Lock()
	idle := r.idle
	r.idle = nil
	r.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
}
