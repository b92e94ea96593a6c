package headgate

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

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

// Classes of bytes.
const (
	inURI   = 1 << iota // may stand in a URI reference: RFC 3986
	inToken             // may stand in a token: RFC 9110
	inHex
)

var classes = func() (t [256]uint8) {
	for c := range 0x80 {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if letter || c > 0 && strings.IndexByte("-._~:/?#[]@!$&'()*+,;=", byte(c)) >= 0 {
			t[c] |= inURI
		}
		if c > ' ' && c < 0x7f && strings.IndexByte(`()<>@,;:\"/[]?={}`, byte(c)) < 0 {
			t[c] |= inToken
		}
		if letter && (c <= '9' || c|0x20 <= 'f') {
			t[c] |= inHex
		}
	}
	return t
}()

// validURIReference checks the characters of RFC 3986, not its structure.
func validURIReference(s string) bool {
	for i := 0; i < len(s); i++ {
		if classes[s[i]]&inURI != 0 {
			continue
		}
		if s[i] != '%' || i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return false
		}
		i += 2
	}
	return true
}

func isHex(c byte) bool { return classes[c]&inHex != 0 }

// validMediaType checks "type/subtype" of RFC 2045; parameters are carried.
func validMediaType(s string) bool {
	if s == MediaTypeJSON {
		return true
	}
	s, _, _ = strings.Cut(s, ";")
	kind, sub, found := strings.Cut(strings.TrimRight(s, " "), "/")
	return found && isToken(kind) && isToken(sub)
}

func isToken(s string) bool {
	for i := range len(s) {
		if classes[s[i]]&inToken == 0 {
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

// IsAvro reports whether a data content type declares Avro binary: avro/binary,
// application/avro, or one of the other names that are in use for it.
// Source: Avro 1.12, protocol wire format, HTTP as transport.
func IsAvro(contentType string) bool {
	s, _, _ := strings.Cut(contentType, ";")
	s = strings.TrimSpace(s)
	for _, t := range [...]string{
		MediaTypeAvro, "application/avro", "application/avro-binary", "application/x-avro", "application/x-avro-binary",
		"application/vnd.apache.avro", "application/vnd.apache.avro+binary",
	} {
		if strings.EqualFold(s, t) {
			return true
		}
	}
	return false
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
		{attrID, e.ID},
		{attrSource, e.Source},
		{attrType, e.Type},
		{attrSubject, e.Subject},
		{attrDataContentType, e.DataContentType},
		{attrDataSchema, e.DataSchema},
		{attrKey, e.Key},
		{attrTraceParent, e.TraceParent},
		{attrTraceState, e.TraceState},
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
		if !writable(v.t) {
			return badAttr(attrNames[v.a], "%s cannot be written as a timestamp of RFC 3339.", attrNames[v.a])
		}
	}
	n, err := checkExtensions(e.Extensions)
	if err != nil {
		return err
	}
	size += n
	if size > MaxEnvelopeLength {
		return tooLongEnvelope()
	}
	return nil
}

// checkExtensions returns the length of all names and values together.
func checkExtensions(list []Extension) (size int, err *Error) {
	if len(list) > MaxExtensions {
		return 0, tooManyExtensions()
	}
	for i, x := range list {
		size += len(x.Name) + len(x.Value)
		if err := checkExtension(x); err != nil {
			return 0, err
		}
		if i > 0 && list[i-1].Name >= x.Name {
			return 0, badAttr(x.Name, "The extension %s comes twice or out of order; use SetExtension.", quoteName(x.Name))
		}
	}
	return size, nil
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
