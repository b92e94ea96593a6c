package headgate

import (
	"fmt"
	"time"
)

// Observer sees what happens to single events. Every field may be nil. The
// functions are called synchronously on the path of the event: they must not
// block. Each Info prints itself in one deterministic line, so that scenario
// files can assert on the stream.
type Observer struct {
	// Admitted: an event was durably stored.
	Admitted func(AdmittedInfo)
	// Refused: the perimeter refused an event.
	Refused func(RefusedInfo)
	// Dispatched: a delivery was handed to a consumer.
	Dispatched func(DeliveryInfo)
	// Settled: a delivery reached an outcome: ack, retry, parked, ….
	Settled func(DeliveryInfo)
	// Ignored: a client sent header attributes that only the perimeter sets,
	// or a causal token that was refused; counted as attempts to forge.
	Ignored func(IgnoredInfo)
	// Relayed: a row of a database's outbox is done: stored, known, or refused
	// for good and kept.
	Relayed func(RelayedInfo)
}

// AdmittedInfo describes an admitted event. It holds no payload.
type AdmittedInfo struct {
	Stream    string
	Position  Position
	Event     *Event
	Duplicate bool
	Door      string // http, router, relay, …
}

// String returns one line: "admitted TYPE ID at POSITION".
func (i AdmittedInfo) String() string {
	verb := "admitted"
	if i.Duplicate {
		verb = "duplicate"
	}
	return fmt.Sprintf("%s %s %s at %s/%s ttl=%d hop=%d", verb, i.Event.Type, i.Event.ID, i.Stream, i.Position, i.Event.Header.TTL, i.Event.Header.Hop)
}

// RefusedInfo describes a refusal. It holds no payload.
type RefusedInfo struct {
	Principal, Type, ID string
	Stage               string // principal, envelope, right, cause, fence, contract, stamp
	Code                Code
	Door                string
	// Took is the time from the last byte read of the submission to the
	// verdict; recording and answering come after it.
	Took time.Duration
}

// String returns one line: "refused TYPE ID: CODE at STAGE".
func (i RefusedInfo) String() string {
	return fmt.Sprintf("refused %s %s: %s at %s", i.Type, i.ID, i.Code, i.Stage)
}

// DeliveryInfo describes one delivery at one moment. It holds no payload.
type DeliveryInfo struct {
	Subscription string
	Position     Position
	Type, ID     string
	Attempt      int
	Outcome      string // dispatched, ack, retry, reject, parked, discarded, expired, unmatched, claim_expired
	Delay        time.Duration
	Reason       string
}

// String returns one line: "OUTCOME SUBSCRIPTION TYPE ID attempt=N".
func (i DeliveryInfo) String() string {
	s := fmt.Sprintf("%s %s %s %s attempt=%d", i.Outcome, i.Subscription, i.Type, i.ID, i.Attempt)
	if i.Delay > 0 {
		s += " delay=" + i.Delay.String()
	}
	if i.Reason != "" {
		s += " reason=" + i.Reason
	}
	return s
}

// IgnoredInfo describes something a client sent that the perimeter ignored or
// refused because only the perimeter may set it.
type IgnoredInfo struct {
	Principal string
	What      string // attribute name, or token_invalid, token_foreign, …
	Door      string
}

// String returns one line: "ignored WHAT from PRINCIPAL".
func (i IgnoredInfo) String() string { return fmt.Sprintf("ignored %s from %s", i.What, i.Principal) }

// RelayedInfo describes the end of one row of an outbox. It holds no payload.
type RelayedInfo struct {
	Outbox    string
	Type, ID  string // empty when the row could not be read
	Duplicate bool
	Code      Code // why it was refused; empty when it was not
	// Took is the time from the commit of the row's transaction until then.
	Took time.Duration
}

// String returns one line: "relayed OUTBOX TYPE ID".
func (i RelayedInfo) String() string {
	verb := "relayed"
	switch {
	case i.Code != "":
		verb = "kept"
	case i.Duplicate:
		verb = "known"
	}
	s := fmt.Sprintf("%s %s %s %s", verb, i.Outbox, i.Type, i.ID)
	if i.Code != "" {
		s += " code=" + string(i.Code)
	}
	return s
}

// TeeObserver returns an observer that calls each of the given ones, in order.
// Nil observers and nil functions are left out.
func TeeObserver(observers ...*Observer) *Observer {
	var out Observer
	for _, o := range observers {
		if o == nil {
			continue
		}
		out.Admitted = tee(out.Admitted, o.Admitted)
		out.Refused = tee(out.Refused, o.Refused)
		out.Dispatched = tee(out.Dispatched, o.Dispatched)
		out.Settled = tee(out.Settled, o.Settled)
		out.Ignored = tee(out.Ignored, o.Ignored)
		out.Relayed = tee(out.Relayed, o.Relayed)
	}
	return &out
}

func tee[T any](first, then func(T)) func(T) {
	if first == nil {
		return then
	}
	if then == nil {
		return first
	}
	return func(v T) { first(v); then(v) }
}
