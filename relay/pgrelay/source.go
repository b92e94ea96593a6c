package pgrelay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Config configures a source.
type Config struct {
	// URL locates the database. It must reach the server itself, not a pooler.
	URL string
	// Beat is how often the session renews its epoch; default 10 s. A relay
	// that did not renew it for three beats may be superseded.
	Beat time.Duration
	// WALBudget is how many bytes of log the slot may hold back before the
	// relay gives them up and repairs from the table; default 4 GiB. A smaller
	// max_slot_wal_keep_size of the server counts instead.
	WALBudget int64
	// Retain is how long rows stay in the outbox after they were published;
	// default 24 h. It bounds what can be replayed.
	Retain time.Duration
	Log    *slog.Logger     // default: none
	Now    func() time.Time // default time.Now; for reading the monotonic clock
}

// Source reads one database. It implements [relay.Source].
type Source struct{ cfg Config }

var _ relay.Source = (*Source)(nil)

// New returns a source; nothing is connected yet.
func New(cfg Config) (*Source, error) {
	if cfg.URL == "" {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "pgrelay: URL is required")
	}
	if _, err := pgconn.ParseConfig(cfg.URL); err != nil {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "pgrelay: the URL cannot be read")
	}
	if cfg.Beat <= 0 {
		cfg.Beat = 10 * time.Second
	}
	if cfg.WALBudget <= 0 {
		cfg.WALBudget = 4 << 30
	}
	if cfg.Retain <= 0 {
		cfg.Retain = 24 * time.Hour
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Source{cfg: cfg}, nil
}

// Open waits for the lead and starts a session. Errors: unavailable,
// invalid_config for a server that cannot hold an outbox, not_found for a
// database without one, conflict for an outbox of another version.
func (s *Source) Open(ctx context.Context) (relay.Session, error) {
	x := &session{src: s, cfg: s.cfg, base: s.cfg.Now(), changes: make(chan relay.Change, 1024), nudge: make(chan struct{}, 1)}
	ok := false
	defer func() {
		if !ok {
			x.disconnect()
		}
	}()
	if err := x.connect(ctx); err != nil {
		return nil, err
	}
	if err := x.lead(ctx); err != nil {
		return nil, err
	}
	if err := x.prepare(ctx); err != nil {
		return nil, err
	}
	x.begin(ctx)
	ok = true
	return x, nil
}

// connect opens both connections and checks the server.
func (x *session) connect(ctx context.Context) error {
	var err error
	if x.sql, err = pgx.Connect(ctx, x.cfg.URL); err != nil {
		return unreachable(err)
	}
	if err := checkServer(ctx, x.sql); err != nil {
		return err
	}
	have, err := readInstallation(ctx, x.sql)
	if err != nil {
		return err
	}
	x.slot = have.slot
	var timeout int64 // in milliseconds; 0 is none
	var there time.Time
	asked := x.cfg.Now()
	if err := x.sql.QueryRow(ctx, `SELECT setting::bigint, clock_timestamp() FROM pg_settings WHERE name = 'wal_sender_timeout'`).Scan(&timeout, &there); err != nil {
		return sqlError("asking the server", err)
	}
	x.compareClocks(asked, there)
	x.statusEvery = statusEvery
	if timeout > 0 {
		x.statusEvery = min(x.statusEvery, time.Duration(timeout)*time.Millisecond/4)
	}
	cfg, err := pgconn.ParseConfig(x.cfg.URL)
	if err != nil {
		return headgate.NewError(headgate.CodeInvalidConfig, "pgrelay: the URL cannot be read")
	}
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["application_name"] = "headgate-relay"
	cfg.RuntimeParams["datestyle"] = "ISO"
	cfg.RuntimeParams["timezone"] = "UTC"
	if x.repl, err = pgconn.ConnectConfig(ctx, cfg); err != nil {
		return unreachable(err)
	}
	id, err := pglogrepl.IdentifySystem(ctx, x.repl)
	if err != nil {
		return sqlError("identifying the server: a pooler stands between", err)
	}
	x.systemID, x.timeline = id.SystemID, int(id.Timeline)
	return nil
}

// lead waits until this connection holds the slot's lock. Meanwhile it looks
// whether the holder still renews its epoch: one whose host vanished holds the
// lock until the server notices, which may take hours.
func (x *session) lead(ctx context.Context) error {
	locked := make(chan error, 1)
	go func() {
		_, err := x.repl.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_lock(hashtextextended('headgate relay %s', 0))", x.slot)).ReadAll()
		locked <- err
	}()
	tick := time.NewTicker(x.cfg.Beat / 2)
	defer tick.Stop()
	for {
		select {
		case err := <-locked:
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return sqlError("waiting for the lead", err)
			}
			return x.raiseEpoch(ctx)
		case <-tick.C:
			if err := x.endVanished(ctx); err != nil && ctx.Err() == nil {
				x.cfg.Log.WarnContext(ctx, "the relay in the lead cannot be checked", "slot", x.slot, "error", err)
			}
		}
	}
}

// endVanished ends the connection of a leader that did not renew its epoch for
// three beats by the clock of the database.
func (x *session) endVanished(ctx context.Context) error {
	_, err := x.sql.Exec(ctx, `
		SELECT pg_terminate_backend(l.pid) FROM pg_locks l, headgate.relay_state s
		WHERE s.slot = $1 AND s.renewed < clock_timestamp() - make_interval(secs => $2)
		  AND l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('headgate relay ' || $1, 0)`,
		x.slot, (3 * x.cfg.Beat).Seconds())
	return err
}

func (x *session) raiseEpoch(ctx context.Context) error {
	host, _ := os.Hostname() // only shown
	began := x.elapsed()
	err := x.sql.QueryRow(ctx, `
		INSERT INTO headgate.relay_state AS s (slot, epoch, holder, renewed) VALUES ($1, 1, $2, clock_timestamp())
		ON CONFLICT (slot) DO UPDATE SET epoch = s.epoch + 1, holder = $2, renewed = clock_timestamp()
		RETURNING epoch`, x.slot, fmt.Sprintf("%s/%d", host, os.Getpid())).Scan(&x.epoch)
	if err != nil {
		return sqlError("raising the epoch", err)
	}
	x.renewed.Store(began)
	return nil
}

// errSuperseded ends a session whose epoch is no longer the highest.
var errSuperseded = errors.New("pgrelay: another relay leads")
