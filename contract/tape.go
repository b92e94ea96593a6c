package contract

import (
	"unicode/utf8"

	"github.com/headgate/headgate/internal/jsontext"
)

// kind is the JSON type of a value. The order is that of typeNames.
type kind uint8

const (
	kindNull kind = iota
	kindBoolean
	kindNumber
	kindString
	kindArray
	kindObject
)

// value is one value of a payload. The values of a payload stand in document
// order, so that a container's children follow it and end where its next
// begins.
type value struct {
	kind    kind
	escaped bool // of a string
	// nameEscaped and the name's place are set for members of objects.
	nameEscaped        bool
	start, end         int32 // raw bytes
	nameStart, nameEnd int32 // raw bytes, quotes included; 0, 0 for others
	parent             int32 // -1 for the root
	next               int32 // index behind the value's last descendant
	count              int32 // children
	ordinal            int32 // among the parent's children
}

// tape is a payload whose values were found but not converted.
type tape struct {
	text   []byte
	values []value
}

// readTape finds the values of a text that passed the policy. It appends to
// values, which may be reused between payloads.
func readTape(text []byte, lim jsontext.Limits, values []value) (tape, *jsontext.Fault) {
	sc := jsontext.NewScanner(text, lim)
	t := tape{text: text, values: values[:0]}
	open := int32(-1)
	var name jsontext.Token
	named := false
	for {
		tok, fault := sc.Next()
		if fault != nil {
			return t, fault
		}
		switch tok.Kind {
		case jsontext.EOF:
			return t, nil
		case jsontext.Name:
			name, named = tok, true
			continue
		case jsontext.EndObject, jsontext.EndArray:
			c := &t.values[open]
			c.end, c.next = int32(tok.End), int32(len(t.values))
			open = c.parent
			continue
		}
		v := value{kind: kindOf(tok.Kind), escaped: tok.Escaped, start: int32(tok.Start), end: int32(tok.End), parent: open}
		if named {
			v.nameStart, v.nameEnd, v.nameEscaped = int32(name.Start), int32(name.End), name.Escaped
			named = false
		}
		if open >= 0 {
			v.ordinal = t.values[open].count
			t.values[open].count++
		}
		at := int32(len(t.values))
		v.next = at + 1
		t.values = append(t.values, v)
		if v.kind >= kindArray {
			open = at
		}
	}
}

func kindOf(k jsontext.Kind) kind {
	switch k {
	case jsontext.BeginObject:
		return kindObject
	case jsontext.BeginArray:
		return kindArray
	case jsontext.String:
		return kindString
	case jsontext.Number:
		return kindNumber
	case jsontext.True, jsontext.False:
		return kindBoolean
	default:
		return kindNull
	}
}

// raw returns the bytes of a value as they stand in the payload.
func (t *tape) raw(i int32) []byte {
	v := &t.values[i]
	return t.text[v.start:v.end]
}

// str returns the content of a string value.
func (t *tape) str(i int32) []byte {
	v := &t.values[i]
	return unquote(t.text[v.start:v.end], v.escaped)
}

// name returns the name of a member.
func (t *tape) name(i int32) []byte {
	v := &t.values[i]
	return unquote(t.text[v.nameStart:v.nameEnd], v.nameEscaped)
}

func unquote(raw []byte, escaped bool) []byte {
	if !escaped {
		return raw[1 : len(raw)-1]
	}
	return jsontext.Unquote(nil, raw)
}

// truth returns the value of a boolean.
func (t *tape) truth(i int32) bool { return t.text[t.values[i].start] == 't' }

// runes counts the code points of a string value, which is what the length
// keywords count.
func (t *tape) runes(i int32) int { return utf8.RuneCount(t.str(i)) }
