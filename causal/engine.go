package causal

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// GrantSize is how many units of gas the admitting node holds of each root
// without asking the store, the root event itself included.
const GrantSize = 16

// The limits of an event type that names none.
const (
	DefaultTTL     = 16
	DefaultGas     = 1000
	DefaultBreadth = 64
	DefaultRepeats = 4
)

// Config configures an engine. Only Store is required.
type Config struct {
	Store store.Store
	Now   func() time.Time // default time.Now
	// Rand is where keys and the boot's name come from; default crypto/rand.
	Rand io.Reader
	// Log takes what Run could not do; default: nowhere.
	Log *slog.Logger
	// Claims says whether a delivery's claim was taken over. Default: never.
	Claims Claims
	// TokenLife is how long tokens live; default 1 hour.
	TokenLife time.Duration
	// KeyLife is how long Run lets one key sign before it adds the next;
	// default 24 hours.
	KeyLife time.Duration
	// RootLife is how long after its admission a root may have further events;
	// default 30 days. It must exceed the retention of streams and quarantine
	// together.
	// Accounts of gas are kept for twice as long.
	RootLife time.Duration
	// RootRate is the rate of roots of a principal that names none; default
	// 100 a second, burst 200.
	RootRate headgate.RootRight
}

// Claims is asked whether a newer claim superseded an attempt of a delivery.
type Claims interface {
	Superseded(subscription, stream string, pos headgate.Position, attempt int) bool
}

// Engine judges causes. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	ring    atomic.Pointer[ring]
	claims  atomic.Pointer[Claims]
	ledger  *ledger
	breadth *breadthTable
	rates   *rateTable
	pairs   *pairNames
	scratch sync.Pool // *scratch
}

// Open loads (or creates) the token keys and starts a new boot of this node:
// grants of earlier boots are spent. Errors are those of the store, and
// invalid_config.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.Store == nil {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "causal: Store is required")
	}
	if cfg.TokenLife < 0 || cfg.KeyLife < 0 || cfg.RootLife < 0 {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "causal: TokenLife, KeyLife and RootLife must not be negative")
	}
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg:     cfg,
		breadth: newBreadthTable(cfg.TokenLife),
		rates:   newRateTable(cfg.RootRate),
		pairs:   newPairNames(),
	}
	e.scratch.New = func() any { return new(scratch) }
	if cfg.Claims != nil {
		e.claims.Store(&cfg.Claims)
	}
	var boot [8]byte
	if _, err := io.ReadFull(cfg.Rand, boot[:]); err != nil {
		return nil, headgate.NewError(headgate.CodeInternal, "no randomness for the boot: %v", err)
	}
	e.ledger = newLedger(cfg.Store, cfg.Now, binary.BigEndian.Uint64(boot[:]))
	if err := e.openKeys(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.TokenLife == 0 {
		c.TokenLife = time.Hour
	}
	if c.KeyLife == 0 {
		c.KeyLife = 24 * time.Hour
	}
	if c.RootLife == 0 {
		c.RootLife = 30 * 24 * time.Hour
	}
	if !(c.RootRate.Rate > 0) { // NaN too
		c.RootRate.Rate = 100
	}
	if c.RootRate.Burst <= 0 {
		c.RootRate.Burst = burstFor(c.RootRate.Rate)
	}
	return c
}

// SetClaims names who knows claims, in place of Config.Claims: the router needs
// the engine before the engine can need the router.
func (e *Engine) SetClaims(c Claims) {
	if c == nil {
		e.claims.Store(nil)
		return
	}
	e.claims.Store(&c)
}

// How often Run looks for new keys and for accounts that are past use.
const (
	keyRefresh  = 15 * time.Second
	pruneEvery  = time.Hour
	pruneAtOnce = 1000
)

// Run follows the keys that other nodes add, adds one when the newest has
// signed for Config.KeyLife, and deletes accounts of gas that no event can need
// any more. It returns when ctx ends. What it cannot do it logs and tries
// again: until then the engine works with what it has.
func (e *Engine) Run(ctx context.Context) error {
	tick := time.NewTicker(keyRefresh)
	defer tick.Stop()
	var pruned time.Time
	for {
		if err := e.tend(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("causal keys are not refreshed", "error", err)
		}
		if now := e.cfg.Now(); now.Sub(pruned) >= pruneEvery {
			pruned = now
			if err := e.prune(ctx, now); err != nil && ctx.Err() == nil {
				e.cfg.Log.Warn("old accounts of gas are not deleted", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// tend refreshes the keys and rotates when it is time.
func (e *Engine) tend(ctx context.Context) error {
	if err := e.refreshKeys(ctx); err != nil {
		return err
	}
	if e.cfg.Now().Sub(e.ring.Load().newest().created) < e.cfg.KeyLife {
		return nil
	}
	return e.Rotate(ctx)
}

// prune deletes accounts that were last touched two root lives ago. Their roots
// are at least as old, so Reserve refuses further events whatever the account
// says: opening one anew cannot make gas. The second life is a margin for
// clocks that differ.
func (e *Engine) prune(ctx context.Context, now time.Time) error {
	for {
		n := 0
		err := e.cfg.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
			var err error
			n, err = tx.Gas.Prune(ctx, now.Add(-e.cfg.RootLife).Add(-e.cfg.RootLife), pruneAtOnce)
			return err
		})
		if err != nil || n < pruneAtOnce {
			return err
		}
	}
}
