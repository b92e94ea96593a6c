package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// runs returns the exit code of a command, and all that it printed.
func runs(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	var out heard
	code = run(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &out})
	return code, out.String()
}

// What stands behind a reference is not printed, nor a URL that may hold a
// password, whatever is wrong with it.
func TestWhatIsHiddenStaysHidden(t *testing.T) {
	for _, secret := range []string{
		"host=h user=u password=geheim", "host=h user=u password=geheim options=-c:x", "mysql://u:geheim@h/d", "geheim", "geheim:x", "u:geheim@h",
		"postgres://u:geheim@127.0.0.1:1/d?sslmode=x", "postgres://u:geheim@[::1/d", "nats://u:geheim@127.0.0.1:1", "geheim://h",
	} {
		t.Setenv("HIDDEN", secret)
		given := []string{"env:HIDDEN"}
		if strings.ContainsAny(secret, "=@") {
			given = append(given, secret) // it is typed, and may be logged
		}
		for _, db := range given {
			for _, command := range [][]string{
				{"lease", "fence-table", db, "t", "--resource", "r/{id}", "--dry-run"},
				{"lease", "fence-table", db, "t", "--create"},
				{"doctor", "--fencing", db},
				{"outbox", "status", "--url", db},
				{"inbox", "status", "--url", db},
			} {
				if code, said := runs(t, command...); code == 0 || strings.Contains(said, "geheim") {
					t.Errorf("%s of %q: exit %d: %s", command, secret, code, said)
				}
			}
		}
		for _, setting := range []string{
			"outbox: [{name: o, url: 'env:HIDDEN'}]", "store: {driver: postgres, url: 'env:HIDDEN'}", "broker: {url: 'env:HIDDEN'}",
			"leases: {seal: {s: {url: 'env:HIDDEN'}}}", "principals: [{name: p, token: 'env:HIDDEN'}]",
		} {
			dir := t.TempDir()
			file := filepath.Join(dir, "headgate.yaml")
			if err := os.WriteFile(file, []byte("data: "+filepath.Join(dir, "data")+"\nlisten: 127.0.0.1:0\n"+setting+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, said := runs(t, "check", file); strings.Contains(said, "geheim") {
				t.Errorf("check of %s with %q: exit %d: %s", setting, secret, code, said)
			}
			if strings.HasPrefix(setting, "broker") || strings.HasPrefix(setting, "store") {
				continue // it tries a server for a while
			}
			if code, _, said := serves(t, file); strings.Contains(said, "geheim") {
				t.Errorf("serve of %s with %q: exit %d: %s", setting, secret, code, said)
			}
		}
	}
}

// A server that takes connections and never answers is one that cannot be
// reached.
func TestSilentServerIsGivenUp(t *testing.T) {
	t.Parallel() // it waits
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	url := fmt.Sprintf("postgres://u@%s/d?sslmode=disable", l.Addr())
	var all sync.WaitGroup
	defer all.Wait()
	for _, command := range [][]string{
		{"doctor", "--fencing", url},
		{"lease", "fence-table", url, "t", "--resource", "r/{id}"},
		{"lease", "fence-table", url, "t", "--create"},
		{"outbox", "doctor", "--url", url},
		{"outbox", "status", "--url", url},
		{"outbox", "init", "--url", url},
		{"inbox", "doctor", "--url", url},
		{"inbox", "status", "--url", url},
		{"inbox", "init", "--url", url},
		{"inbox", "maintain", "--url", url},
	} {
		all.Go(func() { // each waits
			if code, said := runs(t, command...); code != 5 || !strings.Contains(said, "unavailable: ") {
				t.Errorf("%s: exit %d: %s", command, code, said)
			}
		})
	}
}
