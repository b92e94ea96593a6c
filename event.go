package headgate

import (
	"slices"
	"strings"
	"time"
)

// SpecVersion is the CloudEvents version that Headgate reads and writes.
const SpecVersion = "1.0"

// Event is one CloudEvents 1.0 event. The producer owns every field but Header.
// Source: CloudEvents 1.0.2, section 3 (context attributes).
type Event struct {
	// ID is unique together with Source; (Source, ID) is the key of every
	// dedupe. The perimeter mints a UUIDv7 when the producer left it empty.
	ID string
	// Source is a URI reference naming the producer.
	Source string
	// Type selects the contract, the stream and the subscriptions: dotted
	// lower-case words such as "ticket.opened".
	Type string
	// Subject is what the event is about, within Source. Optional.
	Subject string
	// Time is when it happened, as the producer says. Zero means absent.
	Time time.Time
	// DataContentType is the media type of Data. Empty means
	// application/json (CloudEvents JSON format, section 3.1).
	DataContentType string
	// DataSchema is what the producer asked for before admission, and the
	// contract that the payload passed ("subject@version") after it.
	DataSchema string
	// Key is the ordering key (wire name "partitionkey"). Events of one key
	// keep their order; an empty key means that order does not matter.
	Key string
	// TraceParent and TraceState carry the W3C trace context unchanged.
	TraceParent, TraceState string
	// ExpiryTime is when nobody needs the event any more. Zero means never.
	ExpiryTime time.Time
	// Extensions are the attributes without a meaning to Headgate, sorted by
	// name (see [Event.SetExtension]).
	Extensions []Extension
	// Data is the payload, byte for byte. Nil means that there is none.
	Data []byte
	// Header is written by the perimeter alone.
	Header Header
}

// Header is what the perimeter stamps on an admitted event. It is never taken
// from what a client sent.
type Header struct {
	// RootID is the id of the originating event; its own id for a root.
	RootID string
	// Causes are the ids of the direct causes, the delivered event first.
	// Empty for a root. Wire name "causationid", see [JoinCauses].
	Causes []string
	// TTL is the number of hops left; an admitted event has at least 1.
	TTL int
	// Hop is the number of hops from the root; 0 for a root.
	Hop int
	// Origin is the class of the root.
	Origin Origin
	// Principal is the name of who published this very event.
	Principal string
	// Actor is the kind of that principal.
	Actor Kind
	// RecordedTime is when the perimeter admitted the event.
	RecordedTime time.Time
	// Fence is "resource@epoch" under which the event was written, or empty.
	Fence string
	// Lineage is the causal state that tokens of this event's deliveries
	// carry on: path and gas grant. Opaque outside package causal, stored
	// with the event and never shown to clients.
	Lineage []byte
}

// ExtensionKind is the CloudEvents type of an extension's value.
type ExtensionKind uint8

// The CloudEvents types that the JSON format tells apart (section 2.2).
const (
	ExtensionString ExtensionKind = iota
	ExtensionBool
	ExtensionInteger
)

// Extension is one extension attribute that Headgate carries without a meaning.
type Extension struct {
	Name  string // a-z and 0-9
	Value string // canonical string form (CloudEvents 1.0.2, section 2.4)
	Kind  ExtensionKind
}

// Extension returns the value of the named extension attribute, and whether
// the event has it.
func (e *Event) Extension(name string) (string, bool) {
	if i, ok := e.findExtension(name); ok {
		return e.Extensions[i].Value, true
	}
	return "", false
}

// SetExtension sets one extension attribute, keeping Extensions sorted. The
// name is not checked; decoders and the perimeter check it.
func (e *Event) SetExtension(x Extension) {
	i, ok := e.findExtension(x.Name)
	if ok {
		e.Extensions[i] = x
		return
	}
	e.Extensions = slices.Insert(e.Extensions, i, x)
}

func (e *Event) findExtension(name string) (int, bool) {
	return slices.BinarySearchFunc(e.Extensions, name, func(x Extension, n string) int {
		return strings.Compare(x.Name, n)
	})
}

// IsRoot reports whether the event started its causal tree.
func (e *Event) IsRoot() bool { return e.Header.Hop == 0 }

// JoinCauses writes the ids of direct causes as one attribute value: joined by
// commas, with "%" and "," inside an id percent-encoded.
func JoinCauses(ids []string) string {
	if len(ids) == 1 && !strings.ContainsAny(ids[0], "%,") {
		return ids[0]
	}
	enc := make([]string, len(ids))
	for i, id := range ids {
		enc[i] = strings.ReplaceAll(strings.ReplaceAll(id, "%", "%25"), ",", "%2C")
	}
	return strings.Join(enc, ",")
}

// SplitCauses is the inverse of [JoinCauses]. An empty string has no causes.
func SplitCauses(s string) []string {
	if s == "" {
		return nil
	}
	ids := strings.Split(s, ",")
	for i, id := range ids {
		ids[i] = strings.ReplaceAll(strings.ReplaceAll(id, "%2C", ","), "%25", "%")
	}
	return ids
}
