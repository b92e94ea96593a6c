package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	names "github.com/headgate/headgate/internal/resource"
	"github.com/headgate/headgate/store"
)

// Defaults and bounds of a [Config] and of calls.
const (
	DefaultTTL   = 30 * time.Second
	MinTTL       = 100 * time.Millisecond
	MaxTTL       = time.Hour
	MaxWait      = time.Minute
	MaxHold      = 7 * 24 * time.Hour
	MaxResources = 64 // of one call
	// pollEvery is how often the first waiting call looks at a lease that
	// another node may have changed.
	pollEvery = 250 * time.Millisecond
)

// Config configures a service. Store is required; zero fields mean the
// defaults.
type Config struct {
	Store store.Store
	Log   *slog.Logger // default: none
	Rand  io.Reader    // of nonces and keys; default crypto/rand
	// Waiters bounds the calls that wait at once; default 10,000.
	Waiters int
	// PrincipalWaiters bounds those of one principal; default 1,000.
	PrincipalWaiters int
	// Seal are the targets that Request.Seal may name.
	Seal map[string]Target
	// May returns why no lease can be granted at present, nil when one can. It is
	// asked within the transaction of every grant, and must not block. What was
	// granted before is renewed, repeated and released all the same. Nil: always.
	May func() error
	// Superseded bounds the resources whose latest epoch is remembered;
	// default 65,536.
	Superseded int
}

// Service grants leases. It is safe for concurrent use.
type Service struct {
	cfg       Config
	ring      atomic.Pointer[ring]
	refreshed atomic.Int64
	seen      seen
	stats     Stats
	queue     queue
	watch     watchers
	follower  atomic.Pointer[func(resource string, epoch int64)]
	revoking  revocations
	sealing   sealings
	endings   endings
	randMu    sync.Mutex
	without   string // predicates of the guard that tests took out
}

// Stats counts what happened since the service was opened.
type Stats struct {
	Granted, Takeovers, Renewed, Late, Released, Revoked, Stale, Expired atomic.Uint64
}

// Stats returns the counters, which go on.
func (s *Service) Stats() *Stats { return &s.stats }

// Waiting returns how many calls wait for a lease.
func (s *Service) Waiting() int { return s.queue.len() }

// Open returns a service over a store, and makes the first key of a new one.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "lease: Config.Store is missing")
	}
	if cfg.Waiters < 0 || cfg.PrincipalWaiters < 0 || cfg.Superseded < 0 {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "lease: a bound is negative")
	}
	for name, target := range cfg.Seal {
		if !ValidTarget(name) || target.Seal == nil || target.Audience != "" && !ValidTarget(target.Audience) {
			return nil, headgate.NewError(headgate.CodeInvalidConfig, "lease: the target %.80q is no target", name)
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	cfg.Waiters = cmp.Or(cfg.Waiters, 10_000)
	cfg.PrincipalWaiters = cmp.Or(cfg.PrincipalWaiters, 1000)
	cfg.Superseded = cmp.Or(cfg.Superseded, 1<<16)
	s := &Service{cfg: cfg}
	s.endings.queues = newEndQueues(cfg.Seal)
	s.seen.limit = int64(cfg.Superseded)
	s.queue.init(cfg.Waiters, cfg.PrincipalWaiters)
	if err := s.openKeys(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Follow makes tell be called after every grant and every end of a lease that
// this node commits, with the epoch from below which everything is superseded.
// It must not block. There is one follower: who hands out work under leases.
func (s *Service) Follow(tell func(resource string, epoch int64)) { s.follower.Store(&tell) }

// Run keeps the keys fresh, and the memory of request ids small, and tells the
// targets of sealed leases of their ends, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	if len(s.cfg.Seal) > 0 {
		all.Go(func() { s.followEnds(ctx) })
		all.Go(func() { s.tellEnds(ctx) })
	}
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.forget(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("old request ids of leases not deleted, trying again", "error", err)
		}
		if err := s.refreshKeys(ctx); err == nil {
			err = s.Rotate(ctx, false)
			if err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("lease key not rotated, trying again", "error", err)
			}
		}
	}
}

// State is a lease as anybody may see it: without its nonce.
type State struct {
	Resource string
	Epoch    int64
	Holder   string // empty: nobody holds it
	Worker   string
	TTL      time.Duration
	// ExpiresIn is what is left; 0 or less when it has run out and nobody has
	// taken it since.
	ExpiresIn time.Duration
	HeldFor   time.Duration
	Closing   bool
	Audience  []string
}

// Held reports whether somebody holds the lease and it has not run out.
func (s *State) Held() bool { return s.Holder != "" && s.ExpiresIn > 0 }

func stateOf(l *store.Lease, now time.Time) State {
	st := State{Resource: l.Resource, Epoch: l.Epoch, Holder: l.Holder, Worker: l.Worker, Closing: l.Closing, Audience: l.Audience}
	if l.Holder != "" {
		st.TTL, st.ExpiresIn, st.HeldFor = l.TTL, l.Expires.Sub(now), now.Sub(l.Acquired)
	}
	return st
}

// Get returns the state of a lease, or not_found when the resource was never
// leased.
func (s *Service) Get(ctx context.Context, resource string) (State, error) {
	if err := checkResource(resource); err != nil {
		return State{}, err
	}
	l, now, err := s.look(ctx, resource)
	if err != nil {
		return State{}, err
	}
	return stateOf(&l, now), nil
}

// look reads a row and the clock.
func (s *Service) look(ctx context.Context, resource string) (l store.Lease, now time.Time, err error) {
	err = s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if l, err = tx.Leases.Get(ctx, resource); err != nil {
			return err
		}
		now, err = tx.Leases.Now(ctx)
		return err
	})
	if err == nil {
		s.seen.raise(l.Resource, l.Epoch)
	}
	return l, now, err
}

// Filter selects leases.
type Filter struct {
	Prefix string // of the resource
	After  string // resources above this one
	Held   bool   // only those that somebody holds, by the store's clock
	Limit  int    // default 100, at most 1000
}

// List returns leases, ordered by resource.
func (s *Service) List(ctx context.Context, f Filter) ([]State, error) {
	var out []State
	err := s.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Leases.Now(ctx)
		if err != nil {
			return err
		}
		by := store.LeaseFilter{Prefix: f.Prefix, After: f.After, Limit: f.Limit}
		if f.Held {
			by.HeldAt = now
		}
		rows, err := tx.Leases.List(ctx, by)
		out = make([]State, len(rows))
		for i := range rows {
			out[i] = stateOf(&rows[i], now)
		}
		return err
	})
	return out, err
}

func checkResource(resource string) *headgate.Error {
	if fault := names.Fault(resource); fault != "" {
		return headgate.NewError(headgate.CodeInvalidArgument, "This names no resource: %s.", fault)
	}
	return nil
}

// mayHold checks the right to lease.
func mayHold(p *headgate.Principal, resource string) *headgate.Error {
	if p == nil {
		return headgate.NewError(headgate.CodeUnauthenticated, "no principal")
	}
	if !p.MayLease(resource) {
		return &headgate.Error{
			Code: headgate.CodeForbidden, Detail: "The principal may not lease this resource.",
			Fix: "Ask an administrator to add the resource to the principal's lease patterns.",
		}
	}
	return nil
}

// nextEpoch is above every epoch that was ever given for the row, and, by the
// clock, above those that a restored store has forgotten.
func nextEpoch(previous int64, now time.Time) int64 {
	return max(previous+1, now.UnixMicro())
}
