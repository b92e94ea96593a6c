package router

import (
	"encoding/binary"
	"math/bits"

	"github.com/headgate/headgate/store"
)

// progress is how far a subscription came in one partition, in memory: every
// offset below floor is done, and so is every offset whose bit is set. It is
// the decoded form of [store.Progress].
type progress struct {
	start, floor uint64
	// base is floor rounded down to a multiple of 64: the offset of bit 0 of
	// words[0].
	base   uint64
	words  []uint64
	counts store.Counts
}

func newProgress(start uint64) progress {
	return progress{start: start, floor: start, base: start &^ 63}
}

// loadProgress decodes a stored row.
func loadProgress(row store.Progress) progress {
	p := newProgress(row.Start)
	p.floor, p.base = row.Floor, row.Floor&^63
	p.counts = row.Counts
	for i, b := range row.Done {
		for ; b != 0; b &= b - 1 {
			p.set(row.Floor + uint64(i)*8 + uint64(bits.TrailingZeros8(b)))
		}
	}
	p.advance()
	return p
}

// isDone reports whether the offset is done.
func (p *progress) isDone(off uint64) bool {
	if off < p.floor {
		return true
	}
	i := off - p.base
	w := i / 64
	return w < uint64(len(p.words)) && p.words[w]>>(i%64)&1 == 1
}

// mark makes an offset done and moves the floor. It reports false when the
// offset was done before.
func (p *progress) mark(off uint64) bool {
	if p.isDone(off) {
		return false
	}
	p.set(off)
	if off == p.floor {
		p.advance()
	}
	return true
}

// fill makes every offset from from to below to done, and returns how many
// were not before. Where nothing below from is left it takes no time per
// offset.
func (p *progress) fill(from, to uint64) uint64 {
	from = max(from, p.floor)
	if from >= to {
		return 0
	}
	if from > p.floor {
		return p.fillAbove(from, to)
	}
	n := to - from
	for i, w := range p.words { // what is done above the floor already
		at := p.base + 64*uint64(i)
		if at >= to {
			break
		}
		if at < p.floor {
			w &= ^uint64(0) << (p.floor - at)
		}
		if at+64 > to {
			w &= 1<<(to-at) - 1
		}
		n -= uint64(bits.OnesCount64(w))
	}
	base := to &^ 63
	if drop := (base - p.base) / 64; drop < uint64(len(p.words)) {
		p.words = p.words[drop:]
	} else {
		p.words = nil
	}
	p.floor, p.base = to, base
	p.advance()
	return n
}

func (p *progress) fillAbove(from, to uint64) (n uint64) {
	p.grow(to - 1)
	for off := from; off < to; {
		i := (off - p.base) / 64
		at := p.base + 64*i
		mask := ^uint64(0) << (off - at)
		if at+64 > to {
			mask &= 1<<(to-at) - 1
		}
		n += uint64(bits.OnesCount64(mask &^ p.words[i]))
		p.words[i] |= mask
		off = at + 64
	}
	return n
}

// grow makes room for the bit of an offset.
func (p *progress) grow(off uint64) {
	for uint64(len(p.words)) <= (off-p.base)/64 {
		p.words = append(p.words, 0)
	}
}

func (p *progress) set(off uint64) {
	p.grow(off)
	i := off - p.base
	p.words[i/64] |= 1 << (i % 64)
}

func (p *progress) advance() {
	for len(p.words) > 0 {
		sh := p.floor - p.base
		run := uint64(bits.TrailingZeros64(^(p.words[0] >> sh)))
		run = min(run, 64-sh)
		p.floor += run
		if p.floor-p.base < 64 {
			return
		}
		p.base += 64
		p.words = p.words[1:]
	}
	p.base = p.floor &^ 63
}

// cut makes nothing at or above the offset done, and reports whether anything
// was.
func (p *progress) cut(end uint64) bool {
	if p.floor > end {
		*p = progress{start: min(p.start, end), floor: end, base: end &^ 63, counts: p.counts}
		return true
	}
	cut := false
	for i := range p.words {
		keep := ^uint64(0)
		switch at := p.base + 64*uint64(i); {
		case at >= end:
			keep = 0
		case at+64 > end:
			keep = 1<<(end-at) - 1
		}
		cut = cut || p.words[i]&^keep != 0
		p.words[i] &= keep
	}
	return cut
}

// above returns how many offsets at or above the floor are done.
func (p *progress) above() uint64 {
	var n int
	for i, w := range p.words {
		if i == 0 {
			w = w >> (p.floor - p.base) << (p.floor - p.base)
		}
		n += bits.OnesCount64(w)
	}
	return uint64(n)
}

// doneCount returns how many offsets from start on are done.
func (p *progress) doneCount() uint64 { return p.floor - p.start + p.above() }

func (p *progress) clone() progress {
	q := *p
	q.words = append([]uint64(nil), p.words...)
	return q
}

// row encodes the progress for the store.
func (p *progress) row(subscription, stream string, partition uint32) store.Progress {
	return store.Progress{
		Subscription: subscription, Stream: stream, Partition: partition,
		Start: p.start, Floor: p.floor, Done: p.bitmap(), Counts: p.counts,
	}
}

// bitmap returns the done bits from the floor on, without trailing zero bytes.
func (p *progress) bitmap() []byte {
	if len(p.words) == 0 {
		return nil
	}
	sh := p.floor - p.base
	out := make([]byte, 0, 8*len(p.words))
	for i, w := range p.words {
		w >>= sh
		if sh > 0 && i+1 < len(p.words) {
			w |= p.words[i+1] << (64 - sh)
		}
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	return out
}
