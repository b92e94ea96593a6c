// Package servertest runs the real command in processes of its own: started,
// killed without warning, and started again on the same data. It is for tests
// and benchmarks only.
package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/client"
)

// Build compiles the command into a folder and returns its path. Call it once,
// from TestMain.
func Build(dir string) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	path := filepath.Join(dir, "headgate")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/headgate")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// Server is one node in a process of its own, that can die and come back.
type Server struct {
	t      testing.TB
	binary string
	args   []string
	addr   string

	mu   sync.Mutex
	cmd  *exec.Cmd
	out  *bytes.Buffer
	done chan struct{}
	err  error // of the process, once done is closed
}

// Start runs the binary with the arguments, which make it listen on addr, and
// waits until it is ready. It is killed when the test ends.
func Start(t testing.TB, binary, addr string, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, binary: binary, addr: addr, args: args}
	s.Restart()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("output of the node:\n%s", s.Output())
		}
	})
	return s
}

// URL is the address of the node's API.
func (s *Server) URL() string { return "http://" + s.addr }

// Restart starts the node again on the same data and waits until it is ready.
func (s *Server) Restart() {
	s.t.Helper()
	out := &bytes.Buffer{}
	cmd := exec.Command(s.binary, s.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "GOTRACEBACK=all")
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("start of the node: %v", err)
	}
	done := make(chan struct{})
	s.mu.Lock()
	s.cmd, s.out, s.done = cmd, out, done
	s.mu.Unlock()
	go func() {
		err := cmd.Wait()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		close(done)
	}()
	s.waitReady(done)
}

func (s *Server) waitReady(done chan struct{}) {
	s.t.Helper()
	c, err := client.New(client.Config{URL: s.URL()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c.Ready(ctx) == nil {
			return
		}
		select {
		case <-done:
			s.t.Fatalf("the node ended while starting:\n%s", s.Output())
		case <-ctx.Done():
			s.t.Fatalf("the node was not ready in time:\n%s", s.Output())
		case <-tick.C:
		}
	}
}

// Kill ends the node by SIGKILL and waits until the process is gone.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

// Stop asks the node to drain and waits until the process is gone.
func (s *Server) Stop() { s.signal(syscall.SIGTERM) }

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	cmd, done := s.cmd, s.done
	s.mu.Unlock()
	_ = cmd.Process.Signal(sig) // an ended process cannot be signalled, which is fine
	<-done
}

// Pid is the process id of the running node.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

// Ended is closed when the process is gone.
func (s *Server) Ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// ExitError is how the process ended: nil, or an *exec.ExitError. Call it when
// the process ended.
func (s *Server) ExitError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Output is what the last process printed. Call it when the process ended.
func (s *Server) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// Client returns a client with a token.
func (s *Server) Client(token string) *client.Client {
	s.t.Helper()
	c, err := client.New(client.Config{URL: s.URL(), Token: token})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// RunJSON runs the binary with --json and decodes what it prints.
func RunJSON(t testing.TB, binary string, into any, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"--json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, stderr.String())
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%v printed no JSON: %v\n%s", args, err, out)
	}
}
