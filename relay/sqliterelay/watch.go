package sqliterelay

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

var typePrefix = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

// watchTriggers begin the names of the triggers of watched tables.
const watchTriggers = "headgate_watch_"

// Watch makes row changes of a table into events of type PREFIX.inserted,
// PREFIX.updated and PREFIX.deleted. Watching it again takes in columns that
// were added. Tables that cannot be watched without gaps are refused with the
// reason. Errors: not_found, invalid_argument.
func Watch(ctx context.Context, db *sql.DB, table, prefix string) error {
	if len(prefix) > 180 || !typePrefix.MatchString(prefix) {
		return headgate.NewError(headgate.CodeInvalidArgument, "headgate HG101: %q is no prefix of event types", prefix)
	}
	return onTable(ctx, db, table, func(conn *sql.Conn, name string) error {
		statements, err := watchStatements(ctx, conn, name, prefix)
		if err != nil {
			return err
		}
		return runAll(ctx, conn, "watching "+name, statements)
	})
}

// runAll runs statements one by one.
func runAll(ctx context.Context, conn *sql.Conn, doing string, statements []string) error {
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return sqlError(doing, err)
		}
	}
	return nil
}

// watchStatements watch a table, in place of an earlier watch.
func watchStatements(ctx context.Context, conn *sql.Conn, name, prefix string) ([]string, error) {
	t, err := examineTable(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	statements, err := unwatchStatements(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	columns, err := json.Marshal(t.columns)
	if err != nil {
		return nil, err
	}
	return append(append(statements, t.triggers(prefix)...), fmt.Sprintf("INSERT INTO headgate_outbox_watched (name, prefix, columns) VALUES (%s, %s, %s)",
		literal(name), literal(prefix), literal(string(columns)))), nil
}

// Unwatch ends the watch of a table. Errors: not_found.
func Unwatch(ctx context.Context, db *sql.DB, table string) error {
	return onTable(ctx, db, table, func(conn *sql.Conn, name string) error {
		statements, err := unwatchStatements(ctx, conn, name)
		if err != nil {
			return err
		}
		return runAll(ctx, conn, "ending the watch of "+name, statements)
	})
}

// onTable runs fn as the writer, with the name of the table as it is spelled in
// the schema.
func onTable(ctx context.Context, db *sql.DB, table string, fn func(*sql.Conn, string) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return sqlError("opening the database", err)
	}
	defer conn.Close()
	if _, err := readState(ctx, conn); err != nil {
		return err
	}
	return immediate(ctx, conn, func() error {
		names, err := list(ctx, conn, `SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE`, table)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return headgate.NewError(headgate.CodeNotFound, "there is no table %q", table)
		}
		return fn(conn, names[0])
	})
}

// list returns the first column of a query.
func list(ctx context.Context, q querier, query string, args ...any) ([]string, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, sqlError("examining the database", err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, sqlError("examining the database", err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		return nil, sqlError("examining the database", err)
	}
	return all, nil
}

// unwatchStatements end the watch of a table, if there is one.
func unwatchStatements(ctx context.Context, conn *sql.Conn, name string) ([]string, error) {
	triggers, err := list(ctx, conn, `SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE AND substr(name, 1, ?) = ?`,
		name, len(watchTriggers), watchTriggers)
	if err != nil {
		return nil, err
	}
	var statements []string
	for _, trigger := range triggers {
		statements = append(statements, "DROP TRIGGER main."+ident(trigger))
	}
	return append(statements, "DELETE FROM headgate_outbox_watched WHERE name = "+literal(name)), nil
}

// table is what the triggers of a watched table know about it.
type table struct {
	name    string
	columns []string
	key     []string
	rowid   bool // the key is the number of the row
	uniques []unique
}

// unique is an index that allows no two rows of the same values.
type unique struct {
	columns    []string
	collations []string
}

func refuse(format string, args ...any) error {
	return headgate.NewError(headgate.CodeInvalidArgument, "headgate HG106: "+format, args...)
}

// examineTable reads a table's columns and indexes, and refuses what cannot be
// watched.
func examineTable(ctx context.Context, conn *sql.Conn, name string) (*table, error) {
	var kind, ddl string
	err := conn.QueryRowContext(ctx, `SELECT type, coalesce(sql, '') FROM main.sqlite_master WHERE name = ? AND type IN ('table', 'view')`, name).Scan(&kind, &ddl)
	lower := strings.ToLower(name)
	switch {
	case err != nil:
		return nil, sqlError("examining "+name, err)
	case kind != "table":
		return nil, refuse("%s is a view; watch the tables behind it", name)
	case strings.HasPrefix(lower, "headgate_") || strings.HasPrefix(lower, "sqlite_"):
		return nil, refuse("%s is not a table of yours", name)
	case strings.HasPrefix(strings.ToLower(strings.TrimSpace(ddl)), "create virtual"):
		return nil, refuse("%s is a virtual table, which has no triggers", name)
	}
	t := &table{name: name}
	if t.columns, err = list(ctx, conn, `SELECT name FROM pragma_table_xinfo(?, 'main') WHERE hidden <> 1 ORDER BY cid`, name); err != nil {
		return nil, err
	}
	if t.key, err = list(ctx, conn, `SELECT name FROM pragma_table_xinfo(?, 'main') WHERE pk > 0 ORDER BY pk`, name); err != nil {
		return nil, err
	}
	if len(t.key) == 0 {
		return nil, refuse("%s has no primary key, so that its rows have no order key", name)
	}
	return t, t.examineIndexes(ctx, conn)
}

func (t *table) examineIndexes(ctx context.Context, conn *sql.Conn) error {
	loose, err := list(ctx, conn, `SELECT name FROM pragma_index_list(?, 'main') l WHERE "unique" AND (partial
		OR EXISTS (SELECT 1 FROM pragma_index_xinfo(l.name, 'main') x WHERE x.key AND x.cid < 0))`, t.name)
	if err != nil {
		return err
	}
	if len(loose) > 0 {
		return refuse("%s has the unique index %s on an expression or a part of its rows: which row a REPLACE removes by it cannot be told", t.name, loose[0])
	}
	indexes, err := list(ctx, conn, `SELECT name FROM pragma_index_list(?, 'main') WHERE "unique" ORDER BY seq`, t.name)
	if err != nil {
		return err
	}
	keyed, err := list(ctx, conn, `SELECT name FROM pragma_index_list(?, 'main') WHERE origin = 'pk'`, t.name)
	if err != nil {
		return err
	}
	t.rowid = len(keyed) == 0
	for _, index := range indexes {
		var u unique
		if u.columns, err = list(ctx, conn, `SELECT name FROM pragma_index_xinfo(?, 'main') WHERE key ORDER BY seqno`, index); err != nil {
			return err
		}
		if u.collations, err = list(ctx, conn, `SELECT coll FROM pragma_index_xinfo(?, 'main') WHERE key ORDER BY seqno`, index); err != nil {
			return err
		}
		t.uniques = append(t.uniques, u)
	}
	return nil
}

func ident(s string) string   { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
func literal(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }

// jsonString writes a string as JSON, for use within SQL.
func jsonString(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // strings always marshal
	}
	return string(b)
}

// valueOf is a column's value as JSON: numbers with all their digits, blobs in
// hexadecimal form.
func valueOf(column string) string {
	return `CASE typeof(` + column + `) WHEN 'blob' THEN '"\\x' || lower(hex(` + column + `)) || '"'
      WHEN 'real' THEN CASE WHEN ` + column + ` > 1.7976931348623157e308 THEN '"Infinity"' WHEN ` + column + ` < -1.7976931348623157e308 THEN '"-Infinity"' ELSE printf('%!.17g', ` + column + `) END
      ELSE json_quote(` + column + `) END`
}

// object is a row's columns as a JSON object. The parts are joined in pairs: SQLite
// bounds how deep an expression is.
func object(row string, columns []string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		comma := ""
		if i > 0 {
			comma = ","
		}
		parts[i] = literal(comma+jsonString(c)+":") + " || " + valueOf(row+"."+ident(c))
	}
	return "'{' || " + joined(parts) + " || '}'"
}

func joined(parts []string) string {
	if len(parts) == 1 {
		return "(" + parts[0] + ")"
	}
	half := len(parts) / 2
	return "(" + joined(parts[:half]) + " || " + joined(parts[half:]) + ")"
}

// event is the statement that writes one event, from no table or from the
// clause given.
func (t *table) event(prefix, verb, change, keys, before, after, from string) string {
	data := literal(`{"table":`+jsonString(t.name)+`,"change":"`+change+`","key":`) + " || " + keys +
		` || ',"before":' || ` + before + ` || ',"after":' || ` + after + ` || '}'`
	return fmt.Sprintf(`  INSERT INTO headgate_outbox_rows (id, type, subject, key, cause, origin, data)
  SELECT %s, %s, substr(%s, 1, 1000), %s || substr(%s, 1, 500), (SELECT token FROM headgate_outbox_mark), 'change', CAST(%s AS BLOB)%s;
`, newID, literal(prefix+"."+verb), keys, literal(t.name+" "), keys, data, from)
}

// triggers are the statements that make the triggers.
func (t *table) triggers(prefix string) []string {
	name := literal(t.name)
	clear := `  DELETE FROM headgate_outbox_replaced WHERE name = ` + name + ";\n"
	replaced := func(also string) string {
		return t.event(prefix, "deleted", "delete", "r.keys", "r.row", "'null'", " FROM headgate_outbox_replaced r WHERE r.name = "+name+also) + clear
	}
	newKeys, oldKeys := object("NEW", t.key), object("OLD", t.key)
	newRow, oldRow := object("NEW", t.columns), object("OLD", t.columns)
	same := make([]string, len(t.key))
	for i, k := range t.key {
		same[i] = "o." + ident(k) + " IS OLD." + ident(k)
	}
	other := " AND NOT (" + strings.Join(same, " AND ") + ")"
	return []string{
		t.trigger("BEFORE INSERT", clear+t.stash("")),
		t.trigger("AFTER INSERT", replaced(" AND (NOT r.by_key OR r.keys = "+newKeys+")")+t.event(prefix, "inserted", "insert", newKeys, "'null'", newRow, "")),
		t.trigger("BEFORE UPDATE", clear+t.stash(other)),
		t.trigger("AFTER UPDATE", replaced("")+t.event(prefix, "updated", "update", newKeys, oldRow, newRow, "")),
		t.trigger("AFTER DELETE", "  DELETE FROM headgate_outbox_replaced WHERE name = "+name+" AND keys = "+oldKeys+";\n"+
			t.event(prefix, "deleted", "delete", oldKeys, oldRow, "'null'", "")),
	}
}

func (t *table) trigger(when, body string) string {
	h := fnv.New64a()
	fmt.Fprint(h, strings.ToLower(t.name))
	name := fmt.Sprintf("%s%s_%016x", watchTriggers, strings.ReplaceAll(strings.ToLower(when), " ", "_"), h.Sum64())
	return fmt.Sprintf("CREATE TRIGGER %s %s ON %s BEGIN\n%sEND", name, when, ident(t.name), body)
}

// stash keeps the rows that the statement would replace if it may: those with
// the new row's values in a unique index. When the statement succeeds, they are
// gone.
func (t *table) stash(also string) string {
	var b strings.Builder
	add := func(byKey string, conditions []string) {
		keys := object("o", t.key)
		fmt.Fprintf(&b, `  INSERT INTO headgate_outbox_replaced (name, keys, by_key, row)
  SELECT %s, %s, %s, %s FROM %s o WHERE %s%s
    AND NOT EXISTS (SELECT 1 FROM headgate_outbox_replaced x WHERE x.name = %s AND x.keys = %s);
`, literal(t.name), keys, byKey, object("o", t.columns), ident(t.name), strings.Join(conditions, " AND "), also, literal(t.name), keys)
	}
	for _, u := range t.uniques {
		conditions := make([]string, len(u.columns))
		for i, c := range u.columns {
			conditions[i] = "o." + ident(c) + " = NEW." + ident(c) + " COLLATE " + ident(u.collations[i])
		}
		add("0", conditions)
	}
	if t.rowid {
		add("1", []string{"o." + ident(t.key[0]) + " = NEW." + ident(t.key[0])})
	}
	return b.String()
}

// drift returns what is wrong with the watch of each table.
func drift(ctx context.Context, conn *sql.Conn) (found []string, err error) {
	names, err := list(ctx, conn, `SELECT name FROM headgate_outbox_watched ORDER BY name`)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		columns, err := list(ctx, conn, `SELECT value FROM headgate_outbox_watched, json_each(columns) WHERE headgate_outbox_watched.name = ? ORDER BY key`, name)
		if err != nil {
			return nil, err
		}
		now, err := list(ctx, conn, `SELECT name FROM pragma_table_xinfo(?, 'main') WHERE hidden <> 1 ORDER BY cid`, name)
		if err != nil {
			return nil, err
		}
		triggers, err := list(ctx, conn, `SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE AND substr(name, 1, ?) = ?`,
			name, len(watchTriggers), watchTriggers)
		switch {
		case err != nil:
			return nil, err
		case len(now) == 0:
			found = append(found, "the watched table "+name+" is gone or has another name")
		case len(triggers) != 5:
			found = append(found, "triggers of the watched table "+name+" are missing")
		case !slices.Equal(columns, now):
			found = append(found, "the columns of the watched table "+name+" changed since, and its events have the old ones")
		}
	}
	return found, nil
}
