package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// maxListed bounds the values that a message lists.
const maxListed = 20

// literalText writes a value of a schema as JSON, clipped.
func literalText(v any) string {
	if s, ok := v.(string); ok {
		return clipQuote(s)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return "a value"
	}
	return clip(string(data), clipSample)
}

// literalWords writes the keys of scalars as JSON, ordered.
func literalWords(keys map[string]int) []string {
	var out []string
	for _, k := range sortedKeys(keys) {
		switch k[0] {
		case 's':
			out = append(out, clipQuote(k[1:]))
		case 't':
			out = append(out, "true")
		case 'f':
			out = append(out, "false")
		case 'z':
			out = append(out, "null")
		default:
			out = append(out, strings.TrimSuffix(k[1:], "e0"))
		}
	}
	return out
}

// oneOfWords joins values for reading, at most maxListed of them.
func oneOfWords(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	more := ""
	if len(words) > maxListed {
		more = fmt.Sprintf(" and %d more", len(words)-maxListed)
		words = words[:maxListed]
	}
	return "one of " + strings.Join(words, ", ") + more
}

// article puts "a" or "an" before a noun.
func article(noun string) string {
	if noun != "" && strings.ContainsRune("aeio", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

func typeWords(s typeSet) string {
	names := s.names()
	for i, n := range names {
		if n != "null" {
			names[i] = article(n)
		}
	}
	return strings.Join(names, " or ")
}

// describe says in a few words what a schema wants of a value.
func describe(n *node) string {
	for range 8 {
		if n == nil || n.ref == nil || n.types != 0 || n.enum != nil || n.konst != nil {
			break
		}
		n = n.ref
	}
	switch {
	case n == nil || n.trivial():
		return "any value"
	case n.sensitive:
		return "a value that the contract marks as sensitive"
	case n.konst != nil:
		return literalText(n.konst.value)
	case n.enum != nil:
		return oneOfWords(n.enum.wantedList().words)
	case n.format != nil:
		if n.types&typeNull != 0 {
			return n.format.want + ", or null"
		}
		return n.format.want
	case n.types != 0:
		return typeWords(n.types)
	}
	if u := cmpUnion(n); u != nil {
		var words []string
		for _, b := range u.branches {
			if w := describe(b); !slices.Contains(words, w) {
				words = append(words, w)
			}
		}
		if len(words) <= 4 {
			return strings.Join(words, " or ")
		}
	}
	if n.object != nil {
		return "an object"
	}
	return "a value as the contract describes"
}

func cmpUnion(n *node) *union {
	if n.oneOf != nil {
		return n.oneOf
	}
	return n.anyOf
}

// got describes a value of the payload: its type and a sample, clipped and
// escaped.
func (t *tape) got(i int32) string {
	v := &t.values[i]
	switch v.kind {
	case kindObject:
		return "object with " + plural(int(v.count), "property", "properties")
	case kindArray:
		return "array with " + plural(int(v.count), "item", "items")
	case kindString:
		return "string " + clipQuote(string(t.strStart(i)))
	case kindNumber:
		return "number " + clip(string(t.raw(i)), clipSample)
	case kindBoolean:
		return "boolean " + string(t.raw(i))
	default:
		return "null"
	}
}

// strStart returns enough of a string for a sample.
func (t *tape) strStart(i int32) []byte { return t.str(i) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// pointer writes the JSON Pointer of a value. Names are clipped: a sender
// decides how long they are.
func (t *tape) pointer(i int32) string {
	var toks []string
	for v := &t.values[i]; v.parent >= 0; v = &t.values[i] {
		if t.values[v.parent].kind == kindArray {
			toks = append(toks, strconv.Itoa(int(v.ordinal)))
		} else {
			toks = append(toks, clipPointerToken(string(t.name(i))))
		}
		i = v.parent
	}
	var sb strings.Builder
	for _, tok := range slices.Backward(toks) {
		if sb.Len() > clipAt {
			sb.WriteString("/…")
			break
		}
		sb.WriteByte('/')
		sb.WriteString(tok)
	}
	return sb.String()
}

// places turns offsets that come in rising order into lines and columns.
type places struct {
	text         []byte
	at           int
	line, column int
}

func newPlaces(text []byte) *places { return &places{text: text, line: 1, column: 1} }

// advance moves to an offset, which must not be before the last one. Columns
// count bytes.
func (p *places) advance(offset int) (line, column int) {
	for ; p.at < offset && p.at < len(p.text); p.at++ {
		if p.text[p.at] == '\n' {
			p.line++
			p.column = 1
		} else {
			p.column++
		}
	}
	return p.line, p.column
}

// faultVerdict is the verdict on a text that broke the policy: one violation,
// since nothing after it can be trusted.
func faultViolation(f *jsontext.Fault) headgate.Violation {
	v := headgate.Violation{
		Code: headgate.ViolationCode(f.Code), At: f.At, Offset: f.Offset, Line: f.Line, Column: f.Column,
		Got: f.Detail,
	}
	switch v.Code {
	case headgate.ViolationSyntax:
		v.Want, v.Fix = "one JSON text as in RFC 8259", fmt.Sprintf("Correct the JSON at line %d, column %d and send the whole payload again.", f.Line, f.Column)
	case headgate.ViolationBadUTF8:
		v.Want, v.Fix = "UTF-8 without lone surrogates", fmt.Sprintf("Encode the text as UTF-8; replace the bytes at line %d, column %d.", f.Line, f.Column)
	case headgate.ViolationDuplicateKey:
		v.Want, v.Fix = "every name once in its object", fmt.Sprintf("Remove one of the two members at %s; the first is at byte %d.", pointerWords(f.At), f.First)
	case headgate.ViolationNumberTooLarge:
		v.Want, v.Fix = "a number within the limits of length and exponent", fmt.Sprintf("Send a shorter number at %s, or send it as a string if the contract allows.", pointerWords(f.At))
	case headgate.ViolationTooDeep:
		v.Want, v.Fix = "objects and arrays nested less deeply", fmt.Sprintf("Nest objects and arrays less deeply at %s.", pointerWords(f.At))
	default:
		v.Fix = fmt.Sprintf("Correct the payload at line %d, column %d.", f.Line, f.Column)
	}
	return v
}

// pointerWords writes a pointer for a sentence.
func pointerWords(ptr string) string {
	if ptr == "" {
		return "the root"
	}
	return clipQuoteLong(ptr)
}

func clipQuoteLong(s string) string { return strconv.Quote(clip(s, 200)) }
