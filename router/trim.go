package router

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store"
)

// Trim removes from every stream the events that are older than the stream's
// retention and that no subscription needs any more. A subscription that lags
// behind the retention holds the trim, and a warning says so once an hour:
// nothing pending disappears.
func (r *Router) Trim(ctx context.Context) error {
	for _, st := range r.streams() {
		if st.Retain <= 0 {
			continue
		}
		if err := r.trimStream(ctx, st.Name, r.now().Add(-st.Retain)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Router) trimStream(ctx context.Context, stream string, before time.Time) error {
	// The floors are read before the stream's end, so that an event published
	// in between is above them.
	var floors map[uint32]uint64
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		floors, err = tx.Deliveries.Floors(ctx, stream)
		return err
	})
	if err != nil {
		return err
	}
	stats, err := r.broker.Stat(ctx, stream)
	if err != nil {
		return err
	}
	for _, st := range stats {
		if st.First == st.Next || (!st.FirstTime.IsZero() && !st.FirstTime.Before(before)) {
			continue
		}
		cut, err := firstAt(ctx, r.broker, stream, st, before)
		if err != nil {
			return err
		}
		if floor, ok := floors[st.Partition]; ok && floor < cut {
			r.warnLag(stream, st, floor, cut)
			cut = floor
		}
		if cut <= st.First {
			continue
		}
		if err := r.broker.Trim(ctx, stream, st.Partition, cut); err != nil {
			return err
		}
	}
	return nil
}

func (r *Router) warnLag(stream string, st broker.PartitionStat, floor, cut uint64) {
	id, now := partID{stream, st.Partition}, r.now()
	r.mu.Lock()
	due := now.Sub(r.lagWarn[id]) >= time.Hour
	if due {
		r.lagWarn[id] = now
	}
	r.mu.Unlock()
	if due {
		r.log.Warn("a subscription lags behind the retention and holds the trim", "stream", stream,
			"position", headgate.Position{Partition: st.Partition, Offset: floor}.String(), "events", cut-floor)
	}
}
