package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/headgate/headgate/relay/sqliterelay"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/ncruces/go-sqlite3/driver"
)

// outboxDatabase is what the outbox commands do with a database of one kind.
type outboxDatabase interface {
	// preview returns what install would run, empty for nothing; for a database
	// that cannot be reached, what one gets that is not prepared.
	preview(ctx context.Context, o pgrelay.InstallOptions) (string, error)
	install(ctx context.Context, o pgrelay.InstallOptions) error
	status(ctx context.Context) (outboxStatus, error)
	doctor(ctx context.Context) ([]relay.Finding, error)
	replay(ctx context.Context, f relay.ReplayFilter, dryRun bool) (int64, error)
	watch(ctx context.Context, table, prefix string) error
	unwatch(ctx context.Context, table string) error
}

// outboxStatus is the state of an outbox in three forms.
type outboxStatus struct {
	state    any        // for JSON
	prepared string     // one line after init
	settings [][]string // for people
}

// postgresOutbox is the URL of a database.
type postgresOutbox string

func (p postgresOutbox) preview(ctx context.Context, o pgrelay.InstallOptions) (string, error) {
	cfg, err := pgconn.ParseConfig(string(p))
	if err != nil {
		return "", usagef("the URL of the database cannot be read")
	}
	fresh, err := pgrelay.Script(cfg.Database, o)
	if err != nil {
		return "", err
	}
	script, err := pgrelay.Preview(ctx, string(p), o)
	if headgate.CodeOf(err) == headgate.CodeUnavailable {
		return unseen + fresh, nil
	}
	return script, err
}

const unseen = "-- The database cannot be reached: this is what one gets that is not prepared.\n"

func (p postgresOutbox) install(ctx context.Context, o pgrelay.InstallOptions) error {
	return pgrelay.Install(ctx, string(p), o)
}

func (p postgresOutbox) status(ctx context.Context) (outboxStatus, error) {
	s, err := pgrelay.Inspect(ctx, string(p))
	if err != nil {
		return outboxStatus{}, err
	}
	room := "no bound"
	if s.Room >= 0 {
		room = strconv.FormatInt(s.Room, 10)
	}
	return outboxStatus{
		state: s, prepared: fmt.Sprintf("database %s is prepared; its slot is %s", s.Database, s.Slot),
		settings: [][]string{
			{"slot", s.Slot},
			{"slot status", s.SlotStatus},
			{"relay streams", strconv.FormatBool(s.Active)},
			{"holder", s.Holder},
			{"epoch", strconv.FormatInt(s.Epoch, 10)},
			{"renewed", timeOrNever(s.Renewed)},
			{"proven", timeOrNever(s.Proven)},
			{"bytes not confirmed", strconv.FormatInt(s.Behind, 10)},
			{"rows set aside", strconv.FormatInt(s.Aside, 10)},
			{"bytes of log held", strconv.FormatInt(s.Held, 10)},
			{"bytes it may still hold", room},
			{"repair", s.Repair},
			{"rows kept", strconv.FormatInt(s.Rows, 10)},
		},
	}, nil
}

func (p postgresOutbox) doctor(ctx context.Context) ([]relay.Finding, error) {
	return pgrelay.Doctor(ctx, string(p))
}

func (p postgresOutbox) replay(ctx context.Context, f relay.ReplayFilter, dryRun bool) (int64, error) {
	return pgrelay.Replay(ctx, string(p), f, dryRun)
}

func (p postgresOutbox) watch(ctx context.Context, table, prefix string) error {
	return pgrelay.Watch(ctx, string(p), table, prefix)
}

func (p postgresOutbox) unwatch(ctx context.Context, table string) error {
	return pgrelay.Unwatch(ctx, string(p), table)
}

// sqliteOutbox is the path of a database.
type sqliteOutbox string

// sqlitePath returns the path in sqlite:PATH or sqlite:///PATH.
func sqlitePath(url string) string {
	return strings.TrimPrefix(strings.TrimPrefix(url, "sqlite:"), "//")
}

// connectSQLite opens a database that exists. It makes none: a wrong path is
// more likely than the wish for an empty database.
func connectSQLite(path string) (*sql.DB, error) {
	q := url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(10000)"}}
	return driver.Open((&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String())
}

// with runs fn with an open database.
func (s sqliteOutbox) with(fn func(*sql.DB) error) (err error) {
	if s == "" {
		return usagef("--url: want sqlite:PATH")
	}
	if _, err := os.Stat(string(s)); errors.Is(err, fs.ErrNotExist) {
		missing := headgate.NewError(headgate.CodeNotFound, "there is no database %q", string(s))
		missing.Fix = "Let the program that owns the database make it first; init --dry-run prints the statements."
		return missing
	}
	db, err := connectSQLite(string(s))
	if err != nil {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the database cannot be opened: " + err.Error(), Err: err}
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return fn(db)
}

func (s sqliteOutbox) options(o pgrelay.InstallOptions) error {
	if o.Slot != "" || o.Relay != "" || len(o.Writers) > 0 || o.Harden {
		return usagef("--slot, --writer, --relay and --harden are for PostgreSQL; SQLite has neither slots nor roles")
	}
	return nil
}

func (s sqliteOutbox) preview(ctx context.Context, o pgrelay.InstallOptions) (script string, err error) {
	if err := s.options(o); err != nil {
		return "", err
	}
	err = s.with(func(db *sql.DB) (err error) {
		script, err = sqliterelay.Preview(ctx, db)
		return err
	})
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return unseen + sqliterelay.Script(), nil
	}
	return script, err
}

func (s sqliteOutbox) install(ctx context.Context, o pgrelay.InstallOptions) error {
	if err := s.options(o); err != nil {
		return err
	}
	return s.with(func(db *sql.DB) error { return sqliterelay.Install(ctx, db) })
}

func (s sqliteOutbox) status(ctx context.Context) (out outboxStatus, err error) {
	err = s.with(func(db *sql.DB) error {
		st, err := sqliterelay.Inspect(ctx, db)
		if err != nil {
			return err
		}
		out = outboxStatus{
			state: st, prepared: fmt.Sprintf("database %s is prepared; writers insert into headgate_outbox", st.Database),
			settings: [][]string{
				{"relay reads", strconv.FormatBool(st.Active)},
				{"holder", st.Holder},
				{"epoch", strconv.FormatInt(st.Epoch, 10)},
				{"done to row", strconv.FormatInt(st.Confirmed, 10)},
				{"done at", timeOrNever(st.ConfirmedAt)},
				{"but set aside", strconv.FormatInt(st.Aside, 10)},
				{"rows waiting", strconv.FormatInt(st.Waiting, 10)},
				{"waiting since", timeOrNever(st.WaitingSince)},
				{"repair", st.Repair},
				{"rows kept", strconv.FormatInt(st.Rows, 10)},
				{"bytes of log", strconv.FormatInt(st.LogBytes, 10)},
			},
		}
		return nil
	})
	return out, err
}

func (s sqliteOutbox) doctor(ctx context.Context) (found []relay.Finding, err error) {
	err = s.with(func(db *sql.DB) error {
		var err error
		found, err = sqliterelay.Doctor(ctx, db, time.Now())
		return err
	})
	return found, err
}

func (s sqliteOutbox) replay(ctx context.Context, f relay.ReplayFilter, dryRun bool) (n int64, err error) {
	err = s.with(func(db *sql.DB) error {
		var err error
		n, err = sqliterelay.Replay(ctx, db, f, dryRun)
		return err
	})
	return n, err
}

func (s sqliteOutbox) watch(ctx context.Context, table, prefix string) error {
	return s.with(func(db *sql.DB) error { return sqliterelay.Watch(ctx, db, table, prefix) })
}

func (s sqliteOutbox) unwatch(ctx context.Context, table string) error {
	return s.with(func(db *sql.DB) error { return sqliterelay.Unwatch(ctx, db, table) })
}
