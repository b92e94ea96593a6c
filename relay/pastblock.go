package relay

import (
	"cmp"
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// What is read of a partition at once, and kept of it. Lanes do not ask in the
// order of the partition, but what they ask for lies close together.
const (
	browseAtOnce = 1000    // events, when only their ids are noted
	blockEvents  = 256     // events of a block
	blockBytes   = 1 << 20 // of their payloads, by the size of those read before
	firstBrowse  = 16      // events, when no size is known
	keptBlocks   = 8
)

// blocks are the events of one partition that were read last.
type blocks struct {
	mean int // bytes of an event
	kept []block
}

// block holds the events of [from, to) that are stored.
type block struct {
	from, to uint64
	events   []broker.Stored
}

// most bounds how many events are asked for by what they are likely to take.
func (b *blocks) most(events int) int {
	if b.mean == 0 {
		return min(events, firstBrowse)
	}
	return max(1, min(events, blockBytes/b.mean))
}

// browse reads on from an offset.
func (b *blocks) browse(ctx context.Context, br broker.Broker, part *pastPart, from uint64, events int) ([]broker.Stored, error) {
	got, err := br.Browse(ctx, part.stream, headgate.Position{Partition: part.number, Offset: from}, b.most(events))
	if err != nil || len(got) == 0 {
		return nil, err
	}
	bytes := 0
	for i := range got {
		bytes += len(got[i].Event.Data) + 512
	}
	b.mean = max(bytes/len(got), b.mean/2) // large ones may come again
	return got, nil
}

// at returns the event at an offset; nil when it was trimmed.
func (b *blocks) at(ctx context.Context, br broker.Broker, part *pastPart, offset uint64) (*headgate.Event, error) {
	if e, ok := b.find(offset); ok {
		return e, nil
	}
	from := offset
	if n := uint64(b.most(blockEvents)); n == blockEvents {
		from -= offset % n // also for those before it
	}
	got, err := b.browse(ctx, br, part, from, blockEvents)
	if err != nil {
		return nil, err
	}
	if len(got) == 0 || got[len(got)-1].Position.Offset < offset {
		// Some of what lies before it is large: the next is read by itself.
		if got, err = b.browse(ctx, br, part, offset, 1); err != nil || len(got) == 0 {
			return nil, err
		}
		from = offset
	}
	if len(b.kept) == keptBlocks {
		b.kept = slices.Delete(b.kept, 0, 1)
	}
	b.kept = append(b.kept, block{from, got[len(got)-1].Position.Offset + 1, got})
	e, _ := b.find(offset)
	return e, nil
}

// find looks among the events that are kept. True without one: there is none.
func (b *blocks) find(offset uint64) (*headgate.Event, bool) {
	for k := len(b.kept) - 1; k >= 0; k-- {
		have := &b.kept[k]
		if offset < have.from || offset >= have.to {
			continue
		}
		i, ok := slices.BinarySearchFunc(have.events, offset, func(s broker.Stored, at uint64) int { return cmp.Compare(s.Position.Offset, at) })
		if !ok {
			return nil, true
		}
		return have.events[i].Event, true
	}
	return nil, false
}
