package fencepg_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fencepg"
)

// owned is a database in which an ordinary login owns the fenced tables. Its
// type's cast to text makes it superuser, if that runs with such rights.
func owned(t *testing.T) (admin *pgx.Conn, app *pgxpool.Pool, url, role string) {
	t.Helper()
	role = fmt.Sprintf("caster_%d", time.Now().UnixNano())
	server := pgtest.URL(t)
	pgtest.Exec(t, server, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { pgtest.Exec(t, server, "DROP ROLE "+role) })
	url = newDatabase(t)
	pgtest.Exec(t, url, "CREATE SCHEMA own AUTHORIZATION "+role)
	t.Cleanup(func() { pgtest.Exec(t, url, "DROP OWNED BY "+role+" CASCADE") })
	app = connect(t, strings.Replace(url, "headgate@", role+"@", 1))
	if _, err := app.Exec(t.Context(), `CREATE TYPE own.e AS ENUM ('1', '2');
		CREATE FUNCTION own.evil(own.e) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
			BEGIN EXECUTE 'ALTER ROLE `+role+` SUPERUSER'; EXCEPTION WHEN insufficient_privilege THEN NULL; END;
			RETURN (enum_out($1))::text; END $$;
		CREATE TABLE own.plain (id int, key text);
		CREATE TABLE own.parted (id int, key text) PARTITION BY RANGE (id);
		CREATE TABLE own.parted_1 PARTITION OF own.parted FOR VALUES FROM (0) TO (1000);
		CREATE CAST (own.e AS text) WITH FUNCTION own.evil(own.e) AS IMPLICIT`); err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(t.Context()) })
	return admin, app, url, role
}

var retype = "ALTER TABLE %s ALTER key TYPE own.e USING CASE WHEN key = '1' THEN '1'::own.e ELSE '2'::own.e END"

// The owner of a fenced table gains nothing by a type of his own: its cast
// runs with his rights, whether the column had the type when it was fenced or
// got it later.
func TestCastsRunAsTheWriter(t *testing.T) {
	ctx := t.Context()
	for _, table := range []string{"own.plain", "own.parted"} {
		for _, when := range []string{"before", "after", "upgraded"} {
			t.Run(table+" "+when, func(t *testing.T) {
				admin, app, _, role := owned(t)
				if err := fencepg.Install(ctx, admin, fencepg.Config{Grant: []string{role}}); err != nil {
					t.Fatal(err)
				}
				exec := func(sql string) {
					t.Helper()
					if _, err := app.Exec(ctx, sql); err != nil {
						t.Fatal(err)
					}
				}
				if when == "before" {
					exec(fmt.Sprintf(retype, table))
				}
				if _, err := fencepg.FenceTable(ctx, admin, "", table, "t/{key}", false); err != nil {
					t.Fatal(err)
				}
				if when != "before" {
					exec(fmt.Sprintf(retype, table))
				}
				if when == "upgraded" {
					age(t, admin)
					if err := fencepg.Install(ctx, admin, fencepg.Config{}); err != nil {
						t.Fatal(err)
					}
				}
				f := grant("t/1", 1)
				want(t, "seal", new(fencepg.DB).Seal(ctx, app, f), "")
				for _, sql := range []string{"INSERT INTO %s VALUES (1, '1')", "UPDATE %s SET id = 2", "DELETE FROM %s"} {
					err := fencepg.Tx(ctx, app, f, func(tx pgx.Tx) error {
						_, err := tx.Exec(ctx, fmt.Sprintf(sql, table))
						return err
					})
					want(t, sql, err, "")
					var super bool
					if err := admin.QueryRow(ctx, "SELECT rolsuper FROM pg_roles WHERE rolname = $1", role).Scan(&super); err != nil || super {
						t.Fatalf("%s: superuser %v, %v", sql, super, err)
					}
				}
				_, err := app.Exec(ctx, fmt.Sprintf("INSERT INTO %s VALUES (1, '1')", table))
				want(t, "no fence", fencepg.Error(err), headgate.CodeFenceMissing)
			})
		}
	}
}

// age makes what is installed one of the version before, whose triggers of
// rows ran with the rights of their owner, and looks whether that is told.
func age(t *testing.T, admin *pgx.Conn) {
	t.Helper()
	ctx := t.Context()
	if _, err := admin.Exec(ctx, `DO $$ DECLARE f regprocedure; BEGIN
		FOR f IN SELECT oid FROM pg_proc WHERE proname LIKE 'rows\_%' LOOP EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', f); END LOOP; END $$;
		REVOKE ALL ON SCHEMA headgate_fence FROM PUBLIC; REVOKE ALL ON FUNCTION headgate_fence.holds(text) FROM PUBLIC;
		ALTER FUNCTION headgate_fence.holds(text) SECURITY INVOKER;
		COMMENT ON SCHEMA headgate_fence IS 'headgate fencing 3, fences'`); err != nil {
		t.Fatal(err)
	}
	tables, err := fencepg.FencedTables(ctx, admin, "")
	if err != nil || len(tables) == 0 || !strings.Contains(strings.Join(tables[0].Problems, ";"), "rights of the guard's owner") {
		t.Errorf("older triggers are not told: %v, %v", tables, err)
	}
}

// What everybody may call tells nobody of others' leases, and nothing else of
// the schema may be used, whatever default privileges gave.
func TestWhatEverybodyMayCall(t *testing.T) {
	ctx := t.Context()
	admin, app, _, role := owned(t)
	if _, err := admin.Exec(ctx, "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO "+role); err != nil {
		t.Fatal(err)
	}
	if err := fencepg.Install(ctx, admin, fencepg.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := fencepg.FenceTable(ctx, admin, "", "own.plain", "t/{key}", false); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(ctx, "ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM "+role); err != nil {
		t.Fatal(err)
	}
	rows, err := admin.Query(ctx, `SELECT proname::text FROM pg_proc WHERE pronamespace = 'headgate_fence'::regnamespace AND has_function_privilege($1, oid, 'EXECUTE')
		UNION ALL SELECT relname::text FROM pg_class WHERE relnamespace = 'headgate_fence'::regnamespace AND relkind <> 'i'
			AND has_table_privilege($1, oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')`, role)
	if err != nil {
		t.Fatal(err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || strings.Join(open, " ") != "holds" {
		t.Errorf("open to everybody: %q, %v", open, err)
	}
	f := grant("t/1", 5)
	if _, err := admin.Exec(ctx, "SELECT headgate.fence_seal($1, $2, $3)", f.Resource, f.Epoch, f.NonceText()); err != nil {
		t.Fatal(err)
	}
	other := grant("t/1", 3).NonceText()
	told := map[string]bool{}
	for _, note := range []string{`t/1\t4\t`, `t/1\t5\t`, `t/1\t6\t`, `t/2\t5\t`} {
		resource, _, _ := strings.Cut(note, `\`)
		tx, err := app.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(ctx, "SELECT set_config('headgate.fences', concat(pg_current_xact_id(), E'\\n"+note+other+"\\n'), true)")
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT headgate_fence.holds('"+resource+"')")
		}
		if err == nil {
			t.Errorf("%s passes", note)
			err = fmt.Errorf("passed")
		}
		told[err.Error()] = true
		if err := tx.Rollback(ctx); err != nil {
			t.Error(err)
		}
	}
	if len(told) != 1 {
		t.Errorf("who may not ask the guard is told of leases: %v", told)
	}
}

// Keys that a collation of the table's owner takes for one are two: a fence on
// one lets nobody write the rows of the other.
func TestKeysAreComparedByTheirBytes(t *testing.T) {
	ctx := t.Context()
	pool, url := sealed(t)
	pgtest.Exec(t, url, `CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`)
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(ctx) }()
	for _, key := range []string{"a", "A"} {
		want(t, "seal", new(fencepg.DB).Seal(ctx, pool, grant("folded/"+key, 100)), "")
	}
	for name, column := range map[string]string{"text": "text COLLATE anycase", "varchar": "varchar(9) COLLATE anycase", "domain": "folded"} {
		for _, parted := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", partitions ", parted), func(t *testing.T) {
				table := fmt.Sprintf("folded_%s_%v", name, parted)
				create := fmt.Sprintf("CREATE TABLE %s (id int, key %s)", table, column)
				if parted {
					create += fmt.Sprintf(" PARTITION BY RANGE (id); CREATE TABLE %s_1 PARTITION OF %[1]s DEFAULT", table)
				}
				if name == "domain" {
					create = "DROP DOMAIN IF EXISTS folded CASCADE; CREATE DOMAIN folded AS text COLLATE anycase; " + create
				}
				pgtest.Exec(t, url, create)
				if _, err := fencepg.FenceTable(ctx, admin, "", table, "folded/{key}", false); err != nil {
					t.Fatal(err)
				}
				write := func(key, sql string) error {
					return fencepg.Tx(ctx, pool, grant("folded/"+key, 100), func(tx pgx.Tx) error {
						_, err := tx.Exec(ctx, fmt.Sprintf(sql, table))
						return err
					})
				}
				want(t, "its own", write("a", "INSERT INTO %s VALUES (1, 'a'), (2, 'a')"), "")
				for _, sql := range []string{
					"INSERT INTO %s VALUES (3, 'a'), (4, 'A')", "INSERT INTO %s VALUES (3, 'A'), (4, 'a')", "INSERT INTO %s VALUES (3, 'A')",
					"UPDATE %s SET key = 'A'", "UPDATE %s SET key = 'á' WHERE id = 1",
				} {
					want(t, sql, write("a", sql), headgate.CodeFenceForeign)
				}
				want(t, "another's", write("A", "INSERT INTO %s VALUES (5, 'A')"), "")
				for _, sql := range []string{"UPDATE %s SET id = id", "UPDATE %s SET key = 'a'", "DELETE FROM %s"} {
					want(t, sql, write("a", sql), headgate.CodeFenceForeign)
				}
				want(t, "its own", write("a", "DELETE FROM %s WHERE id < 3"), "")
				for _, told := range []bool{false, true} {
					tables, err := fencepg.FencedTables(ctx, admin, "")
					if err != nil || strings.Contains(fmt.Sprint(tables), "different keys for the same") != told {
						t.Errorf("%v, %v", tables, err)
					}
					if _, err := admin.Exec(ctx, `DO $$ DECLARE f regprocedure; BEGIN
						FOR f IN SELECT oid FROM pg_proc WHERE proname LIKE 'rows\_%' LOOP EXECUTE replace(pg_get_functiondef(f), 'COLLATE pg_catalog."C"', ''); END LOOP; END $$`); err != nil {
						t.Fatal(err)
					}
				}
				pgtest.Exec(t, url, "DROP TABLE "+table)
			})
		}
	}
}

// A nonce is compared by its bytes, whatever collation its caller gives it: by
// one that folds case, or takes all letters for the same, another would pass.
func TestNonceIsComparedByItsBytes(t *testing.T) {
	ctx := t.Context()
	pool, url := sealed(t)
	pgtest.Exec(t, url, `CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	f := grant("t/1", 1700000000000000)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, f), "")
	swapped := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, f.NonceText())
	if swapped == f.NonceText() {
		t.Fatal("the nonce has no small letters")
	}
	for _, sql := range []string{
		"SELECT headgate.fence('t/1', $1, $2 COLLATE anycase)", "SELECT headgate.fence('t/1' COLLATE anycase, $1, $2)",
		"SELECT headgate_fence.holds('t/1' COLLATE anycase) FROM set_config('headgate.fences', concat(pg_current_xact_id(), E'\nt/1\t', $1::bigint, E'\t', $2::text, E'\n'), true)",
	} {
		_, err := pool.Exec(ctx, sql, f.Epoch, swapped)
		if err == nil {
			t.Errorf("%s: another nonce passes", sql)
		}
	}
}
