package natsbroker

import (
	"context"
	"sync"
	"time"
)

// session is the life of one connection to the server. The client library
// connects again by itself, but an answer that was under way never comes:
// whoever waits for one is woken when the connection breaks.
type session struct {
	mu     sync.Mutex
	parent context.Context
	ctx    context.Context
	broken context.CancelFunc
}

func (s *session) init(parent context.Context) {
	s.parent = parent
	s.ctx, s.broken = context.WithCancel(parent)
}

// end wakes everyone who waits for an answer and begins the next session.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken()
	s.ctx, s.broken = context.WithCancel(s.parent)
}

// bound returns a context for one exchange: it ends with ctx, with the present
// connection, and after d.
func (s *session) bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	conn := s.ctx
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(conn, cancel)
	return ctx, func() { stop(); cancel() }
}
