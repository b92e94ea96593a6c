package e2e

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// binary is the command under test, built once.
var binary string

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "headgate-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if binary, err = servertest.Build(dir); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// freeAddr returns a loopback address that nothing listens on.
func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
