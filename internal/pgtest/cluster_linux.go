package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Cluster is a server of the test's own.
type Cluster struct {
	t    testing.TB
	dir  string
	port int
	args []string
	env  []string // beside this process's
	cred *syscall.Credential
	cmd  *exec.Cmd
	done chan struct{}
}

// Start makes a cluster with the settings (NAME=VALUE), as a user without
// rights when root runs the test, and starts it. It is removed when the test
// ends. Without the server's programs the test is skipped as by [URL].
func Start(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "headgate-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t, dir: dir}
	t.Cleanup(func() {
		c.Crash()
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(dir, "log")); err == nil {
				t.Logf("log of PostgreSQL:\n%s", log)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing the cluster: %v", err)
		}
	})
	c.lowerRights()
	initdb := c.command("initdb", "--pgdata="+filepath.Join(dir, "data"), "--username=headgate", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	c.choosePort()
	c.args = []string{"-D", filepath.Join(dir, "data"), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "port=" + strconv.Itoa(c.port)}
	for _, s := range settings {
		c.args = append(c.args, "-c", s)
	}
	c.Restart()
	return c
}

// lowerRights chooses the user: the server refuses root.
func (c *Cluster) lowerRights() {
	c.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			c.t.Fatal(err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		c.t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		c.t.Fatal(err)
	}
	c.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Chown(c.dir, int(uid), int(gid)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cluster) command(program string, args ...string) *exec.Cmd {
	c.t.Helper()
	bin := os.Getenv("HEADGATE_POSTGRES_BIN")
	if bin == "" {
		absent(c.t, "HEADGATE_POSTGRES_BIN names no programs; scripts/services run CMD finds them")
	}
	cmd := exec.Command(filepath.Join(bin, program), args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

func (c *Cluster) choosePort() {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	c.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// URL is the address of the cluster's database.
func (c *Cluster) URL() string {
	return fmt.Sprintf("postgres://headgate@127.0.0.1:%d/postgres?sslmode=disable", c.port)
}

// Restart starts the server again on the same data and waits until it takes
// connections.
func (c *Cluster) Restart() {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := c.command("postgres", c.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	c.cmd, c.done = cmd, done
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pg, err := pgconn.Connect(ctx, c.URL())
		if err == nil {
			_ = pg.Close(ctx) // the server ends the session either way
			return
		}
		select {
		case <-done:
			c.t.Fatal("PostgreSQL ended while it started")
		case <-ctx.Done():
			c.t.Fatalf("PostgreSQL was not ready in time: %v", err)
		case <-tick.C:
		}
	}
}

// Clone copies the data of a stopped server into another cluster, which is not
// started. As a base backup does, it leaves out the replication slots, unless
// they are asked for: then it is the restore of a copy of the files.
func (c *Cluster) Clone(slots bool) *Cluster {
	c.t.Helper()
	dir, err := os.MkdirTemp("", "headgate-postgres-")
	if err != nil {
		c.t.Fatal(err)
	}
	x := &Cluster{t: c.t, dir: dir, cred: c.cred}
	c.t.Cleanup(func() {
		x.Crash()
		if err := os.RemoveAll(dir); err != nil {
			c.t.Errorf("removing the cluster: %v", err)
		}
	})
	if out, err := exec.Command("cp", "-a", filepath.Join(c.dir, "data"), dir).CombinedOutput(); err != nil {
		c.t.Fatalf("copying the cluster: %v\n%s", err, out)
	}
	if !slots {
		all, err := filepath.Glob(filepath.Join(dir, "data", "pg_replslot", "*"))
		if err != nil {
			c.t.Fatal(err)
		}
		for _, s := range all {
			if err := os.RemoveAll(s); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	if c.cred != nil {
		if err := os.Chown(dir, int(c.cred.Uid), int(c.cred.Gid)); err != nil {
			c.t.Fatal(err)
		}
	}
	x.choosePort()
	x.args, x.env = slices.Clone(c.args), slices.Clone(c.env)
	for i, a := range x.args {
		switch a {
		case "-D":
			x.args[i+1] = filepath.Join(dir, "data")
		case "port=" + strconv.Itoa(c.port):
			x.args[i] = "port=" + strconv.Itoa(x.port)
		}
	}
	return x
}

// Demote makes a stopped server start as a standby, until it is promoted.
func (c *Cluster) Demote() { c.Write("standby.signal", nil) }

// Write puts a file into the server's data folder.
func (c *Cluster) Write(name string, content []byte) {
	c.t.Helper()
	path := filepath.Join(c.dir, "data", name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		c.t.Fatal(err)
	}
	if c.cred != nil {
		if err := os.Chown(path, int(c.cred.Uid), int(c.cred.Gid)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Set adds a setting (NAME=VALUE) for the next start.
func (c *Cluster) Set(setting string) { c.args = append(c.args, "-c", setting) }

// Setenv adds an environment variable (NAME=VALUE) for the next start.
func (c *Cluster) Setenv(variable string) { c.env = append(c.env, variable) }

// Stop ends the server's sessions and then the server, in good order.
func (c *Cluster) Stop() { c.signal(syscall.SIGINT) }

// Crash ends the server at once; it recovers from its log at the next start.
func (c *Cluster) Crash() { c.signal(syscall.SIGQUIT) }

func (c *Cluster) signal(sig syscall.Signal) {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(sig) // an ended process cannot be signalled, which is fine
	<-c.done
}
