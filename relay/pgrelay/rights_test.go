package pgrelay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5/pgconn"
)

// app is a login that owns a schema of the database and nothing else, and may
// not write events.
type app struct {
	*rig
	role string
	conn *pgconn.PgConn
}

func newApp(r *rig) *app {
	r.t.Helper()
	a := &app{rig: r, conn: r.stranger()}
	a.role = "x" + strings.TrimPrefix(r.connect().Config().Database, "t_")
	r.exec(`CREATE SCHEMA app AUTHORIZATION ` + a.role)
	r.t.Cleanup(func() { pgtest.Exec(r.t, r.db, `DROP OWNED BY `+a.role+` CASCADE`) })
	return a
}

// do runs a script as the login and returns the SQLSTATE.
func (a *app) do(sql string) string {
	a.t.Helper()
	_, err := a.conn.Exec(context.Background(), sql).ReadAll()
	if e, ok := err.(*pgconn.PgError); ok {
		return e.Code
	}
	must(a.t, err)
	return ""
}

func (a *app) must(sql string) {
	a.t.Helper()
	if s := a.do(sql); s != "" {
		a.t.Fatalf("%.80s: SQLSTATE %s", sql, s)
	}
}

// evil makes a type whose conversion to json tells as whom it runs, and takes
// what that role may.
func (a *app) evil() {
	a.t.Helper()
	a.must(`CREATE TABLE app.ran (who text);
		CREATE TYPE app.e AS ENUM ('x');
		CREATE FUNCTION app.evil(app.e) RETURNS json LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO app.ran VALUES (current_user);
			BEGIN EXECUTE 'ALTER ROLE ` + a.role + ` SUPERUSER'; EXCEPTION WHEN insufficient_privilege THEN END;
			BEGIN INSERT INTO headgate.outbox (id, role, type) VALUES ('forged', 'other', 'order.placed'); EXCEPTION WHEN insufficient_privilege THEN END;
			RETURN '1'::json;
		END $$;
		CREATE CAST (app.e AS json) WITH FUNCTION app.evil(app.e);
		CREATE DOMAIN app.d AS app.e;
		CREATE TYPE app.c AS (inner_one app.e, list app.e[]);`)
}

// written reads the changes that were written.
func (r *rig) written(n int) (all []change) {
	r.t.Helper()
	rows := pgtest.Exec(r.t, r.db, `SELECT convert_from(data, 'UTF8') FROM headgate.outbox ORDER BY seq`)
	if len(rows) != n {
		r.t.Fatalf("%d changes are told, not %d", len(rows), n)
	}
	for _, row := range rows {
		var c change
		must(r.t, json.Unmarshal([]byte(row[0]), &c))
		all = append(all, c)
	}
	return all
}

func (a *app) harmless(want int) {
	a.t.Helper()
	if got := pgtest.Exec(a.t, a.db, `SELECT count(*), count(*) FILTER (WHERE who <> '`+a.role+`') FROM app.ran`)[0]; got[0] != fmt.Sprint(want) || got[1] != "0" {
		a.t.Errorf("the conversion ran %s times, %s of them as somebody else", got[0], got[1])
	}
	if got := pgtest.Exec(a.t, a.db, `SELECT rolsuper FROM pg_roles WHERE rolname = '`+a.role+`'`)[0][0]; got != "f" {
		a.t.Error("the table's owner became superuser")
	}
	if got := pgtest.Exec(a.t, a.db, `SELECT count(*) FROM headgate.outbox WHERE id = 'forged'`)[0][0]; got != "0" {
		a.t.Error("the table's owner wrote an event as somebody else")
	}
}

// What converts a column's type to json is its owner's code: in a watched table,
// at any depth of the type, it runs with the rights of who writes.
func TestConversionsRunWithTheWritersRights(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	a := newApp(r)
	a.must(`CREATE TABLE app.orders (id int PRIMARY KEY, state text)`)
	must(t, pgrelay.Watch(context.Background(), r.db, "app.orders", "orders"))
	a.evil()
	a.must(`ALTER TABLE app.orders ADD COLUMN e app.e, ADD COLUMN d app.d, ADD COLUMN l app.e[], ADD COLUMN c app.c;
		INSERT INTO app.orders VALUES (1, 'n', 'x', 'x', '{x}', ('x', '{x}'))`)
	a.harmless(5)
	a.must(`UPDATE app.orders SET state = 'm'`)
	a.harmless(15)
	a.must(`DELETE FROM app.orders`)
	a.harmless(20)
	for i, c := range r.written(3) {
		if got := fmt.Sprint(c.Before["e"], c.Before["c"], c.After["e"], c.After["l"]); got != []string{"<nil> <nil> 1 [1]", "1 map[inner_one:1 list:[1]] 1 [1]", "1 map[inner_one:1 list:[1]] <nil> <nil>"}[i] {
			t.Errorf("change %d is told as %s", i, got)
		}
	}
}

// Columns of the database's own kinds are told as ever, to writers of no right
// but on the table.
func TestUsersTypesAreTold(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	a := newApp(r)
	r.exec(`CREATE TYPE public.state AS ENUM ('new', 'paid'); CREATE DOMAIN public.amount AS numeric(9,2) CHECK (VALUE > 0);
		CREATE TYPE public.place AS (street text, no int);
		CREATE TABLE public.orders (id int PRIMARY KEY, s public.state, l public.state[], a public.amount, p public.place, r int4range, j json);
		GRANT INSERT, UPDATE ON public.orders TO ` + a.role)
	must(t, pgrelay.Watch(context.Background(), r.db, "public.orders", "orders"))
	a.must(`INSERT INTO public.orders VALUES (1, 'new', '{new,paid}', 1.50, ('x', 2), '[1,3)', '{"k": [1.0, null]}')`)
	want := `"after": {"a": 1.50, "j": {"k": [1.0, null]}, "l": ["new", "paid"], "p": {"no": 2, "street": "x"}, "r": "[1,3)", "s": "new", "id": 1}`
	row := pgtest.Exec(t, r.db, `SELECT convert_from(data, 'UTF8'), role FROM headgate.outbox`)[0]
	if got := row[0]; !strings.Contains(got, want) || !strings.Contains(got, `"before": null`) {
		t.Errorf("the change is told as %s", got)
	}
	if row[1] != a.role {
		t.Errorf("it is told as %s's", row[1])
	}
}

// Nobody makes an event of a change that was none: neither by calling what the
// triggers call, nor by leaving something for them to find.
func TestChangesAreNotForged(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	a := newApp(r)
	r.exec(`CREATE TABLE public.orders (id int PRIMARY KEY, state text); INSERT INTO public.orders VALUES (1, 'new'); GRANT SELECT, UPDATE ON public.orders TO ` + a.role)
	must(t, pgrelay.Watch(context.Background(), r.db, "public.orders", "orders"))
	r.exec(`GRANT headgate_writer TO ` + a.role)
	t.Cleanup(func() { pgtest.Exec(t, r.db, `REVOKE headgate_writer FROM `+a.role) })
	oid := pgtest.Exec(t, r.db, `SELECT 'public.orders'::regclass::oid`)[0][0]
	forged := `SELECT set_config('headgate.change', '{"of": "` + oid + ` UPDATE", "before": null, "after": {"id": 9, "state": "forged"}}', %s)`
	for sql, want := range map[string]string{
		`SELECT headgate.capture()`: "42501", // nor can a trigger function be called at all
		`CREATE TABLE app.mine (id int PRIMARY KEY); CREATE TRIGGER t AFTER INSERT ON app.mine FOR EACH ROW EXECUTE FUNCTION headgate.capture('public.orders', 'orders', '{id}')`: "42501",
		`CREATE TABLE app.mine (id int PRIMARY KEY); CREATE TRIGGER t AFTER INSERT ON app.mine FOR EACH ROW EXECUTE FUNCTION headgate.as_json()`:                                  "42501",
		`CREATE TRIGGER headgate_b AFTER UPDATE ON public.orders FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`:                                              "42501",
		`ALTER TABLE public.orders DISABLE TRIGGER headgate_as_json`:                                                                                                              "42501",
		`SET session_replication_role = 'replica'`:                                                                                       "42501",
		fmt.Sprintf(forged, "false") + `; UPDATE public.orders SET state = 'true'`:                                                       "",
		`BEGIN; ` + fmt.Sprintf(forged, "true") + `; UPDATE public.orders SET state = 'true'; COMMIT`:                                    "",
		`WITH s AS MATERIALIZED (` + fmt.Sprintf(forged, "true") + ` AS v) UPDATE public.orders SET state = 'true' FROM s WHERE v <> ''`: "",
	} {
		if got := a.do(sql); got != want {
			t.Errorf("%.90s: SQLSTATE %q, want %q", sql, got, want)
		}
		_ = a.do(`ROLLBACK`)
	}
	if got := pgtest.Exec(t, r.db, `SELECT count(*), count(*) FILTER (WHERE convert_from(data, 'UTF8') NOT LIKE '%"id": 1%"true"%' OR convert_from(data, 'UTF8') LIKE '%forged%') FROM headgate.outbox`)[0]; got[0] != "3" || got[1] != "0" {
		t.Errorf("of %s events %s are forged", got[0], got[1])
	}
	// Where the first trigger is away the change fails, whatever lies about.
	r.exec(`ALTER TABLE public.orders DISABLE TRIGGER headgate_as_json`)
	for _, sql := range []string{`RESET headgate.change; UPDATE public.orders SET state = 'x'`, `SELECT set_config('headgate.change', '{}', false); UPDATE public.orders SET state = 'x'`} {
		if got := a.do(sql); got != "HG112" {
			t.Errorf("%s: SQLSTATE %q", sql, got)
		}
	}
	if r.finding(r.db, "public.orders is disabled") == nil && r.finding(r.db, "orders is disabled") == nil {
		t.Error("the doctor does not name it")
	}
}

// A database of an older version is mended for the tables that it watches.
func TestUpgradeEndsConversionsWithTheInstallersRights(t *testing.T) {
	r := olderRig(t)
	a := newApp(r)
	r.exec(`CREATE TABLE public.parts (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE public.parts_a PARTITION OF public.parts DEFAULT`)
	r.exec(`SELECT headgate.watch('public.parts', 'parts')`)
	a.evil()
	r.exec(`ALTER TABLE public.orders ADD COLUMN e app.e; GRANT INSERT ON public.orders, public.parts TO ` + a.role)
	must(t, pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{}))
	a.must(`INSERT INTO public.orders VALUES (1, 'n', 'x'); INSERT INTO public.parts VALUES (1)`)
	a.harmless(1)
	if got := r.written(2); got[0].After["id"] != 1.0 || got[1].After["id"] != 1.0 {
		t.Errorf("told as %+v", got)
	}
}

// Functions that run with the installer's rights are put nowhere where another
// role could replace them.
func TestInstallRefusesASchemaOfOthers(t *testing.T) {
	for name, sql := range map[string]string{
		"the schema": `CREATE SCHEMA headgate AUTHORIZATION %s`,
		"a function": `CREATE SCHEMA headgate; CREATE FUNCTION headgate.new_id() RETURNS text LANGUAGE sql AS 'SELECT ''''::text'; ALTER FUNCTION headgate.new_id() OWNER TO %s`,
	} {
		for _, prepared := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", prepared), func(t *testing.T) {
				r := &rig{t: t, db: database(t, pgtest.URL(t))}
				if prepared {
					r = olderRig(t)
					sql = strings.NewReplacer(`CREATE SCHEMA headgate;`, ``, `CREATE SCHEMA headgate AUTHORIZATION`, `ALTER SCHEMA headgate OWNER TO`, `CREATE FUNCTION`, `CREATE OR REPLACE FUNCTION`).Replace(sql)
				}
				a := newApp(r)
				r.exec(fmt.Sprintf(sql, a.role))
				err := pgrelay.Install(context.Background(), r.db, pgrelay.InstallOptions{})
				if headgate.CodeOf(err) != headgate.CodeForbidden || !strings.Contains(err.Error(), a.role) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// Names without a schema are the server's, also for who looks after an outbox:
// public may be open to everybody.
func TestAdminsLookUpNothingInPublic(t *testing.T) {
	db := database(t, pgtest.URL(t))
	r := &rig{t: t, db: db}
	a := newApp(r)
	r.exec(`GRANT CREATE ON SCHEMA public TO ` + a.role)
	trap := func(types, returns, body string) string {
		return fmt.Sprintf(`CREATE FUNCTION public.trap(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.ran VALUES (current_user); RETURN %s; END $$;`, types, returns, body)
	}
	a.must(`CREATE TABLE app.ran (who text);` + trap("text, name", "text", "$1 || $2::text") + `CREATE OPERATOR public.|| (FUNCTION = public.trap, LEFTARG = text, RIGHTARG = name);
		CREATE FUNCTION public.format(text, regprocedure) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.ran VALUES (current_user); RETURN pg_catalog.format($1, VARIADIC ARRAY[$2::text]); END $$;
		CREATE FUNCTION public.format(text, regclass) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.ran VALUES (current_user); RETURN pg_catalog.format($1, VARIADIC ARRAY[$2::text]); END $$`)
	ctx := context.Background()
	must(t, pgrelay.Install(ctx, db, pgrelay.InstallOptions{}))
	r.exec(`GRANT USAGE ON SCHEMA headgate TO ` + a.role)
	a.must(`CREATE FUNCTION public.to_jsonb(headgate.installation) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.ran VALUES (current_user); RETURN '{"revision": 1}'; END $$;
		CREATE TABLE app.orders (id int PRIMARY KEY)`)
	must(t, pgrelay.Install(ctx, db, pgrelay.InstallOptions{Harden: true}))
	r.exec(`ALTER ROLE CURRENT_USER IN DATABASE ` + r.connect().Config().Database + ` SET search_path = app, public`)
	must(t, pgrelay.Watch(ctx, db, "orders", "orders"))
	_, err := pgrelay.Doctor(ctx, db)
	must(t, err)
	_, err = pgrelay.Replay(ctx, db, pgrelay.ReplayFilter{Type: "x.y"}, false)
	must(t, err)
	if got := pgtest.Exec(t, db, `SELECT count(*) FROM app.ran`)[0][0]; got != "0" {
		t.Errorf("code of others ran %s times", got)
	}
}
