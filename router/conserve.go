package router

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
)

// Balance is the conservation law of one subscription: Accepted must equal
// Pending + InFlight + the sum of Counts.
type Balance struct {
	Subscription string       `json:"subscription"`
	Accepted     uint64       `json:"accepted"`
	Pending      uint64       `json:"pending"` // retries and held ones included
	InFlight     uint64       `json:"in_flight"`
	Counts       store.Counts `json:"counts"`
	// Lag is the number of events that are not done yet.
	Lag uint64 `json:"lag"`
	// Oldest is when the oldest pending event was stored.
	Oldest time.Time `json:"oldest,omitzero"`
	Holds  bool      `json:"holds"`
	Detail string    `json:"detail,omitempty"` // what is wrong when it does not
}

// Conservation computes the law for every running subscription, each at one
// moment. It does not trust what is counted: it recounts the done events from
// the stored floors and bitmaps, compares memory with the store, and walks the
// streams from the floors on, so that an event that vanished or is in two
// places shows. It reads everything that is pending: a long backlog takes a
// while.
func (r *Router) Conservation(ctx context.Context) ([]Balance, error) {
	subs, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Balance, 0, len(subs))
	for _, sub := range subs {
		s := r.sub(sub.Name)
		if s == nil {
			if !r.isRunning() {
				return nil, headgate.NewError(headgate.CodeUnavailable, "the router does not run")
			}
			continue // deleted meanwhile
		}
		b, err := s.balance(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// partView is a partition as it was at the moment of a balance.
type partView struct {
	progress
	next     uint64 // end of the partition
	first    uint64 // first event kept
	head     uint64
	inFlight map[uint64]bool
	rows     map[uint64]bool // in memory
	saved    *store.Progress
	stored   map[uint64]store.ExceptionState
}

func (s *sub) balance(ctx context.Context) (Balance, error) {
	b := Balance{Subscription: s.name}
	views, err := s.view(ctx)
	if err != nil {
		return b, err
	}
	var faults []string
	for id, v := range views {
		say := func(format string, args ...any) {
			if len(faults) < 8 {
				faults = append(faults, fmt.Sprintf("%s/%d: ", id.stream, id.partition)+fmt.Sprintf(format, args...))
			}
		}
		v.check(say)
		pending, oldest, err := s.walk(ctx, id, v, say)
		if err != nil {
			return b, err
		}
		b.Accepted += max(v.next, v.start) - v.start
		b.InFlight += uint64(len(v.inFlight))
		b.Counts = b.Counts.Add(v.counts)
		for off := range v.rows {
			if !v.inFlight[off] {
				pending++
			}
		}
		b.Pending += pending
		if !oldest.IsZero() && (b.Oldest.IsZero() || oldest.Before(b.Oldest)) {
			b.Oldest = oldest
		}
	}
	b.Lag = b.Pending + b.InFlight
	if sum := b.Lag + b.Counts.Sum(); sum != b.Accepted {
		faults = append(faults, fmt.Sprintf("%d accepted, but %d accounted for", b.Accepted, sum))
	}
	b.Holds, b.Detail = len(faults) == 0, strings.Join(faults, "; ")
	return b, nil
}

// view takes everything at one moment: while it holds commitMu no transaction
// of the subscription is under way, so that store and memory must agree.
func (s *sub) view(ctx context.Context) (map[partID]*partView, error) {
	s.sync()
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	views := map[partID]*partView{}
	s.mu.Lock()
	for id, p := range s.parts {
		v := &partView{
			progress: p.clone(), head: p.head, inFlight: map[uint64]bool{}, rows: map[uint64]bool{},
			stored: map[uint64]store.ExceptionState{},
		}
		for off, it := range p.items {
			if it.row {
				v.rows[off] = true
			}
			if it.state == stInFlight || it.claim != nil {
				v.inFlight[off] = true
			}
		}
		views[id] = v
	}
	s.mu.Unlock()
	if err := s.viewStore(ctx, views); err != nil {
		return nil, err
	}
	streams := map[string]bool{}
	for id := range views {
		streams[id.stream] = true
	}
	for stream := range streams {
		stats, err := s.r.broker.Stat(ctx, stream)
		if err != nil {
			return nil, err
		}
		for _, st := range stats {
			if v := views[partID{stream, st.Partition}]; v != nil {
				v.first, v.next = st.First, st.Next
			}
		}
	}
	return views, nil
}

func (s *sub) viewStore(ctx context.Context, views map[partID]*partView) error {
	return s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Deliveries.Progress(ctx, s.name)
		if err != nil {
			return err
		}
		for i := range rows {
			if v := views[partID{rows[i].Stream, rows[i].Partition}]; v != nil {
				v.saved = &rows[i]
			}
		}
		stream, pos := "", headgate.Position{}
		for {
			list, err := tx.Deliveries.Exceptions(ctx, s.name, stream, pos, restorePage)
			if err != nil {
				return err
			}
			for i := range list {
				x := &list[i]
				if v := views[partID{x.Stream, x.Position.Partition}]; v != nil && x.State != exceptionEnded {
					v.stored[x.Position.Offset] = x.State
				}
			}
			if len(list) < restorePage {
				return nil
			}
			stream, pos = list[len(list)-1].Stream, list[len(list)-1].Position
		}
	})
}

// check compares what memory, progress row and exception rows say of the
// events that are done.
func (v *partView) check(say func(string, ...any)) {
	for off := range v.rows {
		if _, ok := v.stored[off]; !ok {
			say("offset %d waits in memory, but not in the store", off)
		}
		if !v.isDone(off) {
			say("offset %d is an exception, but its bit is not set", off)
		}
	}
	for off, state := range v.stored {
		if !v.rows[off] {
			say("offset %d is %s in the store, but not in memory", off, state)
		}
	}
	if done, sum := v.doneCount(), v.counts.Sum()+uint64(len(v.rows)); done != sum {
		say("%d events done, but %d counted or waiting", done, sum)
	}
	if v.saved == nil {
		if v.doneCount() > v.counts.Sum() {
			say("no stored progress")
		}
		return
	}
	saved := loadProgress(*v.saved)
	if done, sum := saved.doneCount(), saved.counts.Sum()+uint64(len(v.stored)); done != sum {
		say("%d events done in the store, but %d counted or waiting there", done, sum)
	}
	if saved.floor > v.floor || saved.start != v.start {
		say("the store is ahead of memory: floor %d against %d", saved.floor, v.floor)
	}
}

// walk reads the partition from the floor on and counts the events that are
// neither done nor in flight. Each must still be there.
func (s *sub) walk(ctx context.Context, id partID, v *partView, say func(string, ...any)) (pending uint64, oldest time.Time, err error) {
	expect := v.floor
	missing := func(from, to uint64) {
		for off := from; off < to; off++ {
			if v.isDone(off) || v.inFlight[off] {
				continue
			}
			pending++
			if off < v.head {
				say("offset %d is pending, but the stream does not have it", off)
			}
		}
	}
	for expect < v.next {
		var page []broker.Stored
		page, err = s.r.broker.Browse(ctx, id.stream, headgate.Position{Partition: id.partition, Offset: expect}, 1000)
		if err != nil {
			return 0, oldest, err
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			off := page[i].Position.Offset
			if off >= v.next {
				return pending, oldest, nil
			}
			missing(expect, off)
			expect = off + 1
			if v.isDone(off) || v.inFlight[off] {
				continue
			}
			pending++
			if oldest.IsZero() {
				oldest = page[i].Time
			}
		}
	}
	missing(expect, v.next)
	return pending, oldest, nil
}

// parkedUnpublished describes an emitted event that can never be published.
func parkedUnpublished(stream string, ev *headgate.Event, text string) quarantine.Parked {
	return quarantine.Parked{Kind: store.KindParked, Stream: stream, Event: ev, Reason: "broker_rejected", Message: text}
}
