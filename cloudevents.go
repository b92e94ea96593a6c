package headgate

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The media types of the encodings that carry events.
const (
	MediaTypeEvent  = "application/cloudevents+json"
	MediaTypeBatch  = "application/cloudevents-batch+json"
	MediaTypeNDJSON = "application/x-ndjson"
	MediaTypeJSON   = "application/json"
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

// checkAttr judges the value of an attribute by the rules of its name.
func checkAttr(a attr, s string) *Error {
	name, limit := attrNames[a], MaxAttributeLength
	switch a {
	case attrSpecVersion:
		if s != SpecVersion {
			return badAttr(name, "specversion must be %q, not %s.", SpecVersion, quote(s))
		}
	case attrID:
		limit = MaxIDLength
	case attrSource:
		limit = MaxSourceLength
	case attrType:
		limit = MaxTypeLength
	case attrCausationID:
		limit = MaxEnvelopeLength
	}
	if err := checkText(name, s, limit); err != nil {
		return err
	}
	if s == "" && a < firstHeaderAttr {
		return badAttr(name, "%s is empty; leave it out instead.", name)
	}
	switch {
	case a == attrType && !ValidType(s):
		return badAttr(name, "type may hold letters, digits, \".\", \"_\", \"-\" and \"/\" only: %s.", quote(s))
	case (a == attrSource || a == attrDataSchema) && !validURIReference(s):
		return badAttr(name, "%s is not a URI reference; percent-encode what may not stand in one: %s.", name, quote(s))
	case a == attrDataContentType && !validMediaType(s):
		return badAttr(name, "datacontenttype is not a media type such as application/json: %s.", quote(s))
	}
	return nil
}

// checkText judges a string by the rules for every attribute: its length, and
// the characters that CloudEvents forbids (section 2.4).
func checkText(name, s string, limit int) *Error {
	if len(s) > limit {
		return &Error{Code: CodeTooLarge, Attribute: name, Detail: quoteName(name) + " has more than " + strconv.Itoa(limit) + " bytes."}
	}
	for i := 0; i < len(s); {
		if c := s[i]; c >= ' ' && c < 0x7f {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return badAttr(name, "%s is not valid UTF-8.", quoteName(name))
		case r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe:
			return badAttr(name, "%s holds the character %U, which CloudEvents forbids.", quoteName(name), r)
		}
		i += size
	}
	return nil
}

// validURIReference checks the characters of RFC 3986, not its structure.
func validURIReference(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return false
			}
			i += 2
		case strings.IndexByte("-._~:/?#[]@!$&'()*+,;=", c) < 0:
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// validMediaType checks "type/subtype" of RFC 2045; parameters are carried.
func validMediaType(s string) bool {
	s, _, _ = strings.Cut(s, ";")
	kind, sub, found := strings.Cut(strings.TrimRight(s, " "), "/")
	return found && isToken(kind) && isToken(sub)
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?=`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// IsJSON reports whether a data content type declares JSON: any type with the
// subtype json or a subtype that ends in +json; the empty type does, too.
// Source: CloudEvents 1.0.2, JSON format, section 3.1.
func IsJSON(contentType string) bool {
	if contentType == "" || contentType == MediaTypeJSON {
		return true
	}
	s, _, _ := strings.Cut(contentType, ";")
	_, sub, found := strings.Cut(strings.TrimSpace(s), "/")
	n := len(sub)
	return found && (strings.EqualFold(sub, "json") || n > 5 && strings.EqualFold(sub[n-5:], "+json"))
}

// Validate judges the attributes of an event that was made in the process by
// the rules that decoders apply, without its Header. ID and Source may be
// empty. The error is an [*Error] with the code bad_envelope or too_large.
func (e *Event) Validate() error {
	if e.Type == "" {
		return missingType()
	}
	size := 0
	for _, v := range [...]struct {
		a attr
		s string
	}{
		{attrID, e.ID}, {attrSource, e.Source}, {attrType, e.Type}, {attrSubject, e.Subject},
		{attrDataContentType, e.DataContentType}, {attrDataSchema, e.DataSchema},
		{attrKey, e.Key}, {attrTraceParent, e.TraceParent}, {attrTraceState, e.TraceState},
	} {
		size += len(v.s)
		if v.s == "" {
			continue
		}
		if err := checkAttr(v.a, v.s); err != nil {
			return err
		}
	}
	for _, v := range [...]struct {
		a attr
		t time.Time
	}{{attrTime, e.Time}, {attrExpiryTime, e.ExpiryTime}} {
		if _, err := v.t.MarshalText(); err != nil {
			return badAttr(attrNames[v.a], "%s cannot be written as a timestamp of RFC 3339.", attrNames[v.a])
		}
	}
	if len(e.Extensions) > MaxExtensions {
		return tooManyExtensions()
	}
	for i, x := range e.Extensions {
		size += len(x.Name) + len(x.Value)
		if err := checkExtension(x); err != nil {
			return err
		}
		if i > 0 && e.Extensions[i-1].Name >= x.Name {
			return badAttr(x.Name, "The extension %s comes twice or out of order; use SetExtension.", quoteName(x.Name))
		}
	}
	if size > MaxEnvelopeLength {
		return tooLongEnvelope()
	}
	return nil
}

func checkExtension(x Extension) *Error {
	if !ValidExtensionName(x.Name) {
		return badName(x.Name)
	}
	if err := checkText(x.Name, x.Value, MaxAttributeLength); err != nil {
		return err
	}
	bad := false
	switch x.Kind {
	case ExtensionString:
	case ExtensionBool:
		bad = x.Value != "true" && x.Value != "false"
	case ExtensionInteger:
		bad = !validInteger(x.Value)
	default:
		bad = true
	}
	if bad {
		return badAttr(x.Name, "%s does not hold a value of its kind.", quoteName(x.Name))
	}
	return nil
}

// validInteger reports whether s is the canonical form of a CloudEvents
// Integer: decimal, from -2147483648 to 2147483647, no plus, no leading zero.
func validInteger(s string) bool {
	n, err := strconv.ParseInt(s, 10, 32)
	return err == nil && strconv.FormatInt(n, 10) == s
}
