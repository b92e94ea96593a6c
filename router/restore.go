package router

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// restorePage is how many exceptions are read at once.
const restorePage = 1000

// restore loads progress, blocked keys and exceptions. Unclean says that the
// node's last life did not drain: events that it may have dispatched get their
// attempt recorded before they are dispatched again.
func (s *sub) restore(ctx context.Context, unclean bool) error {
	if err := s.restoreProgress(ctx, unclean); err != nil {
		return err
	}
	if err := s.restoreBlocked(ctx); err != nil {
		return err
	}
	stream, pos := "", headgate.Position{}
	for {
		var rows []store.Exception
		err := s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			rows, err = tx.Deliveries.Exceptions(ctx, s.name, stream, pos, restorePage)
			return err
		})
		if err != nil {
			return err
		}
		for i := range rows {
			s.restoreRow(&rows[i], unclean)
		}
		if len(rows) < restorePage {
			break
		}
		stream, pos = rows[len(rows)-1].Stream, rows[len(rows)-1].Position
	}
	s.ended.sort()
	for _, l := range s.lanes {
		s.kick(l)
	}
	for _, p := range s.parts {
		for _, it := range p.items {
			if it.lane == nil {
				s.release(it)
			}
		}
	}
	return nil
}

// restoreProgress loads the progress rows, and adds those of streams that came
// to the node after the subscription: their events are all newer than it, so
// it reads them from the first one kept.
func (s *sub) restoreProgress(ctx context.Context, unclean bool) error {
	var rows []store.Progress
	err := s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = tx.Deliveries.Progress(ctx, s.name)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.cutToStreams(ctx, rows); err != nil {
		return err
	}
	for _, row := range rows {
		s.addPart(row)
	}
	var added []store.Progress
	for _, stream := range s.r.streamsFor(s.plan.Types) {
		stats, err := s.r.broker.Stat(ctx, stream)
		if err != nil {
			return err
		}
		for _, st := range stats {
			if s.parts[partID{stream, st.Partition}] == nil {
				added = append(added, store.Progress{
					Subscription: s.name, Stream: stream, Partition: st.Partition, Start: st.First, Floor: st.First,
				})
			}
		}
	}
	if len(added) > 0 {
		err := s.r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return tx.Deliveries.SaveProgress(ctx, added) })
		if err != nil {
			return err
		}
		for _, row := range added {
			s.addPart(row)
		}
	}
	return s.restoreSuspects(ctx, unclean)
}

// cutToStreams takes back progress beyond the end of its partition. It means
// that the broker lost events that were settled: to keep it would skip the new
// ones that get their offsets. The counts are left as they are, so that the
// conservation law tells of the loss.
func (s *sub) cutToStreams(ctx context.Context, rows []store.Progress) error {
	ends := map[partID]uint64{}
	asked := map[string]bool{}
	for i := range rows {
		row := &rows[i]
		if !asked[row.Stream] {
			asked[row.Stream] = true
			stats, err := s.r.broker.Stat(ctx, row.Stream)
			if err != nil && headgate.CodeOf(err) != headgate.CodeStreamUnknown {
				return err
			}
			for _, st := range stats {
				ends[partID{row.Stream, st.Partition}] = st.Next
			}
		}
		end, known := ends[partID{row.Stream, row.Partition}]
		p := loadProgress(*row)
		if !known || !p.cut(end) {
			continue
		}
		s.r.log.Error("the stream ends before what was settled of it: events were lost",
			"subscription", s.name, "stream", row.Stream, "partition", row.Partition, "settled", row.Floor, "end", end)
		*row = p.row(row.Subscription, row.Stream, row.Partition)
	}
	return nil
}

// suspectPrefix starts the settings that remember, over a clean stop, which
// events an unclean one before it left suspect.
const suspectPrefix = "router/suspect/"

func suspectKey(subscription string, id partID) string {
	return suspectPrefix + subscription + "/" + id.stream + "/" + strconv.FormatUint(uint64(id.partition), 10)
}

// restoreSuspects notes which events an earlier life may have dispatched:
// after an unclean stop those that were there, up to the bound of how far it
// dispatched beyond a stored floor; after a clean one what it had left over.
func (s *sub) restoreSuspects(ctx context.Context, unclean bool) error {
	err := s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		left, err := tx.Settings.List(ctx, suspectPrefix+s.name+"/")
		for id, p := range s.parts {
			if v := left[suspectKey(s.name, id)]; len(v) == 8 {
				p.suspect = binary.BigEndian.Uint64(v)
			}
		}
		return err
	})
	if err != nil || !unclean {
		return err
	}
	for id, p := range s.parts {
		stats, err := s.r.broker.Stat(ctx, id.stream)
		if err != nil {
			return err
		}
		for _, st := range stats {
			if st.Partition == id.partition {
				p.suspect = max(p.suspect, min(p.floor+dispatchSpan, st.Next))
			}
		}
	}
	return nil
}

// saveSuspects stores what is still suspect, before a clean stop.
func (s *sub) saveSuspects(ctx context.Context) error {
	left := map[string][]byte{}
	s.mu.Lock()
	for id, p := range s.parts {
		if p.suspect > p.floor {
			left[suspectKey(s.name, id)] = binary.BigEndian.AppendUint64(nil, p.suspect)
		}
	}
	s.mu.Unlock()
	prefix := suspectPrefix + s.name + "/"
	var have map[string][]byte
	err := s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		have, err = tx.Settings.List(ctx, prefix)
		return err
	})
	if err != nil || (len(left) == 0 && len(have) == 0) {
		return err
	}
	return s.r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := deleteSettings(ctx, tx, prefix); err != nil {
			return err
		}
		for k, v := range left {
			if err := tx.Settings.Put(ctx, k, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// blockPrefix starts the settings that remember blocked keys.
const blockPrefix = "router/blocked/"

// blockKey names the setting of one blocked key. Neither the names of
// subscriptions nor those of streams hold a slash.
func blockKey(subscription string, id laneID) string {
	return blockPrefix + subscription + "/" + id.stream + "/" + id.key
}

// restoreBlocked loads the keys whose head was parked. Under an order that
// holds no followers they are forgotten.
func (s *sub) restoreBlocked(ctx context.Context) error {
	prefix := blockPrefix + s.name + "/"
	var keys map[string][]byte
	err := s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		keys, err = tx.Settings.List(ctx, prefix)
		return err
	})
	if err != nil || len(keys) == 0 {
		return err
	}
	if s.plan.Order != OrderStrict {
		return s.r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return deleteSettings(ctx, tx, prefix) })
	}
	for k := range keys {
		if stream, key, ok := strings.Cut(strings.TrimPrefix(k, prefix), "/"); ok {
			id := laneID{stream, key}
			s.lanes[id] = &lane{id: id, blocked: true}
		}
	}
	return nil
}

func deleteSettings(ctx context.Context, tx *store.Tx, prefix string) error {
	keys, err := tx.Settings.List(ctx, prefix)
	if err != nil {
		return err
	}
	for k := range keys {
		if err := tx.Settings.Delete(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// restoreRow takes one exception in. An attempt that is still open ended with
// the node: the event is due after the backoff.
func (s *sub) restoreRow(row *store.Exception, unclean bool) {
	if row.State == exceptionEnded {
		s.ended.add(endedKey{row.Stream, row.Position}, int32(row.Attempts), row.Due)
		return
	}
	p := s.parts[partID{row.Stream, row.Position.Partition}]
	if p == nil {
		p = s.addPart(store.Progress{Subscription: s.name, Stream: row.Stream, Partition: row.Position.Partition})
	}
	it := &item{part: p, off: row.Position.Offset, row: true, attempts: int32(row.Attempts), due: row.Due}
	switch row.State {
	case store.ExceptionHeld:
		it.state = stHeld
	case store.ExceptionAttempt:
		it.state = stRetry
		it.freebie = !unclean
		it.due = s.r.now()
		if unclean {
			it.due = it.due.Add(s.plan.delay(row.Attempts, s.r.random()))
		}
	default:
		it.state = stRetry
	}
	s.addItem(it, row.Key)
	if it.off >= p.floor && it.off >= p.catchUp {
		p.catchUp = it.off + 1
	}
}

// sort orders the tombstones by time, after they were loaded by position.
func (t *tombstones) sort() {
	slices.SortFunc(t.order, func(a, b tombstone) int { return a.until.Compare(b.until) })
}
