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

// SchemaVersion is the version of the tables that [Install] makes: what a relay
// must know to read them. It is raised when an older relay would go wrong.
const SchemaVersion = 1

// Revision is that of the views and triggers beside them, raised with every
// change of what Install and [Watch] make. Relays and writers of every revision
// work with those of every other; [Install] brings a database up to it.
const Revision = 3

// schema is made once, views put in place of older ones.
var (
	//go:embed schema.sql
	schema string
	//go:embed aside.sql
	aside string
	//go:embed views.sql
	views string
)

// nowMillis is the time as the rows have it.
const nowMillis = `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`

// newID is a UUID of version 7 in SQL: 48 bits of time, the rest random. It is
// no subquery: SQLite would compute that once for all rows of a statement.
const newID = `lower(substr(printf('%012x', ` + nowMillis + `), 1, 8) || '-' || substr(printf('%012x', ` + nowMillis + `), 9, 4) || '-7' || substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`

// fill replaces the names in a script.
func fill(sql string) string {
	return strings.NewReplacer("{{new_id}}", newID, "{{now}}", nowMillis).Replace(sql)
}

const walMode = "-- Readers and the writer do not wait for each other in this mode, which stays with the file.\nPRAGMA journal_mode = WAL;\n\n"

// Script returns the statements of an installation in an unprepared database.
// [Preview] knows the database.
func Script() string {
	return walMode + "BEGIN IMMEDIATE;\n\n" + fresh() + "\nCOMMIT;\n"
}

func fresh() string {
	return fill(schema+"\n"+aside+"\n"+views) + fmt.Sprintf("\nINSERT INTO headgate_outbox_state (one, version, revision, identity, created)\nVALUES (1, %d, %d, lower(hex(randomblob(16))), %s);\n",
		SchemaVersion, Revision, nowMillis)
}

// plan looks at the database and returns the statements that prepare it or bring
// it up to date; empty when there is nothing to do.
func plan(ctx context.Context, conn *sql.Conn) (string, error) {
	have, err := readState(ctx, conn)
	switch {
	case err != nil && headgate.CodeOf(err) == headgate.CodeNotFound:
		return fresh(), nil
	case err != nil || have.revision == Revision:
		return "", err
	case have.revision > Revision:
		e := headgate.NewError(headgate.CodeConflict, "the database was prepared by a newer version of Headgate (revision %d; this build has %d)", have.revision, Revision)
		e.Fix = "Run headgate outbox init of that version or a later one; this one would put older views and triggers in place."
		return "", e
	}
	return upgrade(ctx, conn)
}

// upgrade returns the statements from an earlier revision. What watched tables have is
// made anew, since their triggers write into the tables that are.
func upgrade(ctx context.Context, conn *sql.Conn) (string, error) {
	var b strings.Builder
	there, err := list(ctx, conn, `SELECT name FROM pragma_table_info('headgate_outbox_state') WHERE name = 'revision'`)
	if err != nil {
		return "", err
	}
	if len(there) == 0 {
		b.WriteString("ALTER TABLE headgate_outbox_state ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;\n")
	}
	_, replaced, _ := strings.Cut(schema, "CREATE TABLE headgate_outbox_replaced")
	b.WriteString("DROP TABLE headgate_outbox_replaced; -- empty but within a statement\nCREATE TABLE headgate_outbox_replaced" + replaced + "\n" + aside + "\n" + fill(views) + "\n")
	names, err := list(ctx, conn, `SELECT name FROM headgate_outbox_watched WHERE name IN (SELECT name FROM main.sqlite_master WHERE type = 'table') ORDER BY name`)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		var prefix string
		if err := conn.QueryRowContext(ctx, `SELECT prefix FROM headgate_outbox_watched WHERE name = ?`, name).Scan(&prefix); err != nil {
			return "", sqlError("reading what is watched", err)
		}
		statements, err := watchStatements(ctx, conn, name, prefix)
		if err != nil {
			return "", err
		}
		b.WriteString(strings.Join(statements, ";\n") + ";\n")
	}
	fmt.Fprintf(&b, "\nUPDATE headgate_outbox_state SET revision = %d;\n", Revision)
	return b.String(), nil
}

// Preview returns what [Install] would run; empty when it would do nothing.
// Errors as of Install.
func Preview(ctx context.Context, db *sql.DB) (string, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", sqlError("opening the database", err)
	}
	defer conn.Close()
	statements, err := plan(ctx, conn)
	if err != nil || statements == "" {
		return "", err
	}
	return walMode + "BEGIN IMMEDIATE;\n\n" + statements + "\nCOMMIT;\n", nil
}

// Install prepares a database, or brings one that an older version prepared up
// to [Revision], in one transaction, beside relays and writers. On one that is
// up to date it changes nothing. Errors: unavailable, invalid_config for a
// database that cannot hold an outbox, conflict for a newer version, and
// invalid_argument for a watched table that cannot be watched any more.
func Install(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return sqlError("opening the database", err)
	}
	defer conn.Close()
	if statements, err := plan(ctx, conn); err != nil || statements == "" {
		return err
	}
	if err := useLog(ctx, conn); err != nil {
		return err
	}
	return immediate(ctx, conn, func() error {
		statements, err := plan(ctx, conn) // as the writer: nobody is quicker
		if err != nil || statements == "" {
			return err
		}
		if _, err := conn.ExecContext(ctx, statements); err != nil {
			return sqlError("preparing the database", err)
		}
		return nil
	})
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
	revision    int // 1: before there were any
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
	// Where the table has no column revision, the inner query finds the outer one's.
	err := q.QueryRowContext(ctx, `SELECT version, (SELECT revision FROM headgate_outbox_state), identity, epoch, coalesce(holder, ''), confirmed, coalesce(confirmed_id, ''),
		coalesce(confirmed_at, 0), coalesce(repair, ''), coalesce(repair_until, 0) FROM headgate_outbox_state, (SELECT 1 AS revision)`).
		Scan(&version, &s.revision, &s.identity, &s.epoch, &s.holder, &s.confirmed, &s.confirmedID, &s.confirmedAt, &s.repair, &s.repairUntil)
	switch {
	case errors.Is(err, sql.ErrNoRows), err != nil && strings.Contains(err.Error(), "no such table"):
		return s, headgate.NewError(headgate.CodeNotFound, "the database has no outbox; prepare it by headgate outbox init --url sqlite:PATH")
	case err != nil:
		return s, sqlError("reading the state of the outbox", err)
	case version != SchemaVersion:
		e := headgate.NewError(headgate.CodeConflict, "the database's outbox has version %d; this build works with %d", version, SchemaVersion)
		e.Fix = "Use a newer Headgate: it knows how to read this outbox. Its rows wait in the database until then."
		if version < SchemaVersion {
			e.Fix = "Bring it up to date: headgate outbox init --url sqlite:PATH."
		}
		return s, e
	}
	return s, nil
}

func sqlError(doing string, err error) error {
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: doing + ": " + err.Error(), Err: err}
}
