package fencepg_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fencepg"
)

// poison makes, in a schema that comes first in the search path, a double of
// every function, operator and type that the guard uses: whatever is looked up
// by its bare name meets one and fails.
const poison = `
CREATE SCHEMA own;
CREATE FUNCTION own.concat(pg_catalog.text, pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'shadowed'; END $$;
CREATE FUNCTION own.concat(pg_catalog.text, pg_catalog.text, pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'shadowed'; END $$;
CREATE FUNCTION own.concat(pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.text, pg_catalog.text, pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'shadowed'; END $$;
CREATE DOMAIN own.text AS pg_catalog.text CHECK (false);
CREATE DOMAIN own.int8 AS pg_catalog.int8 CHECK (false);
CREATE DOMAIN own.bytea AS pg_catalog.bytea CHECK (false);
DO $do$
DECLARE
  x record;
BEGIN
  FOR x IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS args, p.prorettype::regtype AS ret
    FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.proname IN (@names) LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION own.%I(%s) RETURNS %s LANGUAGE plpgsql AS $p$ BEGIN RAISE EXCEPTION %L; END $p$', x.proname, x.args, x.ret, 'shadowed');
    EXCEPTION WHEN feature_not_supported OR invalid_function_definition THEN NULL; -- pseudo-types
    END;
  END LOOP;
  FOR x IN SELECT o.oid, o.oprname, o.oprleft::regtype AS l, o.oprright::regtype AS r, o.oprresult::regtype AS ret
    FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname IN ('=', '<>', '<', '>', '<=', '>=', '*', '+', '-', '||', '~', '!~')
    AND o.oprleft::regtype::text IN ('text', 'bigint', 'integer', 'numeric', 'bytea', 'name', 'boolean', 'xid8', 'character varying', 'double precision') AND o.oprright <> 0 LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION own.poisoned_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $p$ BEGIN RAISE EXCEPTION %L; END $p$', x.oid, x.l, x.r, x.ret, 'shadowed');
      EXECUTE format('CREATE OPERATOR own.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = own.poisoned_%s)', x.oprname, x.l, x.r, x.oid);
    EXCEPTION WHEN feature_not_supported OR invalid_function_definition THEN NULL; -- pseudo-types
    END;
  END LOOP;
END $do$;`

// The guard runs with its owner's rights and in its caller's search path, so
// that nothing in it may be found by its bare name.
func TestNothingIsLookedUp(t *testing.T) {
	ctx := t.Context()
	pool, url := sealed(t)
	script, err := fencepg.Config{Node: "headgate"}.Script()
	if err != nil {
		t.Fatal(err)
	}
	old, now := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, old), "")
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, now), "")
	second := grant("t/2", 1)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, second), "")
	pgtest.Exec(t, url, `CREATE SCHEMA nodes; CREATE TABLE nodes.leases (resource bytea PRIMARY KEY, epoch bigint NOT NULL, nonce bytea, closing boolean NOT NULL, expires bigint NOT NULL, UNIQUE (resource, epoch));
		INSERT INTO nodes.leases SELECT resource, epoch, nonce, false, 9000000000000000000 FROM headgate_fence.fences`)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := fencepg.Install(ctx, conn, fencepg.Config{Schema: "noded", Node: "nodes"}); err != nil {
		t.Fatal(err)
	}
	table, err := fencepg.Config{}.TableScript(ctx, conn, "tickets", "t/{ticket}")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`([a-z_0-9]+)\(`).FindAllStringSubmatch(script+table, -1) {
		names = append(names, "'"+m[1]+"'")
	}
	slices.Sort(names)
	pgtest.Exec(t, url, strings.ReplaceAll(poison, "@names", strings.Join(slices.Compact(names), ", ")))
	call := func(sql string) error {
		_, err := conn.Exec(ctx, "ROLLBACK; SET search_path = own, pg_catalog, public; BEGIN; "+sql)
		return fencepg.Error(err)
	}
	for _, control := range []string{"SELECT strpos('a', 'b')", "SELECT 1::bigint = 2::bigint", "SELECT 'x'::text", "SELECT concat('a'::pg_catalog.text, 'b')", "SELECT set_config('a.b', 'c', true)"} {
		if err := call(control); err == nil {
			t.Errorf("%s met no double: the test shows nothing", control)
		}
	}
	fence := func(resource string, epoch, nonce string) string {
		return "SELECT headgate.fence('" + resource + "', " + epoch + ", '" + nonce + "')"
	}
	good := fence("t/1", "2", now.NonceText())
	want(t, "good", call(good), "")
	want(t, "twice, and a write", call(good+"; "+good+"; INSERT INTO public.tickets (id, ticket) VALUES (1, '1')"), "")
	want(t, "two fences", call(good+"; "+fence("t/2", "1", second.NonceText())+"; "+good+"; INSERT INTO public.tickets (id, ticket) VALUES (1, '1'), (2, '2')"), "")
	noded := func(sql string) string { return strings.Replace(sql, "headgate.", "noded.", 1) }
	want(t, "good, in a node's database", call(noded(good)), "")
	want(t, "stale, in a node's database", call(noded(fence("t/1", "1", old.NonceText()))), headgate.CodeStaleFence)
	want(t, "stale", call(fence("t/1", "1", old.NonceText())), headgate.CodeStaleFence)
	want(t, "other nonce", call(fence("t/1", "2", old.NonceText())), headgate.CodeFenceConflict)
	want(t, "malformed", call(fence("t//1", "2", now.NonceText())), headgate.CodeFenceMissing)
	want(t, "malformed token", call("SELECT headgate.fence('hgl1.AAAA.BBBB')"), headgate.CodeFenceMissing)
	want(t, "asked", call(good+"; SELECT headgate_fence.holds('t/1')"), "")
	want(t, "asked for another", call(good+"; SELECT headgate_fence.holds('t/2')"), headgate.CodeFenceForeign)
	forged := "SELECT pg_catalog.set_config('headgate.fences', pg_catalog.concat(pg_catalog.pg_current_xact_id(), E'\nt/1\t1\t" + old.NonceText() + "\n'), true)"
	want(t, "asked with a note of its own", call(forged+"; SELECT headgate_fence.holds('t/1')"), headgate.CodeStaleFence)
	want(t, "no fence", call("INSERT INTO public.tickets (id, ticket) VALUES (1, '1')"), headgate.CodeFenceMissing)
	want(t, "no seal", call("SELECT headgate.fence_seal('t/1', 1, '"+old.NonceText()+"')"), headgate.CodeStaleFence)
}
