package fencepg

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

//go:embed sql/table.sql
var tableSQL string

//go:embed sql/row.sql
var rowSQL string

// relation is one table of a tree of partitions or heirs.
type relation struct {
	oid          uint32
	schema, name string
	kind         string // r, p, or something that cannot be fenced
	partition    bool
}

func (r relation) ident() string { return fence.Ident(r.schema) + "." + fence.Ident(r.name) }

// FenceTable returns the script that puts a table under fences, and executes
// it unless dry. The template says which resource a row belongs to: a constant
// for the whole table, or columns in braces ("ticket/{ticket_id}"). Partitions
// and heirs that exist are covered, partitions to come too, but for TRUNCATE.
// Repeating it with another template replaces the triggers. Transactions that
// are open under the first table's fence meanwhile are refused there (HG002) and
// have to be repeated.
//
// Errors: not_found, invalid_argument (no such column, not a plain or
// partitioned table), conflict when fencing is not installed.
func FenceTable(ctx context.Context, conn *pgx.Conn, schema, table, template string, dry bool) (string, error) {
	c, have, err := find(ctx, conn, schema)
	if err != nil {
		return "", err
	}
	if have < version {
		return "", headgate.NewError(headgate.CodeConflict, "An older version of fencing is installed: install this one first.")
	}
	return c.fenceTable(ctx, conn, table, template, dry)
}

// fenceTable is FenceTable for what is installed.
func (c Config) fenceTable(ctx context.Context, conn *pgx.Conn, table, template string, dry bool) (script string, err error) {
	t, err := fence.ParseTemplate(template)
	if err != nil {
		return "", err
	}
	err = inTx(ctx, conn, func(tx pgx.Tx) error {
		if err := c.alone(ctx, tx); err != nil {
			return err
		}
		tree, err := findTree(ctx, tx, table)
		if err != nil {
			return err
		}
		types, err := columnTypes(ctx, tx, tree[0], t)
		if err != nil {
			return err
		}
		if script, err = c.tableScript(tree, t, types); err != nil || dry {
			return err
		}
		_, err = tx.Exec(ctx, script)
		return err
	})
	return script, err
}

// UnfenceTable removes the triggers again, and returns or executes the script.
func UnfenceTable(ctx context.Context, conn *pgx.Conn, table string, dry bool) (string, error) {
	var script string
	err := inTx(ctx, conn, func(tx pgx.Tx) error {
		tree, err := findTree(ctx, tx, table)
		if err != nil {
			return err
		}
		script = dropTriggers(tree)
		if !dry {
			_, err = tx.Exec(ctx, script)
		}
		return err
	})
	return script, err
}

// findTree returns a table and everything that inherits from it, itself first.
func findTree(ctx context.Context, tx pgx.Tx, table string) ([]relation, error) {
	if strings.ContainsRune(table, 0) || !utf8.ValidString(table) {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "A table's name is text.")
	}
	// Since PostgreSQL 16 to_regclass finds nothing under what cannot be a name,
	// where it failed before; parse_ident fails on each.
	rows, err := tx.Query(ctx, `WITH RECURSIVE tree(oid, depth) AS (
			SELECT to_regclass($1)::oid, 0 WHERE pg_catalog.parse_ident($1) IS NOT NULL AND to_regclass($1) IS NOT NULL
			UNION ALL SELECT i.inhrelid, depth + 1 FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
		) SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relispartition FROM tree JOIN pg_catalog.pg_class c USING (oid)
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY depth, c.oid`, table)
	if err != nil {
		return nil, err
	}
	tree, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r relation, err error) {
		err = row.Scan(&r.oid, &r.schema, &r.name, &r.kind, &r.partition)
		return r, err
	})
	switch State(err) {
	case "":
	case "42601", "42602", "0A000", "22021", "22023": // how the server says that it cannot be a name
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "%q is no table's name: write it as in SQL, with its schema if need be.", clip(table))
	}
	if err != nil {
		return nil, err
	}
	if len(tree) == 0 {
		return nil, headgate.NewError(headgate.CodeNotFound, "There is no table %s.", clip(table))
	}
	if tree[0].partition {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "%s is a partition: fence the table that it is of.", clip(table))
	}
	for _, r := range tree {
		if r.kind != "r" && r.kind != "p" || r.schema == "pg_catalog" || r.schema == "information_schema" {
			return nil, headgate.NewError(headgate.CodeInvalidArgument, "%s is neither a plain nor a partitioned table.", clip(r.ident()))
		}
	}
	return tree, nil
}

// columnTypes returns the types of the template's columns.
func columnTypes(ctx context.Context, tx pgx.Tx, r relation, t fence.Template) (map[string]string, error) {
	types := map[string]string{}
	for _, name := range t.Columns() {
		var typ string
		err := tx.QueryRow(ctx, "SELECT atttypid::regtype::text FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attname = $2 AND attnum > 0 AND NOT attisdropped", r.oid, name).Scan(&typ)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, headgate.NewError(headgate.CodeInvalidArgument, "%s has no column %s.", clip(r.ident()), clip(name))
		}
		if err != nil {
			return nil, err
		}
		types[name] = typ
	}
	return types, nil
}

// fixed are the types whose text no setting of a session changes, and an
// expression that gives it for them. It fails for a type whose text a setting
// does change, should the column become one.
var fixed = map[string]string{
	"text": "pg_catalog.textcat(%s, '')", "character varying": "pg_catalog.textcat(%s, '')", "uuid": "CAST(CAST(%s AS uuid) AS text)",
	"smallint": "CAST(CAST(%s AS bigint) AS text)", "integer": "CAST(CAST(%s AS bigint) AS text)", "bigint": "CAST(CAST(%s AS bigint) AS text)",
}

// settings are what a key's text could depend on. A function pays for each of
// them at each call.
const settings = `
-- A key reads the same in every session, whatever its settings.
SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C'`

// resourceSQL returns the resource of a row as an expression, and the settings
// that it needs.
func resourceSQL(t fence.Template, types map[string]string, row string) (expr, needs string) {
	expr = t.Expr(func(column string) string {
		ref := row + fence.Ident(column)
		form, ok := fixed[types[column]]
		if !ok {
			form, needs = "CAST(%s AS text)", settings
		}
		return fmt.Sprintf(form, ref)
	})
	return "(" + expr + ")" + bytewise, needs
}

// bytewise compares keys by their bytes: a collation of a column may take
// different ones for the same.
const bytewise = ` COLLATE pg_catalog."C"`

// The names of triggers. Statements' triggers fire in the order of their
// names; nothing depends on it.
const (
	triggerStatement = "headgate_fence"
	triggerRows      = "headgate_fence_rows"
	triggerInsert    = "headgate_fence_insert"
	triggerUpdate    = "headgate_fence_update"
	triggerDelete    = "headgate_fence_delete"
)

func dropTriggers(tree []relation) string {
	var b strings.Builder
	for _, r := range tree {
		for _, name := range []string{triggerStatement, triggerInsert, triggerUpdate, triggerDelete, triggerRows} {
			if name == triggerRows && r.partition {
				continue // goes with that of the whole table
			}
			fmt.Fprintf(&b, "DROP TRIGGER IF EXISTS %s ON %s;\n", name, r.ident())
		}
	}
	return b.String()
}

func (c Config) tableScript(tree []relation, t fence.Template, types map[string]string) (string, error) {
	expr, needs := resourceSQL(t, types, "")
	before, _ := resourceSQL(t, types, "OLD.")
	after, _ := resourceSQL(t, types, "NEW.")
	if strings.Contains(expr, "$headgate$") {
		return "", headgate.NewError(headgate.CodeInvalidArgument, "The resource template holds $headgate$.")
	}
	var b strings.Builder
	// From now on the guard notes the fences of its transaction.
	b.WriteString(c.guard(true))
	b.WriteString(dropTriggers(tree))
	name, constant := t.Constant()
	parted := tree[0].kind == "p"
	rows := functionName(tree[0])
	function := ""
	switch {
	case parted:
		function = rowSQL
	case !constant:
		function = tableSQL
	}
	b.WriteString(c.fill(strings.NewReplacer("@rows", rows, "@settings", needs, "@expr", expr, "@oldexpr", before, "@newexpr", after).Replace(function)))
	if function != "" {
		fmt.Fprintf(&b, "REVOKE ALL ON FUNCTION %s.%s() FROM PUBLIC;\n", fence.Ident(c.private()), rows)
		b.WriteString(c.ownedRows(rows))
	}
	for _, r := range tree {
		c.tableTriggers(&b, r, rows, name, constant, parted)
	}
	if parted {
		fmt.Fprintf(&b, "CREATE TRIGGER %s AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION %s.%s();\n",
			triggerRows, tree[0].ident(), fence.Ident(c.private()), rows)
		for _, r := range tree { // older servers do not pass this on to partitions
			fmt.Fprintf(&b, "ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s;\n", r.ident(), triggerRows)
		}
	}
	return b.String(), nil
}

// tableTriggers writes the triggers of statements on one table. On partitioned
// tables those of rows do the work, and of statements there is TRUNCATE only.
func (c Config) tableTriggers(b *strings.Builder, r relation, rows, resource string, constant, parted bool) {
	private := fence.Ident(c.private())
	trigger := func(name, when, how string) {
		fmt.Fprintf(b, "CREATE TRIGGER %s %s ON %s %sFOR EACH STATEMENT EXECUTE FUNCTION %s.%s;\n", name, when, r.ident(), refs(name), private, how)
		fmt.Fprintf(b, "ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s;\n", r.ident(), name)
	}
	checked := "fence_statement(" + fence.Literal(resource) + ")"
	switch {
	case constant && parted:
		trigger(triggerStatement, "BEFORE TRUNCATE", checked)
	case constant:
		trigger(triggerStatement, "BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE", checked)
	default:
		trigger(triggerStatement, "BEFORE TRUNCATE", "fence_never()")
		if !parted {
			trigger(triggerInsert, "AFTER INSERT", rows+"()")
			trigger(triggerUpdate, "AFTER UPDATE", rows+"()")
			trigger(triggerDelete, "AFTER DELETE", rows+"()")
		}
	}
}

func refs(trigger string) string {
	switch trigger {
	case triggerInsert:
		return "REFERENCING NEW TABLE AS headgate_new "
	case triggerDelete:
		return "REFERENCING OLD TABLE AS headgate_old "
	case triggerUpdate:
		return "REFERENCING OLD TABLE AS headgate_old NEW TABLE AS headgate_new "
	}
	return ""
}

// ownedRows gives a table's function to the owner of the guard's functions.
func (c Config) ownedRows(rows string) string {
	return c.fill(`DO $$
DECLARE
  owner name;
BEGIN
  SELECT pg_get_userbyid(proowner) INTO STRICT owner FROM pg_catalog.pg_proc WHERE oid = '@private.fence_statement()'::regprocedure;
  IF owner <> current_user THEN
    EXECUTE format('ALTER FUNCTION @private.` + rows + `() OWNER TO %I', owner);
  END IF;
END $$;
`)
}

// functionName is the same before and after a dump and restore, unlike the
// table's number.
func functionName(r relation) string {
	h := fnv.New64a()
	fmt.Fprint(h, r.ident())
	return fmt.Sprintf("rows_%016x", h.Sum64())
}

// Fenced is a table with triggers, and what is wrong with them.
type Fenced struct {
	Table    string
	Problems []string
}

// FencedTables lists the fenced tables with their partitions and heirs, and
// what would let a write escape or gain rights: a trigger that was switched
// off or is of an older version, a partition or heir that came later without
// one.
func FencedTables(ctx context.Context, conn *pgx.Conn, schema string) ([]Fenced, error) {
	c := Config{Schema: schema}
	if err := c.check(); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `WITH RECURSIVE direct AS (
			SELECT DISTINCT t.tgrelid AS oid FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
			JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1 AND t.tgname LIKE 'headgate\_fence%'
		), tree AS (
			SELECT oid FROM direct UNION SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
		) SELECT tree.oid::regclass::text,
			count(t.oid) FILTER (WHERE t.tgenabled <> 'A'),
			count(t.oid) FILTER (WHERE (t.tgtype & 28) <> 0),
			count(t.oid) FILTER (WHERE (t.tgtype & 32) <> 0),
			count(t.oid) FILTER (WHERE p.prosecdef AND p.proname LIKE 'rows\_%'),
			count(t.oid) FILTER (WHERE p.proname LIKE 'rows\_%' AND position($3 IN p.prosrc) = 0 AND EXISTS (SELECT FROM pg_catalog.pg_attribute a
				JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation WHERE a.attrelid = t.tgrelid AND NOT l.collisdeterministic)),
			EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
				WHERE n.nspname = $2 AND p.proname = 'fence' AND p.pronargs = 3 AND p.prosrc LIKE '%set_config%')
		FROM tree LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = tree.oid AND t.tgname LIKE 'headgate\_fence%'
		LEFT JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
		GROUP BY 1 ORDER BY 1`, c.private(), c.schema(), bytewise)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Fenced, error) {
		var f Fenced
		var off, writes, truncates, definer, folding int
		var noted bool
		err := row.Scan(&f.Table, &off, &writes, &truncates, &definer, &folding, &noted)
		if !noted {
			f.Problems = append(f.Problems, "the guard leaves no note for the triggers, which refuse every write: repeat fence-table")
		}
		if off > 0 {
			f.Problems = append(f.Problems, "a trigger is not enabled always")
		}
		if writes == 0 {
			f.Problems = append(f.Problems, "has no trigger for writes")
		}
		if truncates == 0 {
			f.Problems = append(f.Problems, "has no trigger for TRUNCATE")
		}
		if definer > 0 {
			f.Problems = append(f.Problems, "a trigger runs casts of the table's columns with the rights of the guard's owner: repeat fence-table")
		}
		if folding > 0 {
			f.Problems = append(f.Problems, "a trigger may take different keys for the same, by the collation of a column: repeat fence-table")
		}
		f.Problems = slices.Clip(f.Problems)
		return f, err
	})
}

// TableScript returns what [FenceTable] would execute if this configuration
// were installed.
func (c Config) TableScript(ctx context.Context, conn *pgx.Conn, table, template string) (script string, err error) {
	if err := c.check(); err != nil {
		return "", err
	}
	return c.fenceTable(ctx, conn, table, template, true)
}

// FindNode returns the schema of the only node's store in the database, empty
// when there is none. Errors: conflict when there are several.
func FindNode(ctx context.Context, conn *pgx.Conn) (string, error) {
	rows, err := conn.Query(ctx, `SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = 'leases' AND c.relkind = 'r' AND EXISTS (SELECT 1 FROM pg_catalog.pg_class v WHERE v.relnamespace = n.oid AND v.relname = 'schema_version')
		AND (SELECT count(*) FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ('resource', 'epoch', 'nonce', 'closing', 'expires')) = 5 LIMIT 2`)
	if err != nil {
		return "", err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil || len(names) == 0:
		return "", err
	case len(names) > 1:
		return "", headgate.NewError(headgate.CodeConflict, "Several nodes keep their state in this database: say which one's leases count.")
	}
	return names[0], nil
}
