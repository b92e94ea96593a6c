package membroker

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/eventcodec"
)

// Defaults of [Config].
const (
	DefaultMaxEventBytes = 1 << 20
	DefaultDedupeWindow  = 10 * time.Minute
	DefaultDedupeIDs     = 1 << 20
)

// Config describes a broker in memory. The zero value is useful.
type Config struct {
	MaxEventBytes int           // default 1 MiB, of the encoded event
	DedupeWindow  time.Duration // default 10 minutes
	DedupeIDs     int           // ids remembered per stream at least; default 1,048,576
	// Now is the clock behind Stored.Time and the dedupe window; default
	// time.Now.
	Now func() time.Time
	// Faults makes the broker misbehave; nil means it never does.
	Faults *Faults
}

// Broker implements [broker.Broker] in memory. Create it with [New].
type Broker struct {
	cfg    Config
	faults *dice

	mu      sync.Mutex
	owned   broker.Ownership
	streams map[string]*stream
	subs    map[*subscription]struct{}
	closed  bool
	closing chan struct{}  // closed by Close
	crash   chan struct{}  // closed and replaced by Crash
	flights sync.WaitGroup // publishes
}

var _ broker.Broker = (*Broker)(nil)

// New returns an empty broker.
func New(cfg Config) *Broker {
	if cfg.MaxEventBytes <= 0 {
		cfg.MaxEventBytes = DefaultMaxEventBytes
	}
	if cfg.DedupeWindow <= 0 {
		cfg.DedupeWindow = DefaultDedupeWindow
	}
	if cfg.DedupeIDs <= 0 {
		cfg.DedupeIDs = DefaultDedupeIDs
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Broker{
		cfg:     cfg,
		faults:  newDice(cfg.Faults),
		streams: map[string]*stream{},
		subs:    map[*subscription]struct{}{},
		closing: make(chan struct{}),
		crash:   make(chan struct{}),
	}
}

// Caps implements [broker.Broker].
func (b *Broker) Caps() broker.Caps {
	return broker.Caps{
		Durability:    broker.DurabilityMemory,
		Words:         "events are kept in memory and are gone when the process ends",
		MaxEventBytes: b.cfg.MaxEventBytes,
		DedupeWindow:  b.cfg.DedupeWindow,
		DedupeIDs:     b.cfg.DedupeIDs,
	}
}

// Own implements [broker.Broker].
func (b *Broker) Own(ctx context.Context, owner, from string) (broker.Ownership, error) {
	if owner != "" && !broker.ValidOwner(owner) {
		return broker.Ownership{}, broker.BadOwner()
	}
	if err := ctx.Err(); err != nil {
		return broker.Ownership{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return broker.Ownership{}, broker.Closed()
	case owner == "" || owner == b.owned.Owner:
		return b.owned, nil
	case b.owned.Owner != "" && b.owned.Owner != from:
		return b.owned, broker.Foreign(b.owned)
	}
	b.owned = broker.Ownership{Owner: owner, Since: b.cfg.Now().UTC()}
	return b.owned, nil
}

// Ensure implements [broker.Broker].
func (b *Broker) Ensure(ctx context.Context, specs []broker.StreamSpec) ([]broker.Drift, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, spec := range specs {
		if err := spec.Validate(); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, broker.Closed()
	}
	var drift []broker.Drift
	for _, spec := range specs {
		spec = spec.WithDefaults()
		s := b.streams[spec.Name]
		if s == nil {
			b.streams[spec.Name] = newStream(spec)
			continue
		}
		drift = append(drift, broker.Compare(spec, s.spec)...)
	}
	return drift, nil
}

// Stat implements [broker.Broker].
func (b *Broker) Stat(ctx context.Context, name string) ([]broker.PartitionStat, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.stream(ctx, name)
	if err != nil {
		return nil, err
	}
	stats := make([]broker.PartitionStat, len(s.parts))
	for i, p := range s.parts {
		stats[i] = broker.PartitionStat{Partition: uint32(i), First: p.first, Next: p.next(), Bytes: p.bytes}
		if len(p.log) > 0 {
			stats[i].FirstTime = p.log[0].Time
		}
	}
	return stats, nil
}

// Trim implements [broker.Broker]. It removes exactly what is below.
func (b *Broker) Trim(ctx context.Context, name string, partition uint32, below uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.stream(ctx, name)
	if err != nil {
		return err
	}
	if int64(partition) >= int64(len(s.parts)) {
		return broker.NoPartition(name, partition)
	}
	s.parts[partition].trim(below)
	return nil
}

// Known implements [broker.Publisher].
func (b *Broker) Known(name, source, id string) (headgate.Position, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.streams[name]
	if s == nil {
		return headgate.Position{}, false
	}
	return s.known.get(ident{source, id}, b.cfg.Now(), b.cfg.DedupeWindow)
}

// Browse implements [broker.Subscriber].
func (b *Broker) Browse(ctx context.Context, name string, from headgate.Position, limit int) ([]broker.Stored, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.stream(ctx, name)
	if err != nil {
		return nil, err
	}
	if int64(from.Partition) >= int64(len(s.parts)) {
		return nil, broker.NoPartition(name, from.Partition)
	}
	return s.parts[from.Partition].read(from.Offset, max(0, limit)), nil
}

// Close implements [broker.Broker].
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	drained := make(chan struct{})
	go func() { b.flights.Wait(); close(drained) }()
	var err error
	select {
	case <-drained:
	case <-ctx.Done():
		err = ctx.Err()
	}
	close(b.closing) // what is still in flight answers Unknown
	<-drained
	for _, sub := range b.subscriptions() {
		_ = sub.Close()
	}
	return err
}

// Crash ends every subscription and every publish in flight, as a broken
// connection to a broker would; what was stored stays, and the broker is
// usable at once.
func (b *Broker) Crash() {
	b.mu.Lock()
	close(b.crash)
	b.crash = make(chan struct{})
	b.mu.Unlock()
	for _, sub := range b.subscriptions() {
		sub.end(errCrashed)
	}
}

func (b *Broker) subscriptions() []*subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	return subs
}

// stream returns the named stream. The caller holds the lock.
func (b *Broker) stream(ctx context.Context, name string) (*stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.closed {
		return nil, broker.Closed()
	}
	if s := b.streams[name]; s != nil {
		return s, nil
	}
	return nil, broker.NoStream(name)
}

func size(e *headgate.Event) int { return len(eventcodec.Append(nil, e)) }

// Damage makes a stored event unreadable, as a damaged disk does. Readers step
// over it with a [broker.GapError].
func (b *Broker) Damage(ctx context.Context, stream string, pos headgate.Position) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.stream(ctx, stream)
	if err != nil {
		return err
	}
	if int(pos.Partition) >= len(s.parts) {
		return broker.NoPartition(stream, pos.Partition)
	}
	p := s.parts[pos.Partition]
	if p.damaged == nil {
		p.damaged = map[uint64]bool{}
	}
	p.damaged[pos.Offset] = true
	return nil
}
