package relay

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestStatusHidesAddresses: viewers read why a session ended, and not where the
// database is.
func TestStatusHidesAddresses(t *testing.T) {
	broken := &net.OpError{Op: "write", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 5432}, Err: errors.New("broken pipe")}
	for err, want := range map[error]string{
		fmt.Errorf("reading: %w", broken): "the connection to the database broke",
		&headgate.Error{Code: headgate.CodeUnavailable, Detail: "the database cannot be reached", Err: broken}: "unavailable: the database cannot be reached",
		errors.New("revision 3"): "revision 3",
		nil:                      "the session ended",
	} {
		if got := message(err); got != want || strings.Contains(got, "10.1.2.3") {
			t.Errorf("%v is told as %q, want %q", err, got, want)
		}
	}
}
