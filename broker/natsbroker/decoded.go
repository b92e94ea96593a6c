package natsbroker

import (
	"context"
	"sync"

	"github.com/headgate/headgate"
)

// decodedBytes bounds the frames whose events are kept decoded, by their stored
// size. Decoded they take about twice as much.
const decodedBytes = 2 << 20

// decodedFrames keeps the events of the frames that were read last. Readers of
// a partition mostly stand at its end together, and events are read-only: what
// one of them decoded serves all.
type decodedFrames struct {
	mu     sync.Mutex
	frames map[frameID]*decodedFrame
	order  []frameID // the oldest first
	bytes  int
}

type frameID struct {
	p   *partition
	seq uint64
}

// decodedFrame is a frame with all its events. It is decoded by the reader that
// comes first; ok is false when it cannot be.
type decodedFrame struct {
	once sync.Once
	size int
	ok   bool
	header
	slabs [][]headgate.Event
}

// of returns a frame decoded; nil when its partition has one reader only, or
// when it is damaged, which its readers find out by themselves.
func (d *decodedFrames) of(p *partition, m message) *decodedFrame {
	if p.readers.Load() < 2 {
		return nil
	}
	id := frameID{p, m.seq}
	d.mu.Lock()
	f := d.frames[id]
	if f == nil {
		if d.frames == nil {
			d.frames = make(map[frameID]*decodedFrame)
		}
		f = &decodedFrame{size: len(m.data)}
		d.frames[id] = f
		d.order = append(d.order, id)
		d.bytes += f.size
		for d.bytes > decodedBytes && len(d.order) > 1 {
			d.bytes -= d.frames[d.order[0]].size
			delete(d.frames, d.order[0])
			d.order = d.order[1:]
		}
	}
	d.mu.Unlock()
	f.once.Do(func() { f.decode(m.data) })
	if !f.ok {
		return nil
	}
	return f
}

func (f *decodedFrame) decode(data []byte) {
	fr, err := parseFrame(data)
	if err != nil {
		return
	}
	err = fr.decode(fr.base, func(_ uint64, slab []headgate.Event) bool {
		f.slabs = append(f.slabs, slab)
		return true
	})
	f.header, f.ok = fr.header, err == nil
}

// takeDecoded offers the events of a frame that begins where the reader is.
func (r *reader) takeDecoded(ctx context.Context, seq uint64, f *decodedFrame) error {
	for _, slab := range f.slabs {
		if err := r.offer(ctx, r.next, slab, f.time); err != nil {
			return err
		}
	}
	r.fault = nil
	r.seq = seq + 1
	return nil
}
