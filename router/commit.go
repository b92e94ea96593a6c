package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/store"
)

// op is one change of a subscription that is committed whole: what it makes of
// one event, in the store and then in memory. All operations of a subscription
// pass through one committer, so that its progress rows never race.
type op struct {
	it      *item // nil for a checkpoint
	mark    bool  // the event's bit becomes set
	end     ending
	put     *store.Exception // row to save
	drop    bool             // row to remove
	record  *store.QuarantineRecord
	outbox  []store.OutboxRow
	fence   *lease.Fence // must be current, and ends with the commit; nil: none
	block   *laneID      // key to remember as blocked
	unblock *laneID
	tombs   []endedKey // tombstones to remove
	acks    []ack      // plain ends of attempts, of which there are most
	act     broker.Act // what the broker is told; 0: nothing
	// durable: the store must have it before memory does. Settlements under
	// dedupe window and none are not.
	durable bool
	// until is how long it waits for a guarded write in flight, once it met one.
	until time.Time
	// internal operations are repeated until they succeed; others fail back
	// to their caller.
	internal bool
	// done runs once with mu held: after memory changed, or with the error.
	done func(error)
}

// empty reports whether the operation is a checkpoint and nothing else.
func (o *op) empty() bool {
	return o.it == nil && len(o.tombs) == 0 && o.unblock == nil && len(o.acks) == 0
}

// maxBatch bounds the operations of one transaction.
const maxBatch = 1024

// errStopped fails what comes after the end.
func errStopped() error { return headgate.NewError(headgate.CodeDraining, "the subscription stopped") }

// submit queues operations. The caller holds mu.
func (s *sub) submit(ops ...*op) {
	if s.stopped {
		for _, o := range ops {
			if o.done != nil {
				o.done(errStopped())
			}
		}
		return
	}
	s.ops = append(s.ops, ops...)
	select {
	case s.opsWake <- struct{}{}:
	default:
	}
}

// runCommitter commits until stopping is closed and nothing is left. When ctx
// ends it gives up what is left.
func (s *sub) runCommitter(ctx context.Context, stopping <-chan struct{}) {
	backoff := time.Duration(0)
	for {
		s.mu.Lock()
		n := min(len(s.ops), maxBatch)
		batch := slices.Clone(s.ops[:n])
		s.ops = slices.Delete(s.ops, 0, n)
		s.mu.Unlock()
		if n == 0 {
			select {
			case <-s.opsWake:
				continue
			case <-ctx.Done():
				s.giveUp(ctx.Err())
				return
			case <-stopping:
				select {
				case <-s.opsWake:
					continue
				default:
					return
				}
			}
		}
		again := s.commitAll(ctx, batch)
		if len(again) == 0 {
			backoff = 0
			continue
		}
		s.mu.Lock()
		s.ops = append(again, s.ops...)
		s.mu.Unlock()
		backoff = min(max(2*backoff, 50*time.Millisecond), 5*time.Second)
		if !sleep(ctx, backoff) {
			s.giveUp(ctx.Err())
			return
		}
	}
}

// giveUp fails everything that is queued.
func (s *sub) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := s.ops
	s.ops, s.stopped = nil, true
	for _, o := range ops {
		if o.done != nil {
			o.done(err)
		}
	}
}

// commitAll commits a batch, one by one when it fails as a whole, so that one
// bad operation does not fail its neighbours. It returns the internal ones to
// repeat.
func (s *sub) commitAll(ctx context.Context, batch []*op) (again []*op) {
	if s.r.ackBeforeCommit {
		rows := s.snapshot(batch)
		s.apply(batch, rows)
		_ = s.save(ctx, batch, rows) // the fault under test
		return nil
	}
	err := s.commit(ctx, batch)
	if err == nil {
		return nil
	}
	failures := 0
	for i, o := range batch {
		one := err
		if len(batch) > 1 {
			if failures == 3 { // the store is down, not an operation bad
				return append(again, s.refuse(batch[i:], err)...)
			}
			one = s.commit(ctx, batch[i:i+1])
		}
		if one == nil {
			continue
		}
		switch {
		case fenced(one):
			s.r.leases.Refused(one)
		case errors.Is(one, store.ErrGuarded):
		case headgate.CodeOf(one) != headgate.CodeQuarantineFull:
			failures++
		}
		again = append(again, s.refuse([]*op{o}, one)...)
	}
	return again
}

// refuse fails the operations of callers, and returns the internal ones. An
// operation that the quarantine has no room for waits by itself, not in the
// committer, so that it never holds others up.
func (s *sub) refuse(ops []*op, err error) (again []*op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := headgate.CodeOf(err) == headgate.CodeQuarantineFull || fenced(err)
	for _, o := range ops {
		switch {
		case s.outwait(o, err):
		case o.internal && !full:
			again = append(again, o)
		case o.done != nil && errors.Is(err, store.ErrGuarded):
			o.done(errInFlight(err))
		case o.done != nil:
			o.done(err)
		}
	}
	if len(again) > 0 && s.warn("store", s.r.now()) { // nobody else is told
		s.r.log.Error("delivery state not saved, trying again", "subscription", s.name, "err", err)
	}
	return again
}

// commit runs one transaction for the operations and applies them to memory.
func (s *sub) commit(ctx context.Context, batch []*op) error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	durable := slices.ContainsFunc(batch, func(o *op) bool { return o.durable })
	if !durable {
		s.apply(batch, nil)
		return nil
	}
	rows := s.snapshot(batch)
	err := s.save(ctx, batch, rows)
	if err != nil && uncertain(err) {
		err = s.resolve(ctx, rows, err)
	}
	if err != nil {
		return err
	}
	s.apply(batch, rows)
	return nil
}

// snapshot returns the progress rows as they stand once the batch is applied.
func (s *sub) snapshot(batch []*op) []store.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[*part]*progress{}
	touch := func(p *part) *progress {
		q := next[p]
		if q == nil {
			c := p.clone()
			q = &c
			next[p] = q
		}
		return q
	}
	for _, o := range batch {
		if len(o.acks) > 0 {
			for _, a := range o.acks {
				q := touch(a.c.it.part)
				q.mark(a.c.it.off)
				q.counts.Settled++
			}
			continue
		}
		if o.it == nil { // a checkpoint
			for _, p := range s.parts {
				if p.dirty {
					touch(p)
				}
			}
			continue
		}
		if !o.mark && o.end == endNone {
			continue
		}
		q := touch(o.it.part)
		if o.mark {
			q.mark(o.it.off)
		}
		o.end.add(&q.counts)
	}
	rows := make([]store.Progress, 0, len(next))
	for p, q := range next {
		rows = append(rows, q.row(s.name, p.stream, p.partition))
	}
	return rows
}

// save writes the batch in one transaction. It has no effect on memory, since
// a transaction may run more than once.
func (s *sub) save(ctx context.Context, batch []*op, rows []store.Progress) error {
	var puts []store.Exception
	var outbox int
	for _, o := range batch {
		if o.put != nil {
			puts = append(puts, *o.put)
		}
		outbox += len(o.outbox)
	}
	if len(rows) == 0 && len(batch) == 1 && batch[0].empty() {
		return nil
	}
	var ended []store.Lease
	err := s.r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		ended = ended[:0]
		for _, o := range batch {
			if o.fence != nil {
				l, err := s.r.leases.Finish(ctx, tx, o.fence)
				if err != nil {
					return err
				}
				ended = append(ended, l)
			}
			if o.record != nil {
				if err := s.r.quarantinePut(ctx, tx, *o.record); err != nil {
					return err
				}
			}
		}
		if len(rows) > 0 {
			if err := tx.Deliveries.SaveProgress(ctx, rows); err != nil {
				return err
			}
		}
		if len(puts) > 0 {
			if err := tx.Deliveries.PutExceptions(ctx, puts); err != nil {
				return err
			}
		}
		emit := make([]store.OutboxRow, 0, outbox)
		for _, o := range batch {
			if err := s.saveRest(ctx, tx, o); err != nil {
				return err
			}
			emit = append(emit, o.outbox...)
		}
		if len(emit) > 0 {
			return tx.Outbox.Append(ctx, emit)
		}
		return nil
	})
	if err == nil {
		for i := range ended {
			s.r.leases.Ended(&ended[i])
		}
	}
	return err
}

func (s *sub) saveRest(ctx context.Context, tx *store.Tx, o *op) error {
	if o.drop {
		if err := tx.Deliveries.DeleteException(ctx, s.name, o.it.part.stream, o.it.pos()); err != nil {
			return err
		}
	}
	for _, t := range o.tombs {
		if err := tx.Deliveries.DeleteException(ctx, s.name, t.stream, t.pos); err != nil {
			return err
		}
	}
	if o.block != nil {
		if err := tx.Settings.Put(ctx, blockKey(s.name, *o.block), []byte{1}); err != nil {
			return err
		}
	}
	if o.unblock != nil {
		return tx.Settings.Delete(ctx, blockKey(s.name, *o.unblock))
	}
	return nil
}

// uncertain reports whether a transaction may have been committed although it
// answered with an error.
func uncertain(err error) bool {
	e := headgate.AsError(err)
	return e != nil && e.Info().Outcome == headgate.Unknown
}

// resolve finds out whether a transaction was committed. A transaction whose
// repetition would not be harmless always changes the counts of a progress
// row, so that comparing the rows decides.
func (s *sub) resolve(ctx context.Context, rows []store.Progress, cause error) error {
	if len(rows) == 0 {
		return cause // rows of exceptions are absolute: repeating is harmless
	}
	var have []store.Progress
	backoff := 20 * time.Millisecond
	for {
		err := s.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			have, err = tx.Deliveries.Progress(ctx, s.name)
			return err
		})
		if err == nil {
			break
		}
		if !sleep(ctx, backoff) {
			return errors.Join(cause, ctx.Err())
		}
		backoff = min(2*backoff, 2*time.Second)
	}
	for _, want := range rows {
		if !slices.ContainsFunc(have, func(h store.Progress) bool { return sameProgress(h, want) }) {
			return headgate.NewError(headgate.CodeUnavailable, "the settlement was not committed: %s", errText(cause))
		}
	}
	return nil
}

func sameProgress(a, b store.Progress) bool {
	return a.Stream == b.Stream && a.Partition == b.Partition && a.Start == b.Start && a.Floor == b.Floor &&
		a.Counts == b.Counts && slices.Equal(a.Done, b.Done)
}

// apply makes memory follow what was committed, and tells the broker. Rows is
// nil when nothing was saved.
func (s *sub) apply(batch []*op, rows []store.Progress) {
	acts := map[string][]broker.Settlement{}
	s.mu.Lock()
	s.gathering = true
	for _, o := range batch {
		if len(o.acks) > 0 {
			s.applyAcks(o.acks, rows != nil, acts)
		}
		if it := o.it; it != nil {
			if o.mark {
				it.part.mark(it.off)
			}
			o.end.add(&it.part.counts)
			if (o.mark || o.end != endNone) && rows == nil {
				s.dirty(it.part)
			}
			if o.act != 0 && s.own[it.part.stream] != nil {
				acts[it.part.stream] = append(acts[it.part.stream], broker.Settlement{Position: it.pos(), Act: o.act})
			}
		}
	}
	moved := false
	for _, row := range rows {
		p := s.parts[partID{row.Stream, row.Partition}]
		moved = moved || p.saved != row.Floor
		p.saved = row.Floor
		p.dirty = p.counts != row.Counts
	}
	if moved {
		s.moved()
	}
	for _, o := range batch {
		if o.done != nil {
			o.done(nil)
		}
	}
	s.gathered()
	own := make(map[string]broker.Subscription, len(acts))
	for stream := range acts {
		own[stream] = s.own[stream]
	}
	s.mu.Unlock()
	for stream, list := range acts {
		s.tellBroker(own[stream], list)
	}
	if slices.ContainsFunc(batch, func(o *op) bool { return len(o.outbox) > 0 }) {
		s.r.pump.wake() // after the settlement was answered, so that its observers see it first
	}
}

// tellBroker settles at the broker what the subscription reads by itself. What
// is settled is decided by the store, so that a failure loses nothing; but the
// broker may hold the events to be unsettled, and stop reading when it has too
// many. Reading then begins anew.
func (s *sub) tellBroker(own broker.Subscription, list []broker.Settlement) {
	if own == nil || len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := own.Settle(ctx, list)
	if err == nil || errors.Is(err, broker.ErrClosed) {
		return
	}
	s.r.log.Debug("broker not told of settlements, reading anew", "subscription", s.name, "err", err)
	if err := own.Close(); err != nil {
		s.r.log.Debug("broker subscription not closed", "subscription", s.name, "err", err)
	}
}

// dirty notes that a partition is ahead of its stored row.
func (s *sub) dirty(p *part) {
	p.dirty = true
	if s.checkpointAt.IsZero() {
		every := time.Second
		if s.plan.Dedupe == DedupeWindow {
			every = 100 * time.Millisecond
		}
		s.checkpointAt = s.r.now().Add(every)
		s.arm(s.checkpointAt)
	}
}

// checkpoint queues the saving of everything dirty, once at a time.
func (s *sub) checkpoint() {
	s.checkpointAt = time.Time{}
	if s.saving {
		return
	}
	s.saving = true
	s.submit(&op{durable: true, internal: true, done: func(error) {
		s.saving = false
		for _, p := range s.parts {
			if p.dirty { // marked meanwhile
				s.dirty(p)
			}
		}
	}})
}

// submitWait queues operations and waits until all ended; it returns the first
// error. The operations take place even when ctx ends first.
func (s *sub) submitWait(ctx context.Context, ops ...*op) error {
	left, all := len(ops), make(chan struct{})
	var first error
	for _, o := range ops {
		then := o.done
		o.done = func(err error) {
			if then != nil {
				then(err)
			}
			if err != nil && first == nil {
				first = err
			}
			if left--; left == 0 {
				close(all)
			}
		}
	}
	if left == 0 {
		return nil
	}
	s.mu.Lock()
	s.submit(ops...)
	s.mu.Unlock()
	select {
	case <-all:
		return first
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sleep waits; it reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
