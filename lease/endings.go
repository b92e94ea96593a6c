package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	// endEvery is how often the leases that targets know of are looked at.
	endEvery = time.Second
	// maxEndings bounds the leases that are remembered here, and the ends that
	// wait for one target.
	maxEndings = 1 << 16
)

// endings tells the targets that a lease was sealed at of an end that nobody
// waits for: that it was released, taken over, or ran out. It tells of ends
// alone that the store has committed, so that nothing that could still be
// renewed is refused by a target. Each target has a queue of its own, so that
// none waits for another.
//
// It lives in memory. An end that was not told when the process died is one
// that the target learns of from the next grant that is sealed there; leases
// that stood are found again at the start.
type endings struct {
	mu     sync.Mutex
	stand  map[string]standingGrant
	queues map[string]*endQueue // by target
}

// standingGrant is a sealed grant that has not ended, as far as is known.
type standingGrant struct {
	epoch  int64
	sealed []string
	whole  bool      // every target was told of it
	look   time.Time // when it may have to be ended
}

// stands notes a sealed grant, and when it may have to be ended. It reports
// whether there was room. Whole: every target was told of the grant.
func (e *endings) stands(l *store.Lease, look time.Duration, whole bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, known := e.stand[l.Resource]
	room := true
	switch {
	case known && at.epoch > l.Epoch:
		return true
	case known && at.epoch < l.Epoch:
		room = e.add(l.Resource, at.epoch, at.sealed)
	case !known && len(e.stand) >= maxEndings:
		return false
	}
	if e.stand == nil {
		e.stand = map[string]standingGrant{}
	}
	whole = whole || at.epoch == l.Epoch && at.whole
	e.stand[l.Resource] = standingGrant{epoch: l.Epoch, sealed: l.Sealed, whole: whole, look: time.Now().Add(look)}
	return room
}

// whole reports whether it is known that every target was told of the grants.
func (e *endings) whole(grants []Grant) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range grants {
		if at := e.stand[grants[i].Resource]; at.epoch != grants[i].Epoch || !at.whole {
			return false
		}
	}
	return true
}

// over notes the end of a sealed grant. It reports whether there was room.
func (e *endings) over(resource string, epoch int64, sealed []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, known := e.stand[resource]; known && at.epoch <= epoch {
		delete(e.stand, resource)
	}
	return e.add(resource, epoch, sealed)
}

// add is over under the lock. Each target is told of the latest end alone.
func (e *endings) add(resource string, epoch int64, sealed []string) bool {
	room := true
	for _, target := range sealed {
		if q := e.queues[target]; q != nil {
			room = q.add(resource, epoch, time.Now()) && room
		}
	}
	return room
}

// lapsed returns the grants that may have to be ended.
func (e *endings) lapsed() map[string]standingGrant {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]standingGrant{}
	for resource, at := range e.stand {
		if !at.look.After(time.Now()) {
			out[resource] = at
		}
	}
	return out
}

// followEnds ends sealed leases that ran out, until ctx ends.
func (s *Service) followEnds(ctx context.Context) {
	for s.findStanding(ctx) != nil {
		if pause(ctx, nil, endEvery) != nil {
			return
		}
	}
	tick := time.NewTicker(endEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for resource, at := range s.endings.lapsed() {
			if err := s.endLapsed(ctx, resource, at); err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("a sealed lease that ran out was not ended, trying again", "resource", resource, "error", err)
				break // the store may be away: then of all of them
			}
		}
	}
}

// everHeld is before the end of every lease.
var everHeld = time.UnixMicro(1)

// findStanding looks after a start which sealed leases stand, or ran out and were
// not ended, however long ago.
func (s *Service) findStanding(ctx context.Context) error {
	const page = 1000
	after := ""
	for {
		var rows []store.Lease
		var now time.Time
		err := s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			if now, err = tx.Leases.Now(ctx); err != nil {
				return err
			}
			rows, err = tx.Leases.List(ctx, store.LeaseFilter{After: after, Limit: page, HeldAt: everHeld})
			return err
		})
		if err != nil {
			return err
		}
		for i := range rows {
			if l := &rows[i]; len(l.Sealed) > 0 {
				s.stands(l, lapse(l).Sub(now))
			}
		}
		if len(rows) < page {
			return nil
		}
		after = rows[len(rows)-1].Resource
	}
}

// lapse is when a sealed lease that ran out is ended: its holder may renew it
// late for as long again as it lasts.
func lapse(l *store.Lease) time.Time { return l.Expires.Add(l.TTL) }

// endLapsed ends a lease that ran out, unless it was renewed or has ended.
func (s *Service) endLapsed(ctx context.Context, resource string, at standingGrant) error {
	var was, freed store.Lease
	var left time.Duration
	err := s.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		freed, left = store.Lease{}, 0
		if was, err = tx.Leases.Get(ctx, resource); err != nil || was.Epoch != at.epoch {
			return err
		}
		now, err := tx.Leases.Now(ctx)
		if err != nil {
			return err
		}
		if left = lapse(&was).Sub(now); left <= 0 {
			freed, err = s.end(ctx, tx, &was)
		}
		return err
	})
	if headgate.CodeOf(err) == headgate.CodeNotFound { // of a store that was restored
		was, err = store.Lease{Resource: resource}, nil
	}
	switch {
	case errors.Is(err, store.ErrGuarded): // a write under it is in flight
		return nil
	case err != nil:
		return err
	case was.Epoch == at.epoch && left > 0:
		s.stands(&was, left)
		return nil
	case was.Epoch == at.epoch:
		s.cfg.Log.Info("a sealed lease ran out and was ended", "resource", resource, "holder", was.Holder, "epoch", was.Epoch)
		s.changed(&freed)
	}
	s.over(&store.Lease{Resource: resource, Epoch: at.epoch, Sealed: at.sealed})
	return nil
}

// stands notes a sealed grant.
func (s *Service) stands(l *store.Lease, look time.Duration) { s.watched(l, look, false) }

// watched is stands, of a grant that every target was told of if it is whole.
func (s *Service) watched(l *store.Lease, look time.Duration, whole bool) {
	if len(s.cfg.Seal) == 0 { // nobody looks, and no target could be told
		return
	}
	if !s.endings.stands(l, look, whole) {
		s.cfg.Log.Warn("a sealed lease is not watched for its end: too many stand", "resource", l.Resource, "targets", l.Sealed)
	}
}

// over notes the end of a grant: its targets are told in the background.
func (s *Service) over(l *store.Lease) {
	if !s.endings.over(l.Resource, l.Epoch, l.Sealed) {
		s.cfg.Log.Warn("targets are not told of the end of a lease: too many ends wait", "resource", l.Resource, "targets", l.Sealed)
	}
	for _, name := range l.Sealed {
		if _, known := s.cfg.Seal[name]; !known {
			s.cfg.Log.Warn("a target is not told of the end of a lease: it is not configured any more", "resource", l.Resource, "target", name)
		}
	}
}
