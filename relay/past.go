package relay

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/perimeter"
)

// What is looked for in the streams.
const (
	// clockMargin is how far the clocks of nodes that share a broker may
	// differ.
	clockMargin = 2 * time.Minute
	// maxPast bounds the remembered events, at about 20 bytes each. Behind it
	// the broker's own window is what is left.
	maxPast = 4 << 20
)

// past knows which events the streams hold already, also beyond the dedupe
// window of the broker: a relay that was away for long reads rows again that it
// had submitted before. It is made of what was stored since the oldest such row
// was committed, and only when the broker may have forgotten that.
type past struct {
	broker  broker.Broker
	streams []string
	opened  time.Time // rows committed before may have been submitted before
	now     func() time.Time
	seed    maphash.Seed

	mu     sync.Mutex
	oldest time.Time // of the rows of this session
	seen
}

// seen is what past remembers.
type seen struct {
	from  time.Time // covered since; zero: nothing is
	parts []pastPart
	at    map[uint64]uint64 // hash of the id → index of the part and offset
	full  bool
}

// pastPart is one partition: what is covered of it is [low, high).
type pastPart struct {
	stream    string
	number    uint32
	low, high uint64
	blocks    blocks
}

func newPast(cfg *Config) *past {
	return &past{broker: cfg.Broker, streams: cfg.Streams, opened: cfg.Now(), now: cfg.Now, seed: maphash.MakeSeed()}
}

// saw notes a row that was read.
func (p *past) saw(row *Row) {
	if p.broker == nil || !row.Committed.Before(p.opened) {
		return
	}
	p.mu.Lock()
	if p.oldest.IsZero() || row.Committed.Before(p.oldest) {
		p.oldest = row.Committed
	}
	p.mu.Unlock()
}

// forget gives the memory back once nothing that was read is open.
func (p *past) forget() {
	p.mu.Lock()
	p.oldest, p.seen = time.Time{}, seen{}
	p.mu.Unlock()
}

// find returns the results of those rows of a group that are stored already;
// the others' are nil. who is the principal that they are submitted as: what
// another published under the same id is not theirs.
func (p *past) find(ctx context.Context, who string, group []item) ([]*perimeter.Result, error) {
	if p.broker == nil {
		return nil, nil
	}
	since, ask, unsure := time.Time{}, false, false
	for i := range group {
		if p.asks(&group[i]) {
			if at := group[i].row.Committed; since.IsZero() || at.Before(since) {
				since = at
			}
			ask, unsure = true, unsure || group[i].unsure
		}
	}
	if !ask {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.oldest.IsZero() && p.oldest.Before(since) {
		since = p.oldest
	}
	if err := p.cover(ctx, since.Add(-clockMargin), unsure); err != nil || len(p.at) == 0 {
		return nil, err
	}
	var found []*perimeter.Result
	for i := range group {
		if !p.asks(&group[i]) {
			continue
		}
		res, err := p.stored(ctx, who, group[i].row.Event)
		if err != nil {
			return nil, err
		}
		if res != nil {
			if found == nil {
				found = make([]*perimeter.Result, len(group))
			}
			found[i] = res
		}
	}
	return found, nil
}

// asks reports whether a row may have been stored before.
func (p *past) asks(it *item) bool {
	return it.row.Event != nil && it.row.Event.ID != "" && (it.unsure || it.row.Committed.Before(p.opened))
}

// cover makes sure that everything stored since then is known: up to the end
// that the streams had when it was first called, or, again, have now. Rows that
// this session submitted itself with a known outcome do not come again.
func (p *past) cover(ctx context.Context, since time.Time, again bool) error {
	if p.parts == nil {
		if err := p.ends(ctx); err != nil {
			return err
		}
	}
	if p.from.IsZero() || since.Before(p.from) {
		if err := p.reach(ctx, since); err != nil {
			return err
		}
	}
	if !again || p.at == nil {
		return nil
	}
	for i := range p.parts {
		if err := p.scan(ctx, i, p.parts[i].high, 1<<62); err != nil {
			return err
		}
	}
	return nil
}

// ends notes where the streams end.
func (p *past) ends(ctx context.Context) error {
	var parts []pastPart
	for _, s := range p.streams {
		stats, err := p.broker.Stat(ctx, s)
		if err != nil {
			return err
		}
		for _, st := range stats {
			parts = append(parts, pastPart{stream: s, number: st.Partition, low: st.Next, high: st.Next})
		}
	}
	p.parts = parts
	return nil
}

// reach covers back to a time.
func (p *past) reach(ctx context.Context, since time.Time) error {
	low := make([]uint64, len(p.parts))
	for i := range p.parts {
		var err error
		if low[i], err = p.first(ctx, &p.parts[i], since); err != nil {
			return err
		}
	}
	if p.at == nil {
		p.at = make(map[uint64]uint64)
	}
	for i := range p.parts {
		end := p.parts[i].low
		if err := p.scan(ctx, i, low[i], end); err != nil {
			return err
		}
		p.parts[i].low = low[i]
	}
	p.from = since
	return nil
}

// first returns the first offset below low that was stored at a time or later.
// Times do not fall within a partition.
func (p *past) first(ctx context.Context, part *pastPart, since time.Time) (uint64, error) {
	lo, hi := uint64(0), part.low
	for lo < hi {
		mid := lo + (hi-lo)/2
		got, err := p.broker.Browse(ctx, part.stream, headgate.Position{Partition: part.number, Offset: mid}, 1)
		switch {
		case err != nil:
			return 0, err
		case len(got) == 0 || got[0].Position.Offset >= hi:
			hi = mid
		case got[0].Time.Before(since):
			lo = got[0].Position.Offset + 1
		default:
			hi = mid
		}
	}
	return lo, nil
}

// scan remembers what lies in [from, to) of a partition. high rises to where it
// ended.
func (p *past) scan(ctx context.Context, i int, from, to uint64) error {
	part := &p.parts[i]
	for from < to {
		got, err := part.blocks.browse(ctx, p.broker, part, from, browseAtOnce)
		if err != nil {
			return err
		}
		for k := range got {
			at := got[k].Position.Offset
			if at >= to {
				break
			}
			if p.full = p.full || len(p.at) >= maxPast; !p.full {
				p.at[p.hash(got[k].Event.ID)] = uint64(i)<<48 | at&(1<<48-1)
			}
		}
		if len(got) == 0 {
			break
		}
		from = got[len(got)-1].Position.Offset + 1
	}
	part.high = max(part.high, min(from, to))
	return nil
}

func (p *past) hash(id string) uint64 { return maphash.String(p.seed, id) }

// stored returns the result of an event that a stream holds. What is remembered
// is only where to look.
func (p *past) stored(ctx context.Context, who string, e *headgate.Event) (*perimeter.Result, error) {
	at, ok := p.at[p.hash(e.ID)]
	if !ok {
		return nil, nil
	}
	part := &p.parts[at>>48]
	pos := headgate.Position{Partition: part.number, Offset: at & (1<<48 - 1)}
	have, err := part.blocks.at(ctx, p.broker, part, pos.Offset)
	if err != nil || have == nil {
		return nil, err
	}
	if have.ID != e.ID || have.Header.Principal != who || e.Source != "" && have.Source != e.Source {
		return nil, nil
	}
	return &perimeter.Result{Event: have, Stream: part.stream, Position: pos, Duplicate: true}, nil
}
