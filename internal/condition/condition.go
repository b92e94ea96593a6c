package condition

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/headgate/headgate"
)

// Condition is a compiled boolean expression over one event.
type Condition struct {
	text    string
	program *program
}

// Compile compiles a boolean expression. The error says where it is wrong.
func Compile(expr string) (*Condition, error) {
	program, err := compile(expr, 0, cel.BoolType)
	if err != nil {
		return nil, err
	}
	return &Condition{text: expr, program: program}, nil
}

// String returns the expression as it was written.
func (c *Condition) String() string { return c.text }

// Match evaluates the condition. An error (a missing field, the cost limit)
// is a non-match whose reason the caller shows in explanations.
func (c *Condition) Match(e *headgate.Event) (bool, error) { return c.MatchOver(Over(e)) }

// MatchOver is Match over a scope that several expressions share, so that the
// event's data is parsed once for all of them.
func (c *Condition) MatchOver(s *Scope) (bool, error) {
	result, _, err := c.program.Eval(activation{s})
	if err != nil {
		return false, s.failed(err)
	}
	matched, isBool := result.(types.Bool)
	if !isBool {
		return false, headgate.NewError(headgate.CodeInvalidArgument,
			"The condition yields a %s where true or false is wanted.", result.Type().TypeName())
	}
	return bool(matched), nil
}

// Value is a compiled expression over one event that yields text.
type Value struct {
	text  string
	parts []part
}

// part is literal text, or an expression if it has a program.
type part struct {
	literal string
	program *program
}

// MaxText bounds the bytes of text that a [Value] yields.
const MaxText = 4 << 10

// CompileValue compiles an expression whose result is a string, an integer or
// a boolean, such as data.ticket_id.
func CompileValue(expr string) (*Value, error) {
	program, err := compile(expr, 0, cel.StringType, cel.IntType, cel.UintType, cel.BoolType)
	if err != nil {
		return nil, err
	}
	return &Value{text: expr, parts: []part{{program: program}}}, nil
}

// String returns the expression or template as it was written.
func (v *Value) String() string { return v.text }

// Outline returns the text of a template with every expression replaced.
func (v *Value) Outline(value string) string {
	var b strings.Builder
	for _, p := range v.parts {
		if p.program != nil {
			b.WriteString(value)
		} else {
			b.WriteString(p.literal)
		}
	}
	return b.String()
}

// Eval returns the result as text. Integers beyond 2^53 stay exact.
func (v *Value) Eval(e *headgate.Event) (string, error) { return v.EvalOver(Over(e)) }

// EvalOver is Eval over a scope that several expressions share.
func (v *Value) EvalOver(s *Scope) (string, error) {
	var text string
	for _, p := range v.parts {
		piece := p.literal
		if p.program != nil {
			var err error
			if piece, err = s.piece(p.program); err != nil {
				return "", err
			}
		}
		if len(text)+len(piece) > MaxText {
			return "", headgate.NewError(headgate.CodeInvalidArgument, "The expression yields more than %d bytes.", MaxText)
		}
		text += piece
	}
	return text, nil
}

// piece evaluates one expression of a value.
func (s *Scope) piece(p *program) (string, error) {
	if p.path != nil {
		if v, answered := follow(s.event, p.path); answered {
			return asText(v)
		}
	}
	result, _, err := p.Eval(activation{s})
	if err != nil {
		return "", s.failed(err)
	}
	return asText(result)
}
