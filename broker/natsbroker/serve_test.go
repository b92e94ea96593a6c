package natsbroker

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// serveEnv holds, in a child process, the folder of the NATS server to run.
const serveEnv = "HEADGATE_NATSBROKER_SERVE"

// serve runs a listening NATS server until standard input ends.
func serve(dir string) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, JetStream: true, StoreDir: dir, MaxPayload: maxPayload,
		JetStreamMaxStore: 8 << 30, JetStreamMaxMemory: 1 << 20,
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("server is not ready")
	}
	fmt.Println(s.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	return err
}

// startListening starts a NATS server in a child process, which ends with the
// test, also when the test process is killed.
func startListening(t testing.TB) (url string) {
	t.Helper()
	url, _ = startServer(t)
	return url
}

// startServer is startListening for a test that does something to the process.
func startServer(t testing.TB) (url string, process *os.Process) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(cmd.Environ(), serveEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("NATS server: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), cmd.Process
}
