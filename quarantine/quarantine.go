package quarantine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Defaults of Config.
const (
	DefaultRetain       = 14 * 24 * time.Hour
	DefaultRefusalQuota = 1000
	DefaultRefusalBytes = 32 << 20
	DefaultBodyMax      = 1 << 20
	DefaultMaxRecords   = 1_000_000
	DefaultRefusalWait  = 250 * time.Millisecond
)

// Config configures a quarantine. Zero fields mean the defaults.
type Config struct {
	Store store.Store
	Now   func() time.Time // default time.Now
	Log   *slog.Logger     // default: none
	// Retain is how long records are kept; default 14 days.
	Retain time.Duration
	// RefusalQuota is how many refusal records are kept per principal and
	// hour of the clock; default 1000. Beyond it refusals are counted; one in
	// 100 and the first for each reason are kept.
	RefusalQuota int
	// RefusalBytes bounds the bodies of refusals that are kept whole, per
	// principal and hour; default 32 MiB. Beyond it only the first 4 KiB of a
	// body are kept, with its size and SHA-256.
	RefusalBytes int64
	// BodyMax is the largest body of a refusal that is kept whole, in bytes;
	// default 1 MiB. Larger ones, and those refused for their size, are
	// clipped to 64 KiB, with their size and SHA-256.
	BodyMax int
	// RefusalWait is how long a refusal waits for its record to be durable;
	// default 250 ms.
	RefusalWait time.Duration
	// MaxRecords bounds the parked and expired records; default 1,000,000. At
	// the bound Put fails with quarantine_full and the lane waits. It bounds
	// the refusals likewise: beyond it they are only counted.
	MaxRecords int
	// Version is the version of Headgate that records name.
	Version string
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, headgate.NewError(headgate.CodeInvalidConfig, "quarantine: Store is required")
	}
	if c.Retain < 0 || c.RefusalQuota < 0 || c.RefusalBytes < 0 || c.BodyMax < 0 || c.MaxRecords < 0 || c.RefusalWait < 0 {
		return c, headgate.NewError(headgate.CodeInvalidConfig, "quarantine: Retain, RefusalQuota, RefusalBytes, BodyMax, RefusalWait and MaxRecords must not be negative")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Retain == 0 {
		c.Retain = DefaultRetain
	}
	if c.RefusalQuota == 0 {
		c.RefusalQuota = DefaultRefusalQuota
	}
	if c.RefusalBytes == 0 {
		c.RefusalBytes = DefaultRefusalBytes
	}
	if c.BodyMax == 0 {
		c.BodyMax = DefaultBodyMax
	}
	if c.RefusalWait == 0 {
		c.RefusalWait = DefaultRefusalWait
	}
	if c.MaxRecords == 0 {
		c.MaxRecords = DefaultMaxRecords
	}
	return c, nil
}

// Quarantine is safe for concurrent use.
type Quarantine struct {
	cfg      Config
	ids      *minter
	quota    *quota
	overflow *overflow
	recorder *recorder
	parked   *bound      // parked and expired records
	refused  *bound      // refusal records
	mended   *bound      // originals of mended payloads
	stuck    atomic.Bool // a refusal waited in vain since the last write
}

// Open opens the quarantine: it reads the newest record's QID, so that QIDs
// rise across restarts also when the clock was set back. Run must be called to
// flush counters and expire records.
func Open(ctx context.Context, cfg Config) (*Quarantine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	q := &Quarantine{
		cfg:      cfg,
		ids:      &minter{},
		quota:    newQuota(cfg.RefusalQuota, cfg.RefusalBytes),
		overflow: newOverflow(),
		parked:   &bound{limit: cfg.MaxRecords, kinds: []store.QuarantineKind{store.KindParked, store.KindExpired}},
		refused:  &bound{limit: cfg.MaxRecords, kinds: []store.QuarantineKind{store.KindRefused}},
		mended:   &bound{limit: cfg.MaxRecords, kinds: []store.QuarantineKind{store.KindMended}},
	}
	q.recorder = newRecorder(cfg.Store, q.recorded)
	err = cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		newest, err := tx.Quarantine.List(ctx, store.QuarantineFilter{Limit: 1})
		if err != nil {
			return err
		}
		if len(newest) > 0 {
			q.ids.startAfter(newest[0].QID)
		}
		if err := q.parked.recount(ctx, tx, cfg.Now()); err != nil {
			return err
		}
		if err := q.refused.recount(ctx, tx, cfg.Now()); err != nil {
			return err
		}
		return q.mended.recount(ctx, tx, cfg.Now())
	})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// KindOf returns how a refusal with the code is recorded: extinguished for
// causal refusals (ttl_exhausted, gas_exhausted, loop, breadth_exhausted),
// refused for all others.
func KindOf(code headgate.Code) store.QuarantineKind {
	switch code {
	case headgate.CodeTTLExhausted, headgate.CodeGasExhausted, headgate.CodeLoop, headgate.CodeBreadthExhausted:
		return store.KindExtinguished
	}
	return store.KindRefused
}

// List returns records, newest first, without Body and Detail.
func (q *Quarantine) List(ctx context.Context, f store.QuarantineFilter) (rows []store.QuarantineRecord, err error) {
	err = q.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err = tx.Quarantine.List(ctx, f)
		return err
	})
	return rows, err
}

// Groups returns the groups of what the filter selects, largest first.
func (q *Quarantine) Groups(ctx context.Context, f store.QuarantineFilter) (groups []store.QuarantineGroup, err error) {
	err = q.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		groups, err = tx.Quarantine.Groups(ctx, f)
		return err
	})
	return groups, err
}

// Show returns one record whole, or not_found.
func (q *Quarantine) Show(ctx context.Context, qid string) (rec store.QuarantineRecord, err error) {
	err = q.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rec, err = tx.Quarantine.Get(ctx, qid)
		return err
	})
	return rec, err
}

// Overflow returns the counters of refusals that were not kept, those not
// flushed yet included, ordered by principal, reason and type.
func (q *Quarantine) Overflow(ctx context.Context) (rows []store.QuarantineOverflow, err error) {
	// The flush lock keeps rows from being seen twice or not at all while
	// they move from memory to the store.
	q.overflow.flushing.Lock()
	defer q.overflow.flushing.Unlock()
	err = q.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err = tx.Quarantine.Overflow(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return mergeOverflow(rows, q.overflow.rows()), nil
}
