package fence

import (
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// maxTemplate bounds a template, in bytes.
const maxTemplate = 512

// Template says which resource a row belongs to: literal text with columns in
// braces, such as "ticket/{ticket_id}". Doubled braces stand for themselves.
type Template []Part

// Part is literal text or the value of a column.
type Part struct{ Text, Column string }

// ParseTemplate reads a template. Errors: invalid_argument.
func ParseTemplate(s string) (Template, error) {
	bad := func(why string) (Template, error) {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "The resource template is not valid: %s.", why)
	}
	if s == "" || len(s) > maxTemplate || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return bad("it must be 1 to 512 bytes of text")
	}
	var t Template
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			t = append(t, Part{Text: text.String()})
			text.Reset()
		}
	}
	for i := 0; i < len(s); i++ {
		switch {
		case (s[i] == '{' || s[i] == '}') && i+1 < len(s) && s[i+1] == s[i]:
			text.WriteByte(s[i])
			i++
		case s[i] == '}':
			return bad("a brace closes that was not opened")
		case s[i] == '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return bad("a brace is not closed")
			}
			column := strings.TrimSpace(s[i+1 : i+end])
			if column == "" || strings.ContainsRune(column, '{') {
				return bad("braces hold the name of one column")
			}
			flush()
			t = append(t, Part{Column: column})
			i += end
		default:
			text.WriteByte(s[i])
		}
	}
	flush()
	if name, constant := t.Constant(); constant && !headgate.ValidResource(name) {
		return bad("it is no resource name")
	}
	return t, nil
}

// Constant returns the resource of a template without columns.
func (t Template) Constant() (string, bool) {
	if len(t) == 1 && t[0].Column == "" {
		return t[0].Text, true
	}
	return "", false
}

// Columns returns the columns that it names, in order, none twice.
func (t Template) Columns() []string {
	var names []string
	seen := map[string]bool{}
	for _, p := range t {
		if p.Column != "" && !seen[p.Column] {
			seen[p.Column] = true
			names = append(names, p.Column)
		}
	}
	return names
}

// SQL returns the template as a standard SQL expression over the columns of a
// row, NULL when one of them is. Row is put before each column as it is.
func (t Template) SQL(row string) string {
	return t.Expr(func(column string) string { return "CAST(" + row + Ident(column) + " AS text)" })
}

// Expr is SQL with the text of each column's value as the function writes it.
func (t Template) Expr(value func(column string) string) string {
	parts := make([]string, len(t))
	for i, p := range t {
		if p.Column == "" {
			parts[i] = Literal(p.Text)
			continue
		}
		parts[i] = value(p.Column)
	}
	return strings.Join(parts, " || ")
}

// Literal quotes text for SQL.
func Literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Ident quotes a name for SQL.
func Ident(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
