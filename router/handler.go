package router

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/perimeter"
)

// HandlerFunc handles one delivery in this process. Events to emit are added
// to out. A nil error acks; Reject(err) parks at once; RetryAfter(d, err) asks
// for a delay; any other error, and a panic, retries by the backoff. The
// context ends with the claim; a handler that returns later is ignored. A
// shutdown ends it only after Config.Drain, and then the attempt does not count.
type HandlerFunc func(ctx context.Context, d *Delivery, out *Emitter) error

// Emitter collects the children of one delivery. It is safe for concurrent
// use, until the handler returns.
type Emitter struct {
	mu    sync.Mutex
	items []perimeter.Item
}

// Emit adds one child. It is admitted when the handler returned nil: it and
// the settlement are committed together. A child that the perimeter refuses
// for a cause (TTL, gas, loop, breadth) is recorded and the delivery still
// settles; any other refusal fails the attempt.
func (e *Emitter) Emit(ev *headgate.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.items = append(e.items, perimeter.Item{Event: ev})
}

func (e *Emitter) take() []perimeter.Item {
	e.mu.Lock()
	defer e.mu.Unlock()
	items := e.items
	e.items = nil
	return items
}

// Handle attaches a function to a subscription with deliver: {handler: {}},
// which may be created later. Conflict: it has one.
func (r *Router) Handle(name string, fn HandlerFunc) error {
	if !ValidName(name) || fn == nil {
		return headgate.NewError(headgate.CodeInvalidArgument, "a handler needs the name of a subscription and a function")
	}
	r.mu.Lock()
	if _, ok := r.handlers[name]; ok {
		r.mu.Unlock()
		return headgate.NewError(headgate.CodeConflict, "subscription %s has a handler", name)
	}
	r.handlers[name] = fn
	s := r.subs[name]
	r.mu.Unlock()
	if s == nil {
		return nil
	}
	return r.command(context.Background(), func(c contexts) error {
		if r.sub(name) == s { // else it was started anew, with the handler
			s.startHandler(c, fn)
		}
		return nil
	})
}

// takeBatch bounds how many deliveries are taken at once for handlers.
const takeBatch = 64

// runHandler hands deliveries to a function until ctx ends, then waits for
// those in progress, whose context is calls.
func (s *sub) runHandler(ctx, calls context.Context, fn HandlerFunc) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		items := s.next(ctx, takeBatch)
		if len(items) == 0 {
			return
		}
		var fast, slow []*item
		for _, it := range items {
			if it.live == nil || it.row || it.off < it.part.suspect {
				slow = append(slow, it)
			} else {
				fast = append(fast, it)
			}
		}
		if len(slow) > 0 { // waits for the store, which must not hold others up
			running.Go(func() { s.handleAll(calls, fn, slow, &running) })
		}
		if len(fast) > 0 {
			s.handleAll(calls, fn, fast, &running)
		}
	}
}

// handleAll prepares and handles deliveries.
func (s *sub) handleAll(ctx context.Context, fn HandlerFunc, items []*item, running *sync.WaitGroup) {
	ready := s.prepare(context.WithoutCancel(ctx), items)
	p := &headgate.Principal{Name: s.plan.As}
	if s.plan.leaseOf != nil { // whoever it is now needs the right
		if found, err := s.r.principals.Get(ctx, s.plan.As); err == nil {
			p = &found.Principal
		}
	}
	deliveries, claims := s.claimItems(s.leaseItems(context.WithoutCancel(ctx), ready, p), s.plan.As, false)
	if len(deliveries) == 0 {
		return
	}
	(&crew{s: s, calls: ctx, fn: fn, deliveries: deliveries, claims: claims, out: make([]Emitter, len(claims))}).start(running)
}

// crew calls a handler for the deliveries of one batch. Handlers mostly return
// at once: then a goroutine for each processor runs one after the other, and
// what they freed is handed out again in one go. But no delivery waits for the
// handler of another: as soon as one takes its time, whatever has not begun
// gets a goroutine of its own.
type crew struct {
	s           *sub
	fn          HandlerFunc
	calls, call context.Context
	end         context.CancelFunc
	deliveries  []Delivery
	claims      []claim
	out         []Emitter
	late        *time.Timer
	begun, left atomic.Int32
}

// patience is how long handlers may take to be called one after the other.
const patience = 200 * time.Microsecond

func (w *crew) start(running *sync.WaitGroup) {
	n := len(w.deliveries)
	// One context for all, since their claims end together.
	w.call, w.end = context.WithTimeout(w.calls, w.s.plan.claim)
	w.left.Store(int32(n))
	few := min(n, runtime.GOMAXPROCS(0))
	if n > few {
		running.Add(1) // nobody stops waiting while the timer may start more
		w.late = time.AfterFunc(patience, func() {
			defer running.Done()
			for range n - int(w.begun.Load()) {
				running.Go(func() { w.work(running) })
			}
		})
	}
	for range few {
		running.Go(func() { w.work(running) })
	}
}

// work handles what nobody has begun, one after the other. Who finishes last
// ends the batch.
func (w *crew) work(running *sync.WaitGroup) {
	done := int32(0)
	for {
		i := int(w.begun.Add(1)) - 1
		if i >= len(w.deliveries) {
			break
		}
		if call, end := w.s.interruptible(w.call, &w.claims[i]); call != nil {
			w.s.handle(w.calls, call, w.fn, &w.deliveries[i], &w.claims[i], &w.out[i])
			end()
		}
		done++
	}
	if w.left.Add(-done) == 0 && done > 0 {
		w.end()
		if w.late != nil && w.late.Stop() {
			running.Done()
		}
	}
	w.s.mu.Lock()
	w.s.signal()
	w.s.mu.Unlock()
}

// interruptible returns the context of a handler's call, which ends with the
// claim's lease if it has one; nil when that is lost already.
func (s *sub) interruptible(call context.Context, c *claim) (one context.Context, end func()) {
	if c.held == nil {
		return call, func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended {
		return nil, nil
	}
	one, interrupt := context.WithCancelCause(call)
	c.interrupt = interrupt
	return one, func() { interrupt(nil) }
}

// handle runs one attempt under the context call. Its result is settled like
// that of any consumer. An error after calls ended, because the node stops, is
// not an attempt.
func (s *sub) handle(calls, call context.Context, fn HandlerFunc, d *Delivery, c *claim, out *Emitter) {
	err := guard(call, fn, d, out)
	interrupted := calls.Err() != nil
	emit := out.take()
	if !s.lockHandled(c) {
		return // its time ran out: the attempt is counted as claim_expired
	}
	defer s.mu.Unlock()
	if err == nil && len(emit) == 0 && c.plain() {
		s.ack(ack{c: c}, true)
		return
	}
	x := &settling{c: c, in: Settlement{Outcome: OutcomeAck, Emit: emit}}
	if err == nil && len(emit) > 0 {
		s.mu.Unlock()
		err = s.admitChildren(context.WithoutCancel(call), x)
		s.mu.Lock()
	}
	if err == nil {
		s.settleOne(x, s.plan.As, s.r.now(), true, func() {})
		return
	}
	if interrupted {
		c.unlock()
		s.claims.end(c, "claim_expired", Settled{})
		s.dropLease(c.held, c.principal)
		s.retryFree(c.it, s.r.now(), "shutdown", "the node stopped")
		return
	}
	f := failureOf(err)
	f.principal, f.internal, f.fence = s.plan.As, true, c.leasedBy()
	f.answered = func(err error) {
		x.in.Outcome = f.outcome
		s.answered(x, err)
	}
	s.fail(c.it, f, s.r.now())
}

// lockHandled keeps a handler's claim from ending otherwise, and returns with
// mu held; false, without mu, when it has ended.
func (s *sub) lockHandled(c *claim) bool {
	s.mu.Lock()
	for c.busy {
		idle := c.whenIdle()
		s.mu.Unlock()
		<-idle
		s.mu.Lock()
	}
	if now := s.r.now(); !c.ended && !c.deadline.After(now) {
		s.expireClaim(c, now)
	}
	if c.ended {
		s.mu.Unlock()
		return false
	}
	c.lock()
	return true
}

// admitChildren passes a handler's children through the perimeter in the name
// of the subscription's principal.
func (s *sub) admitChildren(ctx context.Context, x *settling) error {
	if len(x.in.Emit) == 0 {
		return nil
	}
	p, err := s.r.principals.Get(ctx, s.plan.As)
	if err != nil {
		return headgate.NewError(headgate.CodeForbidden, "the subscription's principal %s cannot be looked up: %v", s.plan.As, err)
	}
	if refusal := s.tryChildren(ctx, &p.Principal, x); refusal != nil {
		return refusal
	}
	return nil
}

// guard calls the handler and turns a panic into an error with the stack.
func guard(ctx context.Context, fn HandlerFunc, d *Delivery, out *Emitter) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{text: clip(fmt.Sprint(v), 500), stack: clip(string(debug.Stack()), 4000)}
		}
	}()
	return fn(ctx, d, out)
}

// panicError is a handler's panic.
type panicError struct{ text, stack string }

func (p *panicError) Error() string { return "panic: " + p.text + "\n" + p.stack }
