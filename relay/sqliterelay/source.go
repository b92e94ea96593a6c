package sqliterelay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/filelock"
	"github.com/headgate/headgate/relay"
)

// Config configures a source.
type Config struct {
	// Path locates the database file.
	Path string
	// Connect opens a pool of connections to that file for the relay alone; the
	// relay closes it. A program that also writes the database itself must use
	// the same SQLite library for both: two in one process release each other's
	// locks.
	Connect func() (*sql.DB, error)
	// Retain is how long rows stay in the outbox after they were published;
	// default 24 h. It bounds what can be replayed.
	Retain time.Duration
	Log    *slog.Logger     // default: none
	Now    func() time.Time // default time.Now

	// For tests: fault is called at named points, unsynced publishes what may
	// not have reached the disk.
	fault    func(point string)
	unsynced bool
}

// Source reads one database. It implements [relay.Source].
type Source struct {
	cfg  Config
	wake chan struct{}
}

var _ relay.Source = (*Source)(nil)

// New returns a source; nothing is opened yet.
func New(cfg Config) (*Source, error) {
	if cfg.Path == "" || cfg.Connect == nil {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "sqliterelay: Path and Connect are required")
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
	if cfg.fault == nil {
		cfg.fault = func(string) {}
	}
	return &Source{cfg: cfg, wake: make(chan struct{}, 1)}, nil
}

// Wake says that a transaction of this process was committed, so that its
// events are read at once. It never blocks. Without it, and for writers in
// other processes, the relay finds out within [pollEvery].
func (s *Source) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// How often the relay asks, and how long it waits for others.
const (
	pollEvery   = 20 * time.Millisecond // whether anybody committed: no table is read
	lookEvery   = time.Second           // whether the file is still the same
	lockEvery   = 100 * time.Millisecond
	cursorEvery = 100 * time.Millisecond
	busyWait    = time.Second
	takeWait    = 30 * time.Second
)

// LockSuffix is added to the name of a database for the file that the relay in
// the lead has locked.
const LockSuffix = "-headgate-relay"

// errRestored ends a session whose database is no longer the one that it read.
var errRestored = errors.New("sqliterelay: the database was replaced or restored underneath; it is read again from where it says itself that publication stands")

// errSuperseded ends a session whose epoch is no longer the highest.
var errSuperseded = errors.New("sqliterelay: another relay leads, or the database was restored underneath")

// Open waits for the lead and starts a session. Errors: unavailable, not_found
// for a file that is missing or holds no outbox, invalid_config for one that
// cannot hold any, conflict for an outbox of another version.
func (s *Source) Open(ctx context.Context) (relay.Session, error) {
	x := &session{
		src: s, cfg: s.cfg, dirty: true, nudge: make(chan struct{}, 1), broken: make(chan struct{}), ended: make(chan struct{}),
	}
	ok := false
	defer func() {
		if !ok {
			x.disconnect()
		}
	}()
	if err := x.locate(); err != nil {
		return nil, err
	}
	if err := x.lead(ctx); err != nil {
		return nil, err
	}
	if err := x.connect(ctx); err != nil {
		return nil, err
	}
	if err := x.take(ctx); err != nil {
		return nil, err
	}
	if x.revision < Revision {
		x.cfg.Log.WarnContext(ctx, "outbox was prepared by an older version; run headgate outbox init", "revision", x.revision, "newest", Revision)
	}
	if err := x.poll(ctx); err != nil {
		return nil, err
	}
	ok = true
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	x.stop = stop
	go x.cursor(writing)
	return x, nil
}

// locate finds the file, whatever links lead to it: one database has one lock.
func (x *session) locate() error {
	path, err := filepath.Abs(x.cfg.Path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		x.file, err = os.Stat(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return headgate.NewError(headgate.CodeNotFound, "there is no database %q", x.cfg.Path)
	case err != nil:
		return sqlError("looking for the database", err)
	}
	x.path = path
	return nil
}

// same reports whether the name still leads to the file that was opened.
func (x *session) same() bool {
	now, err := os.Stat(x.path)
	return err == nil && os.SameFile(now, x.file)
}

// lead waits until this process holds the lock of the database.
func (x *session) lead(ctx context.Context) error {
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		held, err := x.tryLock()
		if err != nil {
			return sqlError("locking the outbox", err)
		}
		if held {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryLock locks the file beside the database, provided that it still has its
// name then.
func (x *session) tryLock() (bool, error) {
	name := x.path + LockSuffix
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return false, err
	}
	held, err := filelock.Try(f)
	if err == nil && held {
		mine, err1 := f.Stat()
		named, err2 := os.Stat(name)
		if err1 == nil && err2 == nil && os.SameFile(mine, named) {
			x.lock = f
			return true, nil
		}
		held, err = false, err1
	}
	_ = f.Close()
	return false, err
}

// connect opens three connections, so that reading never waits behind the cursor
// for the writer's turn, nor for what is read again.
func (x *session) connect(ctx context.Context) error {
	var err error
	if x.db, err = x.cfg.Connect(); err != nil {
		return sqlError("opening the database", err)
	}
	for _, c := range []struct {
		conn **sql.Conn
		wait time.Duration // the writer waits by itself, see patient
	}{{&x.read, busyWait}, {&x.write, 0}, {&x.again, busyWait}} {
		if *c.conn, err = x.db.Conn(ctx); err != nil {
			return sqlError("opening the database", err)
		}
		for _, pragma := range []string{fmt.Sprintf("busy_timeout = %d", c.wait.Milliseconds()), "synchronous = FULL"} {
			if _, err := (*c.conn).ExecContext(ctx, "PRAGMA "+pragma); err != nil {
				return sqlError("setting a connection up", err)
			}
		}
	}
	if err := x.checkFile(ctx); err != nil {
		return err
	}
	if x.version, err = x.read.PrepareContext(ctx, `PRAGMA data_version`); err != nil {
		return sqlError("setting a connection up", err)
	}
	return nil
}

// checkFile refuses what cannot hold an outbox, and a Connect that opens
// something else.
func (x *session) checkFile(ctx context.Context) error {
	var mode, encoding string
	var synchronous int
	for pragma, into := range map[string]any{"journal_mode": &mode, "encoding": &encoding, "synchronous": &synchronous} {
		if err := x.write.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(into); err != nil {
			return sqlError("asking the database", err)
		}
	}
	var seq int
	var name string
	if err := x.write.QueryRowContext(ctx, `PRAGMA database_list`).Scan(&seq, &name, &x.sqliteName); err != nil {
		return sqlError("asking the database", err)
	}
	opened, err := os.Stat(x.sqliteName)
	switch {
	case err != nil || !os.SameFile(opened, x.file):
		return headgate.NewError(headgate.CodeInvalidConfig, "sqliterelay: Connect opens another file than %q", x.cfg.Path)
	case mode != "wal":
		return headgate.NewError(headgate.CodeInvalidConfig, "the database's journal mode is %s; an outbox needs PRAGMA journal_mode = WAL", mode)
	case encoding != "UTF-8":
		return headgate.NewError(headgate.CodeInvalidConfig, "the database's encoding is %s; an outbox needs UTF-8", encoding)
	case synchronous < 2:
		return headgate.NewError(headgate.CodeInvalidConfig, "the driver does not take PRAGMA synchronous = FULL")
	}
	return nil
}

// take raises the epoch and finds where publication stands.
func (x *session) take(ctx context.Context) error {
	host, _ := os.Hostname() // only shown
	most, cancel := context.WithTimeout(ctx, takeWait)
	defer cancel()
	return patient(most, func() error { return x.raise(ctx, fmt.Sprintf("%s/%d", host, os.Getpid())) })
}

func (x *session) raise(ctx context.Context, holder string) error {
	return immediate(ctx, x.write, func() error {
		s, err := readState(ctx, x.write)
		if err != nil {
			return err
		}
		if err := x.examine(ctx, &s); err != nil {
			return err
		}
		x.epoch, x.identity, x.revision = s.epoch+1, s.identity, s.revision
		x.last = place{s.confirmed, s.confirmedID}
		x.told = x.last
		if err := x.write.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM headgate_outbox_rows`).Scan(&x.began); err != nil {
			return sqlError("looking for the last row", err)
		}
		_, err = x.write.ExecContext(ctx, `UPDATE headgate_outbox_state SET epoch = ?, holder = ?, confirmed = ?, confirmed_id = nullif(?, ''),
			repair = nullif(?, ''), repair_until = nullif(?, 0)`,
			x.epoch, holder, s.confirmed, s.confirmedID, s.repair, s.repairUntil)
		if err != nil {
			return sqlError("raising the epoch", err)
		}
		return nil
	})
}

// examine compares the state with the rows. The row at the confirmed number is
// never deleted: when it is another one, or gone, the number says nothing, and
// everything that is kept is published again. The broker and the consumers know
// the ids that they have.
func (x *session) examine(ctx context.Context, s *state) error {
	if s.confirmed == 0 {
		return nil
	}
	var there bool
	var highest int64
	err := x.write.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM headgate_outbox_rows WHERE seq = ? AND id = ?),
		(SELECT coalesce(max(seq), 0) FROM headgate_outbox_rows)`, s.confirmed, s.confirmedID).Scan(&there, &highest)
	if err != nil {
		return sqlError("comparing the state of the outbox with its rows", err)
	}
	if there {
		return nil
	}
	s.repair = fmt.Sprintf("the row %d, to which events were published, is gone or another one", s.confirmed)
	s.repairUntil = highest
	x.cfg.Log.WarnContext(ctx, "outbox rows are published again", "database", x.path, "reason", s.repair, "until", highest)
	if highest == 0 {
		s.repair = "" // there are none
	}
	s.confirmed, s.confirmedID = 0, ""
	return nil
}
