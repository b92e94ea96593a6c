package powerloss

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// traced are the system calls that the model follows.
const traced = "open,openat,openat2,creat,close,write,writev,pwrite64,pwritev,pwritev2,ftruncate,fallocate,fsync,fdatasync,sync,syncfs,rename,renameat,renameat2,unlink,unlinkat,lseek"

// Require skips the test when this machine cannot trace processes, saying why,
// or fails it if HEADGATE_REQUIRE_SERVICES is 1.
func Require(t testing.TB) {
	t.Helper()
	err := usable()
	switch {
	case err == nil:
	case os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1":
		t.Fatalf("tracing is required: %v", err)
	default:
		t.Skipf("this machine cannot trace processes: %v", err)
	}
}

func usable() error {
	out, err := exec.Command("strace", "-f", "-y", "-s", "0", "--seccomp-bpf", "-e", "trace=fsync", "-o", "/dev/null", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("strace: %w: %s", err, out)
	}
	return nil
}

// Trace is what a recording saw.
type Trace struct {
	model *model
	// Syncs is the number of fsync and fdatasync calls that completed.
	Syncs int
}

// Record runs the command under strace and passes each line of its standard
// output to line, without the line end. When line answers false the command
// and its children are killed with SIGKILL; lines that were already in the
// pipe are still passed on. Files below dir are followed. It is an error when
// the command ends by itself, or ctx ends.
func Record(ctx context.Context, cmd *exec.Cmd, dir string, line func(string) bool) (*Trace, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	m, err := newModel(dir)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "powerloss-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	out := filepath.Join(scratch, "trace")
	run := exec.Command("strace", append([]string{"-f", "-y", "-s", "0", "--seccomp-bpf", "-e", "trace=" + traced, "-e", "signal=none", "-o", out, "--", cmd.Path}, cmd.Args[1:]...)...)
	run.Env, run.Dir = cmd.Env, cmd.Dir
	// A group of its own, so that one signal reaches every process at once.
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := watch(ctx, run, line); err != nil {
		return nil, err
	}
	if err := m.read(out); err != nil {
		return nil, err
	}
	return &Trace{model: m, Syncs: m.syncs}, nil
}

// watch runs the command until line answers false.
func watch(ctx context.Context, run *exec.Cmd, line func(string) bool) error {
	var stderr strings.Builder
	run.Stderr = &stderr
	out, err := run.StdoutPipe()
	if err != nil {
		return err
	}
	if err := run.Start(); err != nil {
		return err
	}
	killed := false
	kill := func() { killed = true; killChildren(run.Process.Pid) }
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL) })
	defer stop()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !line(lines.Text()) && !killed {
			kill()
		}
	}
	err = run.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("powerloss: %w; standard error: %s", ctx.Err(), clip(stderr.String()))
	case !killed:
		return fmt.Errorf("powerloss: the command ended by itself: %v; standard error: %s", err, clip(stderr.String()))
	default:
		return lines.Err()
	}
}

// killChildren kills what strace traces. strace itself stays, so that it writes
// the end of the trace: were it killed, the traced process would live on.
func killChildren(tracer int) {
	pid := strconv.Itoa(tracer)
	b, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		return
	}
	for child := range strings.FieldsSeq(string(b)) {
		n, err := strconv.Atoi(child)
		if err == nil {
			killChildren(n)
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
}

func (m *model) read(trace string) error {
	f, err := os.Open(trace)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		m.line(lines.Text())
	}
	if n == 0 {
		return errors.New("powerloss: the trace is empty")
	}
	return lines.Err()
}

func clip(s string) string {
	const limit = 2000
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return s
}
