package pgstore

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/sqlstore"
	"github.com/headgate/headgate/store/storetest"
)

// openTest opens a store in a schema of the test's own, which the test's end
// closes.
func openTest(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = pgtest.URL(t)
	}
	if cfg.Schema == "" {
		cfg.Schema = pgtest.Schema(t, cfg.URL, t.TempDir())
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func tryOpen(t *testing.T, cfg Config) error {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err == nil {
		if cerr := s.Close(); cerr != nil {
			t.Error(cerr)
		}
	}
	return err
}

func wantCode(t *testing.T, err error, want headgate.Code, part string) {
	t.Helper()
	if headgate.CodeOf(err) != want || !strings.Contains(fmt.Sprint(err), part) {
		t.Errorf("error %v, want code %s and %q", err, want, part)
	}
}

func put(key string) sqlstore.Function {
	return func(ctx context.Context, tx *store.Tx) error { return tx.Settings.Put(ctx, key, []byte("v")) }
}

func keys(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		all, err := tx.Settings.List(ctx, "")
		n = len(all)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPlacesThatCannotBe(t *testing.T) {
	for url, c := range map[string]struct {
		code headgate.Code
		part string
	}{
		"":                         {headgate.CodeInvalidConfig, "URL"},
		"host=localhost":           {headgate.CodeInvalidConfig, "URL"},
		"mysql://u@h/d":            {headgate.CodeInvalidConfig, "URL"},
		"postgres://u:sesame@h:x/": {headgate.CodeInvalidConfig, "cannot be read"},
		"postgres://u:sesame@127.0.0.1:1/d?sslmode=disable": {headgate.CodeUnavailable, "127.0.0.1:1/d"},
	} {
		err := tryOpen(t, Config{URL: url})
		wantCode(t, err, c.code, c.part)
		if strings.Contains(fmt.Sprint(err), "sesame") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	for _, schema := range []string{"A", "a b", `a"`, "a'", "1a", "a@", strings.Repeat("a", 64), "é"} {
		wantCode(t, tryOpen(t, Config{URL: "postgres://u@127.0.0.1:1/d", Schema: schema}), headgate.CodeInvalidConfig, "schema")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, Config{})
	wantCode(t, err, headgate.CodeCanceled, "")
}

func TestOutsideRefusals(t *testing.T) {
	url := pgtest.URL(t)
	wantCode(t, tryOpen(t, Config{URL: strings.Replace(url, "/postgres?", "/no_such_database?", 1)}), headgate.CodeInvalidConfig, "no_such_database")

	foreign := pgtest.Schema(t, url, t.TempDir())
	pgtest.Exec(t, url, fmt.Sprintf("CREATE SCHEMA %s; CREATE TABLE %s.x (y int)", foreign, foreign))
	wantCode(t, tryOpen(t, Config{URL: url, Schema: foreign}), headgate.CodeInvalidConfig, "another application")
	if got := objects(t, url, foreign); !slices.Equal(got, []string{"r x"}) {
		t.Errorf("the foreign schema was changed: %q", got)
	}

	newer := pgtest.Schema(t, url, t.TempDir())
	if err := tryOpen(t, Config{URL: url, Schema: newer}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, "UPDATE "+newer+".schema_version SET version = version + 1")
	for range 2 {
		wantCode(t, tryOpen(t, Config{URL: url, Schema: newer}), headgate.CodeInvalidConfig, "knows up to")
	}
}

func TestOutsideUserWithoutRights(t *testing.T) {
	url := pgtest.URL(t)
	schema := pgtest.Schema(t, url, t.TempDir())
	user := "u_" + schema
	pgtest.Exec(t, url, "CREATE USER "+user)
	t.Cleanup(func() { pgtest.Exec(t, url, "DROP OWNED BY "+user+"; DROP USER "+user) })
	theirs := Config{URL: strings.Replace(url, "headgate@", user+"@", 1), Schema: schema}
	wantCode(t, tryOpen(t, theirs), headgate.CodeInvalidConfig, "permission denied")
	// An administrator may make the schema, so that the node needs no more.
	pgtest.Exec(t, url, "CREATE SCHEMA "+schema+" AUTHORIZATION "+user)
	s := openTest(t, theirs)
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Error(err)
	}
}

// TestChecksOfTheServer lists what makes a server unfit.
func TestChecksOfTheServer(t *testing.T) {
	sound := facts{number: 150000, version: "15.0", fsync: "on", fullPages: "on"}
	for name, c := range map[string]struct {
		change  func(*facts)
		relaxed bool
		part    string // of the refusal; empty: accepted
	}{
		"sound":              {func(*facts) {}, false, ""},
		"oldest":             {func(f *facts) { f.number = 140000 }, false, ""},
		"too old":            {func(f *facts) { f.number, f.version = 130099, "13.99" }, false, "13.99 is too old"},
		"standby":            {func(f *facts) { f.standby = true }, false, "standby"},
		"standby, relaxed":   {func(f *facts) { f.standby = true }, true, "standby"},
		"read-only":          {func(f *facts) { f.readOnly = true }, false, "read-only"},
		"no fsync":           {func(f *facts) { f.fsync = "off" }, false, "fsync=off"},
		"no fsync, relaxed":  {func(f *facts) { f.fsync = "off" }, true, ""},
		"no full page write": {func(f *facts) { f.fullPages = "off" }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound
			c.change(&f)
			err := f.check(c.relaxed)
			if c.part == "" && err != nil {
				t.Error(err)
			} else if c.part != "" {
				wantCode(t, err, headgate.CodeInvalidConfig, c.part)
			}
		})
	}
	torn := sound
	torn.fullPages = "off"
	if w := torn.words(false); !strings.Contains(w, "full_page_writes=off") {
		t.Errorf("words %q", w)
	}
}

func TestOutsideInfo(t *testing.T) {
	for durable, cfg := range map[bool]Config{true: {}, false: {Relaxed: true}} {
		if i := openTest(t, cfg).Info(); i.Durable != durable || i.Driver != "postgres" || i.Schema == 0 || i.Words == "" {
			t.Errorf("%+v: %+v", cfg, i)
		}
	}
}

// TestOutsideSessions: what correctness rests on is set in every session,
// whatever the role, the database and the URL say.
func TestOutsideSessions(t *testing.T) {
	url := pgtest.URL(t) + "&synchronous_commit=off&search_path=public&application_name=mine&default_transaction_isolation=serializable"
	s := openTest(t, Config{URL: url})
	want := map[string]string{
		"synchronous_commit": "on", "application_name": "mine", "search_path": `"` + s.cfg.Schema + `", pg_temp`,
		"statement_timeout": "30s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "10s",
		"default_transaction_isolation": "read committed", "enable_seqscan": "off", "jit": "off",
	}
	reader, err := s.connectReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.close()
	for name, c := range map[string]*conn{"writer": s.writer.conn, "reader": reader} {
		for setting, value := range want {
			if name == "reader" && setting == "idle_in_transaction_session_timeout" {
				value = "1min"
			}
			results, err := c.pg.Exec(t.Context(), "SHOW "+setting).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			if got := string(results[0].Rows[0][0]); got != value {
				t.Errorf("%s: %s is %q, want %q", name, setting, got, value)
			}
		}
	}
}

// TestOutsideNodesThatStartTogether migrate once.
func TestOutsideNodesThatStartTogether(t *testing.T) {
	url := pgtest.URL(t)
	schema := pgtest.Schema(t, url, t.TempDir())
	const nodes = 8
	errs := make(chan error, nodes)
	for range nodes {
		go func() {
			s, err := Open(t.Context(), Config{URL: url, Schema: schema, Shared: true})
			if err == nil {
				err = s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					return tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "s"}})
				})
				if cerr := s.Close(); err == nil {
					err = cerr
				}
			}
			errs <- err
		}()
	}
	for range nodes {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := pgtest.Exec(t, url, "SELECT count(*), (SELECT count(*) FROM "+schema+".schema_version) FROM "+schema+".outbox"); got[0][0] != "8" || got[0][1] != "1" {
		t.Errorf("%s rows and %s versions", got[0][0], got[0][1])
	}
}

// openMigrator returns a migrator over a connection of its own.
func openMigrator(t *testing.T) migrator {
	t.Helper()
	url := pgtest.URL(t)
	server, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{cfg: Config{Schema: pgtest.Schema(t, url, t.TempDir()), ConnectTimeout: time.Minute, StatementTimeout: time.Minute, IdleTimeout: time.Minute}, server: server}
	c, err := s.connect(t.Context(), writerSession)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return migrator{pg: c.pg, schema: s.cfg.Schema, lock: lockStatement(s.cfg.Schema)}
}

// TestOutsideMigrations goes up, down and up again over migrations that carry
// data.
func TestOutsideMigrations(t *testing.T) {
	all, err := sqlstore.Migrations(fstest.MapFS{
		"migrations/0001_a.up.sql":   {Data: []byte("CREATE TABLE @a (x int); INSERT INTO @a VALUES (1), (2);")},
		"migrations/0001_a.down.sql": {Data: []byte("DROP TABLE @a;")},
		"migrations/0002_b.up.sql":   {Data: []byte("ALTER TABLE @a ADD COLUMN y int; UPDATE @a SET y = x * 10;")},
		"migrations/0002_b.down.sql": {Data: []byte("ALTER TABLE @a DROP COLUMN y;")},
		"migrations/0003_c.up.sql":   {Data: []byte("CREATE TABLE @c AS SELECT sum(y) AS s FROM @a;")},
		"migrations/0003_c.down.sql": {Data: []byte("DROP TABLE @c;")},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := openMigrator(t)
	for _, version := range []int{0, 1, 3, 3, 1, 2, 0, 3} {
		if err := m.migrate(t.Context(), all, version); err != nil {
			t.Fatalf("to %d: %v", version, err)
		}
		if got, err := m.version(t.Context(), 3); err != nil || got != version {
			t.Errorf("version %d, %v; want %d", got, err, version)
		}
	}
	if _, err := m.query(t.Context(), "INSERT INTO @a VALUES (100, 1000); UPDATE @c SET s = s + 1"); err != nil {
		t.Fatal(err)
	}
	for _, version := range []int{2, 3} { // data of what was not touched survives
		if err := m.migrate(t.Context(), all, version); err != nil {
			t.Fatal(err)
		}
	}
	if sum, err := m.number(t.Context(), "SELECT s FROM @c"); err != nil || sum != 1030 {
		t.Errorf("sum %d, %v; want 1030", sum, err)
	}
	wantCode(t, m.migrate(t.Context(), all[:2], 2), headgate.CodeInvalidConfig, "schema 3")
}

func TestOutsideFailedMigrationChangesNothing(t *testing.T) {
	all, err := sqlstore.Migrations(fstest.MapFS{
		"migrations/0001_a.up.sql": {Data: []byte("CREATE TABLE @a (x int);")}, "migrations/0001_a.down.sql": {},
		"migrations/0002_b.up.sql": {Data: []byte("CREATE TABLE @b (x int); INSERT INTO @nowhere VALUES (1);")}, "migrations/0002_b.down.sql": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := openMigrator(t)
	if err := m.migrate(t.Context(), all, 2); err == nil || !strings.Contains(err.Error(), "migration 2 b up") {
		t.Errorf("migrate: %v", err)
	}
	if got := objects(t, pgtest.URL(t), m.schema); !slices.Equal(got, []string{"r a", "r schema_version"}) {
		t.Errorf("objects %q", got)
	}
	if v, err := m.version(t.Context(), 2); err != nil || v != 1 {
		t.Errorf("version %d, %v", v, err)
	}
}

// TestOutsideOwnMigrations takes a filled database down to nothing, step by
// step, and up again.
func TestOutsideOwnMigrations(t *testing.T) {
	s := openTest(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan struct{})
	var once sync.Once
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		storetest.Flood(ctx, t, s, writerFunc(func() { once.Do(func() { close(written) }) }))
	}()
	<-written
	cancel()
	<-flooding
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := sqlstore.Migrations(migrationFiles)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.connect(t.Context(), writerSession)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	m := migrator{pg: c.pg, schema: s.cfg.Schema, lock: s.lock}
	full := objects(t, s.cfg.URL, s.cfg.Schema)
	for _, version := range []int{1, len(all), 0, len(all), 0} {
		if err := m.migrate(t.Context(), all, version); err != nil {
			t.Fatalf("to %d: %v", version, err)
		}
		got := objects(t, s.cfg.URL, s.cfg.Schema)
		if version == len(all) && !slices.Equal(got, full) {
			t.Errorf("version %d has objects\n%q\nwant\n%q", version, got, full)
		}
		if version == 0 && len(got) != 0 {
			t.Errorf("version 0 has objects %q", got)
		}
	}
}

type writerFunc func()

func (w writerFunc) Write(p []byte) (int, error) { w(); return len(p), nil }

var _ io.Writer = writerFunc(nil)

// objects returns what a schema holds.
func objects(t *testing.T, url, schema string) (all []string) {
	t.Helper()
	of := "(SELECT oid FROM pg_namespace WHERE nspname = '" + schema + "')"
	for _, row := range pgtest.Exec(t, url, "SELECT relkind::text || ' ' || relname FROM pg_class WHERE relnamespace = "+of+
		" UNION ALL SELECT 'f ' || proname FROM pg_proc WHERE pronamespace = "+of+" ORDER BY 1") {
		if !strings.Contains(row[0], "pg_toast") {
			all = append(all, row[0])
		}
	}
	return all
}
