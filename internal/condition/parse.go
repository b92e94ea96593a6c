package condition

import (
	"bytes"
	"strconv"
	"sync"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// parse reads JSON data into the value that expressions work on. The grammar
// of the whole text is checked, but objects and arrays inside it become values
// only when an expression touches them: most conditions look at one or two
// members of a large payload.
func parse(data []byte) (ref.Val, error) {
	s := jsontext.NewScanner(data, jsontext.Limits{})
	t, f := s.Next()
	var v ref.Val
	if f == nil {
		v, f = level(data, &s, t)
	}
	if f == nil {
		_, f = s.Next()
	}
	if f != nil {
		return nil, unreadable(f)
	}
	return v, nil
}

func unreadable(f *jsontext.Fault) error {
	return &headgate.Error{
		Code: headgate.CodeSyntax, Detail: "The data cannot be read as JSON: " + f.Detail,
		Where: &headgate.Place{Offset: f.Offset, Line: f.Line, Column: f.Column},
	}
}

// inner is an object or array that nobody has touched yet.
type inner struct {
	text  []byte
	once  sync.Once
	value ref.Val
}

func (n *inner) read() ref.Val {
	n.once.Do(func() {
		v, err := parse(n.text)
		if err != nil {
			v = types.WrapErr(err)
		}
		n.value = v
	})
	return n.value
}

// adapter turns what objects and arrays hold into values.
type adapter struct{}

// NativeToValue implements the library's adapter.
func (adapter) NativeToValue(v any) ref.Val {
	if n, isInner := v.(*inner); isInner {
		return n.read()
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

// level reads the value that the token t begins, one level deep.
func level(text []byte, s *jsontext.Scanner, t jsontext.Token) (ref.Val, *jsontext.Fault) {
	switch t.Kind {
	case jsontext.BeginObject:
		m, f := object(text, s)
		return types.NewStringInterfaceMap(adapter{}, m), f
	case jsontext.BeginArray:
		list, f := array(text, s)
		return types.NewDynamicList(adapter{}, list), f
	default:
		return adapter{}.NativeToValue(scalar(text, t)), nil
	}
}

func object(text []byte, s *jsontext.Scanner) (map[string]any, *jsontext.Fault) {
	m := map[string]any{}
	for {
		name, f := s.Next()
		if f != nil {
			return nil, f
		}
		if name.Kind == jsontext.EndObject {
			return m, nil
		}
		key := content(text, name)
		if _, twice := m[key]; twice {
			return nil, jsontext.DuplicateFault(text, jsontext.Limits{}, name)
		}
		t, f := s.Next()
		if f != nil {
			return nil, f
		}
		if m[key], f = element(text, s, t); f != nil {
			return nil, f
		}
	}
}

func array(text []byte, s *jsontext.Scanner) ([]any, *jsontext.Fault) {
	list := []any{}
	for {
		t, f := s.Next()
		if f != nil {
			return nil, f
		}
		if t.Kind == jsontext.EndArray {
			return list, nil
		}
		v, f := element(text, s, t)
		if f != nil {
			return nil, f
		}
		list = append(list, v)
	}
}

func element(text []byte, s *jsontext.Scanner, t jsontext.Token) (any, *jsontext.Fault) {
	if t.Kind != jsontext.BeginObject && t.Kind != jsontext.BeginArray {
		return scalar(text, t), nil
	}
	end, f := s.Skip()
	if f != nil {
		return nil, f
	}
	return &inner{text: text[t.Start:end]}, nil
}

func scalar(text []byte, t jsontext.Token) any {
	switch t.Kind {
	case jsontext.String:
		return content(text, t)
	case jsontext.Number:
		return number(text[t.Start:t.End])
	case jsontext.Null:
		return types.NullValue
	default:
		return t.Kind == jsontext.True
	}
}

func content(text []byte, t jsontext.Token) string {
	return string(jsontext.Unquote(nil, text[t.Start:t.End]))
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
