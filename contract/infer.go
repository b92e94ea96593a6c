package contract

import (
	"bytes"
	"encoding/json"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// Bounds of an inferred schema.
const (
	inferDepth      = 24  // levels of a payload that are described
	inferProperties = 256 // an object with more members is taken for a map
)

// Infer returns a draft schema that the payload satisfies: 2020-12, objects
// open, everything that is present required, formats only where they are
// beyond doubt. Items of one array are described together. What is nested
// deeper than 24 levels, or would make the schema too large, is left open.
//
// A payload that breaks the default policy is an *headgate.Error with code
// syntax.
func Infer(payload []byte) ([]byte, error) {
	lim := Policy{}.withDefaults().limits()
	if fault := jsontext.Check(payload, lim); fault != nil {
		return nil, faultError(fault)
	}
	t, fault := readTape(payload, lim, nil)
	if fault != nil {
		return nil, faultError(fault)
	}
	for depth := inferDepth; ; depth /= 2 {
		s := &shapeOf{}
		s.see(&t, 0, depth)
		doc := s.schema()
		doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		schema, err := encodeSchema(doc)
		if err != nil {
			return nil, headgate.NewError(headgate.CodeInternal, "encode an inferred schema: %v", err)
		}
		c, _, err := Compile("draft", 1, schema, nil)
		if err == nil && c.Check(payload) == nil {
			return schema, nil
		}
		if depth == 0 {
			return nil, headgate.NewError(headgate.CodeInternal, "an inferred schema does not fit its payload: %v", err)
		}
	}
}

// encodeSchema writes a schema for people: indented, without HTML escapes.
func encodeSchema(doc any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// shapeOf gathers what was seen at one place of a payload.
type shapeOf struct {
	types   typeSet
	open    bool // too deep: nothing is said
	format  string
	strings int // seen
	objects int // seen
	isMap   bool
	props   map[string]*propShape
	other   *shapeOf // of the members of a map
	items   *shapeOf
}

type propShape struct {
	shapeOf
	count int
}

func (s *shapeOf) see(t *tape, i int32, depth int) {
	v := &t.values[i]
	switch v.kind {
	case kindNumber:
		if isInteger(t.raw(i)) {
			s.types |= typeInteger
		} else {
			s.types |= typeNumber
		}
		return
	case kindString:
		s.types |= typeString
		s.seeString(string(t.str(i)))
		return
	case kindNull, kindBoolean:
		s.types |= 1 << v.kind
		return
	}
	s.types |= 1 << v.kind
	if depth == 0 {
		s.open = true
		return
	}
	if v.kind == kindArray {
		for child := i + 1; child < v.next; child = t.values[child].next {
			if s.items == nil {
				s.items = &shapeOf{}
			}
			s.items.see(t, child, depth-1)
		}
		return
	}
	s.objects++
	for child := i + 1; child < v.next; child = t.values[child].next {
		s.seeMember(t, child, depth-1)
	}
}

func (s *shapeOf) seeMember(t *tape, child int32, depth int) {
	if s.other == nil {
		s.other = &shapeOf{}
	}
	s.other.see(t, child, depth)
	name := string(t.name(child))
	if len(name) > MaxSchemaName/6 { // as escaped, it may be six times as long
		return
	}
	if s.props == nil {
		s.props = map[string]*propShape{}
	}
	p := s.props[name]
	if p == nil {
		if len(s.props) >= inferProperties {
			s.isMap = true
			return
		}
		p = &propShape{}
		s.props[name] = p
	}
	p.count++
	p.see(t, child, depth)
}

// seeString keeps a format as long as every string seen has it.
func (s *shapeOf) seeString(str string) {
	s.strings++
	format := ""
	switch {
	case isUUID(str):
		format = "uuid"
	case isDateTime(str):
		format = "date-time"
	case isDate(str):
		format = "date"
	}
	if s.strings == 1 {
		s.format = format
	} else if s.format != format {
		s.format = ""
	}
}

func (s *shapeOf) schema() map[string]any {
	out := map[string]any{}
	types := s.types
	if types&typeNumber != 0 {
		types &^= typeInteger
	}
	switch names := types.names(); len(names) {
	case 0:
		return out
	case 1:
		out["type"] = names[0]
	default:
		out["type"] = names
	}
	if s.format != "" {
		out["format"] = s.format
	}
	if s.open {
		return out
	}
	if s.items != nil {
		out["items"] = s.items.schema()
	}
	switch {
	case s.isMap:
		out["additionalProperties"] = s.other.schema()
	case len(s.props) > 0:
		props := map[string]any{}
		var required []string
		for _, name := range sortedKeys(s.props) {
			props[name] = s.props[name].schema()
			if s.props[name].count == s.objects {
				required = append(required, name)
			}
		}
		out["properties"] = props
		if required != nil {
			out["required"] = required
		}
	}
	return out
}

// faultError is the error on a payload that breaks the policy.
func faultError(f *jsontext.Fault) *headgate.Error {
	err := headgate.NewError(headgate.CodeSyntax, "line %d, column %d: %s", f.Line, f.Column, f.Detail)
	err.Where = &headgate.Place{Offset: f.Offset, Line: f.Line, Column: f.Column}
	return err
}
