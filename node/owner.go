package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/store"
)

const (
	// ownEvery is how often a running node asks whether the broker's streams
	// are still its store's.
	ownEvery = 2 * time.Second
	// ownPatience bounds one question.
	ownPatience = 10 * time.Second
	// ownStale is how long it may go without an answer before doctor says so.
	ownStale = 30 * time.Second
)

// StreamOwner says whose the streams of a configured broker are.
type StreamOwner struct {
	Streams broker.Ownership // Owner empty: nobody's yet
	Store   string           // identity of the configured store
}

// OwnerOfStreams opens the configured store and broker, without a node on them,
// and returns whose the broker's streams are. With adopt they are the store's
// afterwards, and Streams is whose they were.
func OwnerOfStreams(ctx context.Context, cfg *Loaded, opts Options, adopt bool) (o StreamOwner, err error) {
	if problems := cfg.Validate(); len(problems) > 0 {
		return o, configError(problems)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	n := &Node{cfg: cfg, log: opts.Log}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	if err := n.openStore(ctx, opts); err != nil {
		return o, err
	}
	if n.Broker, err = cfg.openBroker(ctx, opts); err != nil {
		return o, err
	}
	if o.Store, err = store.Identity(ctx, n.Store); err != nil {
		return o, err
	}
	if o.Streams, err = n.Broker.Own(ctx, "", ""); err != nil || !adopt || o.Ours() {
		return o, err
	}
	_, err = n.Broker.Own(ctx, o.Store, o.Streams.Owner)
	return o, err
}

// Ours reports whether the streams are the store's.
func (o *StreamOwner) Ours() bool { return sameStore(o.Streams.Owner, o.Store) }

// An owner is the identity of a store. Where only one node at a time may have a
// store open, it is that and a run of a node: of two copies of such a store,
// whose identity is one, the node that started later has the streams, and the
// other ends.
const runSeparator = "-"

// sameStore reports whether an owner is a store, or a run on it.
func sameStore(owner, id string) bool {
	rest, ok := strings.CutPrefix(owner, id)
	return ok && (rest == "" || strings.HasPrefix(rest, runSeparator))
}

// OwnerOfOutside asks an outside broker whose its streams are, and opens no
// store; asked is false when there is none, or it could not be asked.
func OwnerOfOutside(ctx context.Context, cfg *Loaded, opts Options) (o broker.Ownership, asked bool) {
	if cfg.Broker.URL == "" {
		return o, false
	}
	b, err := cfg.openBroker(ctx, opts)
	if err != nil {
		return o, false
	}
	o, err = b.Own(ctx, "", "")
	return o, errors.Join(err, b.Close(context.WithoutCancel(ctx))) == nil
}

// openBroker opens the configured broker.
func (l *Loaded) openBroker(ctx context.Context, opts Options) (broker.Broker, error) {
	_, open, err := l.brokerDriver(opts)
	if err != nil {
		return nil, err
	}
	o, err := l.brokerOptions(opts)
	if err != nil {
		return nil, err
	}
	opened, err := open(ctx, o)
	if err != nil {
		return nil, err // as in openStore
	}
	return opened, nil
}

func (l *Loaded) brokerDriver(opts Options) (name string, open func(context.Context, BrokerOptions) (broker.Broker, error), err error) {
	name = cmp.Or(l.Broker.Driver, "nats")
	if l.Memory {
		name = cmp.Or(l.Broker.Driver, "memory")
	}
	open, err = pick(opts.Drivers.Brokers, name, "", "broker")
	return name, open, err
}

func (l *Loaded) brokerOptions(opts Options) (BrokerOptions, error) {
	url, err := l.Broker.URL.Resolve()
	if err != nil {
		return BrokerOptions{}, headgate.NewError(headgate.CodeInvalidConfig, "broker.url: %v", err)
	}
	return BrokerOptions{
		Dir: filepath.Join(l.dataDir(), "broker"), URL: url, Credentials: l.Broker.Credentials, Prefix: l.Broker.Prefix,
		Replicas: l.Broker.Replicas, Relaxed: l.Durability == "relaxed", Log: opts.Log,
		MaxEventBytes: l.maxEventBytes(),
	}, nil
}

// owned is what a running node knows of its right to the streams.
type owned struct {
	store   string // identity
	owner   string // of the streams while this node runs
	checked atomic.Pointer[time.Time]
}

// ownStreams makes the broker's streams this store's, or fails: leases, gas and
// progress of another store say nothing here, so that two would each hand out,
// lease and charge by themselves.
func (n *Node) ownStreams(ctx context.Context) error {
	var err error
	if n.owned.store, err = store.Identity(ctx, n.Store); err != nil {
		return err
	}
	if n.owned.owner = n.owned.store; !n.Store.Info().Shared {
		n.owned.owner += runSeparator + rand.Text()
	}
	have, err := n.Broker.Own(ctx, "", "")
	if err != nil {
		return err
	}
	from := ""
	if sameStore(have.Owner, n.owned.store) {
		from = have.Owner // of a run before
	}
	return n.checkOwner(ctx, from)
}

func (n *Node) checkOwner(ctx context.Context, from string) error {
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	have, err := n.Broker.Own(ctx, n.owned.owner, from)
	if e := headgate.AsError(err); e != nil && e.Code == headgate.CodeStreamsForeign {
		if sameStore(have.Owner, n.owned.store) {
			e.Detail = "a node with a copy of this store took the streams at " + have.Since.UTC().Format(time.RFC3339)
			e.Fix = "Run one node on this store, and never two copies of a store: their leases and budgets say nothing to each other."
		} else {
			e.Detail += "; this node's store is " + n.owned.store
		}
		return e
	}
	if err == nil {
		now := time.Now()
		n.owned.checked.Store(&now)
	}
	return err
}

// keepStreams asks again and again, and returns once the streams are another
// store's. A broker that does not answer takes no events either.
func (n *Node) keepStreams(ctx context.Context) error {
	tick := time.NewTicker(ownEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := n.checkOwner(ctx, ""); headgate.CodeOf(err) == headgate.CodeStreamsForeign {
			return err
		}
	}
}

// ownerFindings say for how long nobody answered whose the streams are.
func (n *Node) ownerFindings() []api.Finding {
	at := n.owned.checked.Load()
	if at == nil || time.Since(*at) < ownStale {
		return nil
	}
	return []api.Finding{{
		Severity: "warning", What: "The broker was last heard to say whose its streams are at " + at.UTC().Format(time.RFC3339) + ".",
		Fix: "Until it answers again another store may have adopted them, and leases may be granted by both.",
	}}
}
