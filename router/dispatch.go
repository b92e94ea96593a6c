package router

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

// waiter is a consumer that waits for something to be ready. Waiters are
// served in the order in which they came; what is ready is handed to them, so
// that nobody who comes later takes it away.
type waiter struct {
	limit int
	items []*item
	ch    chan struct{}
}

// signal hands what is ready to those who wait.
func (s *sub) signal() {
	if s.gathering {
		return
	}
	for len(s.waiters) > 0 && s.takeable() {
		w := s.waiters[0]
		s.waiters = slices.Delete(s.waiters, 0, 1)
		w.items = s.take(w.limit)
		close(w.ch)
	}
}

// gathered hands out what became ready since gathering was set.
func (s *sub) gathered() {
	s.gathering = false
	s.signal()
}

func (s *sub) takeable() bool {
	return !s.paused && !s.draining && s.ready.len() > 0 && s.inFlight < s.plan.Concurrency && s.uncommit < maxBatch*4
}

// take pops up to limit ready items.
func (s *sub) take(limit int) []*item {
	var out []*item
	for len(out) < limit && s.takeable() {
		it := s.ready.pop()
		it.state = stInFlight
		s.inFlight++
		out = append(out, it)
	}
	return out
}

// next waits until there are items to dispatch, at most until ctx ends or the
// subscription drains (nil).
func (s *sub) next(ctx context.Context, limit int) []*item {
	s.mu.Lock()
	if s.draining || ctx.Err() != nil {
		s.mu.Unlock()
		return nil
	}
	if len(s.waiters) == 0 {
		if out := s.take(limit); len(out) > 0 {
			s.mu.Unlock()
			return out
		}
	}
	w := &waiter{limit: limit, ch: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	select {
	case <-w.ch:
	case <-ctx.Done():
		s.mu.Lock()
		if i := slices.Index(s.waiters, w); i >= 0 {
			s.waiters = slices.Delete(s.waiters, i, i+1)
		}
		s.mu.Unlock()
	}
	return w.items
}

// giveBack returns items that were taken but not dispatched.
func (s *sub) giveBack(items []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range items {
		s.inFlight--
		s.enqueue(it)
	}
}

// postpone returns a taken item to its queue after a delay, without an attempt.
func (s *sub) postpone(it *item, d time.Duration) {
	s.inFlight--
	it.state = stRetry
	it.due = s.r.now().Add(d)
	s.release(it)
	s.signal()
}

// prepare makes taken items ready to be handed out: it loads what is only in
// the store, ends what must not be dispatched, and records the attempt of
// every item that may have been dispatched before. What it returns is in
// flight; all else it has taken care of.
func (s *sub) prepare(ctx context.Context, items []*item) []*item {
	items = s.load(ctx, items)
	now := s.r.now()
	out := make([]*item, 0, len(items))
	var record []*op
	s.mu.Lock()
	for _, it := range items {
		switch {
		case s.endEarly(it, now):
		case !it.recorded && (it.row || it.off < it.part.suspect):
			record = append(record, s.recordOp(it, now))
			out = append(out, it)
		default:
			out = append(out, it)
		}
	}
	s.mu.Unlock()
	if len(record) == 0 {
		return out
	}
	if err := s.submitWait(ctx, record...); err != nil && ctx.Err() != nil {
		return nil // ending: what is not recorded is not dispatched
	}
	return slices.DeleteFunc(out, func(it *item) bool { return (it.row || it.off < it.part.suspect) && !it.recorded })
}

// load fills in the events and rows of items that only the store has. Items
// that cannot be loaded now are postponed.
func (s *sub) load(ctx context.Context, items []*item) []*item {
	if !slices.ContainsFunc(items, func(it *item) bool { return it.live == nil }) {
		return items
	}
	var out []*item
	for _, it := range items {
		if it.live != nil {
			out = append(out, it)
			continue
		}
		l, err := s.loadOne(ctx, it)
		s.mu.Lock()
		switch {
		case err != nil:
			if s.warn("load", s.r.now()) {
				s.r.log.Error("retry not loaded", "subscription", s.name, "position", it.pos().String(), "err", err)
			}
			s.postpone(it, time.Second)
		case l == nil:
			s.endItem(it, endTrimmed, "trimmed")
		default:
			it.live = l
			out = append(out, it)
		}
		s.mu.Unlock()
	}
	return out
}

// loadOne reads an event and its row again; nil when retention removed it.
func (s *sub) loadOne(ctx context.Context, it *item) (*live, error) {
	l := &live{}
	if it.row {
		var row store.Exception
		err := s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			row, err = tx.Deliveries.Exception(ctx, s.name, it.part.stream, it.pos())
			return err
		})
		if err != nil {
			return nil, err
		}
		l.first, l.history = row.First, decodeHistory(row.History)
	}
	stored, err := s.r.broker.Browse(ctx, it.part.stream, it.pos(), 1)
	if err != nil {
		return nil, err
	}
	if len(stored) == 0 || stored[0].Position != it.pos() {
		return nil, nil
	}
	l.ev = stored[0].Event
	return l, nil
}

// endEarly ends an item that must not be dispatched (any more).
func (s *sub) endEarly(it *item, now time.Time) bool {
	ev := it.live.ev
	if it.freebie {
		it.freebie = false
		it.live.Free++
	}
	switch {
	case ev.Header.RootID == "" || ev.Header.Principal == "":
		s.park(it, store.KindExtinguished, endDiscarded, "no_header", "the event bypassed the perimeter: it has no header")
	case ev.Header.TTL < 1:
		s.park(it, store.KindExtinguished, endExtinguished, "ttl", "the event has no hops left")
	case s.expired(ev, now):
		s.park(it, store.KindExpired, endExpired, "expired", "the event passed its expiry time before it was dispatched")
	case !it.recorded && it.row && int(it.attempts)-it.live.Free >= s.plan.Attempts:
		it.live.closeCrash(now)
		s.exhaust(it)
	default:
		return false
	}
	return true
}

func (s *sub) expired(ev *headgate.Event, now time.Time) bool {
	if !ev.ExpiryTime.IsZero() && !now.Before(ev.ExpiryTime) {
		return true
	}
	return s.plan.expire > 0 && now.Sub(ev.Header.RecordedTime) >= s.plan.expire
}

// recordOp records the coming attempt of an item. One without a row may or may
// not have been dispatched before a crash: that attempt is counted, so that
// its tokens are superseded, but does not use up the subscription's.
func (s *sub) recordOp(it *item, now time.Time) *op {
	l := it.live
	attempts := it.attempts
	if !it.row && attempts == 0 {
		attempts = 1
		l.Free++
	}
	l.closeCrash(now)
	attempts++
	if l.first.IsZero() {
		l.first = now
	}
	l.open(int(attempts), now)
	deadline := now.Add(s.plan.claim)
	return &op{
		it: it, mark: !it.row, put: s.row(it, store.ExceptionAttempt, int(attempts), deadline),
		act: dropUnless(it.row), durable: true, internal: true,
		done: func(err error) {
			if err != nil {
				return
			}
			s.toRow(it)
			it.attempts, it.recorded = attempts, true
		},
	}
}

// row builds an item's exception row as it is to be saved.
func (s *sub) row(it *item, state store.ExceptionState, attempts int, due time.Time) *store.Exception {
	ev := it.live.ev
	return &store.Exception{
		Subscription: s.name, Stream: it.part.stream, Position: it.pos(), Source: ev.Source, ID: ev.ID, Type: ev.Type,
		Key: ev.Key, State: state, Attempts: attempts, Due: due, First: it.live.first, History: it.live.encode(),
	}
}

// claimItems puts items under claims of a consumer and returns them as
// deliveries, with ids for a consumer outside this process. When the
// subscription drains meanwhile it gives them back.
func (s *sub) claimItems(items []leased, principal string, outside bool) ([]Delivery, []claim) {
	now := s.r.now()
	s.mu.Lock()
	if s.draining || s.paused {
		for _, l := range items {
			s.inFlight--
			s.dropLease(l.held, principal)
			s.enqueue(l.it)
		}
		s.mu.Unlock()
		return nil, nil
	}
	out, claims := make([]Delivery, 0, len(items)), make([]claim, len(items))
	for i := range items {
		it, c := items[i].it, &claims[len(out)]
		if items[i].held != nil && !s.enterLeased(c, items[i].held) {
			s.postpone(it, time.Millisecond)
			continue
		}
		if !it.recorded {
			it.attempts++
			it.live.first = now
			if it.live.Attempts == nil {
				it.live.Attempts = it.live.room[:0]
			}
			it.live.open(int(it.attempts), now)
		}
		it.recorded = false
		id := ""
		if outside {
			id = s.r.newClaim()
		}
		s.claims.add(c, id, it, principal, now, now.Add(s.plan.claim))
		c.held = items[i].held
		d := Delivery{
			Event: it.live.ev, Stream: it.part.stream, Position: it.pos(), Claim: c.id,
			Attempt: int(it.attempts), Deadline: c.deadline, sub: s, principal: principal,
		}
		if c.held != nil {
			d.Lease = &DeliveryLease{Resource: c.held.fence.Resource, Epoch: c.held.fence.Epoch, Token: c.held.token}
		}
		out = append(out, d)
		if it.part.mem >= s.r.buffer*3/4 {
			s.arm(now.Add(time.Second)) // see relieve
		}
		s.observe(s.r.observer.Dispatched, it, it.live.ev, "dispatched", "", 0)
	}
	if len(out) > 0 {
		s.arm(s.claims.earliest())
	}
	s.mu.Unlock()
	return out, claims[:len(out)]
}

// open begins an attempt in the history.
func (h *history) open(n int, start time.Time) {
	h.add(quarantine.Attempt{N: n, Start: start, Outcome: "open"})
}

// closeCrash ends an attempt that is still open although nobody works on it:
// the node stopped in its midst.
func (h *history) closeCrash(now time.Time) {
	h.close(now, "", "crash", "the node stopped during the attempt")
}

// close ends the open attempt, if there is one.
func (h *history) close(now time.Time, principal, outcome, text string) {
	n := len(h.Attempts)
	if n == 0 || h.Attempts[n-1].Outcome != "open" {
		return
	}
	a := &h.Attempts[n-1]
	a.Outcome, a.Error, a.Principal = outcome, clip(text, 1024), principal
	if outcome != "crash" {
		a.Duration = now.Sub(a.Start)
	}
}

// closing closes the open attempt until undo says that it did not end.
func (h *history) closing(now time.Time, principal, outcome, text string) (undo func()) {
	before := *h
	before.Attempts = slices.Clone(h.Attempts)
	h.close(now, principal, outcome, text)
	return func() { *h = before }
}

// add appends an attempt, keeping the first 3 and the last 7.
func (h *history) add(a quarantine.Attempt) {
	h.Attempts = append(h.Attempts, a)
	if len(h.Attempts) > 10 {
		h.Attempts = slices.Delete(h.Attempts, 3, 4)
	}
}
