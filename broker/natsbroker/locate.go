package natsbroker

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// state returns what the server says about the partition's broker stream.
func (p *partition) state(ctx context.Context) (jetstream.StreamState, error) {
	info, err := p.b.info(ctx, p.s.name, p.number)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	if info == nil {
		return jetstream.StreamState{}, unavailable(nil, "broker stream %s is gone", p.name)
	}
	return info.State, nil
}

// frameAt returns the first readable frame at or behind the sequence; damaged
// ones before it are reported. errNoMessage means that there is none.
func (p *partition) frameAt(ctx context.Context, f *fetcher, seq uint64) (frame, error) {
	for {
		m, err := f.one(ctx, p.name, seq)
		if err != nil {
			return frame{}, err
		}
		fr, err := parseFrame(m.data)
		if err == nil {
			fr.seq = m.seq
			p.mu.Lock()
			p.anchors.add(fr.seq, fr.base)
			p.mu.Unlock()
			return fr, nil
		}
		p.b.report(Damage{Stream: p.s.name, Partition: p.number, Sequence: m.seq, Err: err})
		seq = m.seq + 1
	}
}

// locate returns the sequence from which a reader finds the offset: of the
// frame that holds it, of the first frame when the offset was trimmed, and one
// behind the last when it is not written yet.
func (p *partition) locate(ctx context.Context, f *fetcher, offset uint64) (uint64, error) {
	end, _ := p.visible()
	p.mu.Lock()
	next := p.next
	before, behind := p.anchors.around(offset)
	p.mu.Unlock()
	if offset >= next && !p.b.shared() {
		return end + 1, nil
	}
	lo, hi := max(1, before.seq), end
	if before.seq == 0 {
		if offset == 0 {
			return 1, nil
		}
		st, err := p.state(ctx)
		if err != nil {
			return 0, err
		}
		lo = max(1, st.FirstSeq)
	}
	if behind.seq != 0 {
		hi = behind.seq - 1
	}
	// The answer is the greatest sequence in [lo, hi] whose frame begins at or
	// before the offset; lo when none does.
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		fr, err := p.frameAt(ctx, f, mid)
		switch {
		case errors.Is(err, errNoMessage):
			hi = mid - 1
		case err != nil:
			return 0, err
		case fr.base > offset:
			hi = mid - 1
		default:
			lo = fr.seq
		}
	}
	return lo, nil
}
