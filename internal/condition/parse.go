package condition

import (
	"bytes"
	"strconv"

	"cel.dev/cel-go/common/types"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// parse reads JSON data into the values that expressions work on. It recurses
// at most as deep as jsontext allows.
func parse(data []byte) (any, error) {
	p := parser{text: data, scan: jsontext.NewScanner(data, jsontext.Limits{})}
	t, f := p.scan.Next()
	var v any
	if f == nil {
		v, f = p.value(t)
	}
	if f == nil {
		_, f = p.scan.Next()
	}
	if f != nil {
		return nil, &headgate.Error{
			Code: headgate.CodeSyntax, Detail: "The data cannot be read as JSON: " + f.Detail,
			Where: &headgate.Place{Offset: f.Offset, Line: f.Line, Column: f.Column},
		}
	}
	return v, nil
}

type parser struct {
	text []byte
	scan jsontext.Scanner
}

func (p *parser) value(t jsontext.Token) (any, *jsontext.Fault) {
	switch t.Kind {
	case jsontext.BeginObject:
		return p.object()
	case jsontext.BeginArray:
		return p.array()
	case jsontext.String:
		return p.content(t), nil
	case jsontext.Number:
		return number(p.text[t.Start:t.End]), nil
	case jsontext.True, jsontext.False:
		return t.Kind == jsontext.True, nil
	default:
		return types.NullValue, nil
	}
}

func (p *parser) content(t jsontext.Token) string {
	return string(jsontext.Unquote(nil, p.text[t.Start:t.End]))
}

func (p *parser) object() (any, *jsontext.Fault) {
	m := map[string]any{}
	for {
		name, f := p.scan.Next()
		if f != nil {
			return nil, f
		}
		if name.Kind == jsontext.EndObject {
			return m, nil
		}
		key := p.content(name)
		if _, twice := m[key]; twice {
			return nil, jsontext.DuplicateFault(p.text, jsontext.Limits{}, name)
		}
		t, f := p.scan.Next()
		if f != nil {
			return nil, f
		}
		if m[key], f = p.value(t); f != nil {
			return nil, f
		}
	}
}

func (p *parser) array() (any, *jsontext.Fault) {
	list := []any{}
	for {
		t, f := p.scan.Next()
		if f != nil {
			return nil, f
		}
		if t.Kind == jsontext.EndArray {
			return list, nil
		}
		v, f := p.value(t)
		if f != nil {
			return nil, f
		}
		list = append(list, v)
	}
}

// number returns an integer as int64 or uint64 if it fits, another number as
// float64, and what fits neither as its text, so that no digit is lost: an
// expression that computes with a string fails instead of rounding.
func number(text []byte) any {
	s := string(text)
	if !bytes.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			return n
		}
		return s
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	return s
}
