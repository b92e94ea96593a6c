package contract

import (
	"errors"
	"regexp/syntax"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// format is one asserted format. Formats say something about strings only;
// other types pass.
type format struct {
	name    string
	check   func(string) bool
	want    string // in words, with an example
	example string
}

// formats is the closed list of asserted formats. A schema that names another
// one is refused, since a format that nobody checks is a promise that nobody
// keeps.
var formats = [...]format{
	{"date", isDate, "a date as in RFC 3339", "2026-01-31"},
	{"date-time", isDateTime, "a date and time with offset as in RFC 3339", "2026-01-31T08:30:00Z"},
	{"duration", isDuration, "a duration as in ISO 8601", "PT15M"},
	{"email", isEmail, "an email address", "ada@example.org"},
	{"hostname", isHostname, "a host name as in RFC 1123", "api.example.org"},
	{"ipv4", isIPv4, "an IPv4 address in dotted decimals", "192.0.2.1"},
	{"ipv6", isIPv6, "an IPv6 address without a zone", "2001:db8::1"},
	{"json-pointer", isJSONPointer, "a JSON Pointer as in RFC 6901", "/items/0"},
	{"regex", isRegex, "a regular expression that RE2 can compile", "^[a-z]+$"},
	{"relative-json-pointer", isRelativeJSONPointer, "a relative JSON Pointer", "1/name"},
	{"time", isTime, "a time with offset as in RFC 3339", "08:30:00Z"},
	{"uri", isURI, "an absolute URI as in RFC 3986", "https://example.org/a"},
	{"uri-reference", isURIReference, "a URI or relative reference as in RFC 3986", "/a?b=c"},
	{"uri-template", isURITemplate, "a URI template as in RFC 6570", "/users/{id}"},
	{"uuid", isUUID, "a UUID of 8-4-4-4-12 hexadecimal digits", "0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"},
}

// Formats returns the names of the asserted formats, in order.
func Formats() []string {
	names := make([]string, len(formats))
	for i := range formats {
		names[i] = formats[i].name
	}
	return names
}

func lookupFormat(name string) *format {
	i, ok := slices.BinarySearchFunc(formats[:], name, func(f format, n string) int {
		switch {
		case f.name < n:
			return -1
		case f.name > n:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &formats[i]
}

var errFormat = errors.New("the value does not have the format")

// libraryFormats gives the schema library our checkers in place of its own.
func libraryFormats() []*jsonschema.Format {
	out := make([]*jsonschema.Format, 0, len(formats))
	for _, f := range formats {
		out = append(out, &jsonschema.Format{Name: f.name, Validate: func(v any) error {
			if s, ok := v.(string); ok && !f.check(s) {
				return errFormat
			}
			return nil
		}})
	}
	return out
}

func isRegex(s string) bool {
	re, err := syntax.Parse(s, syntax.Perl)
	return err == nil && patternSize(re) <= maxPatternProgram
}

// patternSize is about the number of instructions that an expression compiles
// to, without compiling it.
func patternSize(re *syntax.Regexp) int {
	size := 1
	for _, sub := range re.Sub {
		size += patternSize(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpConcat:
		size--
	case syntax.OpCapture:
		size++
	case syntax.OpRepeat:
		size = max(re.Min, re.Max, 1)*(size-1) + max(re.Max-re.Min, 1)
	}
	return min(size, 1<<20) // Parse bounds repetitions that multiply
}

// isUUID checks RFC 9562, section 4, as JSON Schema wants it: the plain form
// alone, without braces or urn:uuid:, in either case.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	if s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	return hexWord(load8(s))&hexWord(load4(s[9:])|load4(s[14:])<<32)&
		hexWord(load4(s[19:])|load4(s[24:])<<32)&hexWord(load8(s[28:])) == highBits
}

// hexWord has the highest bit of a byte set where the byte of x is a
// hexadecimal digit; the other bits are 0.
func hexWord(x uint64) uint64 {
	y := x &^ highBits // so that no sum carries into the next byte
	letter := y | 0x20*lowBits
	digits := (y + (0x80-'0')*lowBits) &^ (y + (0x80-'9'-1)*lowBits)
	letters := (letter + (0x80-'a')*lowBits) &^ (letter + (0x80-'f'-1)*lowBits)
	return (digits | letters) &^ x & highBits
}

func load8(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load4(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// isJSONPointer checks RFC 6901, section 3.
func isJSONPointer(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != '/' {
		return false
	}
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return false
		}
	}
	return true
}

// isRelativeJSONPointer checks draft-bhutton-relative-json-pointer-00 without
// index manipulation, as the drafts of JSON Schema up to 2020-12 cite it.
func isRelativeJSONPointer(s string) bool {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	if n == 0 || n > 1 && s[0] == '0' {
		return false
	}
	return s[n:] == "#" || isJSONPointer(s[n:])
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
