package headgate

import (
	"strconv"
	"time"
)

// The media types of the encodings that carry events.
const (
	MediaTypeEvent  = "application/cloudevents+json"
	MediaTypeBatch  = "application/cloudevents-batch+json"
	MediaTypeNDJSON = "application/x-ndjson"
	MediaTypeJSON   = "application/json"
	MediaTypeAvro   = "avro/binary"
)

// Bounds on the envelope of one event. What exceeds them is too_large. Data is
// bounded by [Decoder.MaxEvent] and by the type's own limit.
const (
	MaxIDLength        = 256       // bytes of an id
	MaxSourceLength    = 1 << 10   // bytes of a source
	MaxTypeLength      = 200       // bytes of a type
	MaxAttributeLength = 4 << 10   // bytes of any other attribute's value
	MaxEnvelopeLength  = 32 << 10  // bytes of all names and values together
	MaxExtensions      = 64        // extension attributes without a meaning
	MaxExtensionName   = 64        // bytes of an extension's name
	DefaultMaxEvent    = 1 << 20   // bytes of one encoded event
	DefaultMaxItems    = 100_000   // events in one batch or NDJSON body
	NoLimit            = -1        // for [Decoder.MaxItems]
	maxQuoted          = 64        // bytes of client text that a message quotes
	maxInteger         = 1<<31 - 1 // CloudEvents 1.0.2, section 2.4 (Integer)
)

// Decoder reads events from the CloudEvents encodings. The zero value reads
// what clients send, under the default bounds. A Decoder holds no state: it is
// safe for concurrent use.
//
// Every error is an [*Error] with the code syntax, bad_envelope or too_large;
// it names the attribute and the place as far as they are known.
//
// Source: CloudEvents 1.0.2, its JSON format and its HTTP protocol binding.
type Decoder struct {
	// Trusted reads the header attributes into Event.Header. Set it only for
	// bytes that come from a Headgate node, such as a delivery: otherwise the
	// attributes are ignored and listed in Decoded.Ignored.
	Trusted bool
	// MaxEvent bounds the bytes of one encoded event; default 1 MiB, at most
	// 1 GiB.
	MaxEvent int
	// MaxItems bounds the events of a batch or of NDJSON; default 100,000,
	// NoLimit for none.
	MaxItems int
	// Expect is how many bytes [Decoder.ReadLines] is about to read, as far as
	// that is known: nothing but buffers depends on it.
	Expect int64
}

func (d *Decoder) maxEvent() int {
	if d.MaxEvent <= 0 {
		return DefaultMaxEvent
	}
	return min(d.MaxEvent, 1<<30)
}

func (d *Decoder) maxItems() int {
	switch {
	case d.MaxItems == 0:
		return DefaultMaxItems
	case d.MaxItems < 0:
		return int(^uint(0) >> 1)
	default:
		return d.MaxItems
	}
}

// Decoded is what a decoder read.
type Decoded struct {
	// Event shares the memory of its Data with the input, which must not be
	// modified afterwards. Its Header is empty unless the decoder trusts.
	Event *Event
	// Ignored names the header attributes that a client sent and that were
	// ignored, because only the perimeter sets them.
	Ignored []string
}

// attr is an attribute with a meaning, or a member that carries the data.
type attr uint8

const (
	attrSpecVersion attr = iota
	attrID
	attrSource
	attrType
	attrSubject
	attrTime
	attrDataContentType
	attrDataSchema
	attrKey
	attrTraceParent
	attrTraceState
	attrExpiryTime
	attrData
	attrDataBase64
	// From here on they belong to the header: the perimeter sets them.
	attrRootID
	attrCausationID
	attrTTL
	attrHop
	attrOrigin
	attrPrincipal
	attrActor
	attrRecordedTime
	attrFence
	attrSagaID
	attrSagaStep
	attrCount
	firstHeaderAttr = attrRootID
)

var attrNames = [attrCount]string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema",
	"partitionkey", "traceparent", "tracestate", "expirytime", "data", "data_base64",
	"rootid", "causationid", "ttl", "hop", "origin", "principal", "actor", "recordedtime", "fence", "sagaid", "sagastep",
}

// attrOf returns the attribute of a name; attrCount if it has no meaning.
func attrOf[S []byte | string](name S) attr {
	switch string(name) {
	case "specversion":
		return attrSpecVersion
	case "id":
		return attrID
	case "source":
		return attrSource
	case "type":
		return attrType
	case "subject":
		return attrSubject
	case "time":
		return attrTime
	case "datacontenttype":
		return attrDataContentType
	case "dataschema":
		return attrDataSchema
	case "partitionkey":
		return attrKey
	case "traceparent":
		return attrTraceParent
	case "tracestate":
		return attrTraceState
	case "expirytime":
		return attrExpiryTime
	case "data":
		return attrData
	case "data_base64":
		return attrDataBase64
	}
	return headerAttrOf(string(name))
}

func headerAttrOf(name string) attr {
	for a := firstHeaderAttr; a < attrCount; a++ {
		if attrNames[a] == name {
			return a
		}
	}
	return attrCount
}

// HeaderAttributes returns the names of the attributes that only the perimeter
// (and, for sagas, the saga) sets.
func HeaderAttributes() []string {
	names := attrNames
	return names[firstHeaderAttr:]
}

// ValidExtensionName reports whether an event may carry an extension attribute
// of this name: 1 to 64 of a–z and 0–9, and not a name with a meaning.
func ValidExtensionName(name string) bool {
	a := attrOf(name)
	return validName(name) && (a == attrCount || a == attrSagaID || a == attrSagaStep)
}

func validName[S []byte | string](name S) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(name) > 0 && len(name) <= MaxExtensionName
}

// set gives an attribute its value in canonical string form. The returned
// error lacks only the place.
func (e *Event) set(a attr, s string) *Error {
	if err := checkAttr(a, s); err != nil {
		return err
	}
	switch a {
	case attrID:
		e.ID = s
	case attrSource:
		e.Source = s
	case attrType:
		e.Type = s
	case attrSubject:
		e.Subject = s
	case attrTime:
		return parseTime(&e.Time, a, s)
	case attrDataContentType:
		e.DataContentType = s
	case attrDataSchema:
		e.DataSchema = s
	case attrKey:
		e.Key = s
	case attrTraceParent:
		e.TraceParent = s
	case attrTraceState:
		e.TraceState = s
	case attrExpiryTime:
		return parseTime(&e.ExpiryTime, a, s)
	default:
		return e.setHeader(a, s)
	}
	return nil
}

func (e *Event) setHeader(a attr, s string) *Error {
	h := &e.Header
	switch a {
	case attrRootID:
		h.RootID = s
	case attrCausationID:
		h.Causes = SplitCauses(s)
	case attrTTL:
		return parseCount(&h.TTL, a, s)
	case attrHop:
		return parseCount(&h.Hop, a, s)
	case attrOrigin:
		h.Origin = Origin(s)
	case attrPrincipal:
		h.Principal = s
	case attrActor:
		h.Actor = Kind(s)
	case attrRecordedTime:
		return parseTime(&h.RecordedTime, a, s)
	case attrFence:
		h.Fence = s
	case attrSagaID, attrSagaStep:
		e.SetExtension(Extension{Name: attrNames[a], Value: s})
	}
	return nil
}

// parseTime reads an RFC 3339 timestamp. The first instant of the year 1 is
// how several languages spell "no time", and so it is read.
func parseTime[S []byte | string](t *time.Time, a attr, s S) *Error {
	var valid bool
	if *t, valid = parseRFC3339(s); !valid {
		return badAttr(attrNames[a], "%s is not a timestamp of RFC 3339, such as 2026-11-04T09:30:00Z: %s.", attrNames[a], quote(string(s)))
	}
	return nil
}

func parseCount(n *int, a attr, s string) *Error {
	v, err := strconv.ParseInt(s, 10, 32)
	if err != nil || v < 0 {
		return badAttr(attrNames[a], "%s is not a whole number from 0 to %d: %s.", attrNames[a], maxInteger, quote(s))
	}
	*n = int(v)
	return nil
}
