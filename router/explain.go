package router

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

// State is what one subscription makes of one event.
type State struct {
	Subscription string `json:"subscription"`
	Matched      bool   `json:"matched"`
	Why          string `json:"why"` // why it matched or not, in words
	// State is pending, in_flight, settled, unmatched, parked, extinguished,
	// expired, discarded or not_entitled.
	State    string               `json:"state"`
	Attempts int                  `json:"attempts,omitempty"`
	Due      time.Time            `json:"due,omitzero"`
	History  []quarantine.Attempt `json:"history,omitempty"`
	QID      string               `json:"quarantine,omitempty"`
}

// Explain says what every running subscription makes of an event.
func (r *Router) Explain(ctx context.Context, e *headgate.Event, stream string, pos headgate.Position) ([]State, error) {
	r.mu.Lock()
	subs := make([]*sub, 0, len(r.subs))
	for _, s := range r.subs {
		subs = append(subs, s)
	}
	r.mu.Unlock()
	slices.SortFunc(subs, func(a, b *sub) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	out := make([]State, 0, len(subs))
	for _, s := range subs {
		st, err := s.explain(ctx, e, stream, pos)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

func (s *sub) explain(ctx context.Context, e *headgate.Event, stream string, pos headgate.Position) (State, error) {
	st := State{Subscription: s.name}
	st.Matched, st.Why = s.plan.why(e)
	s.sync()
	s.mu.Lock()
	p := s.parts[partID{stream, pos.Partition}]
	if p == nil || pos.Offset < p.start {
		s.mu.Unlock()
		st.State = "not_entitled"
		if p == nil {
			st.Why = "the subscription does not read stream " + stream
		} else {
			st.Why = "the subscription starts behind the event"
		}
		return st, nil
	}
	it := p.items[pos.Offset]
	row, done := false, p.isDone(pos.Offset) // row: the attempts are in the store alone
	switch {
	case it != nil:
		row = it.row
		st.State, st.Attempts = "pending", int(it.attempts)
		if it.state == stInFlight || it.claim != nil {
			st.State = "in_flight"
		}
		if it.state == stRetry {
			st.Due = it.due
		}
		if it.live != nil {
			st.History = slices.Clone(it.live.Attempts)
			row = false
			if it.live.waits != "" {
				st.Why += "; " + it.live.waits
			}
		}
		if it.state == stHeld && it.lane != nil && it.lane.blocked {
			st.Why += "; held: an earlier event of its key is parked"
		}
	case !done:
		st.State = "pending"
	case !st.Matched:
		st.State = "unmatched"
	}
	last, kept := s.ended.at[endedKey{stream, pos}]
	row = row || kept
	begun := max(1, int(last)) // of an event that was dispatched
	s.mu.Unlock()
	var err error
	if st.State == "" || st.State == "unmatched" {
		err = s.explainEnd(ctx, e, stream, pos, begun, &st)
	}
	if row && err == nil {
		err = s.explainRow(ctx, stream, pos, &st)
	}
	return st, err
}

// explainEnd finds out how an ended event ended: by its quarantine record, or
// settled when there is none.
func (s *sub) explainEnd(ctx context.Context, e *headgate.Event, stream string, pos headgate.Position, begun int, st *State) error {
	if st.State == "" {
		st.State, st.Attempts = "settled", begun
	}
	recs, err := s.r.quarantine.List(ctx, store.QuarantineFilter{Subscription: s.name, ID: e.ID, Limit: 100})
	if err != nil {
		return err
	}
	for _, rec := range recs {
		if rec.Stream != stream || rec.Position != pos {
			continue
		}
		st.QID, st.State = rec.QID, string(rec.Kind)
		st.Attempts = 0
		if rec.Kind == store.KindParked {
			st.Attempts = begun
		}
		if rec.Reason == "no_header" {
			st.State = "discarded"
		}
		return nil
	}
	return nil
}

func (s *sub) explainRow(ctx context.Context, stream string, pos headgate.Position, st *State) error {
	err := s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		row, err := tx.Deliveries.Exception(ctx, s.name, stream, pos)
		if err == nil {
			st.History = decodeHistory(row.History).Attempts
		}
		return err
	})
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return nil // it ended, or was forgotten, meanwhile
	}
	return err
}

// why says in words whether the subscription wants an event.
func (p *plan) why(e *headgate.Event) (bool, string) {
	pattern := ""
	for _, t := range p.Types {
		if headgate.MatchType(t, e.Type) {
			pattern = t
			break
		}
	}
	if pattern == "" {
		return false, "no pattern of the subscription takes the type"
	}
	if p.when == nil {
		return true, "type matches " + pattern
	}
	ok, err := p.when.MatchOver(p.scope(e))
	switch {
	case err != nil:
		return false, "type matches " + pattern + ", but the condition cannot be evaluated: " + errText(err)
	case !ok:
		return false, "type matches " + pattern + ", but the condition is false"
	}
	return true, "type matches " + pattern + " and the condition is true"
}
