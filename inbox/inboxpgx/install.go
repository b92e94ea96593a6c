package inboxpgx

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/inbox/internal/postgres"
)

// SchemaVersion is the version of what [Install] makes.
const SchemaVersion = 1

//go:embed schema.sql
var schema string

// Bounds of how long an inbox remembers.
const (
	MinRetain = time.Hour
	MaxRetain = 10 * 365 * 24 * time.Hour
)

// InstallOptions change what Install makes.
type InstallOptions struct {
	// Retain is how long the inbox remembers; default [inbox.DefaultRetain]. It
	// must be longer than streams are retained plus the longest replay.
	Retain time.Duration
	// Consumers are existing roles that may consume.
	Consumers []string
}

func (o InstallOptions) retain() (time.Duration, error) {
	d := cmp.Or(o.Retain, inbox.DefaultRetain)
	if d < MinRetain || d > MaxRetain {
		return 0, headgate.NewError(headgate.CodeInvalidArgument, "an inbox remembers for an hour to ten years")
	}
	return d, nil
}

// generation is how long one lasts: a day, or more where that would make more
// tables than are quickly searched.
func generation(retain time.Duration) time.Duration {
	return max(min(24*time.Hour, retain/2), retain/10)
}

// Script returns what Install executes, as one transaction.
func Script(o InstallOptions) (string, error) {
	retain, err := o.retain()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n\n" + schema)
	fmt.Fprintf(&b, "\nINSERT INTO headgate_inbox.state (version, length, retain) VALUES (%d, '%d seconds', '%d seconds');\nSELECT headgate_inbox.open(1);\n",
		SchemaVersion, int64(generation(retain).Seconds()), int64(retain.Seconds()))
	for _, role := range o.Consumers {
		b.WriteString("GRANT headgate_consumer TO " + pgx.Identifier{role}.Sanitize() + ";\n")
	}
	b.WriteString("COMMIT;\n")
	return b.String(), nil
}

// Install prepares the database behind the connection, all or nothing. On a
// prepared one it adds grants, and sets Retain where one is given. The role
// needs the rights to create roles and schemas. Errors: invalid_argument,
// invalid_config, unavailable, and conflict for another version.
func Install(ctx context.Context, conn *pgx.Conn, o InstallOptions) error {
	script, err := Script(o)
	if err != nil {
		return err
	}
	var server int
	var standby bool
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, pg_is_in_recovery()`).Scan(&server, &standby); err != nil {
		return failed("asking the server", err)
	}
	if server < 140000 || standby {
		return headgate.NewError(headgate.CodeInvalidConfig, "an inbox needs PostgreSQL 14 or newer that is no standby")
	}
	_, err = Inspect(ctx, conn)
	switch {
	case err == nil:
		return extend(ctx, conn, o)
	case headgate.CodeOf(err) != headgate.CodeNotFound:
		return err
	}
	if _, err := conn.PgConn().Exec(ctx, script).ReadAll(); err != nil {
		_, rerr := conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		return failed("preparing the database", errors.Join(err, rerr))
	}
	return nil
}

func extend(ctx context.Context, conn *pgx.Conn, o InstallOptions) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if o.Retain > 0 {
			_, err := tx.Exec(ctx, `UPDATE headgate_inbox.state SET retain = $1, length = $2`, o.Retain, generation(o.Retain))
			if err != nil {
				return failed("setting how long is remembered", err)
			}
		}
		for _, role := range o.Consumers {
			if _, err := tx.Exec(ctx, "GRANT headgate_consumer TO "+pgx.Identifier{role}.Sanitize()); err != nil {
				return failed("granting headgate_consumer", err)
			}
		}
		return nil
	})
}

func failed(doing string, err error) error {
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: fmt.Sprintf("%s: %.300s", doing, err.Error()), Err: err}
}

// Status is what can be told of an inbox.
type Status struct {
	Version     int       `json:"version"`
	Generation  int       `json:"generation"`
	Generations int       `json:"generations"`
	Opened      time.Time `json:"opened"`
	// Overdue: no generation was begun for so long that Maintain does not run,
	// or does not get its lock.
	Overdue bool          `json:"overdue"`
	Retain  time.Duration `json:"retain"`
	// Forgotten: what was seen before this time is dropped; zero: nothing is.
	Forgotten time.Time `json:"forgotten,omitzero"`
	Rows      int64     `json:"rows"`  // estimate
	Bytes     int64     `json:"bytes"` // with indexes
	// Claims are open ones, Late those of them that ran out.
	Claims int64 `json:"claims"`
	Late   int64 `json:"late"`
}

// Inspect returns the state of the inbox. Errors: not_found, and conflict for
// another version.
func Inspect(ctx context.Context, conn *pgx.Conn) (Status, error) {
	var s Status
	err := conn.QueryRow(ctx, `SELECT version, generation, generations, opened, overdue, extract(epoch FROM retain)::bigint * 1000000000,
		CASE WHEN forgotten > '-infinity' THEN forgotten ELSE '0001-01-01 00:00:00+00' END, rows_estimate, bytes, claims_open, claims_late FROM headgate.inbox_status()`).
		Scan(&s.Version, &s.Generation, &s.Generations, &s.Opened, &s.Overdue, &s.Retain, &s.Forgotten, &s.Rows, &s.Bytes, &s.Claims, &s.Late)
	switch state := postgres.State(err); {
	case state == "3F000" || state == "42883":
		return s, headgate.NewError(headgate.CodeNotFound, "the database has no inbox; prepare it by headgate inbox init --url URL")
	case err != nil:
		return s, failed("asking for the inbox", err)
	case s.Version != SchemaVersion:
		return s, headgate.NewError(headgate.CodeConflict, "the inbox has version %d; this build works with %d", s.Version, SchemaVersion)
	}
	return s, nil
}

// execer is a pool, a connection or a transaction.
type execer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Maintain begins a new generation if it is time and drops those that are older
// than the inbox's retention. It waits for open transactions for at most a
// second, holds up new ones for as long, and then gives up: call it again. It
// returns what it dropped.
func Maintain(ctx context.Context, db execer) ([]string, error) {
	var dropped []string
	if err := db.QueryRow(ctx, `SELECT headgate.inbox_maintain()`).Scan(&dropped); err != nil {
		return nil, postgres.Error(err)
	}
	return dropped, nil
}
