package natsbroker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// stream is an open stream.
type stream struct {
	b       *Broker
	name    string
	parts   []*partition
	memory  *memory
	rebuilt chan struct{} // closed when the dedupe window is complete

	sticky struct { // guarded by memory.mu
		at     int // the partition of events without a key
		events int // that went there since it was chosen
		bytes  int
	}
}

// partition is one broker stream. Its writer goroutine alone appends.
type partition struct {
	b       *Broker
	s       *stream
	number  uint32
	name    string // of the broker stream
	subject string

	queue queue
	tail  tail // the writer's
	// contested is set, by the writer, once another node stored to the
	// partition.
	contested bool
	folders   folders
	readers   atomic.Int32

	mu      sync.Mutex
	end     uint64        // sequence of the last frame known to be acknowledged
	next    uint64        // offset behind it
	changed chan struct{} // closed and replaced when end grows
	anchors anchors
	recent  []cached
	weight  int // bytes in recent
}

// tail is where the partition ends, as its writer knows.
type tail struct {
	seq  uint64    // of the last message
	next uint64    // offset of the next event
	time time.Time // of the last frame
}

// cached is a frame that was just written, kept so that readers at the end of
// the partition need not ask the server.
type cached struct {
	seq   uint64
	bytes []byte
}

// cacheBytes bounds the frames that a partition with readers keeps.
const cacheBytes = 1 << 20

// open makes an ensured stream usable: it finds the end of every partition,
// starts their writers, and rebuilds the dedupe window behind the scenes.
func (b *Broker) open(ctx context.Context, spec broker.StreamSpec, infos []*jetstream.StreamInfo) error {
	b.mu.RLock()
	_, ok := b.streams[spec.Name]
	b.mu.RUnlock()
	if ok {
		return nil
	}
	s := &stream{
		b: b, name: spec.Name, rebuilt: make(chan struct{}),
		memory: newMemory(b.cfg.DedupeWindow, b.cfg.DedupeIDs, b.cfg.Now()),
	}
	for i, info := range infos {
		p := &partition{
			b: b, s: s, number: uint32(i), changed: make(chan struct{}),
			name: b.streamName(spec.Name, uint32(i)), subject: b.subject(spec.Name, uint32(i)),
		}
		p.queue.init()
		if info.Config.Storage == jetstream.FileStorage { // another one is unsafe drift already
			p.folders = newFolders(b.cfg, p.name)
		}
		if err := p.folders.begin(b.cfg.Dir); err != nil {
			return err
		}
		t, err := p.findTail(ctx, info.State.FirstSeq, info.State.LastSeq, info.State.Msgs)
		if err != nil {
			return err
		}
		p.tail, p.end, p.next = t, t.seq, t.next
		s.parts = append(s.parts, p)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return broker.Closed()
	}
	b.streams[spec.Name] = s
	b.tasks.Go(s.rebuild)
	for _, p := range s.parts {
		b.tasks.Go(p.run)
	}
	return nil
}

// findTail reads the last frame. Messages behind it that cannot be read are
// reported; the offsets that a damaged one claims are not used again.
func (p *partition) findTail(ctx context.Context, first, last, count uint64) (tail, error) {
	if last == 0 {
		return tail{}, nil
	}
	if count == 0 {
		return tail{}, headgate.NewError(headgate.CodeConflict, "broker stream %s was emptied from outside, so that the offsets of partition %d are lost: remove it, and start its subscriptions anew", p.name, p.number)
	}
	f, err := p.b.fetcher()
	if err != nil {
		return tail{}, err
	}
	defer p.b.release(f)
	claimed := uint64(0)
	for seq := last; seq >= first && seq > 0; seq-- {
		m, err := f.one(ctx, p.name, seq)
		if err != nil {
			return tail{}, err
		}
		if m.seq != seq {
			continue // the server lost it
		}
		fr, err := parseFrame(m.data)
		if err == nil {
			t := tail{seq: last, next: fr.end(), time: fr.time}
			if claimed > t.next && claimed-t.next < 1<<20 {
				t.next = claimed
			}
			return t, nil
		}
		p.b.report(Damage{Stream: p.s.name, Partition: p.number, Sequence: seq, Err: err})
		if h, err := parseHeader(m.data); err == nil {
			claimed = max(claimed, h.end())
		}
	}
	return tail{}, headgate.NewError(headgate.CodeConflict, "broker stream %s holds %d messages, none of which is a frame", p.name, count)
}

// advance makes frames up to the sequence visible to readers.
func (p *partition) advance(seq, next uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = max(p.next, next) // also of a sequence that a look at the server made visible first
	if seq <= p.end {
		return
	}
	p.end = seq
	close(p.changed)
	p.changed = make(chan struct{})
}

// written records a frame that this driver stored, and reports whether it keeps
// the bytes.
func (p *partition) written(seq uint64, h header, bytes []byte) (kept bool) {
	p.mu.Lock()
	p.anchors.add(seq, h.base)
	if kept = p.readers.Load() > 0; kept {
		p.recent = append(p.recent, cached{seq, bytes})
		p.weight += len(bytes)
		for p.weight > cacheBytes && len(p.recent) > 1 {
			p.weight -= len(p.recent[0].bytes)
			p.recent[0] = cached{}
			p.recent = p.recent[1:]
		}
	} else if len(p.recent) > 0 {
		p.recent, p.weight = nil, 0
	}
	p.mu.Unlock()
	p.advance(seq, h.end())
	return kept
}

// cachedFrame returns a frame that was written lately, or nil.
func (p *partition) cachedFrame(seq uint64) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.recent) == 0 || seq < p.recent[0].seq {
		return nil
	}
	i, ok := slices.BinarySearchFunc(p.recent, seq, func(c cached, s uint64) int {
		return int(int64(c.seq - s))
	})
	if !ok {
		return nil
	}
	return p.recent[i].bytes
}

// visible returns the last sequence that readers may see, and a channel that
// is closed when that changes.
func (p *partition) visible() (end uint64, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end, p.changed
}

// anchors remembers where some frames are, so that finding an offset takes few
// reads. It is a sorted sample: when it is full every second one is dropped.
type anchors struct {
	list   []anchor
	stride uint64 // keep frames whose sequence is a multiple of it
}

type anchor struct{ seq, base uint64 }

const maxAnchors = 4096

func (a *anchors) add(seq, base uint64) {
	if a.stride == 0 {
		a.stride = 1
	}
	if seq%a.stride != 0 {
		return
	}
	i, ok := slices.BinarySearchFunc(a.list, seq, func(x anchor, s uint64) int { return int(int64(x.seq - s)) })
	if ok {
		return
	}
	a.list = slices.Insert(a.list, i, anchor{seq, base})
	for len(a.list) > maxAnchors {
		a.stride *= 2
		a.list = slices.DeleteFunc(a.list, func(x anchor) bool { return x.seq%a.stride != 0 })
	}
}

// around returns the nearest known frames that begin at or before the offset,
// and behind it; zero when there is none.
func (a *anchors) around(offset uint64) (before, behind anchor) {
	i, _ := slices.BinarySearchFunc(a.list, offset, func(x anchor, o uint64) int {
		if x.base <= o {
			return -1
		}
		return 1
	})
	if i > 0 {
		before = a.list[i-1]
	}
	if i < len(a.list) {
		behind = a.list[i]
	}
	return before, behind
}

// forget drops what lies before the sequence.
func (a *anchors) forget(before uint64) {
	a.list = slices.DeleteFunc(a.list, func(x anchor) bool { return x.seq < before })
}
