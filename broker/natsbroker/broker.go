package natsbroker

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// Broker implements [broker.Broker] on NATS JetStream. Create it with [Open].
type Broker struct {
	cfg      Config
	caps     broker.Caps
	embedded *embedded // nil with an outside server
	nc       *nats.Conn
	js       jetstream.JetStream
	disk     *disk
	writer   uint64 // tells this instance's frames from others'
	serial   atomic.Uint64
	fetchers chan *fetcher // idle ones
	damaged  atomic.Uint64
	decoded  decodedFrames

	// life ends when waiting for outcomes no longer makes sense: when Close
	// ran out of time, and at its end.
	life    context.Context
	kill    context.CancelFunc
	session session
	reach   reach // of an outside server

	ensuring sync.Mutex // held over an Ensure

	mu      sync.RWMutex
	streams map[string]*stream
	subs    map[*subscription]struct{}
	closed  bool

	calls sync.WaitGroup // publishes
	tasks sync.WaitGroup // goroutines of the driver
}

var _ broker.Broker = (*Broker)(nil)

// Open starts the embedded server or connects to an outside one. The streams
// are opened by Ensure.
func Open(ctx context.Context, cfg Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	b := &Broker{
		cfg: cfg, caps: cfg.caps(), disk: newDisk(cfg), writer: rand.Uint64(),
		fetchers: make(chan *fetcher, 8),
		streams:  map[string]*stream{},
		subs:     map[*subscription]struct{}{},
	}
	// The context of everything that outlives the call that began it; it is
	// ended by Close, never by ctx.
	b.life, b.kill = context.WithCancel(context.WithoutCancel(ctx))
	b.session.init(b.life)
	var err error
	if cfg.Dir != "" {
		if b.embedded, err = startEmbedded(cfg); err != nil {
			return nil, err
		}
	}
	if b.nc, err = connect(cfg, b.embedded, b.disconnected, b.reconnected); err != nil {
		b.shut()
		return nil, err
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		b.shut()
		return nil, unavailable(err, "JetStream cannot be used")
	}
	if b.embedded != nil {
		b.tasks.Go(b.mend)
	} else if err := b.listenForWakes(); err != nil {
		b.shut()
		return nil, err
	}
	return b, nil
}

// shared reports whether other nodes may write to the same streams.
func (b *Broker) shared() bool { return b.embedded == nil }

// Caps implements [broker.Broker].
func (b *Broker) Caps() broker.Caps { return b.caps }

// Healthy returns why events cannot be stored, or nil. Publish refuses new events
// meanwhile. It asks nobody and does not wait.
//
// Of the embedded server: its disk failed a write. What is stored can still be
// read. It passes by itself once a disk that was full has room; other faults of a
// disk last until the broker is opened anew.
//
// Of an outside server: there has been no connection for some seconds, or it
// answered no ping for some more. It passes by itself once there is one.
func (b *Broker) Healthy() error {
	if b.embedded == nil {
		return b.outsideHealth()
	}
	h := b.embedded.health.Load()
	// What failed is in the log: this goes to whoever publishes.
	switch {
	case !h.failed.Load():
		return nil
	case h.full.Load():
		return &headgate.Error{
			Code: headgate.CodeNotDurable, Detail: "the disk of the event store is full",
			Fix: "Free the disk; the node goes on by itself then, and nothing that was acknowledged is lost.",
		}
	}
	return &headgate.Error{
		Code: headgate.CodeNotDurable, Detail: "the disk of the event store failed while an event was written",
		Fix: "Mend the disk, then restart the node; nothing that was acknowledged is lost.",
	}
}

// Refuses returns why Publish refuses new events at present, or nil: what
// Healthy says, or that the disk is nearly full.
func (b *Broker) Refuses() error {
	r, _ := b.refusal()
	return r.Err
}

// refusal returns the result for every new event while none can be stored,
// and whether that is so.
func (b *Broker) refusal() (broker.Result, bool) {
	if err := b.Healthy(); err != nil {
		return broker.Result{Outcome: broker.OutcomeThrottled, Err: err}, true
	}
	return b.disk.refusal()
}

// DamagedFrames returns how many times a stored message could not be read.
func (b *Broker) DamagedFrames() uint64 { return b.damaged.Load() }

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
	go func() { b.calls.Wait(); close(drained) }()
	var err error
	select {
	case <-drained:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.kill() // what is still in flight answers Unknown
	<-drained
	for _, sub := range b.subscriptions() {
		_ = sub.Close()
	}
	b.tasks.Wait()
	b.shut()
	return err
}

// shut releases the connection and the server.
func (b *Broker) shut() {
	b.kill()
	if b.nc != nil {
		b.nc.Close()
	}
	if b.embedded != nil {
		b.embedded.stop()
	}
}

func (b *Broker) isClosed() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.closed
}

func (b *Broker) subscriptions() []*subscription {
	b.mu.RLock()
	defer b.mu.RUnlock()
	subs := make([]*subscription, 0, len(b.subs))
	for s := range b.subs {
		subs = append(subs, s)
	}
	return subs
}

// stream returns an open stream.
func (b *Broker) stream(name string) (*stream, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return nil, broker.Closed()
	}
	if s := b.streams[name]; s != nil {
		return s, nil
	}
	return nil, broker.NoStream(name)
}

func (b *Broker) partition(name string, number uint32) (*partition, error) {
	s, err := b.stream(name)
	if err != nil {
		return nil, err
	}
	if int64(number) >= int64(len(s.parts)) {
		return nil, broker.NoPartition(name, number)
	}
	return s.parts[number], nil
}

// task runs f as a goroutine that Close waits for, unless the driver is closed.
func (b *Broker) task(f func()) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.closed {
		b.tasks.Go(f)
	}
}

// report tells of a stored message that cannot be read: loudly, since data is
// lost or somebody else writes to the stream.
func (b *Broker) report(d Damage) {
	b.damaged.Add(1)
	b.cfg.Logger.Error("stored frame cannot be read", "stream", d.Stream, "partition", d.Partition, "sequence", d.Sequence, "error", d.Err)
	if b.cfg.Damaged != nil {
		b.cfg.Damaged(d)
	}
}

// Known implements [broker.Publisher]. While the window is being rebuilt after
// a start it waits for that.
func (b *Broker) Known(name, source, id string) (headgate.Position, bool) {
	s, err := b.stream(name)
	if err != nil {
		return headgate.Position{}, false
	}
	select {
	case <-s.rebuilt:
	case <-b.life.Done():
		return headgate.Position{}, false
	}
	d, now := digestOf(source, id), b.cfg.Now()
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.memory.get(d, now)
}
