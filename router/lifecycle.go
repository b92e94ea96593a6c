package router

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// startSub loads a subscription and starts its goroutines. It reads nothing
// before it is attached.
func (r *Router) startSub(c contexts, row store.Subscription, unclean bool) (*sub, error) {
	var spec Spec
	if err := json.Unmarshal(row.Spec, &spec); err != nil {
		return nil, headgate.NewError(headgate.CodeInternal, "the stored subscription %s is unreadable: %v", row.Name, err)
	}
	p, bad := spec.compile(r.defaults)
	p.decode = r.json
	if len(bad) > 0 {
		return nil, headgate.NewError(headgate.CodeInternal, "the stored subscription %s is invalid: %s", row.Name, strings.Join(bad, "; "))
	}
	s := newSub(r, row, p)
	if err := s.restore(c.soft, unclean); err != nil {
		return nil, err
	}
	r.mu.Lock()
	fn := r.handlers[row.Name]
	r.subs[row.Name] = s
	r.mu.Unlock()
	s.run(c)
	if fn != nil {
		s.startHandler(c, fn)
	}
	return s, nil
}

// attachAll makes started subscriptions read their streams.
func (r *Router) attachAll(ctx context.Context, subs ...*sub) {
	byStream := map[string][]*sub{}
	for _, s := range subs {
		s.mu.Lock()
		streams := map[string]bool{}
		for id := range s.parts {
			streams[id.stream] = true
		}
		s.mu.Unlock()
		for stream := range streams {
			byStream[stream] = append(byStream[stream], s)
		}
	}
	for stream, list := range byStream {
		r.attach(ctx, stream, list)
	}
}

// run starts the subscription's goroutines; close ends and waits for them.
func (s *sub) run(c contexts) {
	soft, cancel := context.WithCancel(c.soft)
	stopping := make(chan struct{})
	s.stop = cancel
	s.stopCommitter = sync.OnceFunc(func() { close(stopping) })
	s.spawn = func(fn func(context.Context)) bool {
		if !s.team.enter() {
			return false
		}
		go func() {
			defer s.team.leave()
			fn(soft)
		}()
		return true
	}
	s.feeding.Go(func() { s.runClock(soft) })
	s.committing.Go(func() { s.runCommitter(c.hard, stopping) })
	s.soft = soft.Done()
}

// startHandler starts the function of a handler subscription.
func (s *sub) startHandler(c contexts, fn HandlerFunc) {
	if s.plan.Deliver.Handler == nil || s.handled {
		return
	}
	s.handled = true
	ctx, cancel := context.WithCancel(c.soft)
	calls, interrupt := context.WithCancel(c.calls)
	s.interrupt = interrupt
	stopped := s.soft
	s.handling.Go(func() {
		defer cancel()
		defer interrupt()
		s.runHandler(ctx, calls, fn)
	})
	s.feeding.Go(func() { // ends with the subscription, not only with the router
		<-stopped
		cancel()
	})
}

// close drains: no more dispatches, handlers end, open claims are given up
// without using up an attempt, and progress is saved.
func (s *sub) close(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for _, w := range s.waiters {
		close(w.ch)
	}
	s.waiters = nil
	s.mu.Unlock()
	if s.stop == nil {
		return nil
	}
	s.stop()
	if s.interrupt != nil { // handlers have as long as in a drain, also at a change
		late := time.AfterFunc(s.r.drain, s.interrupt)
		defer late.Stop()
	}
	s.team.close()
	s.leaveFeeds()
	s.feeding.Wait()
	s.handling.Wait()
	s.giveUpClaims()
	saved := make(chan error, 1)
	s.mu.Lock()
	s.submit(&op{durable: true, done: func(err error) { saved <- err }})
	s.mu.Unlock()
	err := <-saved
	s.stopCommitter()
	s.committing.Wait()
	s.giveUp(errStopped())
	return errors.Join(err, s.saveSuspects(ctx))
}

// giveUpClaims records the attempts of open pull claims, so that the next
// claim supersedes them, as free: a shutdown is not an attempt.
func (s *sub) giveUpClaims() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.r.now()
	open := make([]*claim, 0, len(s.claims.byID))
	for _, c := range s.claims.byID {
		open = append(open, c)
	}
	slices.SortFunc(open, func(a, b *claim) int { return int(a.it.off) - int(b.it.off) })
	for _, c := range open {
		if c.busy {
			continue // its settlement is on the way, and decides
		}
		s.claims.end(c, "claim_expired", Settled{})
		s.dropLease(c.held, c.principal)
		s.retryFree(c.it, now, "shutdown", "the node stopped")
	}
}

// retryFree ends an attempt that was cut short by no fault of its worker: it
// does not use up the subscription's attempts.
func (s *sub) retryFree(it *item, now time.Time, outcome, text string) {
	it.live.close(now, "", outcome, text)
	it.live.Free++
	s.retry(it, failure{outcome: outcome, delay: time.Millisecond, internal: true}, func() {}, now)
}
