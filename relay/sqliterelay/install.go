package sqliterelay

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
)

// SchemaVersion is the version of what [Install] makes.
const SchemaVersion = 1

//go:embed schema.sql
var schema string

// nowMillis is the time as the rows have it.
const nowMillis = `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`

// newID is a UUID of version 7 in SQL: 48 bits of time, the rest random. It is
// no subquery: SQLite would compute that once for all rows of a statement.
const newID = `lower(substr(printf('%012x', ` + nowMillis + `), 1, 8) || '-' || substr(printf('%012x', ` + nowMillis + `), 9, 4) || '-7' || substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`

// Script returns the statements of an installation: what
// headgate outbox init --dry-run prints.
func Script() string {
	var b strings.Builder
	b.WriteString("-- Readers and the writer do not wait for each other in this mode, which stays with the file.\nPRAGMA journal_mode = WAL;\n\n")
	b.WriteString("BEGIN IMMEDIATE;\n\n")
	b.WriteString(strings.NewReplacer("{{new_id}}", newID, "{{now}}", nowMillis).Replace(schema))
	fmt.Fprintf(&b, "\nINSERT INTO headgate_outbox_state (one, version, identity, created)\nVALUES (1, %d, lower(hex(randomblob(16))), %s);\n\nCOMMIT;\n", SchemaVersion, nowMillis)
	return b.String()
}

// Install prepares a database. On a prepared one it changes nothing. Errors:
// unavailable, invalid_config for a database that cannot hold an outbox, and
// conflict for another version.
func Install(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return sqlError("opening the database", err)
	}
	defer conn.Close()
	_, err = readState(ctx, conn)
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeNotFound {
		return err
	}
	if err := useLog(ctx, conn); err != nil {
		return err
	}
	_, statements, _ := strings.Cut(Script(), "BEGIN IMMEDIATE;")
	return script(ctx, conn, statements)
}

// useLog switches the database to a write-ahead log.
func useLog(ctx context.Context, conn *sql.Conn) error {
	var mode string
	if err := conn.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode); err != nil {
		return sqlError("switching the database to a write-ahead log", err)
	}
	if mode != "wal" {
		return headgate.NewError(headgate.CodeInvalidConfig, "the database cannot carry a write-ahead log (SQLite offers %s); a database in memory has no outbox", mode)
	}
	return nil
}

// script runs statements in one transaction. They may end with COMMIT.
func script(ctx context.Context, conn *sql.Conn, statements string) error {
	statements = strings.TrimSuffix(strings.TrimSpace(statements), "COMMIT;")
	return immediate(ctx, conn, func() error {
		if _, err := conn.ExecContext(ctx, statements); err != nil {
			return sqlError("preparing the database", err)
		}
		return nil
	})
}

// immediate runs fn as SQLite's writer.
func immediate(ctx context.Context, conn *sql.Conn, fn func() error) error {
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return sqlError("waiting for the writer's turn", err)
	}
	err := fn()
	if err == nil {
		if _, err = conn.ExecContext(ctx, `COMMIT`); err == nil {
			return nil
		}
		err = sqlError("committing", err)
	}
	_, _ = conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`) // SQLite may have done it already
	return err
}

// state is the one row of headgate_outbox_state.
type state struct {
	identity    string
	epoch       int64
	holder      string
	confirmed   int64
	confirmedID string
	confirmedAt int64 // milliseconds; 0: never
	repair      string
	repairUntil int64
}

// querier is a database, a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func readState(ctx context.Context, q querier) (state, error) {
	var s state
	var version int
	err := q.QueryRowContext(ctx, `SELECT version, identity, epoch, coalesce(holder, ''), confirmed, coalesce(confirmed_id, ''),
		coalesce(confirmed_at, 0), coalesce(repair, ''), coalesce(repair_until, 0) FROM headgate_outbox_state`).
		Scan(&version, &s.identity, &s.epoch, &s.holder, &s.confirmed, &s.confirmedID, &s.confirmedAt, &s.repair, &s.repairUntil)
	switch {
	case errors.Is(err, sql.ErrNoRows), err != nil && strings.Contains(err.Error(), "no such table"):
		return s, headgate.NewError(headgate.CodeNotFound, "the database has no outbox; prepare it by headgate outbox init --url sqlite:PATH")
	case err != nil:
		return s, sqlError("reading the state of the outbox", err)
	case version != SchemaVersion:
		return s, headgate.NewError(headgate.CodeConflict, "the database's outbox has version %d; this build works with %d", version, SchemaVersion)
	}
	return s, nil
}

func sqlError(doing string, err error) error {
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: doing + ": " + err.Error(), Err: err}
}
