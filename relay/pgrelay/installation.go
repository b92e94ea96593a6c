package pgrelay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/headgate/headgate"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connect connects whoever looks after an outbox, often a superuser: what has no
// schema in a statement is the server's, and not looked up where others may write.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	conn, err := connectSQL(ctx, url)
	if err != nil {
		return nil, unreachable(err)
	}
	if _, err := conn.Exec(ctx, `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)`); err != nil {
		return nil, errors.Join(sqlError("asking the server", err), conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, nil
}

// checkServer refuses what cannot hold an outbox, and returns the version of the
// server as 170005.
func checkServer(ctx context.Context, conn *pgx.Conn) (version int, err error) {
	var level string
	var standby bool
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery()`).Scan(&version, &level, &standby)
	switch {
	case err != nil:
		return 0, sqlError("asking the server", err)
	case version < 150000:
		return 0, headgate.NewError(headgate.CodeInvalidConfig, "the server is PostgreSQL %d; the outbox needs 15 or newer", version/10000)
	case level != "logical":
		return 0, headgate.NewError(headgate.CodeInvalidConfig, "wal_level is %s; set it to logical and restart the server", level)
	case standby:
		return 0, headgate.NewError(headgate.CodeUnavailable, "the server is a standby; connect to the primary")
	}
	return version, nil
}

// installation is what a database says of how it was prepared.
type installation struct {
	version  int
	revision int // 1: before there were any
	slot     string
	systemID string
}

// readInstallation refuses what this build cannot read. Every revision it can.
func readInstallation(ctx context.Context, conn *pgx.Conn) (installation, error) {
	var i installation
	err := conn.QueryRow(ctx, `SELECT version, coalesce((to_jsonb(i) ->> 'revision')::int, 1), slot, system_id FROM headgate.installation i`).
		Scan(&i.version, &i.revision, &i.slot, &i.systemID)
	switch {
	case sqlState(err) == "42P01", sqlState(err) == "3F000", errors.Is(err, pgx.ErrNoRows):
		return i, headgate.NewError(headgate.CodeNotFound, "the database has no outbox; prepare it by headgate outbox init --url URL")
	case err != nil:
		return i, sqlError("reading headgate.installation", err)
	case i.version != SchemaVersion:
		e := headgate.NewError(headgate.CodeConflict, "the database's outbox has version %d; this build works with %d", i.version, SchemaVersion)
		e.Fix = "Use a newer Headgate: it knows how to read this outbox. Its rows wait in the database until then."
		if i.version < SchemaVersion {
			e.Fix = "Bring it up to date: headgate outbox init --url URL."
		}
		return i, e
	}
	return i, nil
}

func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// unreachable names a failed connection without repeating the URL.
func unreachable(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		refused := &headgate.Error{Code: headgate.CodeUnavailable, Detail: fmt.Sprintf("the database refuses the connection: %s (%s)", e.Message, e.Code), Err: e}
		if e.Code == "42501" {
			refused.Code = headgate.CodeForbidden
		}
		return refused
	}
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the database cannot be reached", Err: err}
}

// sqlError names a statement that failed. What trying again cannot mend is not
// unavailable.
func sqlError(doing string, err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		mine := &headgate.Error{Code: headgate.CodeUnavailable, Detail: fmt.Sprintf("%s: %s (%s)", doing, e.Message, e.Code), Err: err}
		switch e.Code {
		case "42501": // insufficient_privilege
			mine.Code, mine.Fix = headgate.CodeForbidden, "Connect as a role that has the right; headgate outbox init runs as the owner."
		case "42704", "42602", "42622", "0LP01", "22023": // no such object, no name, too long a name, no such grant, bad value
			mine.Code, mine.Fix = headgate.CodeInvalidArgument, e.Hint
		case "42710": // duplicate_object
			mine.Code, mine.Fix = headgate.CodeConflict, e.Hint
		}
		return mine
	}
	text := err.Error()
	if _, network := errors.AsType[*net.OpError](err); network {
		text = "the connection broke" // whereto is for the log
	}
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: doing + ": " + text, Err: err}
}

// refusal turns what the functions of schema headgate refuse into an argument's
// fault, with their hint.
func refusal(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.HasPrefix(e.Code, "HG") && e.Code != "42P01" {
		return sqlError("changing the database", err)
	}
	return &headgate.Error{Code: headgate.CodeInvalidArgument, Detail: fmt.Sprintf("%s (%s)", e.Message, e.Code), Fix: e.Hint, Err: err}
}
