package router

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	// tideEvery is how often the members of a feed that got nothing learn how
	// far it came, if that is tideEvents or more; if it is less, they learn it
	// every tideTurns times. After a crash so much is read again.
	tideEvery  = 5 * time.Second
	tideEvents = dispatchSpan
	tideTurns  = 6
	// tideBatch bounds the subscriptions whose progress one transaction saves:
	// what else they commit waits for it.
	tideBatch = 64
)

// tideDue sees to it that tides come.
func (r *Router) tideDue() {
	select {
	case r.tides <- struct{}{}:
	default:
	}
}

// runTides moves the progress of the subscriptions that their feeds passed, and
// saves it in few transactions. It sleeps while no feed moves.
func (r *Router) runTides(ctx context.Context) {
	var late []*sub // not saved by the tide before
	for {
		if len(late) == 0 {
			select {
			case <-r.tides:
			case <-ctx.Done():
				return
			}
		}
		for turn := range tideTurns {
			if !sleep(ctx, tideEvery) {
				return
			}
			least := uint64(tideEvents)
			if turn == tideTurns-1 {
				least = 1
			}
			late = r.tide(ctx, least, late)
		}
	}
}

// tide tells all members of feeds that passed at least so many events how far
// they came, and saves. It returns those whose progress could not be saved,
// beside those of the tide before.
func (r *Router) tide(ctx context.Context, least uint64, late []*sub) []*sub {
	subs := map[*sub]bool{}
	for _, s := range late {
		subs[s] = true
	}
	for _, f := range r.feeds.all() {
		upto, members := f.turn(least)
		for _, m := range members {
			m.tell(upto)
			subs[m.s] = true
		}
	}
	list := make([]*sub, 0, len(subs))
	for s := range subs {
		list = append(list, s)
	}
	late = nil
	for part := range slices.Chunk(list, tideBatch) {
		if err := r.saveTide(ctx, part); err != nil {
			late = append(late, part...)
			if now := r.now(); ctx.Err() == nil && now.Sub(r.tideWarned) >= time.Minute {
				r.tideWarned = now
				r.log.Error("progress of idle subscriptions not saved, trying again", "subscriptions", len(part), "err", err)
			}
		}
	}
	return late
}

// saveTide saves the progress of subscriptions in one transaction. It leaves
// out those that are at work, which save it by themselves, and those that end:
// their last save comes after this, or they are gone.
func (r *Router) saveTide(ctx context.Context, subs []*sub) error {
	var rows []store.Progress
	of := map[*sub][]store.Progress{}
	checkpoint := []*op{{}}
	defer func() {
		for s := range of {
			s.commitMu.Unlock()
		}
	}()
	for _, s := range subs {
		if !s.idle() {
			continue
		}
		mine := s.snapshot(checkpoint)
		if len(mine) == 0 {
			s.commitMu.Unlock()
			continue
		}
		of[s] = mine
		rows = append(rows, mine...)
	}
	if len(rows) == 0 {
		return nil
	}
	// Rows are absolute, so that it is harmless when it is unknown whether they
	// were saved: they are saved again.
	err := r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return tx.Deliveries.SaveProgress(ctx, rows) })
	if err != nil {
		return err
	}
	for s, mine := range of {
		s.apply(checkpoint, mine)
	}
	return nil
}

// idle locks the committer of a subscription that does nothing. Of any other
// one it sees to it that it saves by itself.
func (s *sub) idle() bool {
	locked := s.commitMu.TryLock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if locked && !s.draining && len(s.ops) == 0 && s.inFlight == 0 {
		return true
	}
	if locked {
		s.commitMu.Unlock()
	}
	s.dirtyAll()
	return false
}

// dirtyAll makes a subscription save by itself what a tide moved. The caller
// holds mu.
func (s *sub) dirtyAll() {
	for _, p := range s.parts {
		if p.dirty {
			s.dirty(p)
		}
	}
}

// sync makes what a feed passed show in memory, as far as nothing is queued
// before it.
func (s *sub) sync() {
	s.mu.Lock()
	members := make([]*member, 0, len(s.members))
	for _, m := range s.members {
		members = append(members, m)
	}
	s.mu.Unlock()
	for _, m := range members {
		m.tell(m.feed.passed())
	}
}

// leaveFeeds takes a subscription that ends out of its feeds, and takes in what
// they left for it, as far as there is room: what is left is read again.
func (s *sub) leaveFeeds() {
	s.mu.Lock()
	members := s.members
	s.members = nil
	s.mu.Unlock()
	for stream, m := range members {
		s.r.feeds.leave(m)
		for _, h := range m.queue { // nobody else has it any more
			if !s.takeNow(stream, h) {
				break
			}
		}
	}
}

// takeNow is takeIn for who cannot wait: false when there was no room.
func (s *sub) takeNow(stream string, h handout) bool {
	if h.lost != nil {
		s.stepOver(h.lost)
		return true
	}
	if ok, _ := s.takeWord(stream, h, false); !ok {
		return false
	}
	taken, _, _ := s.acceptSome(stream, h.events, s.wants(h.events), true)
	return taken == len(h.events)
}
