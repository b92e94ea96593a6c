package jsontext

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The codes of a [Fault].
const (
	CodeSyntax         = "syntax"
	CodeBadUTF8        = "bad_utf8"
	CodeTooDeep        = "too_deep"
	CodeNumberTooLarge = "number_too_large"
	CodeDuplicateKey   = "duplicate_key"
)

const (
	maxPointer = 1024 // bytes of Fault.At before it is cut
	maxSample  = 64   // bytes of payload quoted in a detail
)

// Fault is what is wrong with a text.
type Fault struct {
	Code         string // syntax, bad_utf8, too_deep, number_too_large, duplicate_key
	Offset       int    // bytes from 0
	Line, Column int    // from 1; columns count bytes
	// At is the JSON Pointer of the value or member at fault. Beyond 1 KiB it
	// is cut and ends in "…".
	At     string
	First  int    // duplicate_key: offset of the first spelling; else -1
	Detail string // one sentence, safe to show: payload is clipped and escaped
}

// Error returns the detail with its place.
func (f *Fault) Error() string {
	return fmt.Sprintf("%s at line %d, column %d: %s", f.Code, f.Line, f.Column, f.Detail)
}

// fail ends the scan with a located fault.
func (s *Scanner) fail(p problem, offset int) (Token, *Fault) {
	if s.quiet {
		s.fault = &Fault{}
		return Token{}, s.fault
	}
	f := &Fault{Code: p.code(), Offset: offset, First: -1, Detail: s.describe(p, offset)}
	f.Line, f.Column = Place(s.text, offset)
	f.At, _ = locate(s.text, s.lim, -1)
	s.fault = f
	return Token{}, f
}

func duplicateFault(text []byte, lim Limits, t Token) *Fault {
	f := &Fault{Code: CodeDuplicateKey, Offset: t.Start}
	f.Line, f.Column = Place(text, t.Start)
	f.At, f.First = locate(text, lim, t.Start)
	line, column := Place(text, f.First)
	f.Detail = fmt.Sprintf("The name %s is already at line %d, column %d of the same object.",
		sample(Unquote(nil, text[t.Start:t.End])), line, column)
	return f
}

func (p problem) code() string {
	switch p {
	case badUTF8, loneSurrogate:
		return CodeBadUTF8
	case tooDeep:
		return CodeTooDeep
	case longNumber, bigExponent:
		return CodeNumberTooLarge
	case duplicateName:
		return CodeDuplicateKey
	default:
		return CodeSyntax
	}
}

func (s *Scanner) describe(p problem, offset int) string {
	found := "the text ends"
	if offset < len(s.text) {
		found = "there is " + byteName(s.text[offset])
	}
	switch p {
	case unexpected:
		return s.describeUnexpected(offset, found)
	case missingColon:
		return fmt.Sprintf("A colon must follow a name, but %s.", found)
	case badLiteral:
		return fmt.Sprintf("Only true, false and null may stand without quotes, but %s.", found)
	case badNumber:
		return fmt.Sprintf("A digit must stand here in a number, but %s.", found)
	case badEscape:
		return fmt.Sprintf("The escape in a string is not one of JSON's: %s.", found)
	case badControl:
		return fmt.Sprintf("A control character in a string must be escaped: %s.", found)
	case openString:
		return "The text ends inside a string."
	case badUTF8:
		return fmt.Sprintf("The bytes in a string are not valid UTF-8: %s.", found)
	case loneSurrogate:
		return "An escape names one half of a surrogate pair alone."
	case tooDeep:
		return fmt.Sprintf("Objects and arrays are nested more than %d deep.", s.lim.Depth)
	case longNumber:
		return fmt.Sprintf("A number has more than %d characters.", s.lim.NumberLength)
	case bigExponent:
		return fmt.Sprintf("A number's exponent is beyond ±%d.", s.lim.Exponent)
	default:
		return "The text is not JSON."
	}
}

func (s *Scanner) describeUnexpected(offset int, found string) string {
	if offset == 0 && bytes.HasPrefix(s.text, []byte("\xef\xbb\xbf")) {
		return "The text starts with a byte order mark, which JSON forbids; leave it out."
	}
	want := "A value"
	switch s.state {
	case wantFirstElement:
		want = `A value or "]"`
	case wantFirstName:
		want = `A name in quotes or "}"`
	case wantName:
		want = "A name in quotes"
	case wantMore:
		want = `A comma or "]"`
		if s.inObject() {
			want = `A comma or "}"`
		}
	case wantEnd:
		return fmt.Sprintf("Nothing may follow the value, but %s.", found)
	}
	return fmt.Sprintf("%s must stand here, but %s.", want, found)
}

func byteName(c byte) string {
	if c > ' ' && c < 0x7f {
		return strconv.Quote(string(rune(c)))
	}
	return fmt.Sprintf("the byte 0x%02X", c)
}

// sample quotes payload for a message: clipped, ASCII, on one line.
func sample(b []byte) string {
	if len(b) <= maxSample {
		return strconv.QuoteToASCII(string(b))
	}
	cut := maxSample
	for cut > 0 && !utf8.RuneStart(b[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(string(b[:cut])) + "…"
}

// Place returns the line and the column of an offset, both from 1; columns
// count bytes.
func Place(text []byte, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	return bytes.Count(before, []byte{'\n'}) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// step is one open container on the way to a fault.
type step struct {
	object bool
	start  int   // offset of the opening bracket
	index  int   // of the present element
	name   Token // of the present member, if inside one
	inside bool
}

// locate walks the text again, to the fault or to the Name token at stop, and
// returns the JSON Pointer of that place. For a name it also returns the
// offset of the first equal name in the same object.
func locate(text []byte, lim Limits, stop int) (pointer string, first int) {
	s := NewScanner(text, lim)
	s.quiet = true
	var path []step
	for {
		t, f := s.Next()
		if f != nil || t.Kind == EOF {
			return pointerOf(text, path, s.state), -1
		}
		top := len(path) - 1
		switch t.Kind {
		case BeginObject, BeginArray:
			path = append(path, step{object: t.Kind == BeginObject, start: t.Start})
			continue
		case Name:
			path[top].name, path[top].inside = t, true
			if t.Start == stop {
				return pointerOf(text, path, s.state), firstName(text, lim, path[top].start, t)
			}
			continue
		case EndObject, EndArray:
			path = path[:top]
			top--
		}
		if top >= 0 {
			path[top].index++
			path[top].inside = false
		}
	}
}

func pointerOf(text []byte, path []step, st state) string {
	var p []byte
	for i, at := range path {
		last := i == len(path)-1
		switch {
		case len(p) > maxPointer:
			return string(p) + "…"
		case at.object && at.inside:
			p = appendPointerName(append(p, '/'), Unquote(nil, text[at.name.Start:at.name.End]))
		case !at.object && (!last || st == wantValue || st == wantFirstElement):
			p = strconv.AppendInt(append(p, '/'), int64(at.index), 10)
		}
	}
	return string(p)
}

func appendPointerName(p, name []byte) []byte {
	cut := len(name)
	if cut > maxPointer {
		for cut = maxPointer; !utf8.RuneStart(name[cut]); cut-- {
		}
	}
	for _, c := range name[:cut] {
		switch c {
		case '~':
			p = append(p, "~0"...)
		case '/':
			p = append(p, "~1"...)
		default:
			p = append(p, c)
		}
	}
	if cut < len(name) {
		p = append(p, "…"...)
	}
	return p
}

// firstName returns the offset of the first member of the object at start
// whose name equals that of t.
func firstName(text []byte, lim Limits, start int, t Token) int {
	want := Unquote(nil, text[t.Start:t.End])
	s := NewScanner(text[start:], lim)
	s.quiet = true
	for {
		m, f := s.Next()
		if f != nil || start+m.Start >= t.Start {
			return t.Start
		}
		if m.Kind == Name && s.depth == 1 && bytes.Equal(Unquote(nil, text[start+m.Start:start+m.End]), want) {
			return start + m.Start
		}
	}
}
