package router

import (
	"time"

	"github.com/headgate/headgate"
)

// endedKey names an event that ended at a second or later attempt.
type endedKey struct {
	stream string
	pos    headgate.Position
}

// tombstones remember the last attempt of ended events for as long as causal
// tokens of earlier attempts may live. They are rows in the store too, so that
// a restart forgets none.
type tombstones struct {
	at    map[endedKey]int32
	order []tombstone // by time
}

type tombstone struct {
	key   endedKey
	until time.Time
}

func (t *tombstones) add(k endedKey, attempts int32, until time.Time) {
	t.at[k] = attempts
	t.order = append(t.order, tombstone{k, until})
}

// earliest returns when the oldest one may go; at once beyond the bound.
func (t *tombstones) earliest() time.Time {
	if len(t.order) == 0 {
		return time.Time{}
	}
	return t.order[0].until
}

// due removes and returns up to 512 tombstones that may go.
func (t *tombstones) due(now time.Time) []endedKey {
	var out []endedKey
	for len(t.order) > 0 && len(out) < 512 && (!t.order[0].until.After(now) || len(t.order) > maxTombstones) {
		out = append(out, t.order[0].key)
		delete(t.at, t.order[0].key)
		t.order = t.order[1:]
	}
	return out
}

// superseded reports whether an attempt of a delivery after the given one has
// begun. The caller holds mu.
func (s *sub) superseded(stream string, pos headgate.Position, attempt int) bool {
	if p := s.parts[partID{stream, pos.Partition}]; p != nil {
		if it := p.items[pos.Offset]; it != nil {
			return it.begun() > attempt
		}
	}
	return int(s.ended.at[endedKey{stream, pos}]) > attempt
}

// begun is the number of the latest attempt that was handed out.
func (it *item) begun() int {
	if it.recorded && it.claim == nil {
		return int(it.attempts) - 1
	}
	return int(it.attempts)
}

// Superseded implements causal.Claims: whether a newer claim than the given
// attempt was handed out for the delivery. It is exact for the life of causal
// tokens, across restarts.
func (r *Router) Superseded(subscription, stream string, pos headgate.Position, attempt int) bool {
	s := r.sub(subscription)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.superseded(stream, pos, attempt)
}
