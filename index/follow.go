package index

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store"
)

const (
	// batchRows bounds the rows of one transaction: other writers wait for it.
	batchRows = 1024
	// linger is how long a batch that is not full waits for more, so that a
	// trickle of events does not cost a transaction each.
	linger = 20 * time.Millisecond
	// The pause after a fault, doubling from the first to the last.
	firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second
)

// Run follows every indexed stream until ctx ends. It returns nil then, and
// invalid_argument when it runs already. Faults are logged, and tried again.
func (x *Index) Run(ctx context.Context) error {
	x.mu.Lock()
	if x.running {
		x.mu.Unlock()
		return headgate.NewError(headgate.CodeInvalidArgument, "the index runs already")
	}
	x.running = true
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		x.running, x.stop = false, nil
		x.mu.Unlock()
	}()
	for ctx.Err() == nil { // once, and again after each rebuild
		followers, cancel := context.WithCancel(ctx)
		x.mu.Lock()
		x.stop = cancel
		x.mu.Unlock()
		var wg sync.WaitGroup
		for _, name := range x.names {
			wg.Go(func() { x.keepFollowing(followers, name) })
		}
		<-followers.Done()
		wg.Wait()
		cancel()
	}
	return nil
}

// keepFollowing follows one stream, whatever happens, until ctx ends.
func (x *Index) keepFollowing(ctx context.Context, stream string) {
	pause := firstPause
	for ctx.Err() == nil {
		progress, err := x.follow(ctx, stream)
		if ctx.Err() != nil {
			return
		}
		if progress {
			pause = firstPause
		}
		x.cfg.Log.Warn("the index stopped following a stream", "stream", stream, "again_in", pause, "error", err)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		pause = min(2*pause, lastPause)
	}
}

// follow reads one stream from the stored cursors until a fault or ctx's end.
// It reports whether it wrote anything.
func (x *Index) follow(ctx context.Context, stream string) (progress bool, err error) {
	cursors, err := x.cursors(ctx, stream)
	if err != nil {
		return false, err
	}
	sub, err := x.cfg.Broker.Subscribe(ctx, broker.SubscribeSpec{Name: "index", Stream: stream, From: maps.Clone(cursors), Buffer: 2 * batchRows})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	var gaps []*broker.GapError
	for {
		batch, err := receive(ctx, sub)
		if len(batch) > 0 {
			if err := x.write(ctx, stream, batch, cursors); err != nil {
				return progress, err
			}
			progress = true
			if err := settle(ctx, sub, batch); err != nil {
				return progress, err
			}
		}
		var gap *broker.GapError
		if errors.As(err, &gap) {
			x.tellLost(*gap)
			gaps = append(gaps, gap)
			err = nil
		}
		if err != nil {
			return progress, err
		}
		if gaps, err = x.stepOver(ctx, gaps, cursors); err != nil {
			return progress, err
		}
	}
}

// stepOver moves cursors that came to a gap behind it, and returns the gaps
// that are still ahead: one may be reported before the events in front of it.
func (x *Index) stepOver(ctx context.Context, gaps []*broker.GapError, cursors map[uint32]uint64) (ahead []*broker.GapError, err error) {
	for _, gap := range gaps {
		switch at := cursors[gap.Partition]; {
		case at < gap.From:
			ahead = append(ahead, gap)
		case at < gap.To:
			if err := x.moveTo(ctx, gap, cursors); err != nil {
				return nil, err
			}
		}
	}
	return ahead, nil
}

// moveTo moves a cursor behind a gap.
func (x *Index) moveTo(ctx context.Context, gap *broker.GapError, cursors map[uint32]uint64) error {
	x.writing.RLock()
	defer x.writing.RUnlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	err := x.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Index.SetCursor(ctx, gap.Stream, gap.Partition, gap.To)
	})
	if err != nil {
		return err
	}
	cursors[gap.Partition] = gap.To
	x.broadcast()
	return nil
}

// cursors reads how far the index came in each partition of a stream.
func (x *Index) cursors(ctx context.Context, stream string) (map[uint32]uint64, error) {
	stats, err := x.cfg.Broker.Stat(ctx, stream)
	if err != nil {
		return nil, err
	}
	cursors := make(map[uint32]uint64, len(stats))
	err = x.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		for _, s := range stats {
			next, err := tx.Index.Cursor(ctx, stream, s.Partition)
			if err != nil {
				return err
			}
			if next > s.Next {
				x.tellLost(broker.GapError{Stream: stream, Partition: s.Partition, From: s.Next, To: next, Err: errCut})
				next = s.Next // what comes now stands at offsets that were used before
			}
			cursors[s.Partition] = next
		}
		return nil
	})
	return cursors, err
}

// errCut is why events that were indexed are not in their stream any more.
var errCut = errors.New("the stream ends before events that were stored in it: its data was damaged or replaced")

func (x *Index) tellLost(gap broker.GapError) {
	x.cfg.Log.Error("stored events are lost", "stream", gap.Stream, "partition", gap.Partition, "from", gap.From, "to", gap.To, "error", gap.Err)
	x.mu.Lock()
	if len(x.lost) < maxLost {
		x.lost = append(x.lost, gap)
	}
	x.mu.Unlock()
	x.broadcast()
}

// maxLost bounds the losses that are kept to be told of.
const maxLost = 100

// Lost returns the stored events that this run of the node found missing: ones
// that cannot be read, and ones that the index knows and the stream has not.
func (x *Index) Lost() []broker.GapError {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.lost)
}

// receive waits for a batch. With a fault it may return both: what came before
// is still to be written.
func receive(ctx context.Context, sub broker.Subscription) ([]broker.Delivery, error) {
	batch, err := sub.Receive(ctx, batchRows)
	if err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(ctx, linger)
	defer cancel()
	for len(batch) < batchRows {
		more, err := sub.Receive(patience, batchRows-len(batch))
		if err != nil {
			if patience.Err() != nil && ctx.Err() == nil {
				return batch, nil // patience ended, not the subscription
			}
			return batch, err
		}
		batch = append(batch, more...)
	}
	return batch, nil
}

// write writes the rows of a batch and moves the cursors in one transaction.
// Deliveries of one partition come in order, so the last one is the furthest.
func (x *Index) write(ctx context.Context, stream string, batch []broker.Delivery, cursors map[uint32]uint64) error {
	rows := make([]store.IndexRow, 0, len(batch))
	moved := map[uint32]uint64{}
	for i := range batch {
		pos := batch[i].Position
		if pos.Offset < cursors[pos.Partition] {
			continue // handed out again; its row is written
		}
		rows = append(rows, row(stream, &batch[i].Stored))
		moved[pos.Partition] = max(moved[pos.Partition], pos.Offset+1)
	}
	if len(rows) == 0 {
		return nil
	}
	// The store keeps rows that follow one another together.
	slices.SortFunc(rows, func(a, b store.IndexRow) int {
		return cmp.Or(cmp.Compare(a.Position.Partition, b.Position.Partition), cmp.Compare(a.Position.Offset, b.Position.Offset))
	})
	x.writing.RLock()
	defer x.writing.RUnlock()
	// A rebuild ends the followers before it lets go.
	if err := ctx.Err(); err != nil {
		return err
	}
	err := x.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Index.Put(ctx, rows); err != nil {
			return err
		}
		for partition, next := range moved {
			if err := tx.Index.SetCursor(ctx, stream, partition, next); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for partition, next := range moved {
		cursors[partition] = next
	}
	x.broadcast()
	return nil
}

// row is what the index keeps of an event.
func row(stream string, s *broker.Stored) store.IndexRow {
	e := s.Event
	r := store.IndexRow{
		ID: e.ID, Source: e.Source, Stream: stream, Position: s.Position, Type: e.Type, Subject: e.Subject,
		Root: e.Header.RootID, Causes: headgate.JoinCauses(e.Header.Causes), TTL: e.Header.TTL, Hop: e.Header.Hop,
		Origin: e.Header.Origin, Principal: e.Header.Principal, Contract: e.DataSchema, Recorded: e.Header.RecordedTime,
	}
	if r.Recorded.IsZero() {
		r.Recorded = s.Time
	}
	return r
}

func settle(ctx context.Context, sub broker.Subscription, batch []broker.Delivery) error {
	acks := make([]broker.Settlement, len(batch))
	for i := range batch {
		acks[i] = broker.Settlement{Position: batch[i].Position, Act: broker.Ack}
	}
	return sub.Settle(ctx, acks)
}

// Rebuild empties the index and lets it follow from the beginning. It returns
// when the index is empty; Wait waits for the rest. Errors are those of the
// store.
func (x *Index) Rebuild(ctx context.Context) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	err := x.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Index.Reset(ctx)
	})
	// Followers start again also when it is in doubt: from the stored cursors
	// they are right either way.
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stop != nil {
		x.stop()
	}
	return err
}

// pruneRows bounds the rows deleted in one transaction.
const pruneRows = 500

// Prune deletes the rows of events that retention removed from their streams,
// and returns how many. Errors are those of the broker and the store; what was
// deleted before stays deleted.
func (x *Index) Prune(ctx context.Context) (int, error) {
	all, err := x.standings(ctx)
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, s := range all {
		for n := pruneRows; n == pruneRows; {
			err := x.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
				var err error
				n, err = tx.Index.Prune(ctx, s.stream, s.stat.Partition, s.stat.First, pruneRows)
				return err
			})
			if err != nil {
				return sum, err
			}
			sum += n
		}
	}
	return sum, nil
}
