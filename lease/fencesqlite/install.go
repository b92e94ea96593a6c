package fencesqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

// base is what Install executes. headgate_never stays empty.
const base = `CREATE TABLE IF NOT EXISTS headgate_fences (
  resource TEXT PRIMARY KEY,
  epoch    INTEGER NOT NULL CHECK (epoch > 0),
  nonce    TEXT    NOT NULL,
  closing  INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS headgate_fences_stay BEFORE DELETE ON headgate_fences
BEGIN SELECT RAISE(ABORT, 'fences are never deleted'); END;
CREATE TRIGGER IF NOT EXISTS headgate_fences_rise BEFORE UPDATE OF epoch ON headgate_fences WHEN new.epoch < old.epoch
BEGIN SELECT RAISE(ABORT, 'epochs never fall'); END;
CREATE TABLE IF NOT EXISTS headgate_never (id INTEGER PRIMARY KEY CHECK (id <> id));
CREATE TABLE IF NOT EXISTS headgate_fence (
  resource TEXT PRIMARY KEY,
  epoch    INTEGER NOT NULL,
  nonce    TEXT NOT NULL,
  never    INTEGER NOT NULL DEFAULT 1 REFERENCES headgate_never (id) DEFERRABLE INITIALLY DEFERRED
) WITHOUT ROWID;`

// Script returns what Install executes.
func Script() string { return base + "\n" }

// Install makes the tables of the guard. It may be repeated.
func Install(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, base)
	return err
}

// FenceTable returns the script that puts a table under fences, and executes
// it unless dry, together with [Install]. The template says which resource a
// row belongs to, such as "ticket/{ticket_id}". Repeating it replaces the
// triggers. Errors: not_found, invalid_argument.
func FenceTable(ctx context.Context, db *sql.DB, table, template string, dry bool) (string, error) {
	t, err := fence.ParseTemplate(template)
	if err != nil {
		return "", err
	}
	if table, err = named(ctx, db, table); err != nil {
		return "", err
	}
	if err := check(ctx, db, table, t); err != nil {
		return "", err
	}
	script := "BEGIN IMMEDIATE;\n" + base + "\n" + dropTriggers(table)
	for _, tr := range []struct{ op, rows string }{{"INSERT", "NEW"}, {"UPDATE", "OLD NEW"}, {"DELETE", "OLD"}} {
		script += trigger(table, tr.op, strings.Fields(tr.rows), t)
	}
	script += "COMMIT;\n"
	if dry {
		return script, nil
	}
	return script, run(ctx, db, script)
}

// UnfenceTable removes the triggers. Errors: not_found, invalid_argument.
func UnfenceTable(ctx context.Context, db *sql.DB, table string, dry bool) (string, error) {
	table, err := named(ctx, db, table)
	if err != nil {
		return "", err
	}
	script := dropTriggers(table)
	if dry {
		return script, nil
	}
	return script, run(ctx, db, script)
}

// run executes a script on one connection and leaves no transaction open.
func run(ctx context.Context, db *sql.DB, script string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err = conn.ExecContext(ctx, script); err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // there may be none to undo
	}
	return err
}

// named returns a table's name as the database spells it, so that the triggers
// are the same ones however it was written.
func named(ctx context.Context, db *sql.DB, table string) (name string, err error) {
	var kind string
	err = db.QueryRowContext(ctx, `SELECT name, CASE WHEN type <> 'table' OR sql LIKE 'CREATE VIRTUAL%' OR name LIKE 'sqlite\_%' ESCAPE '\' OR name IN ('headgate_fences', 'headgate_fence', 'headgate_never') THEN 'other' ELSE 'table' END
		FROM (SELECT name, type, sql FROM sqlite_schema UNION ALL SELECT 'sqlite_schema', 'schema', '' UNION ALL SELECT 'sqlite_master', 'schema', '')
		WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view', 'schema')`, table).Scan(&name, &kind)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", headgate.NewError(headgate.CodeNotFound, "There is no such table.")
	case err == nil && kind != "table":
		return "", headgate.NewError(headgate.CodeInvalidArgument, "%q is no table that can be fenced.", name)
	}
	return name, err
}

func check(ctx context.Context, db *sql.DB, table string, t fence.Template) error {
	rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_info(?)", table)
	if err != nil {
		return err
	}
	defer rows.Close()
	have := map[string]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		have[name] = true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, c := range t.Columns() {
		if !have[c] {
			return headgate.NewError(headgate.CodeInvalidArgument, "The table has no such column as the template names; it must be spelled as in the table.")
		}
	}
	return nil
}

func triggerName(table, op string) string {
	h := fnv.New64a()
	fmt.Fprint(h, table)
	return fmt.Sprintf("headgate_fence_%s_%016x", strings.ToLower(op), h.Sum64())
}

func dropTriggers(table string) string {
	var b strings.Builder
	for _, op := range []string{"INSERT", "UPDATE", "DELETE"} {
		fmt.Fprintf(&b, "DROP TRIGGER IF EXISTS %s;\n", triggerName(table, op))
	}
	return b.String()
}

// trigger writes one that compares the set fence with the newest, for each
// resource that the row belongs to. SQLite's triggers are of rows.
func trigger(table, op string, rows []string, t fence.Template) string {
	var b strings.Builder
	when := "BEFORE"
	if op != "DELETE" {
		when = "AFTER" // the row as it is kept, whatever other triggers did to it
	}
	fmt.Fprintf(&b, "CREATE TRIGGER %s %s %s ON %s BEGIN\n", triggerName(table, op), when, op, fence.Ident(table))
	for _, row := range rows {
		expr := t.SQL(row + ".")
		fmt.Fprintf(&b, "  SELECT RAISE(ABORT, 'headgate HG002: the table is fenced and the transaction names no fence') WHERE NOT EXISTS (SELECT 1 FROM headgate_fence);\n")
		fmt.Fprintf(&b, "  SELECT RAISE(ABORT, 'headgate HG004: the row belongs to a resource that the transaction holds no fence of') WHERE NOT EXISTS (SELECT 1 FROM headgate_fence s WHERE s.resource = %s);\n", expr)
		fmt.Fprintf(&b, "  SELECT RAISE(ABORT, 'headgate HG001: the epoch is superseded') WHERE NOT EXISTS (SELECT 1 FROM headgate_fence s JOIN headgate_fences f ON f.resource = s.resource WHERE s.resource = %s AND f.epoch = s.epoch AND f.nonce = s.nonce AND NOT f.closing);\n", expr)
	}
	b.WriteString("END;\n")
	return b.String()
}
