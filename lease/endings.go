package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	// endEvery is how often the leases that targets know of are looked at.
	endEvery = time.Second
	// endsAtOnce bounds the ends that are told of beside each other.
	endsAtOnce = 4
	// endTries bounds how often a target is told of one end, with pauses that
	// begin at endEvery and double: about a minute.
	endTries = 7
	// endsARound bounds the ends that are told of before leases are looked at
	// again: a target that hangs takes sealTime for each.
	endsARound = 64
	// maxEndings bounds the leases that are remembered here.
	maxEndings = 1 << 16
)

// endings tells the targets that a lease was sealed at of an end that nobody
// waits for: that it was released, taken over, or ran out. It tells of ends
// alone that the store has committed, so that nothing that could still be
// renewed is refused by a target.
//
// It lives in memory. An end that was not told when the process died is one
// that the target learns of from the next grant that is sealed there; leases
// that stood are found again at the start.
type endings struct {
	mu    sync.Mutex
	stand map[string]standingGrant
	ended map[string]*endedLease
	wake  chan struct{}
}

// standingGrant is a sealed grant that has not ended, as far as is known.
type standingGrant struct {
	epoch  int64
	sealed []string
	whole  bool      // every target was told of it
	look   time.Time // when it may have to be ended
}

// endedLease is a grant that ended, and who has not heard of it.
type endedLease struct {
	epoch  int64
	sealed []string
	tries  int
	due    time.Time
}

// stands notes a sealed grant, and when it may have to be ended. It reports
// whether there was room. Whole: every target was told of the grant.
func (e *endings) stands(l *store.Lease, look time.Duration, whole bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, known := e.stand[l.Resource]
	switch {
	case known && at.epoch > l.Epoch:
		return true
	case known && at.epoch < l.Epoch && !e.add(l.Resource, at.epoch, at.sealed),
		!known && len(e.stand) >= maxEndings:
		return false
	}
	if e.stand == nil {
		e.stand = map[string]standingGrant{}
	}
	whole = whole || at.epoch == l.Epoch && at.whole
	e.stand[l.Resource] = standingGrant{epoch: l.Epoch, sealed: l.Sealed, whole: whole, look: time.Now().Add(look)}
	return true
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

// add is over under the lock. Targets that were not told of an earlier end are
// told of this one.
func (e *endings) add(resource string, epoch int64, sealed []string) bool {
	was := e.ended[resource]
	if len(sealed) == 0 || was != nil && was.epoch >= epoch {
		return true
	}
	now := &endedLease{epoch: epoch, sealed: sealed, due: time.Now()}
	switch {
	case was != nil:
		now.sealed = slices.Compact(slices.Sorted(slices.Values(slices.Concat(was.sealed, sealed))))
	case len(e.ended) >= maxEndings:
		return false
	}
	if e.ended == nil {
		e.ended = map[string]*endedLease{}
	}
	e.ended[resource] = now
	select {
	case e.wake <- struct{}{}:
	default: // it is awake already
	}
	return true
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

// due returns the ends that are to be told of now; all of them at the last.
func (e *endings) due(last bool) map[string]*endedLease {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]*endedLease{}
	for resource, at := range e.ended {
		if last || !at.due.After(time.Now()) && len(out) < endsARound {
			out[resource] = at
		}
	}
	return out
}

// told notes who was told in vain, and reports whether that was the last time.
func (e *endings) told(resource string, at *endedLease, failed []string) (gaveUp bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended[resource] != at {
		return false // a later end took its place, and its targets
	}
	at.tries++
	if len(failed) == 0 || at.tries >= endTries {
		delete(e.ended, resource)
		return len(failed) > 0
	}
	at.sealed, at.due = failed, time.Now().Add(endEvery<<(at.tries-1))
	return false
}

// followEnds ends sealed leases that ran out, and tells targets of ends, until
// ctx ends; then once more of those that are left.
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
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealTime)
			defer cancel()
			s.tellEnds(last, s.endings.due(true))
			return
		case <-tick.C:
		case <-s.endings.wake:
		}
		for resource, at := range s.endings.lapsed() {
			if err := s.endLapsed(ctx, resource, at); err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("a sealed lease that ran out was not ended, trying again", "resource", resource, "error", err)
				break // the store may be away: then of all of them
			}
		}
		s.tellEnds(ctx, s.endings.due(false))
	}
}

// findStanding looks which sealed leases stand, or ran out lately, after a start.
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
			rows, err = tx.Leases.List(ctx, store.LeaseFilter{After: after, Limit: page, HeldAt: now.Add(-MaxTTL)})
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
	if !s.endings.stands(l, look, whole) {
		s.cfg.Log.Warn("a sealed lease is not watched for its end: too many stand", "resource", l.Resource, "targets", l.Sealed)
	}
}

// over notes the end of a grant: its targets are told in the background.
func (s *Service) over(l *store.Lease) {
	if !s.endings.over(l.Resource, l.Epoch, l.Sealed) {
		s.cfg.Log.Warn("targets are not told of the end of a lease: too many ends wait", "resource", l.Resource, "targets", l.Sealed)
	}
}

// tellEnds tells targets of ends, some beside each other.
func (s *Service) tellEnds(ctx context.Context, ends map[string]*endedLease) {
	var all sync.WaitGroup
	places := make(chan struct{}, endsAtOnce)
	for resource, at := range ends {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			s.tellEnd(ctx, resource, at)
		})
	}
	all.Wait()
}

// tellEnd tells targets of one end. Those that a newer grant is sealed at learn
// of it from that.
func (s *Service) tellEnd(ctx context.Context, resource string, at *endedLease) {
	s.endings.mu.Lock()
	l := store.Lease{Resource: resource, Epoch: at.epoch, Sealed: slices.Clone(at.sealed)}
	s.endings.mu.Unlock()
	if now, _, err := s.look(ctx, resource); err == nil && now.Epoch > l.Epoch {
		l.Sealed = slices.DeleteFunc(l.Sealed, func(name string) bool { return slices.Contains(now.Sealed, name) })
	}
	_, failed := s.tell(ctx, &l, false, time.Now().Add(sealTime))
	names := slices.Sorted(maps.Keys(failed))
	if s.endings.told(resource, at, names) {
		s.cfg.Log.Warn("targets do not know that a lease has ended", "targets", names, "resource", resource, "epoch", l.Epoch, "error", failed[names[0]])
	}
}
