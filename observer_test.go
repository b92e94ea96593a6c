package headgate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestInfosPrintOneLine: scenario files assert on these lines.
func TestInfosPrintOneLine(t *testing.T) {
	e := &headgate.Event{ID: "a", Type: "t", Header: headgate.Header{TTL: 7, Hop: 2}}
	at := headgate.Position{Partition: 1, Offset: 5}
	for want, info := range map[string]fmt.Stringer{
		"admitted t a at s/1:5 ttl=7 hop=2":               headgate.AdmittedInfo{Stream: "s", Position: at, Event: e},
		"duplicate t a at s/1:5 ttl=7 hop=2":              headgate.AdmittedInfo{Stream: "s", Position: at, Event: e, Duplicate: true},
		"refused t a: loop at cause":                      headgate.RefusedInfo{Type: "t", ID: "a", Code: headgate.CodeLoop, Stage: "cause"},
		"ack sub t a attempt=1":                           headgate.DeliveryInfo{Subscription: "sub", Type: "t", ID: "a", Attempt: 1, Outcome: "ack"},
		"retry sub t a attempt=2 delay=1.5s reason=later": headgate.DeliveryInfo{Subscription: "sub", Type: "t", ID: "a", Attempt: 2, Outcome: "retry", Delay: 1500 * time.Millisecond, Reason: "later"},
		"ignored ttl from triage":                         headgate.IgnoredInfo{Principal: "triage", What: "ttl"},
		"ticket.opened@3":                                 headgate.ContractRef{Subject: "ticket.opened", Version: 3},
	} {
		if got := info.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
