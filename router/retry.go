package router

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

// failure is how one attempt failed.
type failure struct {
	principal string
	outcome   string // retry, reject, claim_expired, error, panic, shutdown
	text      string
	delay     time.Duration // asked for by the consumer; 0: by the backoff
	// answered runs with mu held once the failure is committed, or cannot be
	// (then the claim is still open and nothing changed).
	answered func(error)
	internal bool         // repeat until committed
	fence    *lease.Fence // guards the end of the attempt; nil: nothing does
}

// Reasons of parked deliveries.
const (
	reasonPermanent = "handler_permanent"
	reasonExhausted = "handler_exhausted"
	reasonCrash     = "handler_crash"
	reasonBlocked   = "blocked_too_long"
)

// fail ends an attempt that did not succeed: the event is tried again later,
// or parked when its attempts are used up, it was rejected, or its key was
// blocked for too long. The item is in flight and its claim has ended, or ends
// when the failure is answered.
func (s *sub) fail(it *item, f failure, now time.Time) {
	undo := it.live.closing(now, f.principal, f.outcome, f.text)
	switch {
	case f.outcome == OutcomeReject:
		s.parkFailed(it, reasonPermanent, f.text, f, undo)
	case int(it.attempts)-it.live.Free >= s.plan.Attempts:
		s.parkFailed(it, exhaustedReason(f.outcome), f.text, f, undo)
	case it.lane != nil && !now.Before(it.live.first.Add(s.plan.maxBlock)):
		s.parkFailed(it, reasonBlocked, f.text, f, undo)
	default:
		s.retry(it, f, undo, now)
	}
}

func exhaustedReason(outcome string) string {
	if outcome == "claim_expired" || outcome == "crash" {
		return reasonCrash
	}
	return reasonExhausted
}

// retryDelay is when a failed attempt is followed by the next. What a consumer
// asks for is clamped to the largest delay, and never below a millisecond. An
// event that blocks its key gets its last attempt when the block ends.
func (s *sub) retryDelay(it *item, f failure, now time.Time) time.Duration {
	d := f.delay
	if d <= 0 {
		d = s.plan.delay(int(it.attempts), s.r.random())
	}
	d = max(min(d, maxBackoff), time.Millisecond)
	if it.lane != nil {
		d = max(min(d, it.live.first.Add(s.plan.maxBlock).Sub(now)), time.Millisecond)
	}
	return d
}

// retry moves an item to the store until its next attempt.
func (s *sub) retry(it *item, f failure, undo func(), now time.Time) {
	d := s.retryDelay(it, f, now)
	due := now.Add(d)
	it.state = stSettling
	ev := it.live.ev
	s.submit(&op{
		it: it, mark: !it.row, put: s.row(it, store.ExceptionRetry, int(it.attempts), due),
		act: dropUnless(it.row), durable: true, internal: f.internal || f.answered == nil, fence: f.fence,
		done: func(err error) {
			if err == nil {
				s.inFlight--
				s.toRow(it)
				it.state, it.due, it.live = stRetry, due, nil
				s.observe(s.r.observer.Settled, it, ev, "retry", f.outcome, d)
				if it.isHead() {
					s.release(it)
				}
				if it.lane != nil {
					s.spill(it.lane, laneMemory)
				}
				s.signal()
			} else {
				it.state = stInFlight
				undo()
			}
			if f.answered != nil {
				f.answered(err)
			}
		},
	})
}

// parkFailed parks an item whose attempts failed. When the quarantine is full
// the lane waits: nothing is dropped, and it is tried again.
func (s *sub) parkFailed(it *item, reason, text string, f failure, undo func()) {
	s.end(it, ender{
		kind: store.KindParked, end: endParked, reason: reason, text: text,
		internal: f.internal || f.answered == nil, outcome: "parked", undo: undo, answered: f.answered, fence: f.fence,
	})
}

// exhaust parks an item whose last recorded attempt ended with the node.
func (s *sub) exhaust(it *item) {
	text, outcome := "", "crash"
	if n := len(it.live.Attempts); n > 0 {
		text, outcome = it.live.Attempts[n-1].Error, it.live.Attempts[n-1].Outcome
	}
	s.end(it, ender{
		kind: store.KindParked, end: endParked, reason: exhaustedReason(outcome), text: text, internal: true, outcome: "parked",
	})
}

// park ends an item that was not dispatched, with a record.
func (s *sub) park(it *item, kind store.QuarantineKind, e ending, reason, text string) {
	outcome := "discarded"
	if e == endExpired {
		outcome = "expired"
	}
	s.end(it, ender{kind: kind, end: e, reason: reason, text: text, internal: true, outcome: outcome})
}

// endItem ends an item without a record.
func (s *sub) endItem(it *item, e ending, outcome string) {
	s.end(it, ender{end: e, internal: true, outcome: outcome})
}

// ender says how an item ends for good.
type ender struct {
	kind         store.QuarantineKind // "": without a record
	end          ending
	reason, text string
	outcome      string // for the observer
	outbox       []store.OutboxRow
	fence        *lease.Fence // guards the end; nil: nothing does
	internal     bool
	// async gives the place among the deliveries in flight back at once, not
	// when the end is committed.
	async    bool
	undo     func()
	answered func(error)
}

// end ends an in-flight item: its quarantine record, its progress, its row and
// its children are one transaction, and the broker is told only afterwards.
func (s *sub) end(it *item, e ender) {
	o := &op{
		it: it, mark: !it.row, end: e.end, outbox: e.outbox, internal: e.internal, fence: e.fence,
		durable: it.row || e.kind != "" || len(e.outbox) > 0 || s.plan.Dedupe == DedupeDurable,
	}
	if !it.row {
		o.act = broker.Ack
		if e.kind != "" {
			o.act = broker.Drop
		}
	}
	tomb := it.row && it.attempts >= 2 && it.live != nil
	var now time.Time
	if tomb {
		now = s.r.now()
		o.put = s.row(it, exceptionEnded, int(it.attempts), now.Add(s.r.tokenLife))
	} else {
		o.drop = it.row
	}
	if e.kind != "" {
		rec := s.r.quarantineRecord(s.parked(it, e))
		o.record = &rec
	}
	if e.end == endParked && it.lane != nil && s.plan.Order == OrderStrict {
		id := it.lane.id
		o.block = &id
		o.durable = true
	}
	it.state = stSettling
	o.done = func(err error) { s.afterEnd(it, e, o, tomb, now, err) }
	if e.async {
		s.inFlight--
		s.uncommit++
		s.signal()
	}
	s.submit(o)
}

// afterEnd makes memory follow the end of an item, or its failure.
func (s *sub) afterEnd(it *item, e ender, o *op, tomb bool, now time.Time, err error) {
	if e.async {
		s.inFlight++
		s.uncommit--
	}
	if err != nil {
		if headgate.CodeOf(err) == headgate.CodeQuarantineFull && e.internal {
			s.waitForRoom(it, e)
			return
		}
		it.state = stInFlight
		if e.undo != nil {
			e.undo()
		}
		if e.answered != nil {
			e.answered(err)
		}
		return
	}
	s.inFlight--
	if tomb {
		s.ended.add(endedKey{it.part.stream, it.pos()}, it.attempts, now.Add(s.r.tokenLife))
		s.arm(s.ended.earliest())
	}
	var ev *headgate.Event
	if it.live != nil {
		ev = it.live.ev
	}
	s.observe(s.r.observer.Settled, it, ev, e.outcome, e.reason, 0)
	if e.outcome == "parked" {
		s.r.log.Warn("delivery parked", "subscription", s.name, "stream", it.part.stream, "position", it.pos().String(), "reason", e.reason)
	}
	lane := it.lane
	if o.block != nil {
		lane.blocked = true
	}
	s.dropItem(it)
	if o.block != nil {
		s.spill(lane, 0)
	}
	if e.answered != nil {
		e.answered(nil)
	}
	s.signal()
}

// waitForRoom tries to end an item again later, because the quarantine is
// full. Its key waits, and so does its place among the deliveries in flight.
// Its attempts are saved first, so that a restart does not forget them.
func (s *sub) waitForRoom(it *item, e ender) {
	now := s.r.now()
	if s.warn("quarantine", now) {
		s.r.log.Error("quarantine full, deliveries wait", "subscription", s.name)
	}
	again := func(error) {
		s.later(s.r.now().Add(roomWait), func() { s.end(it, e) })
	}
	if it.row || it.attempts == 0 {
		again(nil)
		return
	}
	s.submit(&op{
		it: it, mark: true, put: s.row(it, store.ExceptionRetry, int(it.attempts), now), act: broker.Drop, durable: true, internal: true,
		done: func(err error) {
			if err == nil {
				s.toRow(it)
			}
			again(err)
		},
	})
}

// roomWait is how long a delivery waits before it asks a full quarantine again.
const roomWait = 5 * time.Second

func (s *sub) parked(it *item, e ender) quarantine.Parked {
	p := quarantine.Parked{
		Kind: e.kind, Subscription: s.name, Stream: it.part.stream, Position: it.pos(), Reason: e.reason,
		Message: clip(e.text, 2048), AttemptCount: int(it.attempts),
	}
	if l := it.live; l != nil {
		p.Event, p.Attempts, p.First = l.ev, l.Attempts, l.first
	}
	return p
}

// hold moves a waiting item to the store, because its key is blocked.
func (s *sub) hold(it *item) {
	it.state = stSettling
	if it.attempts == 0 && it.off < it.part.suspect { // its row must not forget that
		it.attempts = 1
		it.live.Free++
	}
	s.submit(&op{
		it: it, mark: true, put: s.row(it, store.ExceptionHeld, int(it.attempts), time.Time{}),
		act: broker.Drop, durable: true, internal: true,
		done: func(err error) {
			if err != nil {
				it.state = stWaiting
				return
			}
			s.toRow(it)
			it.live, it.state = nil, stHeld
			if it.isHead() {
				s.release(it)
			}
		},
	})
}

// spill moves what waits in memory in a lane to the store, but for the first
// keep items. Once one follower is in the store all behind it go there too, so
// that they come back in order.
func (s *sub) spill(l *lane, keep int) {
	for _, it := range l.queue {
		if it.state != stWaiting || it.row {
			continue
		}
		if keep--; keep < 0 {
			s.hold(it)
		}
	}
}

func dropUnless(row bool) broker.Act {
	if row {
		return 0
	}
	return broker.Drop
}

// encode writes the history as it is kept in an exception row.
func (h *history) encode() []byte {
	if h.Free == 0 && len(h.Attempts) == 0 {
		return nil
	}
	b, err := json.Marshal(h)
	if err != nil { // times outside years 0 to 9999 only
		return nil
	}
	return b
}

// decodeHistory reads what encode wrote; an unreadable history is empty.
func decodeHistory(b []byte) (h history) {
	if len(b) > 0 && json.Unmarshal(b, &h) != nil {
		return history{}
	}
	return h
}

// Reject wraps err so that a handler that returns it parks the event at once.
func Reject(err error) error { return &rejection{err} }

type rejection struct{ err error }

func (r *rejection) Error() string { return errString(r.err, "rejected") }
func (r *rejection) Unwrap() error { return r.err }

// RetryAfter wraps err so that a handler that returns it is tried again after
// d, clamped to between a millisecond and 24 hours.
func RetryAfter(d time.Duration, err error) error { return &deferral{d, err} }

type deferral struct {
	delay time.Duration
	err   error
}

func (r *deferral) Error() string { return errString(r.err, "retry later") }
func (r *deferral) Unwrap() error { return r.err }

func errString(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return err.Error()
}

// failureOf says how a handler's error ends the attempt.
func failureOf(err error) failure {
	var rej *rejection
	var def *deferral
	var pan *panicError
	switch {
	case errors.As(err, &pan):
		return failure{outcome: "panic", text: err.Error()}
	case errors.As(err, &rej):
		return failure{outcome: OutcomeReject, text: err.Error()}
	case errors.As(err, &def):
		return failure{outcome: OutcomeRetry, text: err.Error(), delay: def.delay}
	}
	return failure{outcome: "error", text: err.Error()}
}
