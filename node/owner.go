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
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/store"
)

const (
	// ownEvery is how often a running node asks whether the broker's streams
	// are still its store's.
	ownEvery = 2 * time.Second
	// ownPatience bounds one question.
	ownPatience = 10 * time.Second
	// ownStale is how long it may go without an answer before doctor says so and
	// no new leases are granted: as long as a lease lasts.
	ownStale = lease.DefaultTTL
)

// StreamOwner says whose the streams of a configured broker are.
type StreamOwner struct {
	Streams broker.Ownership // Owner empty: nobody's yet
	Store   string           // the configured store, as it would own them
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
	if o.Store, err = ownerName(ctx, n.Store); err != nil {
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

// An owner is the identity of a store and, where that can be told, the place
// where it is: a copy elsewhere, such as a restored dump beside its origin, has
// the same identity and another place. Where only one node at a time may have a
// store open, a run of a node comes behind: of two copies that are told apart by
// nothing else, the node that started later has the streams, and the other ends.
const (
	placeSeparator = "_"
	runSeparator   = "-"
)

// ownerName is what a store owns streams as, without a run.
func ownerName(ctx context.Context, st store.Store) (string, error) {
	id, err := store.Identity(ctx, st)
	if place := st.Info().Place; err == nil && place != "" {
		id += placeSeparator + place
	}
	return id, err
}

// parts are what an owner consists of.
func parts(owner string) (id, place string) {
	name, _, _ := strings.Cut(owner, runSeparator)
	id, place, _ = strings.Cut(name, placeSeparator)
	return id, place
}

// sameStore reports whether two owners are one store, or runs on it. One that
// says nothing of its place may be anywhere.
func sameStore(a, b string) bool {
	idA, placeA := parts(a)
	idB, placeB := parts(b)
	return idA == idB && (placeA == "" || placeB == "" || placeA == placeB)
}

// copies reports whether two owners are copies of one store in different places.
func copies(a, b string) bool {
	idA, _ := parts(a)
	idB, _ := parts(b)
	return idA == idB && !sameStore(a, b)
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
		return nil, l.refusedAt(urlOf("broker", l.Broker.URL), err) // as in openStore
	}
	return opened, nil
}

func (l *Loaded) brokerDriver(opts Options) (name string, open func(context.Context, BrokerOptions) (broker.Broker, error), err error) {
	name = cmp.Or(l.Broker.Driver, "nats")
	if l.Memory {
		name = cmp.Or(l.Broker.Driver, "memory")
	}
	open, err = pick(opts.Drivers.Brokers, name, "", "broker.driver")
	return name, open, err
}

func (l *Loaded) brokerOptions(opts Options) (BrokerOptions, error) {
	url, err := l.Broker.URL.Resolve()
	if err != nil {
		return BrokerOptions{}, l.at("broker.url", err)
	}
	if file := l.Broker.Credentials; file != "" && url != "" {
		if _, err := Secret("file:" + file).Resolve(); err != nil {
			return BrokerOptions{}, l.at("broker.credentials", err)
		}
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
	name    string // as which the store owns them
	owner   string // of the streams while this node runs
	keeping atomic.Bool
	lost    atomic.Bool               // to another store
	checked atomic.Pointer[time.Time] // when the last answered question was asked
}

// ownStreams makes the broker's streams this store's, or fails: leases, gas and
// progress of another store say nothing here, so that two would each hand out,
// lease and charge by themselves.
func (n *Node) ownStreams(ctx context.Context) error {
	var err error
	if n.owned.store, err = store.Identity(ctx, n.Store); err != nil {
		return err
	}
	if n.owned.name, err = ownerName(ctx, n.Store); err != nil {
		return err
	}
	if n.owned.owner = n.owned.name; !n.Store.Info().Shared {
		n.owned.owner += runSeparator + rand.Text()
	}
	have, err := n.Broker.Own(ctx, "", "")
	if err != nil {
		return err
	}
	from := ""
	if sameStore(have.Owner, n.owned.name) {
		from = have.Owner // of a run before, or of an earlier version
	}
	return n.checkOwner(ctx, from)
}

func (n *Node) checkOwner(ctx context.Context, from string) error {
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	asked := time.Now()
	have, err := n.Broker.Own(ctx, n.owned.owner, from)
	if e := headgate.AsError(err); e != nil && e.Code == headgate.CodeStreamsForeign {
		return n.foreign(e, have)
	}
	if err == nil {
		n.owned.checked.Store(&asked)
	}
	return err
}

// foreign says more of streams that are another's.
func (n *Node) foreign(e *headgate.Error, have broker.Ownership) error {
	switch {
	case copies(have.Owner, n.owned.name):
		e.Detail = "the streams belong to a copy of this store elsewhere, " + have.Owner + ", since " + have.Since.UTC().Format(time.RFC3339) +
			"; this one is " + n.owned.name
		e.Fix = "Run nodes on one of the copies only: their leases and budgets say nothing to each other. When this one is to follow the other, " +
			"which it was restored or moved from, stop the other's nodes, then run headgate broker adopt."
	case sameStore(have.Owner, n.owned.name):
		e.Detail = "another node of this store, or of a copy of it, took the streams at " + have.Since.UTC().Format(time.RFC3339)
		e.Fix = "Run one node on this store, and never two copies of a store: their leases and budgets say nothing to each other."
	default:
		e.Detail += "; this node's store is " + n.owned.name
	}
	return e
}

// keepStreams asks again and again, and returns once the streams are another
// store's. A broker that does not answer takes no events either.
func (n *Node) keepStreams(ctx context.Context) error {
	n.owned.keeping.Store(true)
	defer n.owned.keeping.Store(false)
	tick := time.NewTicker(ownEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := n.checkOwner(ctx, ""); headgate.CodeOf(err) == headgate.CodeStreamsForeign {
			n.owned.lost.Store(true)
			return err
		}
	}
}

// unheard returns since when nobody has said whose the streams are, and whether
// that is too long.
func (o *owned) unheard() (since time.Time, long bool) {
	at := o.checked.Load()
	if at == nil {
		return time.Time{}, false
	}
	return *at, time.Since(*at) > ownStale
}

// mayGrant refuses new leases once the streams are another store's, and while it
// is unknown for too long whose they are: a store that adopted them would grant the same ones. Those that stand are
// renewed: a broker that is away must not end what others do meanwhile.
func (n *Node) mayGrant() error {
	if n.owned.lost.Load() { // while the node ends
		return headgate.NewError(headgate.CodeUnavailable, "the broker's streams are another store's, which grants this lease from now on")
	}
	since, long := n.owned.unheard()
	if !long || !n.owned.keeping.Load() {
		return nil
	}
	return &headgate.Error{
		Code: headgate.CodeUnavailable, RetryAfter: ownEvery,
		Detail: "the broker was last heard to say whose its streams are at " + since.UTC().Format(time.RFC3339) + ": another store may grant this lease by now",
	}
}

// ownerFindings say for how long nobody answered whose the streams are.
func (n *Node) ownerFindings() []api.Finding {
	since, long := n.owned.unheard()
	if !long {
		return nil
	}
	return []api.Finding{{
		Severity: "warning", What: "The broker was last heard to say whose its streams are at " + since.UTC().Format(time.RFC3339) + ". No new leases are granted.",
		Fix: "Until it answers again another store may have adopted them. Leases that stand can be renewed: revoke them if it has.",
	}}
}
