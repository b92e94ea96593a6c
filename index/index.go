package index

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

// Config configures an index. Store, Broker and Topology are required; what
// else is nil is left out of the answers.
type Config struct {
	Store      store.Store
	Broker     broker.Broker
	Topology   streams     // a *topology.Table
	Router     explainer   // a *router.Router
	Causal     gauge       // a *causal.Engine
	Quarantine quarantined // a *quarantine.Quarantine
	Log        *slog.Logger
}

// streams names what there is to follow.
type streams interface{ Streams() []topology.Stream }

// explainer says what every subscription makes of an event.
type explainer interface {
	Explain(ctx context.Context, e *headgate.Event, stream string, pos headgate.Position) ([]router.State, error)
}

// gauge reads the gas of the root that an event belongs to.
type gauge interface {
	Gas(ctx context.Context, e *headgate.Event) (causal.Account, error)
}

// quarantined lists what was refused or parked.
type quarantined interface {
	List(ctx context.Context, f store.QuarantineFilter) ([]store.QuarantineRecord, error)
	Overflow(ctx context.Context) ([]store.QuarantineOverflow, error)
}

// Index is safe for concurrent use.
type Index struct {
	cfg   Config
	names []string // of the streams that are followed

	// writing is held shared by every write of rows and whole by Rebuild, so
	// that nothing read before a rebuild is written after it.
	writing sync.RWMutex

	mu      sync.Mutex
	running bool
	stop    context.CancelFunc // ends the present followers
	moved   chan struct{}      // closed when rows were written
	lost    []broker.GapError
}

// New returns an index; Run makes it follow.
func New(cfg Config) *Index {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	x := &Index{cfg: cfg, moved: make(chan struct{})}
	for _, s := range cfg.Topology.Streams() {
		if !s.NoIndex {
			x.names = append(x.names, s.Name)
		}
	}
	return x
}

// standing is where the index is in one partition.
type standing struct {
	stream string
	stat   broker.PartitionStat
	cursor uint64 // next offset to index
}

// lag is the number of stored events that the index has not seen. What was
// trimmed before it was seen is not to come.
func (s *standing) lag() uint64 {
	from := max(s.cursor, s.stat.First)
	if from >= s.stat.Next {
		return 0
	}
	return s.stat.Next - from
}

// standings reads where the index is in every partition that it follows.
func (x *Index) standings(ctx context.Context) ([]standing, error) {
	var all []standing
	for _, name := range x.names {
		stats, err := x.cfg.Broker.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, stat := range stats {
			all = append(all, standing{stream: name, stat: stat})
		}
	}
	err := x.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		for i := range all {
			var err error
			if all[i].cursor, err = tx.Index.Cursor(ctx, all[i].stream, all[i].stat.Partition); err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

// Lag returns how many stored events the index has not seen yet. Errors are
// those of the broker and the store.
func (x *Index) Lag(ctx context.Context) (uint64, error) {
	all, err := x.standings(ctx)
	var sum uint64
	for i := range all {
		sum += all[i].lag()
	}
	return sum, err
}

// waitPoll is how often Wait looks by itself: another node may follow.
const waitPoll = time.Second

// Wait returns once the index has seen everything stored before the call.
// Errors: those of the broker and the store; unavailable, saying how far the
// index is behind, when ctx ends first.
func (x *Index) Wait(ctx context.Context) error {
	targets, err := x.standings(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(waitPoll)
	defer tick.Stop()
	for {
		moved := x.signal()
		now, err := x.standings(ctx)
		if err != nil {
			return err
		}
		behind := missing(targets, now)
		if behind == 0 {
			return nil
		}
		select {
		case <-moved:
		case <-tick.C:
		case <-ctx.Done():
			return headgate.NewError(headgate.CodeUnavailable, "the index is %d events behind: %v", behind, ctx.Err())
		}
	}
}

// missing counts the events below the targets that the index has not seen.
func missing(targets, now []standing) uint64 {
	var sum uint64
	for _, target := range targets {
		for _, s := range now {
			if s.stream == target.stream && s.stat.Partition == target.stat.Partition {
				s.stat.Next = target.stat.Next
				sum += s.lag()
			}
		}
	}
	return sum
}

// signal returns a channel that is closed when rows are next written.
func (x *Index) signal() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.moved
}

func (x *Index) broadcast() {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.moved)
	x.moved = make(chan struct{})
}
