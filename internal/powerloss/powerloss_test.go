package powerloss

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const childEnv = "HEADGATE_POWERLOSS_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child makes one file for each thing that the model must get right, then
// waits for its death.
func child(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	var err error
	do := func(e error) {
		if err == nil {
			err = e
		}
	}
	create := func(name string, flags int) *os.File {
		f, e := os.OpenFile(at(name), os.O_CREATE|os.O_RDWR|flags, 0o600)
		do(e)
		return f
	}
	write := func(f *os.File, s string) { _, e := f.WriteString(s); do(e) }

	f := create("half", 0)
	write(f, "synced")
	do(f.Sync())
	write(f, "lost")

	write(create("never", 0), "lost")
	write(create("direct", os.O_SYNC), "synced")

	f = create("before", os.O_APPEND)
	write(f, "lost") // the file held "old" already

	f = create("renamed.tmp", 0)
	write(f, "synced")
	do(f.Sync())
	do(os.Rename(at("renamed.tmp"), at("renamed")))
	write(f, "lost")

	f = create("unsynced.tmp", 0)
	write(f, "lost")
	do(os.Rename(at("unsynced.tmp"), at("unsynced")))

	f = create("positions", 0)
	_, e := f.WriteAt([]byte("synced"), 100)
	do(e)
	_, e = f.Seek(10, io.SeekStart)
	do(e)
	write(f, "early")
	do(f.Sync())
	_, e = f.WriteAt([]byte("lost"), 200)
	do(e)

	f = create("shrunk", 0)
	write(f, "0123456789")
	do(f.Sync())
	do(f.Truncate(4))
	write(f, "x")

	do(os.Mkdir(at("folder"), 0o700))
	f = create("folder/named", 0)
	write(f, "synced")
	do(f.Sync())
	d, e := os.Open(at("folder"))
	do(e)
	do(d.Sync())

	do(os.WriteFile(at("removed"), []byte("x"), 0o600))
	do(os.Remove(at("removed")))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

func record(t *testing.T, dir string) *Trace {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(cmd.Environ(), childEnv+"="+dir)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var lines []string
	trace, err := Record(ctx, cmd, dir, func(line string) bool {
		lines = append(lines, line)
		return line != "ready"
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(lines, []string{"ready"}) {
		t.Fatalf("lines %q", lines)
	}
	return trace
}

func TestCutKeepsWhatWasSynced(t *testing.T) {
	Require(t)
	for _, o := range []Options{{}, {LoseUnsyncedNames: true}} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "before"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		trace := record(t, dir)
		if trace.Syncs != 6 {
			t.Errorf("%d syncs seen, want 6", trace.Syncs)
		}
		report, err := trace.Cut(o)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"half": 6, "direct": 6, "before": 3, "renamed": 6, "positions": 106, "shrunk": 4, "folder/named": 6}
		if o.LoseUnsyncedNames {
			want = map[string]int{"before": 3, "folder/named": 6}
		}
		got := sizes(t, dir)
		for name, size := range want {
			if s, ok := got[name]; !ok || s != size {
				t.Errorf("%+v: %s has %d bytes (there: %v), want %d", o, name, s, ok, size)
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok {
				t.Errorf("%+v: %s survived", o, name)
			}
		}
		if len(report.Removed) == 0 || report.Lost == 0 {
			t.Errorf("report %+v", report)
		}
	}
}

func sizes(t *testing.T, dir string) map[string]int {
	t.Helper()
	got := map[string]int{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			got[rel] = int(info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCommandThatEndsIsAnError(t *testing.T) {
	Require(t)
	_, err := Record(context.Background(), exec.Command("/bin/true"), t.TempDir(), func(string) bool { return true })
	if err == nil {
		t.Error("no error for a command that ended by itself")
	}
}

// A sync covers only writes that had returned when it began.
func TestSyncCoversWritesBeforeItOnly(t *testing.T) {
	m := &model{root: "/d", files: map[string]*file{}, offsets: map[string]int64{}, appends: map[string]bool{}, begun: map[string]pending{}}
	for _, line := range []string{
		`1 openat(AT_FDCWD</d>, "/d/f", O_RDWR|O_CREAT, 0600) = 3</d/f>`,
		`1 write(3</d/f>, ""..., 10) = 10`,
		`1 fsync(3</d/f> <unfinished ...>`,
		`2 pwrite64(3</d/f>, ""..., 5, 10 <unfinished ...>`,
		`2 <... pwrite64 resumed>) = 5`,
		`1 <... fsync resumed>) = 0`,
	} {
		m.line(line)
	}
	if f := m.files["/d/f"]; f.size != 15 || f.synced != 10 {
		t.Errorf("size %d, synced %d; want 15 and 10", f.size, f.synced)
	}
	m.line(`1 fsync(3</d/f>) = ?`) // killed meanwhile
	m.line(`1 fsync(3</d/f>) = -1 EIO (Input/output error)`)
	if f := m.files["/d/f"]; f.synced != 10 {
		t.Errorf("a failed sync made %d bytes durable", f.synced)
	}
}

func TestOddNames(t *testing.T) {
	m := &model{root: "/d", files: map[string]*file{}, offsets: map[string]int64{}, appends: map[string]bool{}, begun: map[string]pending{}}
	for _, line := range []string{
		`1 openat(AT_FDCWD</d>, "/d/a, b) = 1\303\274\"\n\0z", O_RDWR|O_CREAT, 0600) = 3</d/a, b) = 1\303\274"\n\0z>`,
		`1 write(3</d/a, b) = 1\303\274"\n\0z>, ""..., 10) = 10`,
		`1 renameat(AT_FDCWD</d>, "a, b) = 1\303\274\"\n\0z", AT_FDCWD</d>, "c") = 0`,
		`1 unlink("relative") = 0`,
	} {
		m.line(line)
	}
	if f := m.files["/d/c"]; f == nil || f.size != 10 || len(m.files) != 1 {
		t.Errorf("files %v", m.files)
	}
}

func FuzzLine(f *testing.F) {
	f.Add(`1 openat(AT_FDCWD</d>, "/d/f", O_RDWR|O_CREAT, 0600) = 3</d/f>`)
	f.Add(`1 <... pwrite64 resumed>) = 5`)
	f.Add(`1 pwrite64(3</d/f>, ""..., 5, 10 <unfinished ...>`)
	f.Add(`12 renameat(AT_FDCWD</tmp>, "/d/a\1b", AT_FDCWD</tmp>, "/d/c") = 0`)
	f.Add(`1 +++ exited with 0 +++`)
	f.Fuzz(func(_ *testing.T, line string) {
		m := &model{root: "/d", files: map[string]*file{"/d/f": {}}, offsets: map[string]int64{}, appends: map[string]bool{}, begun: map[string]pending{}}
		m.line(line)
		m.line(line)
	})
}
