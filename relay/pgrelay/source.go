package pgrelay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
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
type Source struct {
	cfg Config
	// asText: a column was found to have a type of which only the text is known, or
	// which has no other form.
	// It stays so: older parts of the log may hold it even when it is gone.
	asText atomic.Bool
}

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
	x := &session{src: s, cfg: s.cfg, base: s.cfg.Now(), changes: make(chan relay.Change, 1024), nudge: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	_, _ = rand.Read(x.secret[:]) // never fails: crypto/rand ends the process instead
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
	// Before anything can be confirmed the newest heartbeat is this session's: it
	// passes over those of others, and the slot may not be past the newest.
	if err := x.beat(ctx); err != nil {
		return nil, err
	}
	x.begin(ctx)
	ok = true
	return x, nil
}

// connectWithin bounds everything that comes before the wait for the lead: on a
// network that swallows packets it would last for ever.
const connectWithin = 30 * time.Second

// connect opens both connections and checks the server.
func (x *session) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	var err error
	if x.sql, err = connectSQL(ctx, x.cfg.URL); err != nil {
		return unreachable(err)
	}
	if err := ready(ctx, x.sql); err != nil {
		return err
	}
	if x.server, err = checkServer(ctx, x.sql); err != nil {
		return err
	}
	have, err := readInstallation(ctx, x.sql)
	if err != nil {
		return err
	}
	if have.revision < Revision {
		x.cfg.Log.WarnContext(ctx, "outbox was prepared by an older version; run headgate outbox init", "revision", have.revision, "newest", Revision)
	}
	x.slot, x.revision = have.slot, have.revision
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
	var id pglogrepl.IdentifySystemResult
	x.repl, id, err = connectReplication(ctx, x.cfg.URL)
	x.systemID, x.timeline = id.SystemID, int(id.Timeline)
	return err
}

// limitless ends the limit on transactions. Servers before 17 have none, and refuse
// a connection that names it.
const limitless = `SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'`

// ready prepares a connection of the relay's own for its statements.
func ready(ctx context.Context, conn *pgx.Conn) error {
	if err := trustNoPath(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, keepDurable); err != nil {
		return sqlError("making statements durable", err)
	}
	return nil
}

// trustNoPath makes names without a schema those of the server itself: another
// role may keep functions of the same name on the search path.
func trustNoPath(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, `SELECT pg_catalog.set_config('search_path', 'pg_catalog', false)`); err != nil {
		return sqlError("setting the search path", err)
	}
	return nil
}

// reachWithin bounds connecting, unless the URL says so: a server that hangs
// takes connections and never answers.
const reachWithin = 10 * time.Second

// connectSQL opens a connection whose values have the form that is read here,
// whatever the database or the role is set to.
func connectSQL(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	fixForm(cfg.RuntimeParams)
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, reachWithin)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, limitless); err != nil {
		leave(conn)
		return nil, err
	}
	return conn, nil
}

// fixForm settles the form of values, and what else a connection's own settings
// can keep from those of the database and the role: none of them ends a repair
// that takes long, and rows that the relay may not see are an error.
func fixForm(params map[string]string) {
	params["client_encoding"] = "UTF8"
	params["bytea_output"] = "hex"
	params["datestyle"] = "ISO"
	params["intervalstyle"] = "postgres"
	params["extra_float_digits"] = "1"
	params["default_transaction_read_only"] = "off"
	params["default_transaction_isolation"] = "read committed"
	for _, limit := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"} {
		params[limit] = "0"
	}
	params["row_security"] = "off"
}

// connectReplication opens a connection that can stream. Poolers cannot hand
// one out: they are told from servers by that.
func connectReplication(ctx context.Context, url string) (*pgconn.PgConn, pglogrepl.IdentifySystemResult, error) {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, pglogrepl.IdentifySystemResult{}, headgate.NewError(headgate.CodeInvalidConfig, "pgrelay: the URL cannot be read")
	}
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["application_name"] = "headgate-relay"
	fixForm(cfg.RuntimeParams)
	cfg.RuntimeParams["client_min_messages"] = "warning" // also where the role has it otherwise: see skipped
	cfg.RuntimeParams["timezone"] = "UTC"
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		if s := sqlState(err); s == "08P01" || s == "0A000" {
			return nil, pglogrepl.IdentifySystemResult{}, pooled(err)
		}
		return nil, pglogrepl.IdentifySystemResult{}, unreachable(err)
	}
	id, err := pglogrepl.IdentifySystem(ctx, conn)
	if err == nil {
		if _, err = conn.Exec(ctx, limitless).ReadAll(); err == nil { // others may lead for long
			return conn, id, nil
		}
	}
	_ = conn.Conn().Close() // of no use
	if sqlState(err) == "42601" {
		err = pooled(err) // it was taken for SQL
	} else {
		err = sqlError("identifying the server", err)
	}
	return nil, id, err
}

func pooled(err error) error {
	return &headgate.Error{
		Code: headgate.CodeInvalidConfig, Detail: "what the URL leads to hands out no replication connection: " + unreachable(err).Error(),
		Fix: "A pooler stands between. Give the address of the PostgreSQL server itself.", Err: err,
	}
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
	holder := vanishing{after: 3 * x.cfg.Beat}
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
			if err := x.endVanished(ctx, &holder); err != nil && ctx.Err() == nil {
				x.cfg.Log.WarnContext(ctx, "the relay in the lead cannot be checked", "slot", x.slot, "error", err)
				if x.sql.IsClosed() {
					return sqlError("waiting for the lead", err)
				}
			}
		}
	}
}

// vanishing watches the heartbeats of the relay in the lead.
type vanishing struct {
	epoch, beat int64
	since       time.Duration // elapsed when they last rose
	after       time.Duration
}

// endVanished ends the connection of a leader whose heartbeat did not rise for
// three beats, by the monotonic clock of this process: the database's clock may
// have been set back.
func (x *session) endVanished(ctx context.Context, v *vanishing) error {
	ctx, cancel := context.WithTimeout(ctx, 2*x.cfg.Beat)
	defer cancel()
	var epoch, beat int64
	if err := x.sql.QueryRow(ctx, `SELECT epoch, beat FROM headgate.relay_state WHERE slot = $1`, x.slot).Scan(&epoch, &beat); err != nil {
		return err
	}
	now := time.Duration(x.elapsed())
	if v.since == 0 || epoch != v.epoch || beat != v.beat {
		v.epoch, v.beat, v.since = epoch, beat, now
		return nil
	}
	if now-v.since < v.after {
		return nil
	}
	_, err := x.sql.Exec(ctx, `
		SELECT pg_terminate_backend(l.pid) FROM pg_locks l
		WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('headgate relay ' || $1, 0)`, x.slot)
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
