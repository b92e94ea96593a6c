package pgrelay

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestErrorsHideAddresses: of a connection that broke a viewer reads that it
// did, and the log has the rest.
func TestErrorsHideAddresses(t *testing.T) {
	broken := &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 5432}, Err: errors.New("reset")}
	for _, err := range []error{sqlError("renewing the lead", fmt.Errorf("x: %w", broken)), unreachable(broken), refusal(broken)} {
		e := headgate.AsError(err)
		if e == nil || strings.Contains(e.Detail, "10.1.2.3") || !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	}
}
