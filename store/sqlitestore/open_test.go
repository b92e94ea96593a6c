package sqlitestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/sqlstore"
	"github.com/headgate/headgate/store/storetest"
)

func tryOpen(t *testing.T, path string) error {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
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

func TestSecondProcessIsRefused(t *testing.T) {
	s := openTest(t, Config{})
	wantCode(t, tryOpen(t, s.file), headgate.CodeUnavailable, "another process")
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(s.file, link); err != nil {
		t.Skip(err)
	}
	wantCode(t, tryOpen(t, link), headgate.CodeUnavailable, "another process")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tryOpen(t, s.file); err != nil {
		t.Errorf("after Close: %v", err)
	}
	if err := tryOpen(t, link); err != nil {
		t.Errorf("through a link: %v", err)
	}
}

// TestForeignReaderDelaysNobody: another process may look into the database.
func TestForeignReaderDelaysNobody(t *testing.T) {
	s := openTest(t, Config{})
	db, err := sqlite3.Open(s.file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec("BEGIN; SELECT * FROM settings"); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Error(err)
	}
}

func TestForeignFilesAreRefusedAndKept(t *testing.T) {
	other := func(t *testing.T, path string, sql ...string) {
		t.Helper()
		db, err := sqlite3.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range sql {
			if err := db.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	newest := func() int { m, _ := sqlstore.Migrations(migrationFiles); return len(m) }()
	for name, c := range map[string]struct {
		make func(*testing.T, string)
		code headgate.Code
		part string
	}{
		"text":             {func(t *testing.T, p string) { write(t, p, bytes.Repeat([]byte("hello, world\n"), 1000)) }, headgate.CodeInvalidConfig, "not a database"},
		"foreign database": {func(t *testing.T, p string) { other(t, p, "CREATE TABLE x (y)") }, headgate.CodeInvalidConfig, "another application"},
		"foreign id":       {func(t *testing.T, p string) { other(t, p, "PRAGMA application_id = 77", "PRAGMA user_version = 1") }, headgate.CodeInvalidConfig, "another application"},
		"newer schema": {func(t *testing.T, p string) {
			if err := tryOpen(t, p); err != nil {
				t.Fatal(err)
			}
			other(t, p, fmt.Sprint("PRAGMA user_version = ", newest+1))
		}, headgate.CodeInvalidConfig, fmt.Sprint("knows up to ", newest)},
		"damaged": {func(t *testing.T, p string) {
			if err := tryOpen(t, p); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			write(t, p, append(b[:100:100], bytes.Repeat([]byte{0xaa}, len(b)-100)...))
		}, headgate.CodeInternal, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			c.make(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				wantCode(t, tryOpen(t, path), c.code, c.part)
			}
			after, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(before, after) {
				t.Error("the refused file was changed")
			}
		})
	}
}

func TestPlacesThatCannotBe(t *testing.T) {
	wantCode(t, tryOpen(t, ""), headgate.CodeInvalidConfig, "path")
	wantCode(t, tryOpen(t, t.TempDir()), headgate.CodeUnavailable, "cannot open")
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, nil)
	wantCode(t, tryOpen(t, filepath.Join(file, "state.db")), headgate.CodeUnavailable, "cannot open")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, Config{Memory: true})
	wantCode(t, err, headgate.CodeCanceled, "")
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are of Unix")
	}
	s := openTest(t, Config{})
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(s.file))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 3 {
		t.Errorf("only %d files", len(entries))
	}
	for _, e := range entries {
		if i, err := e.Info(); err != nil || i.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", e.Name(), i.Mode(), err)
		}
	}
	if i, err := os.Stat(filepath.Dir(s.file)); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v, %v", i.Mode(), err)
	}
}

func TestMemoryLeavesNothing(t *testing.T) {
	s := openTest(t, Config{Memory: true})
	dir := filepath.Dir(s.file)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	alive := openTest(t, Config{Memory: true})
	plant := func(name string, files ...string) string {
		dir := filepath.Join(temp, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			write(t, filepath.Join(dir, f), []byte("x"))
		}
		return dir
	}
	dead := plant("headgate-memory-1", "state.db", "state.db.lock")
	foreign := []string{plant("headgate-memory-2", "something"), plant("other", "state.db", "state.db.lock")}
	removeLeftovers(temp, time.Now())
	if _, err := os.Stat(dead); err != nil {
		t.Errorf("a young folder is gone: %v", err)
	}
	removeLeftovers(temp, time.Now().Add(2*leftoverAge))
	if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover is still there: %v", err)
	}
	for _, dir := range append(foreign, filepath.Dir(alive.file)) {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	if err := alive.Update(t.Context(), put("a")); err != nil {
		t.Error(err)
	}
}

func TestInfo(t *testing.T) {
	for durable, cfg := range map[bool]Config{true: {}, false: {Relaxed: true}} {
		if i := openTest(t, cfg).Info(); i.Durable != durable || i.Driver != "sqlite" || i.Schema == 0 {
			t.Errorf("%+v: %+v", cfg, i)
		}
	}
}

func TestBackup(t *testing.T) {
	s := openTest(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		storetest.Flood(ctx, t, s, writerFunc(func() {}))
	}()
	dir := t.TempDir()
	path := filepath.Join(dir, "it's a copy.db")
	err := s.Backup(t.Context(), path)
	cancel()
	<-flooding
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Backup(t.Context(), path), headgate.CodeConflict, "exists")
	wantCode(t, s.Backup(t.Context(), filepath.Join(dir, "no", "such")), headgate.CodeUnavailable, "")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("beside the backup: %v, %v", entries, err)
	}
	copied := openTest(t, Config{Path: path})
	if err := copied.Check(t.Context()); err != nil {
		t.Error(err)
	}
	storetest.VerifyFlood(t, copied, make([]uint64, 8))
	if err := copied.Update(t.Context(), put("a")); err != nil {
		t.Error(err)
	}
}

type writerFunc func()

func (w writerFunc) Write(p []byte) (int, error) { w(); return len(p), nil }

func TestCheckFindsDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return tx.Settings.Put(ctx, fmt.Sprint(i), make([]byte, 3000))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("a sound database: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 60 * 4096; at < len(b); at += 4096 {
		copy(b[at:], bytes.Repeat([]byte{0xff}, 64))
	}
	write(t, path, b)
	damaged := openTest(t, Config{Path: path})
	wantCode(t, damaged.Check(t.Context()), headgate.CodeInternal, "damaged")
}

// TestMigrations goes up, down and up again over migrations that carry data.
func TestMigrations(t *testing.T) {
	files := fstest.MapFS{
		"migrations/0001_a.up.sql":   {Data: []byte("CREATE TABLE a (x); INSERT INTO a VALUES (1), (2);")},
		"migrations/0001_a.down.sql": {Data: []byte("DROP TABLE a;")},
		"migrations/0002_b.up.sql":   {Data: []byte("ALTER TABLE a ADD COLUMN y; UPDATE a SET y = x * 10;")},
		"migrations/0002_b.down.sql": {Data: []byte("ALTER TABLE a DROP COLUMN y;")},
		"migrations/0003_c.up.sql":   {Data: []byte("CREATE TABLE c AS SELECT sum(y) AS s FROM a;")},
		"migrations/0003_c.down.sql": {Data: []byte("DROP TABLE c;")},
	}
	all, err := sqlstore.Migrations(files)
	if err != nil {
		t.Fatal(err)
	}
	c, err := openConn(filepath.Join(t.TempDir(), "m.db"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, version := range []int{0, 1, 3, 3, 1, 2, 0, 3} {
		if err := migrate(c, all, version); err != nil {
			t.Fatalf("to %d: %v", version, err)
		}
		if got, err := c.int64Pragma("user_version"); err != nil || got != int64(version) {
			t.Errorf("version %d, %v; want %d", got, err, version)
		}
	}
	if err := c.db.Exec("INSERT INTO a VALUES (100, 1000); UPDATE c SET s = s + 1"); err != nil {
		t.Fatal(err)
	}
	for _, version := range []int{2, 3} { // data of what was not touched survives
		if err := migrate(c, all, version); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.int64Pragma("user_version"); err != nil || got != 3 {
		t.Errorf("version %d, %v", got, err)
	}
	s, _, err := c.db.Prepare("SELECT s FROM c")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Step() || s.ColumnInt(0) != 1030 {
		t.Errorf("sum %d, %v; want 1030", s.ColumnInt(0), s.Err())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantCode(t, migrate(c, all[:2], 2), headgate.CodeInvalidConfig, "schema 3")
}

func TestFailedMigrationChangesNothing(t *testing.T) {
	all, err := sqlstore.Migrations(fstest.MapFS{
		"migrations/0001_a.up.sql": {Data: []byte("CREATE TABLE a (x);")}, "migrations/0001_a.down.sql": {},
		"migrations/0002_b.up.sql": {Data: []byte("CREATE TABLE b (x); INSERT INTO nowhere VALUES (1);")}, "migrations/0002_b.down.sql": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := openConn(filepath.Join(t.TempDir(), "m.db"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := migrate(c, all, 2); err == nil || !strings.Contains(err.Error(), "migration 2 b up") {
		t.Errorf("migrate: %v", err)
	}
	if got := objects(t, c); !slices.Equal(got, []string{"CREATE TABLE a (x)"}) {
		t.Errorf("objects %q", got)
	}
	if v, err := c.int64Pragma("user_version"); err != nil || v != 1 {
		t.Errorf("version %d, %v", v, err)
	}
}

// TestOwnMigrations takes a filled database down to nothing and up again.
func TestOwnMigrations(t *testing.T) {
	s := openTest(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	storetest.Flood(ctx, t, s, writerFunc(func() {
		if n++; n == 100 {
			cancel()
		}
	}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := sqlstore.Migrations(migrationFiles)
	if err != nil {
		t.Fatal(err)
	}
	c, err := openConn(s.file, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	full := objects(t, c)
	for _, version := range []int{0, len(all), 0} {
		if err := migrate(c, all, version); err != nil {
			t.Fatalf("to %d: %v", version, err)
		}
		want := full
		if version == 0 {
			want = nil
		}
		if got := objects(t, c); !slices.Equal(got, want) {
			t.Errorf("version %d has objects\n%q\nwant\n%q", version, got, want)
		}
	}
}

// objects returns the schema without what SQLite keeps for itself.
func objects(t *testing.T, c *conn) (all []string) {
	t.Helper()
	s, _, err := c.db.Prepare("SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for s.Step() {
		all = append(all, s.ColumnText(0))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
