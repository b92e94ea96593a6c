package pgtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Copy dumps a database and restores the dump in another by the server's own
// programs, with the options of pg_restore. Servers whose programs are not there
// are absent.
func Copy(t testing.TB, from, to string, options ...string) {
	t.Helper()
	program := func(name string) string {
		path := filepath.Join(os.Getenv("HEADGATE_POSTGRES_BIN"), name)
		if _, err := os.Stat(path); err != nil {
			absent(t, "HEADGATE_POSTGRES_BIN holds no "+name)
		}
		return path
	}
	dump := filepath.Join(t.TempDir(), "dump")
	for _, cmd := range []*exec.Cmd{
		exec.Command(program("pg_dump"), "--format=custom", "--file="+dump, from),
		exec.Command(program("pg_restore"), append(options, "--exit-on-error", "--dbname="+to, dump)...),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", filepath.Base(cmd.Path), err, bytes.TrimSpace(out))
		}
	}
}
