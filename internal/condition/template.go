package condition

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
)

const maxParts = 64 // of one template

// CompileTemplate compiles text with CEL expressions in braces, such as
// "ticket/{data.id}". Doubled braces stand for themselves. A template without
// expressions always yields its text.
func CompileTemplate(template string) (*Value, error) {
	if len(template) > MaxExpression {
		return nil, invalid(1, 1, fmt.Sprintf("the template has more than %d bytes", MaxExpression))
	}
	v := &Value{text: template}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			v.parts = append(v.parts, part{literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(template); {
		c := template[i]
		doubled := i+1 < len(template) && template[i+1] == c
		switch {
		case (c == '{' || c == '}') && doubled:
			literal.WriteByte(c)
			i += 2
		case c == '}':
			return nil, invalid(1, column(template, i), "a closing brace has no opening one; write }} for a brace")
		case c == '{':
			end := closing(template, i+1)
			if end < 0 {
				return nil, invalid(1, column(template, i), "a brace is not closed; write {{ for a brace")
			}
			flush()
			program, err := compile(template[i+1:end], column(template, i), cel.StringType, cel.IntType, cel.UintType, cel.BoolType)
			if err != nil {
				return nil, err
			}
			v.parts = append(v.parts, part{program: program})
			i = end + 1
		default:
			literal.WriteByte(c)
			i++
		}
		if len(v.parts) > maxParts {
			return nil, invalid(1, 1, fmt.Sprintf("the template has more than %d parts", maxParts))
		}
	}
	flush()
	return v, nil
}

// column returns the column, in characters from 1, of a byte offset.
func column(s string, offset int) int { return utf8.RuneCountInString(s[:offset]) + 1 }

// closing returns the offset of the brace that ends the expression which
// starts at i, or -1. Braces of maps and braces in strings do not end it.
func closing(s string, i int) int {
	depth := 0
	for i < len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case '"', '\'':
			end := literalEnd(s, i)
			if end < 0 {
				return -1
			}
			i = end
			continue
		}
		i++
	}
	return -1
}

// literalEnd returns the offset behind the CEL string literal whose quote is
// at i, or -1 if it has no end.
func literalEnd(s string, i int) int {
	raw := i > 0 && s[i-1]|0x20 == 'r'
	quote := s[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s[i:], triple) {
		quote = triple
	}
	for i += len(quote); i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote)
		case s[i] == '\\' && !raw:
			i++
		}
	}
	return -1
}
