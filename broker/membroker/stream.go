package membroker

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// stream is one stream. The broker's lock guards it.
type stream struct {
	spec   broker.StreamSpec
	parts  []*partition
	known  *recent
	sticky int // the partition of events without a key
	run    int // events that went there since it was chosen
}

// stickyRun is how many events without a key go to one partition before the
// next one gets its turn, as in drivers that store frames.
const stickyRun = 64

func newStream(spec broker.StreamSpec) *stream {
	s := &stream{spec: spec, known: newRecent()}
	for i := range spec.Partitions {
		s.parts = append(s.parts, &partition{number: uint32(i), changed: make(chan struct{})})
	}
	return s
}

func (s *stream) partitionFor(key string) *partition {
	if key != "" {
		return s.parts[broker.PartitionOf(key, len(s.parts))]
	}
	if s.run++; s.run > stickyRun {
		s.run, s.sticky = 1, (s.sticky+1)%len(s.parts)
	}
	return s.parts[s.sticky]
}

// partition is an ordered log of which a prefix may have been forgotten.
type partition struct {
	number  uint32
	first   uint64
	log     []broker.Stored
	sizes   []int
	bytes   int64
	changed chan struct{} // closed and replaced when the log grows
	damaged map[uint64]bool
}

func (p *partition) next() uint64 { return p.first + uint64(len(p.log)) }

func (p *partition) append(e *headgate.Event, size int, now time.Time) headgate.Position {
	pos := headgate.Position{Partition: p.number, Offset: p.next()}
	p.log = append(p.log, broker.Stored{Position: pos, Event: e, Time: now})
	p.sizes = append(p.sizes, size)
	p.bytes += int64(size)
	close(p.changed)
	p.changed = make(chan struct{})
	return pos
}

func (p *partition) trim(below uint64) {
	if below <= p.first {
		return
	}
	n := min(below-p.first, uint64(len(p.log)))
	for _, size := range p.sizes[:n] {
		p.bytes -= int64(size)
	}
	// Copies, so that the memory of what was trimmed is given back.
	p.log = append([]broker.Stored(nil), p.log[n:]...)
	p.sizes = append([]int(nil), p.sizes[n:]...)
	p.first += n
}

// read returns a copy of up to limit events from the offset on, up to damaged
// ones, which it steps over only where they come first.
func (p *partition) read(from uint64, limit int) []broker.Stored {
	from = p.readable(max(from, p.first))
	var events []broker.Stored
	for off := from; off < p.next() && len(events) < limit && !p.damaged[off]; off++ {
		events = append(events, p.log[off-p.first])
	}
	return events
}

// readable returns the first offset from the given one on that is not damaged.
func (p *partition) readable(from uint64) uint64 {
	for p.damaged[from] {
		from++
	}
	return from
}

// ident is the key of every dedupe.
type ident struct{ source, id string }

// recent remembers what was stored, oldest first.
type recent struct {
	at    map[ident]entry
	order []aged
}

type entry struct {
	pos  headgate.Position
	time time.Time
}

// aged is an id with the time it was stored, which tells it from a later
// event of the same id.
type aged struct {
	ident
	time time.Time
}

func newRecent() *recent { return &recent{at: map[ident]entry{}} }

func (r *recent) get(k ident, now time.Time, window time.Duration) (headgate.Position, bool) {
	e, ok := r.at[k]
	if !ok || now.Sub(e.time) > window {
		return headgate.Position{}, false
	}
	return e.pos, true
}

// put adds an id and forgets those that are older than the window, and those
// beyond the bound.
func (r *recent) put(k ident, pos headgate.Position, now time.Time, window time.Duration, bound int) {
	r.at[k] = entry{pos, now}
	r.order = append(r.order, aged{k, now})
	for len(r.order) > bound || now.Sub(r.order[0].time) > window {
		if old := r.order[0]; r.at[old.ident].time.Equal(old.time) {
			delete(r.at, old.ident)
		}
		r.order = r.order[1:]
	}
}
