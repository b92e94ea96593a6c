package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// decodeStrict reads one JSON value into dst. Unknown and repeated names are
// errors; an unknown name comes with the nearest known one.
func decodeStrict(b []byte, dst any) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return headgate.NewError(headgate.CodeSyntax, "The body is empty; a JSON object is expected.")
	}
	if f := jsontext.Check(b, jsontext.Limits{}); f != nil {
		return headgate.NewError(headgate.CodeSyntax, "%s (line %d, column %d)", f.Detail, f.Line, f.Column)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	err := dec.Decode(dst)
	if err == nil {
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return headgate.NewError(headgate.CodeSyntax, "The body holds more than one JSON value.")
		}
		return nil
	}
	return argumentError(err, dst)
}

func argumentError(err error, dst any) error {
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) && te.Field == "" {
		return headgate.NewError(headgate.CodeInvalidArgument, "The body must be a JSON object, not %s.", clip(te.Value))
	}
	if te != nil {
		return headgate.NewError(headgate.CodeInvalidArgument, "The member %s must be of type %s.", clip(te.Field), te.Type)
	}
	if quoted, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name := strings.Trim(quoted, `"`)
		e := headgate.NewError(headgate.CodeInvalidArgument, "The member %q is unknown.", clip(name))
		if near := nearest(name, memberNames(reflect.TypeOf(dst), map[reflect.Type]bool{})); near != "" {
			e.Fix = fmt.Sprintf("Did you mean %q?", near)
		}
		return e
	}
	return headgate.NewError(headgate.CodeInvalidArgument, "%s.", clip(strings.TrimPrefix(err.Error(), "json: ")))
}

// clip bounds and escapes what is echoed.
func clip(s string) string {
	const most = 120
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// memberNames lists the JSON names of a type and of what it holds.
func memberNames(t reflect.Type, seen map[reflect.Type]bool) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
		names = append(names, memberNames(f.Type, seen)...)
	}
	return names
}

// nearest returns the name at an edit distance of at most 2, or "".
func nearest(name string, names []string) string {
	best, dist := "", 3
	if len(name) > 64 {
		return ""
	}
	for _, n := range names {
		if d := distance(strings.ToLower(name), n); d < dist && d < len(n) {
			best, dist = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := prev
			if a[i] != b[j] {
				cost++
			}
			prev = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
