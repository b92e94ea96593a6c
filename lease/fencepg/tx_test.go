package fencepg_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
)

// sealed is a database whose leases live elsewhere, with a fenced table.
func sealed(t testing.TB, grant ...string) (*pgxpool.Pool, string) {
	t.Helper()
	url := newDatabase(t)
	pool := connect(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := fencepg.Install(t.Context(), conn, fencepg.Config{Grant: grant}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, "CREATE TABLE public.tickets (id int, ticket text NOT NULL); CREATE TABLE public.free (id int)")
	if _, err := fencepg.FenceTable(t.Context(), conn, "", "tickets", "t/{ticket}", false); err != nil {
		t.Fatal(err)
	}
	return pool, url
}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func grant(resource string, epoch int64) fence.Fence {
	return fence.Fence{Resource: resource, Epoch: epoch, Nonce: []byte(fmt.Sprintf("nonce%011d", epoch%1e10))}
}

func want(t testing.TB, what string, err error, code headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != code || code == "" && err != nil {
		t.Errorf("%s: got %v, want %q", what, err, code)
	}
}

func ticket(n int) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "INSERT INTO tickets VALUES ($1, '1')", n)
		return err
	}
}

func count(t testing.TB, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTx(t *testing.T) {
	ctx := t.Context()
	pool, _ := sealed(t)
	db := &fencepg.DB{}
	one, two := grant("t/1", 1), grant("t/1", 2)
	tx := func(f fence.Fence, fn func(pgx.Tx) error) error {
		return new(fencepg.DB).Tx(ctx, pool, f, pgx.TxOptions{}, fn)
	}
	want(t, "before the seal", tx(one, ticket(1)), headgate.CodeInvalidArgument)
	want(t, "seal", db.Seal(ctx, pool, one), "")
	want(t, "write", tx(one, ticket(2)), "")
	boom := errors.New("boom")
	if err := tx(one, func(tx pgx.Tx) error { return errors.Join(ticket(3)(tx), boom) }); !errors.Is(err, boom) {
		t.Errorf("got %v, want the function's error", err)
	}
	func() {
		defer func() { _ = recover() }() // the rows below tell
		_ = tx(one, func(tx pgx.Tx) error { _ = ticket(3)(tx); panic("on purpose") })
		t.Error("the panic was swallowed")
	}()
	want(t, "another resource", tx(one, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO tickets VALUES (3, '2')")
		return err
	}), headgate.CodeFenceForeign)
	err := tx(one, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'something else' USING ERRCODE = 'HG001'; END $$")
		return err
	})
	if headgate.AsError(err) != nil {
		t.Errorf("the refusal of another function is taken for the guard's: %v", err)
	}
	want(t, "takeover", db.Seal(ctx, pool, two), "")
	want(t, "stale", tx(one, ticket(3)), headgate.CodeStaleFence)
	want(t, "the new holder", tx(two, ticket(4)), "")
	late := two
	late.Deadline = time.Now().Add(-time.Millisecond)
	want(t, "past its deadline", tx(late, ticket(3)), headgate.CodeLeaseExpired)
	want(t, "read only", db.Tx(ctx, pool, two, pgx.TxOptions{AccessMode: pgx.ReadOnly}, ticket(3)), headgate.CodeInvalidArgument)
	if n := count(t, pool, "SELECT count(*) FROM tickets"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	if n := count(t, pool, "SELECT count(*) FROM tickets WHERE id = 3"); n != 0 {
		t.Errorf("%d rows that were refused are there", n)
	}
}

// A refusal costs neither the connection nor, once known, a round trip.
func TestStaleIsCheap(t *testing.T) {
	ctx := t.Context()
	pool, _ := sealed(t)
	db := &fencepg.DB{}
	one, two := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", db.Seal(ctx, pool, one), "")
	want(t, "seal", db.Seal(ctx, pool, two), "")
	before := pool.Stat().NewConnsCount()
	for range 50 {
		want(t, "stale", new(fencepg.DB).Tx(ctx, pool, one, pgx.TxOptions{}, ticket(1)), headgate.CodeStaleFence)
	}
	if made := pool.Stat().NewConnsCount() - before; made > 0 {
		t.Errorf("%d connections were lost", made)
	}
	want(t, "first", db.Tx(ctx, pool, one, pgx.TxOptions{}, ticket(1)), headgate.CodeStaleFence)
	acquired := pool.Stat().AcquireCount()
	want(t, "known", db.Tx(ctx, pool, one, pgx.TxOptions{}, ticket(1)), headgate.CodeStaleFence)
	if pool.Stat().AcquireCount() != acquired {
		t.Error("a known stale fence asked the database")
	}
}

// The server ends a transaction that outlives its lease.
func TestBounds(t *testing.T) {
	ctx := t.Context()
	pool, _ := sealed(t)
	f := grant("t/1", 1)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, f), "")
	f.Deadline = time.Now().Add(2 * time.Second)
	err := fencepg.Tx(ctx, pool, f, func(tx pgx.Tx) error {
		var idle, statement int
		err := tx.QueryRow(ctx, `SELECT extract(epoch FROM coalesce(whole, current_setting('idle_in_transaction_session_timeout'))::interval) * 1000,
			extract(epoch FROM coalesce(whole, current_setting('statement_timeout'))::interval) * 1000
			FROM current_setting('transaction_timeout', true) AS whole -- since PostgreSQL 17 it bounds both`).Scan(&idle, &statement)
		if err == nil && (idle > 2000 || idle < 1000 || statement > 2000 || statement < 1000) {
			t.Errorf("bounds of %d and %d ms, want less than the 2 s that are left", idle, statement)
		}
		return err
	})
	want(t, "within", err, "")
	f.Deadline = time.Now().Add(200 * time.Millisecond)
	begun := time.Now()
	err = fencepg.Tx(ctx, pool, f, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(30)")
		return err
	})
	// The statement is cancelled; PostgreSQL 17 and newer end the session (25P04).
	if state := fencepg.State(err); state != "57014" && state != "25P04" || time.Since(begun) > 5*time.Second {
		t.Errorf("a statement past the lease: %v after %s", err, time.Since(begun))
	}
	if n := count(t, pool, "SELECT count(*) FROM pg_settings WHERE name = 'statement_timeout' AND setting <> '0'"); n != 0 {
		t.Error("the bounds stayed in the session")
	}
}

func TestSQLTx(t *testing.T) {
	ctx := t.Context()
	pool, _ := sealed(t)
	std := stdlib.OpenDBFromPool(pool)
	defer std.Close()
	one, two := grant("t/1", 1), grant("t/1", 2)
	insert := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO tickets VALUES (1, '1')")
		return err
	}
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, one), "")
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		want(t, "write", new(fencepg.DB).SQLTx(ctx, std, one, &sql.TxOptions{Isolation: level}, insert), "")
	}
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, two), "")
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		want(t, "stale", new(fencepg.DB).SQLTx(ctx, std, one, &sql.TxOptions{Isolation: level}, insert), headgate.CodeStaleFence)
	}
	boom := errors.New("boom")
	if err := new(fencepg.DB).SQLTx(ctx, std, two, nil, func(tx *sql.Tx) error { return errors.Join(insert(tx), boom) }); !errors.Is(err, boom) {
		t.Errorf("got %v, want the function's error", err)
	}
	if n := count(t, pool, "SELECT count(*) FROM tickets"); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

// A seal in the way of whose gate an old holder's transaction is comes through
// as soon as that ends, however many follow it.
func TestSealIsNotStarved(t *testing.T) {
	ctx := t.Context()
	pool, url := sealed(t)
	more := connect(t, url)
	one, two := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, one), "")
	stop := make(chan struct{})
	ended := make(chan int, 3)
	for range 3 { // overlapping transactions of the old holder, without a pause
		go func() {
			n := 0
			for {
				select {
				case <-stop:
					ended <- n
					return
				default:
				}
				if fencepg.Tx(ctx, more, one, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT pg_sleep(0.02)")
					return err
				}) == nil {
					n++
				}
			}
		}()
	}
	for count(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep(0.02)%' AND state = 'active'") < 3 {
		if ctx.Err() != nil {
			t.Fatal("the old holder did not start")
		}
	}
	begun := time.Now()
	want(t, "takeover", new(fencepg.DB).Seal(ctx, pool, two), "")
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("the takeover took %s", took)
	}
	close(stop)
	for range 3 {
		<-ended
	}
}

// An application gets the functions and nothing else, and cannot shadow what
// they call.
func TestRights(t *testing.T) {
	ctx := t.Context()
	role := fmt.Sprintf("app_%d", time.Now().UnixNano())
	admin := pgtest.URL(t)
	pgtest.Exec(t, admin, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { pgtest.Exec(t, admin, "DROP ROLE "+role) })
	pool, url := sealed(t, role)
	t.Cleanup(func() { pgtest.Exec(t, url, "DROP OWNED BY "+role) })
	pgtest.Exec(t, url, "GRANT ALL ON tickets TO "+role+"; CREATE SCHEMA own AUTHORIZATION "+role)
	app := connect(t, strings.Replace(url, "headgate@", role+"@", 1))
	f, old := grant("t/1", 2), grant("t/1", 1)
	want(t, "seal", new(fencepg.DB).Seal(ctx, app, old), "")
	want(t, "write", fencepg.Tx(ctx, app, old, ticket(1)), "")
	want(t, "seal", new(fencepg.DB).Seal(ctx, app, f), "")
	for _, sql := range []string{
		"SELECT * FROM headgate_fence.fences", "UPDATE headgate_fence.fences SET epoch = 9", "SELECT headgate_fence.refuse('t/1', 1, 'x')", "CREATE TABLE headgate_fence.own ()",
		"SELECT headgate.fence_close_all()", "ALTER TABLE tickets DISABLE TRIGGER ALL", "SET session_replication_role = replica", "DROP FUNCTION headgate.fence(text)",
	} {
		if _, err := app.Exec(ctx, sql); fencepg.State(err) != "42501" {
			t.Errorf("%s: %v, want no right", sql, err)
		}
	}
	pgtest.Exec(t, url, "REVOKE ALL ON tickets FROM "+role+"; GRANT INSERT ON tickets TO "+role)
	want(t, "write without the right to read", fencepg.Tx(ctx, app, f, ticket(2)), "")
	// What the guard calls, shadowed in a schema that comes first.
	pgtest.Exec(t, url, `SET ROLE `+role+`; CREATE FUNCTION own.translate(text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
		CREATE FUNCTION own.convert_to(text, name) RETURNS bytea LANGUAGE sql AS $$ SELECT ''::bytea $$;
		CREATE FUNCTION own.yes(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
		CREATE OPERATOR own.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = own.yes)`)
	_, err := app.Exec(ctx, "SET search_path = own, pg_catalog, public; SELECT headgate.fence('t/1', 1, '"+old.NonceText()+"')")
	want(t, "shadowed", fencepg.Error(err), headgate.CodeStaleFence)
	if n := count(t, pool, "SELECT count(*) FROM tickets"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// One row has one resource: what a session shows of a key does not follow that
// session's own settings, or two holders could write the same row.
func TestKeysDoNotFollowSettings(t *testing.T) {
	ctx := t.Context()
	pool, url := sealed(t)
	for _, tc := range []struct{ typ, value, setting, other string }{
		{"date", "2026-11-30", "datestyle = 'German'", "30.11.2026"},
		{"timestamptz", "2026-11-30 12:00:00+00", "timezone = 'Asia/Tokyo'", "2026-11-30 21:00:00+09"},
		{"interval", "1 day 02:00:00", "intervalstyle = 'iso_8601'", "P1DT2H"},
		{"float8", "0.1", "extra_float_digits = -15", "0"},
		{"bytea", `\xff`, "bytea_output = 'escape'", `\377`},
	} {
		t.Run(tc.typ, func(t *testing.T) {
			table := "kept_" + tc.typ
			pgtest.Exec(t, url, fmt.Sprintf(`CREATE TABLE %s (k %s, v text); INSERT INTO %s VALUES ('%s', '')`, table, tc.typ, table, tc.value))
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(ctx)
			if _, err := fencepg.FenceTable(ctx, conn, "", table, tc.typ+"/{k}", false); err != nil {
				t.Fatal(err)
			}
			own, other := grant(tc.typ+"/"+tc.value, 100), grant(tc.typ+"/"+tc.other, 100)
			for _, f := range []fence.Fence{own, other} {
				want(t, "seal", new(fencepg.DB).Seal(ctx, pool, f), "")
			}
			write := func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "SET LOCAL "+tc.setting); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "UPDATE "+table+" SET v = v || 'x'")
				return err
			}
			want(t, "the holder", fencepg.Tx(ctx, pool, own, write), "")
			if err := fencepg.Tx(ctx, pool, other, write); err == nil {
				t.Error("another holder wrote the same row")
			}
		})
	}
}

// A lease token is a fence, too, for those who have no library.
func TestTokenInSQL(t *testing.T) {
	ctx := t.Context()
	pool, _ := sealed(t)
	f := grant("t/1", 1700000000000000)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, f), "")
	for _, holder := range []string{"a", "ab", "abc", "añ"} { // every length of padding
		claims := fmt.Sprintf(`{"res":"t/1","epoch":"%d","nonce":"%s","holder":"%s"}`, f.Epoch, f.NonceText(), holder)
		token := "hgl1." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + strings.Repeat("A", 86)
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT headgate.fence($1)", token); err != nil {
				return err
			}
			return ticket(1)(tx)
		})
		want(t, holder, fencepg.Error(err), "")
		if got, err := fence.Parse(token); err != nil || got.String() != f.String() || got.NonceText() != f.NonceText() {
			t.Errorf("parsed as %v: %v", got, err)
		}
	}
}

// Installing again changes nothing, and what would let a write escape is told.
func TestInstall(t *testing.T) {
	ctx := t.Context()
	_, url := sealed(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	want(t, "again", fencepg.Install(ctx, conn, fencepg.Config{}), "")
	want(t, "a node that is none", fencepg.Install(ctx, conn, fencepg.Config{Schema: "other", Node: "nowhere"}), headgate.CodeInvalidConfig)
	want(t, "bad schema", fencepg.Install(ctx, conn, fencepg.Config{Schema: `a"; DROP`}), headgate.CodeInvalidArgument)
	for template, code := range map[string]headgate.Code{"t/{nope}": headgate.CodeInvalidArgument, "t/{": headgate.CodeInvalidArgument, "": headgate.CodeInvalidArgument, "a/$headgate${ticket}": headgate.CodeInvalidArgument, "it's {ticket}": ""} {
		_, err := fencepg.FenceTable(ctx, conn, "", "tickets", template, true)
		want(t, template, err, code)
	}
	pgtest.Exec(t, url, `CREATE TABLE parted (ticket text) PARTITION BY LIST (ticket); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN ('1');
		CREATE VIEW seen AS SELECT 1 AS one; CREATE TABLE heir () INHERITS (free)`)
	for table, code := range map[string]headgate.Code{
		"nope": headgate.CodeNotFound, "public.nope": headgate.CodeNotFound, strings.Repeat("n", 70000): headgate.CodeNotFound,
		"": headgate.CodeInvalidArgument, ".": headgate.CodeInvalidArgument, "a.b.c.d": headgate.CodeInvalidArgument, "else.public.tickets": headgate.CodeInvalidArgument, `"`: headgate.CodeInvalidArgument, `""`: headgate.CodeInvalidArgument,
		"tickets; DROP": headgate.CodeInvalidArgument, "a b": headgate.CodeInvalidArgument, "a\x00b": headgate.CodeInvalidArgument, "a\xffb": headgate.CodeInvalidArgument, "pg_class": headgate.CodeInvalidArgument, "seen": headgate.CodeInvalidArgument, "parted_1": headgate.CodeInvalidArgument, "parted": "", "free": "",
	} {
		_, err := fencepg.FenceTable(ctx, conn, "", table, "whole", false)
		want(t, table, err, code)
	}
	problems := func() (n int) {
		fenced, err := fencepg.FencedTables(ctx, conn, "")
		if err != nil || len(fenced) < 5 {
			t.Fatalf("%v: %v", fenced, err)
		}
		for _, f := range fenced {
			n += len(f.Problems)
		}
		return n
	}
	if n := problems(); n != 0 {
		t.Errorf("%d problems in whole tables", n)
	}
	pgtest.Exec(t, url, "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN ('2'); ALTER TABLE tickets DISABLE TRIGGER headgate_fence_insert; CREATE TABLE heir2 () INHERITS (free)")
	if n := problems(); n != 4 {
		t.Errorf("%d problems, want no TRUNCATE on a new partition, a trigger that is off, and an heir with neither", n)
	}
	if _, err := fencepg.UnfenceTable(ctx, conn, "tickets", false); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, "INSERT INTO tickets VALUES (1, 'free')")
	if err := fencepg.Uninstall(ctx, conn, ""); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, "INSERT INTO parted VALUES ('1'); TRUNCATE free")
}

// Two connections that write under one lease at once share the lock, which
// costs a multixact; one connection for each lease costs none. Doctor looks at
// how many are left.
func TestSharedLeasesCostMultixacts(t *testing.T) {
	ctx := t.Context()
	pool, url := sealed(t)
	f := grant("t/1", 1)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, f), "")
	shared := func() bool {
		return pgtest.Exec(t, url, "SELECT count(*) FROM headgate_fence.fences f WHERE xmax <> 0 AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'transactionid' AND l.transactionid = f.xmax)")[0][0] == "0"
	}
	want(t, "one", fencepg.Tx(ctx, pool, f, func(tx pgx.Tx) error {
		if shared() {
			t.Error("a single holder's lock is no plain one")
		}
		return fencepg.Tx(ctx, pool, f, func(pgx.Tx) error {
			if !shared() {
				t.Error("two holders' lock is not shared")
			}
			return nil
		})
	}), "")
}
