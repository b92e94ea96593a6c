package fencepg

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
)

//go:embed sql/base.sql
var baseSQL string

//go:embed sql/fences.sql
var fencesSQL string

//go:embed sql/guard.sql
var guardSQL string

//go:embed sql/fence.sql
var fenceSQL string

//go:embed sql/note.sql
var noteSQL string

//go:embed sql/pass.sql
var passSQL string

//go:embed sql/down.sql
var downSQL string

// version is of the installed objects. [Install] brings older ones up to it,
// and what was fenced or sealed stays so. Version 2 keeps the note of a
// transaction's fences as text; since version 3 the guard leaves none before a
// table is fenced; since version 4 what names a row's resource runs with the
// rights of whoever writes it.
const version = 4

// minServer is the oldest PostgreSQL that is supported.
const minServer = 140000

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,50}$`)

// Config says what is installed and where. The zero value of each field means
// its default.
type Config struct {
	// Schema has the functions that applications call; default headgate.
	// Everything else lies in a schema of the same name with _fence appended.
	Schema string
	// Node is the schema of a node's store in this very database. Its lease
	// table is then what the guards look at. Empty: the leases live elsewhere,
	// and holders seal this database before they use it.
	Node string
	// Grant are the roles that may call the functions, "public" for all.
	Grant []string

	mutate func(string) string // takes a part of the guard out, for tests
}

func (c Config) check() error {
	if !schemaName.MatchString(c.schema()) || c.Node != "" && !schemaName.MatchString(c.Node) {
		return headgate.NewError(headgate.CodeInvalidArgument, "A schema is named by lower-case letters, digits and underscores.")
	}
	for _, r := range c.Grant {
		if r == "" || len(r) > 63 || strings.ContainsRune(r, 0) {
			return headgate.NewError(headgate.CodeInvalidArgument, "A role to grant to has no valid name.")
		}
	}
	return nil
}

func (c Config) schema() string  { return cmp.Or(c.Schema, "headgate") }
func (c Config) private() string { return c.schema() + "_fence" }
func (c Config) setting() string { return c.schema() + ".fences" }

// mark is what the private schema's comment says.
func (c Config) mark(version int) string {
	source := "fences"
	if c.Node != "" {
		source = "node " + c.Node
	}
	return fmt.Sprintf("headgate fencing %d, %s", version, source)
}

// fill replaces the names in a script.
func (c Config) fill(sql string) string {
	table, alive, unknown, hint := fence.Ident(c.private())+".fences", "true", "HG003", "Seal this database with the new grant before using it."
	if c.Node != "" {
		table = fence.Ident(c.Node) + ".leases"
		// In floating point, which is exact to a quarter of a microsecond here and
		// cheaper than numbers of any length.
		alive = "l.expires OPERATOR(pg_catalog.>) (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000000)::bigint"
		unknown, hint = "HG001", "Stop: the lease is not known any more; acquire it again."
	}
	sql = strings.ReplaceAll(sql, "@pass", strings.TrimSpace(passSQL))
	sql = strings.NewReplacer("@private", fence.Ident(c.private()), "@public", fence.Ident(c.schema()), "@table", table,
		"@alive", alive, "@setting", c.setting(), "@unknown", unknown, "@hint", hint).Replace(sql)
	if c.mutate != nil {
		sql = c.mutate(sql)
	}
	return sql
}

// revoke takes the functions that applications call away from everybody.
func (c Config) revoke() string {
	functions := "@public.fence(text, bigint, text), @public.fence(text)"
	if c.Node == "" {
		functions += ", @public.fence_gate(text, bigint), @public.fence_seal(text, bigint, text), @public.fence_close_all()"
	}
	return "REVOKE ALL ON FUNCTION " + functions + " FROM PUBLIC;\n"
}

// Script returns what Install would execute in a database without fencing.
func (c Config) Script() (string, error) {
	if err := c.check(); err != nil {
		return "", err
	}
	return c.script("", c.revoke(), false), nil
}

// upgrade is the script for a database with an older version, in which tables
// are fenced or not. Who may call the functions stays as it is, but for what is
// revoked.
func (c Config) upgrade(revoked string, fenced bool) string {
	return c.script(`DROP FUNCTION IF EXISTS @private.pass(text, bigint, text), @private.holds(text);
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = '@private'::regnamespace AND proname LIKE 'rows\_%' AND prosecdef LOOP
    EXECUTE format('ALTER FUNCTION %s SECURITY INVOKER', f);
  END LOOP;
END $$;
`, revoked, fenced)
}

// guard is the script of the function that applications call. With fenced
// tables it leaves the note that their triggers read.
func (c Config) guard(fenced bool) string {
	variables, note := "", ""
	if fenced {
		variables = `  noted pg_catalog.text := pg_catalog.current_setting('@setting', true);
  own   pg_catalog.text;
  line  pg_catalog.text;`
		note = strings.TrimRight(noteSQL, "\n")
	}
	return c.fill(strings.NewReplacer("@variables\n", variables+"\n", "@note\n", note+"\n").Replace(fenceSQL))
}

func (c Config) script(first, rights string, fenced bool) string {
	parts := []string{first, baseSQL}
	if c.Node == "" {
		parts = append(parts, fencesSQL)
	}
	parts = append(parts, guardSQL, c.guard(fenced), rights)
	if c.Node != "" {
		parts = append(parts, c.owned())
	}
	parts = append(parts, c.grants(), "COMMENT ON SCHEMA @private IS "+fence.Literal(c.mark(version))+";\n")
	return c.fill(strings.Join(parts, "\n"))
}

// owned gives the functions to the owner of the node's lease table, when the
// one who installs is another: they need no more rights than that.
func (c Config) owned() string {
	return `DO $$
DECLARE
  owner name;
BEGIN
  SELECT pg_get_userbyid(relowner) INTO STRICT owner FROM pg_catalog.pg_class WHERE oid = '@table'::regclass;
  IF owner <> current_user THEN
    EXECUTE format('ALTER FUNCTION @public.fence(text, bigint, text) OWNER TO %I', owner);
    EXECUTE format('ALTER FUNCTION @public.fence(text) OWNER TO %I', owner);
    EXECUTE format('ALTER FUNCTION @private.fence_statement() OWNER TO %I', owner);
    EXECUTE format('ALTER FUNCTION @private.holds(text) OWNER TO %I', owner);
    EXECUTE format('GRANT USAGE ON SCHEMA @private, @public TO %I', owner);
    EXECUTE format('GRANT EXECUTE ON FUNCTION @private.refuse(text, bigint, text), @private.well_formed(text, bigint, text), @public.fence(text, bigint, text) TO %I', owner);
  END IF;
END $$;
`
}

func (c Config) grants() string {
	var b strings.Builder
	for _, role := range c.Grant {
		to := "PUBLIC"
		if !strings.EqualFold(role, "public") {
			to = fence.Ident(role)
		}
		fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA @public TO %s;\nGRANT EXECUTE ON FUNCTION @public.fence(text, bigint, text), @public.fence(text) TO %s;\n", to, to)
		if c.Node == "" {
			fmt.Fprintf(&b, "GRANT EXECUTE ON FUNCTION @public.fence_gate(text, bigint), @public.fence_seal(text, bigint, text) TO %s;\n", to)
		}
	}
	return b.String()
}

// Install puts the functions into the database, all or nothing, in place of
// those of an older version. Repeating it with the same Config changes nothing
// but the grants, unless the database was restored without its rights. Errors:
// conflict when another configuration or a newer version is installed;
// invalid_config when the server is too old or Node names no store.
func Install(ctx context.Context, conn *pgx.Conn, c Config) error {
	script, err := c.Script()
	if err != nil {
		return err
	}
	return inTx(ctx, conn, func(tx pgx.Tx) error {
		if err := c.ready(ctx, tx); err != nil {
			return err
		}
		have, err := c.installed(ctx, tx)
		switch {
		case err != nil:
			return err
		case have == c.mark(version), c.older(have):
			fenced, entitled, err := c.state(ctx, tx)
			if err != nil {
				return err
			}
			switch older := have != c.mark(version); {
			case older:
				script = c.upgrade("", fenced)
			case !entitled:
				script = c.upgrade(c.revoke(), fenced)
			default:
				script = c.fill(c.grants())
			}
		case have != "":
			return headgate.NewError(headgate.CodeConflict, "Another fencing is installed (%s); uninstall it first.", clip(have))
		}
		_, err = tx.Exec(ctx, script)
		return err
	})
}

// state reports whether triggers of any table ask these functions, and whether
// what a version gives to everybody is there: a dump that was restored without
// rights has none, and functions that everybody may call.
func (c Config) state(ctx context.Context, tx pgx.Tx) (fenced, entitled bool, err error) {
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
		WHERE p.pronamespace = n.oid AND t.tgname LIKE 'headgate\_fence%'), has_schema_privilege('public', n.oid, 'USAGE')
		FROM pg_catalog.pg_namespace n WHERE n.nspname = $1`, c.private()).Scan(&fenced, &entitled)
	return fenced, entitled, err
}

// alone keeps others from changing the functions until the transaction ends.
func (c Config) alone(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", c.private())
	return err
}

// older reports whether a mark is of this configuration in an older version.
func (c Config) older(mark string) bool {
	for v := 1; v < version; v++ {
		if mark == c.mark(v) {
			return true
		}
	}
	return false
}

// ready takes the installers' lock and looks at what must be there.
func (c Config) ready(ctx context.Context, tx pgx.Tx) error {
	var server int
	err := tx.QueryRow(ctx, "SELECT current_setting('server_version_num')::int FROM (SELECT pg_advisory_xact_lock(hashtext($1))) l", c.private()).Scan(&server)
	if err != nil {
		return err
	}
	if server < minServer {
		return headgate.NewError(headgate.CodeInvalidConfig, "PostgreSQL 14 or newer is needed, this is %d.", server/10000)
	}
	if c.Node == "" {
		return nil
	}
	var columns int
	err = tx.QueryRow(ctx, `SELECT count(*) FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass($1) AND attname IN ('resource', 'epoch', 'nonce', 'closing', 'expires')`,
		fence.Ident(c.Node)+".leases").Scan(&columns)
	if err == nil && columns != 5 {
		err = headgate.NewError(headgate.CodeInvalidConfig, "The schema %s holds no node's store with leases.", c.Node)
	}
	return err
}

// installed returns the mark of what is there, empty for nothing.
func (c Config) installed(ctx context.Context, tx pgx.Tx) (string, error) {
	var have *string
	err := tx.QueryRow(ctx, "SELECT coalesce(obj_description(oid, 'pg_namespace'), '?') FROM pg_catalog.pg_namespace WHERE nspname = $1", c.private()).Scan(&have)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return *have, nil
}

// Installed returns how fencing is installed under the schema (empty:
// headgate), in this version or an older one, or not_found.
func Installed(ctx context.Context, conn *pgx.Conn, schema string) (Config, error) {
	c, _, err := find(ctx, conn, schema)
	return c, err
}

// find is Installed with the version.
func find(ctx context.Context, conn *pgx.Conn, schema string) (c Config, have int, err error) {
	c = Config{Schema: schema}
	if err := c.check(); err != nil {
		return c, 0, err
	}
	var mark string
	err = inTx(ctx, conn, func(tx pgx.Tx) (err error) {
		mark, err = c.installed(ctx, tx)
		return err
	})
	if err != nil {
		return c, 0, err
	}
	if _, node, ok := strings.Cut(mark, ", node "); ok {
		c.Node = node
	}
	for have = version; have > 0; have-- {
		if mark == c.mark(have) {
			return c, have, nil
		}
	}
	return c, 0, headgate.NewError(headgate.CodeNotFound, "No fencing of this version is installed in the schema %s.", c.private())
}

// Uninstall removes the functions and the triggers of every fenced table, and
// with them what was sealed.
func Uninstall(ctx context.Context, conn *pgx.Conn, schema string) error {
	c := Config{Schema: schema}
	if err := c.check(); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, c.fill(downSQL))
	return err
}

func inTx(ctx context.Context, conn *pgx.Conn, fn func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, fn)
}

func clip(s string) string {
	if len(s) > 100 {
		s = s[:100]
	}
	return strings.ToValidUTF8(s, "?")
}
