package router

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

// Config configures a router. Store, Broker, Perimeter, Causal, Quarantine,
// Topology and Principals are needed.
type Config struct {
	Store      store.Store
	Broker     broker.Broker
	Perimeter  *perimeter.Perimeter
	Causal     *causal.Engine
	Quarantine *quarantine.Quarantine
	Topology   *topology.Table
	// Leases grants the leases of deliveries. Nil: no subscription may ask for
	// them.
	Leases *lease.Service
	// Principals looks the principal of a subscription up.
	Principals Principals
	// Defaults are the limits of subscriptions that name none.
	Defaults Defaults
	// JSON returns the data of an event in Avro as JSON, for the expressions of
	// subscriptions. Nil: to them it is bytes.
	JSON     func(*headgate.Event) ([]byte, error)
	Observer *headgate.Observer // default: nobody looks
	Log      *slog.Logger       // default: nothing is logged
	Now      func() time.Time   // default time.Now
	// Random returns numbers from 0 to below 1 for the jitter of delays;
	// default math/rand/v2.
	Random func() float64
	// Buffer bounds the events in memory per subscription and partition;
	// default 1024.
	Buffer int
	// TokenLife is how long causal tokens live; default 1 hour. It must not be
	// less than that of the causal engine.
	TokenLife time.Duration
	// Drain is how long handlers may go on when Run's context ended; default
	// 30s. Then their contexts end, too, which is not an attempt, and progress
	// is saved within another 10s.
	Drain time.Duration
}

// Principals looks principals up by name.
type Principals interface {
	Get(ctx context.Context, name string) (store.Principal, error)
}

// Router is safe for concurrent use. It implements causal.Claims.
type Router struct {
	store      store.Store
	broker     broker.Broker
	streamsFor func(patterns []string) []string
	streams    func() []topology.Stream
	principals Principals
	quarantine *quarantine.Quarantine
	leases     *lease.Service
	defaults   Defaults
	json       func(*headgate.Event) ([]byte, error)
	observer   *headgate.Observer
	log        *slog.Logger
	now        func() time.Time
	random     func() float64
	newClaim   func() string
	buffer     int
	tokenLife  time.Duration
	drain      time.Duration

	prepare func(context.Context, perimeter.Submission) *perimeter.Batch
	mint    func(causal.Delivered) string
	causeOf func(causal.Delivered) *causal.Cause

	leased   leasedClaims
	pump     *pump
	feeds    feeds
	tides    chan struct{} // a feed moved
	commands chan command
	started  chan struct{} // closed once everything runs
	// starting is held by changes that find the router not running, and while
	// it begins to: what they store is loaded.
	starting   sync.Mutex
	background sync.WaitGroup // pulls that outlive their caller

	mu       sync.Mutex
	begun    bool
	running  bool
	unclean  bool // the node's last life did not drain
	subs     map[string]*sub
	handlers map[string]HandlerFunc
	lagWarn  map[partID]time.Time

	inbox      int       // events that wait between a feed and a subscription
	tideWarned time.Time // of the goroutine of tides
	went       struct{ alone, joined atomic.Int64 }

	// ackBeforeCommit breaks the order of store and memory on purpose: the
	// harness of random histories must notice.
	ackBeforeCommit bool
	// joinEarly takes in what a feed hands out before the subscription has read
	// up to there, dropWhenFull drops what does not fit into a queue: so, too.
	joinEarly, dropWhenFull bool
}

// New returns a router; Run starts it.
func New(cfg Config) (*Router, error) {
	missing := map[string]bool{
		"Store": cfg.Store == nil, "Broker": cfg.Broker == nil, "Topology": cfg.Topology == nil,
		"Principals": cfg.Principals == nil, "Quarantine": cfg.Quarantine == nil,
		"Perimeter": cfg.Perimeter == nil, "Causal": cfg.Causal == nil,
	}
	for _, name := range []string{"Store", "Broker", "Perimeter", "Causal", "Quarantine", "Topology", "Principals"} {
		if missing[name] {
			return nil, headgate.NewError(headgate.CodeInvalidConfig, "router: Config.%s is missing", name)
		}
	}
	if cfg.Buffer < 0 || cfg.Buffer > dispatchSpan/4 || cfg.TokenLife < 0 || cfg.Drain < 0 {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "router: Buffer must be 0 to %d, TokenLife and Drain not negative", dispatchSpan/4)
	}
	if err := cfg.Defaults.Validate(); err != nil {
		return nil, err
	}
	r := &Router{
		store: cfg.Store, defaults: cfg.Defaults, broker: cfg.Broker, streamsFor: cfg.Topology.StreamsFor, streams: cfg.Topology.Streams, principals: cfg.Principals,
		quarantine: cfg.Quarantine, leases: cfg.Leases, json: cfg.JSON, observer: cfg.Observer, log: cfg.Log, now: cfg.Now, random: cfg.Random,
		buffer: cfg.Buffer, tokenLife: cfg.TokenLife, drain: cfg.Drain,
		prepare: cfg.Perimeter.Prepare, mint: cfg.Causal.Mint, causeOf: cfg.Causal.CauseOf,
		commands: make(chan command), started: make(chan struct{}), newClaim: randomClaim,
		subs: map[string]*sub{}, handlers: map[string]HandlerFunc{}, lagWarn: map[partID]time.Time{},
	}
	if r.observer == nil {
		r.observer = &headgate.Observer{}
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.random == nil {
		r.random = mathrand.Float64
	}
	if r.buffer == 0 {
		r.buffer = defaultBuffer
	}
	if r.tokenLife == 0 {
		r.tokenLife = time.Hour
	}
	if r.drain == 0 {
		r.drain = 30 * time.Second
	}
	r.inbox = 2 * r.buffer
	r.feeds.byStream, r.tides = map[string]*feed{}, make(chan struct{}, 1)
	r.pump = newPump(r)
	if r.leases != nil {
		r.leases.Follow(r.leased.superseded)
	}
	return r, nil
}

// randomClaim returns 128 random bits as text.
func randomClaim() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see its documentation
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (r *Router) quarantinePut(ctx context.Context, tx *store.Tx, rec store.QuarantineRecord) error {
	return r.quarantine.Put(ctx, tx, rec)
}

func (r *Router) quarantineRecord(p quarantine.Parked) store.QuarantineRecord {
	return r.quarantine.Record(p)
}

// cleanKey is the setting that says whether the router drained.
const cleanKey = "router/clean"

// Run delivers until ctx ends, then drains: it stops reading, waits for
// in-process handlers, gives open claims up, and saves progress. It returns
// nil after a drain, and an error when it could not start or not save.
func (r *Router) Run(ctx context.Context) error {
	if err := r.begin(); err != nil {
		return err
	}
	// What commits must outlive the end of ctx until the drain is over.
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	soft, cancel := context.WithCancel(ctx)
	defer cancel()
	calls, interrupt := context.WithCancel(hard)
	defer interrupt()
	c := contexts{soft, calls, hard}
	r.feeds.life = func() context.Context { return soft }
	if err := r.start(c); err != nil {
		cancel()
		kill()
		_ = r.stopAll(hard) // the error of the start says more
		r.feeds.running.Wait()
		r.setRunning(false)
		return err
	}
	close(r.started)
	var pumping sync.WaitGroup
	pumping.Go(func() { r.pump.run(soft) })
	pumping.Go(func() { r.runTides(soft) })
	for soft.Err() == nil {
		select {
		case <-ctx.Done():
			cancel()
		case x := <-r.commands:
			x.done <- x.fn(c)
		}
	}
	r.setRunning(false)
	late, overdue := time.AfterFunc(r.drain, interrupt), time.AfterFunc(r.drain+saveTime, kill)
	defer late.Stop()
	defer overdue.Stop()
	err := r.stopAll(hard)
	r.feeds.running.Wait()
	pumping.Wait()
	if _, left := r.pump.scan(hard); left != nil {
		r.log.Warn("node outbox not emptied, it goes on at the next start", "err", left)
	}
	if err == nil && hard.Err() == nil {
		err = r.setClean(hard, true)
	}
	kill()
	r.background.Wait()
	return err
}

// begin notes that the router runs; a router runs once.
func (r *Router) begin() error {
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun {
		return headgate.NewError(headgate.CodeConflict, "the router runs, or ran, already")
	}
	r.begun, r.running = true, true
	return nil
}

// Started is closed once Run has loaded every subscription and deliveries
// flow. It is never closed when Run fails before.
func (r *Router) Started() <-chan struct{} { return r.started }

func (r *Router) setRunning(v bool) {
	r.mu.Lock()
	r.running = v
	r.mu.Unlock()
}

// saveTime is how long a drain may take to save, after the handlers' time.
const saveTime = 10 * time.Second

// contexts are those that a running router gives to its parts: soft ends when
// a drain begins, calls when handlers must come to an end, hard when it is
// over.
type contexts struct{ soft, calls, hard context.Context }

// command is a change of what runs, done by the goroutine of Run.
type command struct {
	fn   func(contexts) error
	done chan error
}

// command runs fn in Run's goroutine. It is unavailable when the router does
// not run.
func (r *Router) command(ctx context.Context, fn func(contexts) error) error {
	c := command{fn: fn, done: make(chan error, 1)}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		running := r.running
		r.mu.Unlock()
		if !running {
			return headgate.NewError(headgate.CodeUnavailable, "the router does not run")
		}
		select {
		case r.commands <- c:
			return <-c.done
		case <-tick.C: // it may have ended meanwhile
		case <-ctx.Done():
			return headgate.NewError(headgate.CodeCanceled, "the caller went away: %v", ctx.Err())
		}
	}
}

func (r *Router) isRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// start loads all subscriptions and starts them.
func (r *Router) start(c contexts) error {
	var rows []store.Subscription
	clean := true
	err := r.store.View(c.soft, func(ctx context.Context, tx *store.Tx) (err error) {
		if rows, err = tx.Subscriptions.List(ctx); err != nil {
			return err
		}
		v, err := tx.Settings.Get(ctx, cleanKey)
		if headgate.CodeOf(err) == headgate.CodeNotFound {
			return nil // never ran: nothing was dispatched
		}
		clean = len(v) == 1 && v[0] == 1
		return err
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.unclean = !clean
	r.mu.Unlock()
	if err := r.setClean(c.soft, false); err != nil {
		return err
	}
	if !clean {
		r.endLeftLeases(c.soft)
	}
	subs := make([]*sub, 0, len(rows))
	for _, row := range rows {
		s, err := r.startSub(c, row, !clean)
		if err != nil {
			return err
		}
		subs = append(subs, s)
	}
	r.attachAll(c.soft, subs...)
	return nil
}

func (r *Router) setClean(ctx context.Context, clean bool) error {
	v := []byte{0}
	if clean {
		v[0] = 1
	}
	return r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return tx.Settings.Put(ctx, cleanKey, v) })
}

// stopAll drains every subscription.
func (r *Router) stopAll(ctx context.Context) error {
	r.mu.Lock()
	subs := r.subs
	r.subs = map[string]*sub{}
	r.mu.Unlock()
	var wg sync.WaitGroup
	errs := make(chan error, len(subs))
	for _, s := range subs {
		wg.Go(func() { errs <- s.close(ctx) })
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// sub returns a running subscription, or nil.
func (r *Router) sub(name string) *sub {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.subs[name]
}

// enter is open for a caller that Run waits for; it calls background.Done.
func (r *Router) enter(ctx context.Context, name string) (*sub, error) {
	s, err := r.open(ctx, name)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		return nil, headgate.NewError(headgate.CodeDraining, "the router is stopping")
	}
	r.background.Add(1)
	return s, nil
}

// open returns a running subscription, or the error for a caller. One that is
// there but does not run (the node is starting, a change is being made) is
// unavailable: not_found would make its consumers give up.
func (r *Router) open(ctx context.Context, name string) (*sub, error) {
	r.mu.Lock()
	s, running := r.subs[name], r.running
	r.mu.Unlock()
	switch {
	case s != nil:
		return s, nil
	case !running:
		return nil, headgate.NewError(headgate.CodeUnavailable, "the router does not run")
	}
	_, err := r.stored(ctx, name)
	switch {
	case headgate.CodeOf(err) == headgate.CodeNotFound:
		return nil, headgate.NewError(headgate.CodeNotFound, "no subscription %.100q", name)
	case err != nil:
		return nil, err
	}
	return nil, &headgate.Error{
		Code: headgate.CodeUnavailable, Detail: "subscription " + name + " does not run at the moment: it is being started or changed",
		Fix: "Ask again in a moment.",
	}
}
