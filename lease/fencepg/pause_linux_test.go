package fencepg_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
)

// holderEnv makes this program a worker that holds a lease, in a process of
// its own: its URL, fence and what is left of the lease.
const holderEnv = "HEADGATE_TEST_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) != "" {
		os.Exit(holder(strings.Split(os.Getenv(holderEnv), "|")))
	}
	os.Exit(m.Run())
}

// holder writes a row, says so, waits for a line, writes another and commits.
func holder(args []string) int {
	ctx := context.Background()
	epoch, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		panic(err)
	}
	nonce, err := hex.DecodeString(args[3])
	if err != nil {
		panic(err)
	}
	left, err := time.ParseDuration(args[4])
	if err != nil {
		panic(err)
	}
	f := fence.Fence{Resource: args[1], Epoch: epoch, Nonce: nonce, Deadline: time.Now().Add(left)}
	pool, err := pgxpool.New(ctx, args[0])
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	in := bufio.NewReader(os.Stdin)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err = fencepg.Tx(ctx, pool, f, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO rows (id, resource, epoch) VALUES (1, $1, $2)", f.Resource, f.Epoch); err != nil {
			return err
		}
		fmt.Println("within")
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO rows (id, resource, epoch) VALUES (2, $1, $2)", f.Resource, f.Epoch)
		return err
	})
	fmt.Println("ended:", err)
	return 0
}

// process is a running holder.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// hold starts a holder, within the command if there is one, and waits until it
// is within its transaction.
func (r *rig) holder(t *testing.T, url string, f *fence.Fence, left time.Duration, within ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(within, self)
	p := &process{t: t, cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Env = append(os.Environ(), holderEnv+"="+strings.Join([]string{url, f.Resource, strconv.FormatInt(f.Epoch, 10), hex.EncodeToString(f.Nonce), left.String()}, "|"))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // says so
	})
	p.out = bufio.NewReader(out)
	if line := p.line(); line != "within" {
		t.Fatalf("the holder said %q", line)
	}
	return p
}

func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the holder said %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// wake lets it go on, and returns how it ended.
func (p *process) wake() string {
	p.t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.t.Fatal(err)
	}
	return p.line()
}

// successor takes the lease over as soon as it can, and returns how long that
// took.
func (r *rig) successor(t *testing.T, i int) (*fence.Fence, time.Duration) {
	t.Helper()
	begun := time.Now()
	for time.Since(begun) < 30*time.Second {
		if f := r.acquire(t.Context(), 9, i, 30*time.Second); f != nil {
			return f, time.Since(begun)
		}
		wait(t.Context(), 5*time.Millisecond)
	}
	t.Fatal("the lease was not taken over in 30 s")
	return nil, 0
}

const ttl = time.Second

// A holder is stopped within its transaction, beyond the end of its lease. Its
// successor is not kept waiting, and nothing of what it did is kept.
func TestPausedHolder(t *testing.T) {
	r := newRig(t, newDatabase(t), byRows)
	f := r.acquire(t.Context(), 1, 1, ttl)
	if f == nil {
		t.Fatal("the lease was not granted")
	}
	p := r.holder(t, r.url, f, ttl)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next, took := r.successor(t, 1)
	r.proceed(t, next)
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.gone(t, p, took, 4*time.Second)
}

// Killed holders leave nothing in the way.
func TestKilledHolder(t *testing.T) {
	r := newRig(t, newDatabase(t), byRows)
	f := r.acquire(t.Context(), 1, 1, ttl)
	if f == nil {
		t.Fatal("the lease was not granted")
	}
	p := r.holder(t, r.url, f, ttl)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	next, took := r.successor(t, 1)
	r.proceed(t, next)
	t.Logf("taken over %s after the kill, of which at most %s are the lease's", took.Round(time.Millisecond), ttl)
	if took > 4*time.Second {
		t.Errorf("the takeover took %s", took)
	}
}

// proceed is the successor's first write.
func (r *rig) proceed(t *testing.T, f *fence.Fence) {
	t.Helper()
	err := fencepg.Tx(t.Context(), r.pool, *f, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO rows (id, resource, epoch) VALUES (3, $1, $2)", f.Resource, f.Epoch)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// gone checks what a holder that comes back can still do: nothing.
func (r *rig) gone(t *testing.T, p *process, took, most time.Duration) {
	t.Helper()
	ended := p.wake()
	t.Logf("taken over %s after the holder was cut off, of which at most %s are the lease's; it %s", took.Round(time.Millisecond), ttl, ended)
	if ended == "ended: <nil>" {
		t.Error("the holder committed")
	}
	if took > most {
		t.Errorf("the takeover took %s", took)
	}
	if rows := pgtest.Exec(t, r.url, "SELECT id FROM rows"); len(rows) != 1 || rows[0][0] != "3" {
		t.Errorf("rows %v, want the successor's alone", rows)
	}
}

// ip runs one of its commands.
func ip(t *testing.T, args ...string) error {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// absent skips a test for want of something on this machine; in CI it fails.
func absent(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// The network of a holder goes away within its transaction, so that neither
// side hears of the other. Its successor is not kept waiting by a session that
// the server believes to be alive.
func TestPartitionedHolder(t *testing.T) {
	if os.Geteuid() != 0 {
		absent(t, "network namespaces need root")
	}
	id := os.Getpid() % 10000
	space, here, there := fmt.Sprintf("hg%d", id), fmt.Sprintf("hga%d", id), fmt.Sprintf("hgb%d", id)
	net := fmt.Sprintf("10.213.%d.", id%250)
	if err := ip(t, "netns", "add", space); err != nil {
		absent(t, "network namespaces are not permitted: %v", err)
	}
	t.Cleanup(func() {
		_ = ip(t, "link", "del", here) // it may not have been made
		if err := ip(t, "netns", "del", space); err != nil {
			t.Error(err)
		}
	})
	for _, args := range []string{
		"link add " + here + " type veth peer name " + there + " netns " + space, "addr add " + net + "1/24 dev " + here, "link set " + here + " up",
		"-n " + space + " addr add " + net + "2/24 dev " + there, "-n " + space + " link set " + there + " up", "-n " + space + " link set lo up",
	} {
		if err := ip(t, strings.Fields(args)...); err != nil {
			absent(t, "network namespaces are not permitted: %v", err)
		}
	}
	c := pgtest.Start(t, "listen_addresses=127.0.0.1,"+net+"1", "hba_file="+trustAll(t))
	r := newRig(t, c.URL(), byRows)
	f := r.acquire(t.Context(), 1, 1, ttl)
	if f == nil {
		t.Fatal("the lease was not granted")
	}
	p := r.holder(t, strings.Replace(c.URL(), "127.0.0.1", net+"1", 1), f, ttl, "ip", "netns", "exec", space)
	if err := ip(t, "link", "set", here, "down"); err != nil {
		t.Fatal(err)
	}
	next, took := r.successor(t, 1)
	r.proceed(t, next)
	if err := ip(t, "link", "set", here, "up"); err != nil {
		t.Fatal(err)
	}
	r.gone(t, p, took, 5*time.Second)
	if err := r.write(t.Context(), 9, 1, *f, newRandom(), 0); headgate.CodeOf(err) != headgate.CodeStaleFence {
		t.Errorf("a late write: %v", err)
	}
}

// trustAll is a file of rules by which the server lets the test's network in.
func trustAll(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "headgate-hba-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a folder of temporary files
	file := filepath.Join(dir, "pg_hba.conf")
	if err := os.WriteFile(file, []byte("host all all 127.0.0.1/32 trust\nhost all all 10.213.0.0/16 trust\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}
