package node

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	// lookPatience bounds one look at the store. It is below what the gateway
	// gives a probe.
	lookPatience = 800 * time.Millisecond
	// lookLasts is how long the result of a look is good: so often at most is
	// the store asked, however many probe, and never when nobody does.
	lookLasts = time.Second
	// silence is how long the broker may go without saying whose its streams are
	// before the node is not ready: three questions. One that hangs answers
	// nothing, whatever its connections say.
	silence = 3 * ownEvery
)

// readiness says whether requests may come.
type readiness struct{ on atomic.Bool }

// check returns why the node is not ready.
func (r *readiness) check() error {
	if !r.on.Load() {
		return headgate.NewError(headgate.CodeUnavailable, "the node is starting or draining")
	}
	return nil
}

// checkReady returns why the node takes no work.
func (n *Node) checkReady(ctx context.Context) error {
	if err := n.ready.check(); err != nil {
		return err
	}
	if err := n.brokerHealth(); err != nil {
		return err
	}
	if err := n.brokerSilent(time.Now()); err != nil {
		return err
	}
	return n.look.check(ctx, n.Store, n.owned.store)
}

// brokerSilent returns that the broker answers nothing. Nobody is asked: a running
// node asks by itself whose the streams are.
func (n *Node) brokerSilent(now time.Time) error {
	at := n.owned.checked.Load()
	if at == nil || now.Sub(*at) <= silence || !n.owned.keeping.Load() {
		return nil
	}
	return &headgate.Error{
		Code: headgate.CodeUnavailable, Detail: "the broker has not answered since " + at.UTC().Format(time.RFC3339), RetryAfter: ownEvery,
		Fix: "Look after the broker; the node goes on by itself once it answers, and nothing that was acknowledged is lost.",
	}
}

// brokerHealth returns why nothing can be stored, as far as the driver says so:
// its disk failed, or its server is away.
func (n *Node) brokerHealth() error {
	if b, ok := n.Broker.(interface{ Healthy() error }); ok {
		return b.Healthy()
	}
	return nil
}

// brokerRefuses returns why new events are refused at present, as far as the
// driver says so: also a disk that is nearly full, on which what is stored can
// still be delivered, so that the node stays ready.
func (n *Node) brokerRefuses() error {
	if b, ok := n.Broker.(interface{ Refuses() error }); ok {
		return b.Refuses()
	}
	return n.brokerHealth()
}

// storeLook asks now and then whether the store answers.
type storeLook struct {
	mu   sync.Mutex
	last *looked
	all  sync.WaitGroup
}

// looked is one look, under way or done.
type looked struct {
	done chan struct{} // closed at its end, after which at and err stand
	at   time.Time
	err  error
}

// over reports whether the look is done and too old to count.
func (l *looked) over() bool {
	select {
	case <-l.done:
		return time.Since(l.at) >= lookLasts
	default:
		return false
	}
}

// check returns why the store cannot be used. Callers that come together share
// one look, which no one of them ends by going away.
func (s *storeLook) check(ctx context.Context, st store.Store, id string) error {
	s.mu.Lock()
	if s.last == nil || s.last.over() {
		now := &looked{done: make(chan struct{})}
		s.last = now
		s.all.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookPatience)
			defer cancel()
			now.err = lookAt(ctx, st, id)
			now.at = time.Now()
			close(now.done)
		})
	}
	l := s.last
	s.mu.Unlock()
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: unanswered, Err: context.Cause(ctx)}
	}
}

// wait returns when no look is under way.
func (s *storeLook) wait() { s.all.Wait() }

const unanswered = "the node's store does not answer in time"

// lookAt reads one row: the identity, which stands since the node was opened.
func lookAt(ctx context.Context, st store.Store, id string) error {
	have, err := store.Identity(ctx, st)
	switch {
	case ctx.Err() != nil:
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: unanswered, Err: err}
	case err == nil && have != id:
		return headgate.NewError(headgate.CodeUnavailable, "the node's store is another one than at its start")
	case err == nil:
		return nil
	}
	e := headgate.AsError(err)
	if e == nil {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the node's store failed", Err: err}
	}
	if e.Info().Status != http.StatusServiceUnavailable {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: e.Detail, Err: err}
	}
	return e
}
