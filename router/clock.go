package router

import (
	"context"
	"time"
)

// timer is something to do at a time, with mu held.
type timer struct {
	at time.Time
	fn func()
}

// later runs fn at a time, with mu held.
func (s *sub) later(at time.Time, fn func()) {
	s.timers = append(s.timers, timer{at, fn})
	s.arm(at)
}

// arm makes the clock wake at a time, unless it wakes earlier anyway.
func (s *sub) arm(at time.Time) {
	if at.IsZero() || (!s.armed.IsZero() && !at.Before(s.armed)) {
		return
	}
	s.armed = at
	select {
	case s.clockWake <- struct{}{}:
	default:
	}
}

// runClock does what is due until ctx ends. It sleeps while nothing is.
func (s *sub) runClock(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.clockWake:
		case <-t.C:
		}
		s.mu.Lock()
		now := s.r.now()
		s.tick(now)
		next := s.nextTick()
		s.armed = next
		s.mu.Unlock()
		t.Stop()
		if !next.IsZero() {
			t.Reset(max(next.Sub(now), time.Millisecond))
		}
	}
}

// tick does everything that is due.
func (s *sub) tick(now time.Time) {
	s.expireClaims(now)
	for len(s.due) > 0 && !s.due[0].due.After(now) {
		it := s.due[0]
		s.due.remove(it)
		s.enqueue(it)
	}
	if !s.checkpointAt.IsZero() && !now.Before(s.checkpointAt) {
		s.checkpoint()
	}
	if tombs := s.ended.due(now); len(tombs) > 0 {
		s.submit(&op{tombs: tombs, durable: true, internal: true})
	}
	var run []func()
	kept := s.timers[:0]
	for _, t := range s.timers {
		if t.at.After(now) {
			kept = append(kept, t)
		} else {
			run = append(run, t.fn)
		}
	}
	clear(s.timers[len(kept):])
	s.timers = kept
	for _, fn := range run {
		fn()
	}
	s.relieve(now)
}

// nextTick returns when something is due next, zero when nothing is.
func (s *sub) nextTick() time.Time {
	next := s.claims.earliest()
	consider := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	consider(s.due.earliest())
	consider(s.checkpointAt)
	consider(s.ended.earliest())
	for _, t := range s.timers {
		consider(t.at)
	}
	for _, p := range s.parts { // see relieve, which needs a head in flight
		if s.inFlight > 0 && p.mem >= s.r.buffer*3/4 {
			consider(s.r.now().Add(time.Second))
			break
		}
	}
	return next
}
