package natsbroker

import (
	"context"
	"errors"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"

	"github.com/nats-io/nats.go/jetstream"
)

// Browse implements [broker.Subscriber]. It answers from one frame at a time,
// so fewer than limit does not mean the end.
func (b *Broker) Browse(ctx context.Context, name string, from headgate.Position, limit int) ([]broker.Stored, error) {
	p, err := b.partition(name, from.Partition)
	if err != nil || limit <= 0 {
		return nil, err
	}
	f, err := b.fetcher()
	if err != nil {
		return nil, err
	}
	defer b.release(f)
	if p.b.shared() {
		if err := p.look(ctx); err != nil {
			return nil, err
		}
	}
	seq, err := p.locate(ctx, f, from.Offset)
	if err != nil {
		return nil, err
	}
	var out []broker.Stored
	for len(out) < limit {
		if end, _ := p.visible(); seq > end {
			break
		}
		fr, err := p.frameAt(ctx, f, seq)
		if errors.Is(err, errNoMessage) {
			break
		}
		if err != nil {
			return nil, err
		}
		seq = fr.seq + 1
		err = fr.decode(from.Offset, func(base uint64, slab []headgate.Event) bool {
			for i := range slab {
				if len(out) < limit {
					at := headgate.Position{Partition: p.number, Offset: base + uint64(i)}
					out = append(out, broker.Stored{Position: at, Event: &slab[i], Time: fr.time})
				}
			}
			return len(out) < limit
		})
		if err != nil {
			b.report(Damage{Stream: name, Partition: p.number, Sequence: fr.seq, Err: err})
		}
	}
	return out, nil
}

// Stat implements [broker.Broker].
func (b *Broker) Stat(ctx context.Context, name string) ([]broker.PartitionStat, error) {
	s, err := b.stream(name)
	if err != nil {
		return nil, err
	}
	f, err := b.fetcher()
	if err != nil {
		return nil, err
	}
	defer b.release(f)
	stats := make([]broker.PartitionStat, len(s.parts))
	for i, p := range s.parts {
		if stats[i], err = p.stat(ctx, f); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

func (p *partition) stat(ctx context.Context, f *fetcher) (broker.PartitionStat, error) {
	st, err := p.state(ctx)
	if err != nil {
		return broker.PartitionStat{}, err
	}
	out := broker.PartitionStat{Partition: p.number, Bytes: int64(st.Bytes)}
	if st.Msgs == 0 {
		return out, nil
	}
	first, err := p.frameAt(ctx, f, st.FirstSeq)
	if err != nil && !errors.Is(err, errNoMessage) {
		return out, err
	}
	p.mu.Lock()
	out.Next = p.next
	end := p.end
	p.mu.Unlock()
	if end < st.LastSeq && p.b.shared() {
		t, err := p.findTail(ctx, st.FirstSeq, st.LastSeq, st.Msgs)
		if err != nil {
			return out, err
		}
		out.Next = max(out.Next, t.next)
	}
	if first.count > 0 {
		out.First, out.FirstTime = first.base, first.time
	}
	return out, nil
}

// Trim implements [broker.Broker]: it removes whole frames that lie below the
// offset, but never the last frame, which holds the count.
func (b *Broker) Trim(ctx context.Context, name string, number uint32, below uint64) error {
	p, err := b.partition(name, number)
	if err != nil {
		return err
	}
	f, err := b.fetcher()
	if err != nil {
		return err
	}
	defer b.release(f)
	st, err := p.state(ctx)
	if err != nil || st.Msgs < 2 {
		return err
	}
	seq, err := p.locate(ctx, f, below)
	if err != nil {
		return err
	}
	if end, _ := p.visible(); seq > end {
		seq = end
	}
	if seq <= st.FirstSeq {
		return nil
	}
	s, err := b.js.Stream(ctx, p.name)
	if err != nil {
		return unavailable(err, "the NATS server does not tell of broker stream %s", p.name)
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSequence(seq)); err != nil {
		return unavailable(err, "broker stream %s cannot be trimmed", p.name)
	}
	p.mu.Lock()
	p.anchors.forget(seq)
	p.mu.Unlock()
	return nil
}
