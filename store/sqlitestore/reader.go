package sqlitestore

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/store/internal/sqlstore"
)

const sqlSnapshot = "BEGIN DEFERRED"

// readers is a pool of connections that only read, opened on first need.
type readers struct {
	open  func() (*conn, error)
	log   *slog.Logger
	slots chan struct{} // one token per View that runs

	mu   sync.Mutex
	idle []*conn
}

func newReaders(n int, log *slog.Logger, open func() (*conn, error)) *readers {
	return &readers{open: open, log: log, slots: make(chan struct{}, n)}
}

// view runs fn in one snapshot.
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
	c, err := r.take()
	if err != nil {
		return storeError(err)
	}
	sound := false
	defer func() { r.give(c, sound) }()
	if err := c.exec(sqlSnapshot); err != nil {
		return storeError(err)
	}
	restore := c.interruptible(ctx)
	err = call(ctx, r.log, c, fn)
	restore()
	c.reset()
	sound = c.exec(sqlRollback) == nil
	return err
}

// pause keeps new Views from beginning and waits for those that run, at most
// for wait. It reports nothing: who relies on it finds out.
func (r *readers) pause(wait time.Duration) (resume func()) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	held := 0
collect:
	for held < cap(r.slots) {
		select {
		case r.slots <- struct{}{}:
			held++
		case <-timeout.C:
			break collect
		}
	}
	return func() {
		for range held {
			<-r.slots
		}
	}
}

func (r *readers) take() (*conn, error) {
	r.mu.Lock()
	if n := len(r.idle); n > 0 {
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		r.mu.Unlock()
		return c, nil
	}
	r.mu.Unlock()
	return r.open()
}

// give returns a connection to the pool; one that is not sound is closed.
func (r *readers) give(c *conn, sound bool) {
	if !sound {
		_ = c.close() // its fault was answered already
		return
	}
	r.mu.Lock()
	r.idle = append(r.idle, c)
	r.mu.Unlock()
}

// close closes the idle connections; all are idle once no View runs.
func (r *readers) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first error
	for _, c := range r.idle {
		if err := c.close(); err != nil && first == nil {
			first = err
		}
	}
	r.idle = nil
	return first
}
