package headgate

import (
	"fmt"
	"strings"
	"time"
)

// BlockingSession is a session of a database whose open transaction keeps the
// epoch of a lease from rising. Its names are the session's own words, bounded
// and to be quoted.
type BlockingSession struct {
	// PID is the server's process; 0 for a prepared transaction, which has
	// none and whose name Prepared is.
	PID      int
	Prepared string
	User     string
	// Application is what the session calls itself.
	Application string
	Address     string // of its client; empty when it is not known
	State       string // as the server says it, such as "idle in transaction"
	// Open is how long its transaction is open; 0 when the role that asked may
	// not know.
	Open time.Duration
	// Target is the target of leases.seal whose database it is of; empty: the
	// node's own.
	Target string
	// Ended: it was told to end.
	Ended bool
	// Lacks is the right that is missing to end it; empty when none is, or
	// when it was not tried.
	Lacks string
}

// String describes the session in one line, with its names quoted.
func (s BlockingSession) String() string {
	if s.PID == 0 {
		return fmt.Sprintf("the prepared transaction %q of user %q", s.Prepared, s.User)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d of user %q", s.PID, s.User)
	if s.Application != "" {
		fmt.Fprintf(&b, ", application %q", s.Application)
	}
	if s.Address != "" {
		fmt.Fprintf(&b, " at %q", s.Address)
	}
	if s.State != "" {
		fmt.Fprintf(&b, ", %s for %s", s.State, s.Open.Round(time.Millisecond))
	}
	return b.String()
}
