package node

import (
	"bytes"
	"encoding"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxConfigNodes bounds the work of reading a file, aliases expanded.
const maxConfigNodes = 100_000

// Problem is one thing wrong with a configuration, with its place.
type Problem struct {
	Line    int    `json:"line,omitempty"` // from 1; 0 when the setting came from elsewhere
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// String returns "LINE:COLUMN: PATH: MESSAGE".
func (p Problem) String() string {
	s := p.Message
	if p.Path != "" {
		s = p.Path + ": " + s
	}
	if p.Line > 0 {
		s = strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column) + ": " + s
	}
	return s
}

// place is where a setting stands in a file.
type place struct{ line, column int }

// decoder reads a YAML document into a struct, strictly: unknown and repeated
// keys are problems, each with line and column, and all are reported at once.
type decoder struct {
	problems []Problem
	places   map[string]place
	nodes    int
}

func decodeYAML(text []byte, into any) (map[string]place, []Problem) {
	d := &decoder{places: map[string]place{}}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err == io.EOF {
		return d.places, nil
	} else if err != nil {
		return d.places, []Problem{syntaxProblem(err, text)}
	}
	if err := dec.Decode(&second); err == nil {
		return d.places, []Problem{{Line: second.Line, Column: second.Column, Message: "more than one YAML document in the file"}}
	} else if err != io.EOF {
		return d.places, []Problem{syntaxProblem(err, text)}
	}
	d.value(doc.Content[0], reflect.ValueOf(into).Elem(), "")
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return d.places, d.problems
}

// syntaxProblem returns why a text is no YAML, with the place that the library
// tells, or that the text shows where it tells none.
func syntaxProblem(err error, text []byte) Problem {
	p := Problem{Message: strings.TrimPrefix(err.Error(), "yaml: ")}
	var line int
	if n, _ := fmt.Sscanf(p.Message, "line %d:", &line); n == 1 {
		_, rest, _ := strings.Cut(p.Message, ": ")
		p.Line, p.Column, p.Message = line, 1, rest
	}
	if strings.Contains(p.Message, "directive") || strings.Contains(p.Message, "incompatible") { // the library tells the line before
		if at := directive.FindIndex(text); at != nil {
			return p.in(text, at[0])
		}
	}
	if p.Line > 0 {
		return p
	}
	if anchor := unknownAnchor.FindStringSubmatch(p.Message); anchor != nil {
		alias := regexp.MustCompile(`(?m)^[^#\n]*?(?:^|[\s,:\[{-])(\*` + regexp.QuoteMeta(anchor[1]) + `)(?:[\s,\]}]|$)`)
		if at := alias.FindSubmatchIndex(text); at != nil {
			return p.in(text, at[2])
		}
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r) {
			return p.in(text, i)
		}
		i += size
	}
	return p
}

var (
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	directive     = regexp.MustCompile(`(?m)^%`)
)

// in puts the problem at a byte of a text.
func (p Problem) in(text []byte, at int) Problem {
	before := text[:at]
	p.Line = 1 + bytes.Count(before, []byte("\n"))
	p.Column = 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return p
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: n.Line, Column: n.Column, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if d.nodes++; d.nodes > maxConfigNodes {
		if d.nodes == maxConfigNodes+1 {
			d.fail(n, path, "the file is too large once its aliases are expanded")
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if path != "" {
		d.places[path] = place{n.Line, n.Column}
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // an empty setting means its default
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok && n.Kind == yaml.ScalarNode {
		if err := u.UnmarshalText([]byte(n.Value)); err != nil {
			d.fail(n, path, "%s", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.value(n, p.Elem(), path)
		v.Set(p)
	case reflect.Struct:
		d.object(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.sequence(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	if v.Kind() == reflect.Interface {
		var any any
		if err := n.Decode(&any); err == nil && any != nil {
			v.Set(reflect.ValueOf(any))
		}
		return
	}
	if n.Kind != yaml.ScalarNode {
		d.fail(n, path, "want a single value, not %s", kindWord(n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.Value)
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			d.fail(n, path, "want a whole number, not %q", clip([]byte(n.Value)))
			return
		}
		v.SetInt(i)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if err != nil {
			d.fail(n, path, "want true or false, not %q", clip([]byte(n.Value)))
			return
		}
		v.SetBool(b)
	default:
		d.fail(n, path, "cannot read a %s here", v.Type())
	}
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, "want a list, not %s", kindWord(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, c := range n.Content {
		d.value(c, out.Index(i), path+"["+strconv.Itoa(i)+"]")
	}
	v.Set(out)
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	out := reflect.MakeMap(v.Type())
	d.pairs(n, path, func(key, val *yaml.Node, at string) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(val, elem, at)
		out.SetMapIndex(reflect.ValueOf(key.Value), elem)
	})
	v.Set(out)
}

func (d *decoder) object(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v)
	d.pairs(n, path, func(key, val *yaml.Node, at string) {
		f, ok := fields[key.Value]
		if !ok {
			d.fail(key, at, "unknown setting%s", didYouMean(key.Value, fields))
			return
		}
		d.value(val, f, at)
	})
}

// pairs calls fn for each key of a mapping, and reports repeated keys.
func (d *decoder) pairs(n *yaml.Node, path string, fn func(key, val *yaml.Node, at string)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "want settings by name, not %s", kindWord(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := joinPath(path, key.Value)
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			d.fail(key, at, "want a plain name as key")
			continue
		}
		if seen[key.Value] {
			d.fail(key, at, "set twice")
			continue
		}
		seen[key.Value] = true
		fn(key, n.Content[i+1], at)
	}
}

// fieldsOf returns the settable fields of a struct by their names in files:
// the yaml tag, else the json tag. Embedded structs are flattened.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			for name, field := range fieldsOf(v.Field(i)) {
				out[name] = field
			}
			continue
		}
		if name := settingName(f); name != "" {
			out[name] = v.Field(i)
		}
	}
	return out
}

// settingName returns the name of a field in files; "" if it has none.
func settingName(f reflect.StructField) string {
	tag, ok := f.Tag.Lookup("yaml")
	if !ok {
		tag = f.Tag.Get("json")
	}
	name, _, _ := strings.Cut(tag, ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	if strings.ContainsAny(key, ".*[] ") {
		return path + "[" + strconv.Quote(key) + "]"
	}
	return path + "." + key
}

func kindWord(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "settings by name"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", clip([]byte(n.Value)))
	}
}

// didYouMean names the nearest known setting within two edits, if there is one.
func didYouMean(got string, fields map[string]reflect.Value) string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	best, bestDist := "", 3
	for _, name := range names {
		if dist := editDistance(got, name, bestDist); dist < bestDist {
			best, bestDist = name, dist
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return "; known here: " + strings.Join(names, ", ")
}

// editDistance returns the Levenshtein distance of two short words, or limit
// when it is at least that.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 64 {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return min(row[len(b)], limit)
}

// Parse reads a configuration from YAML. It returns every problem at once; the
// configuration is usable only when there is none.
func Parse(text []byte) (*Loaded, []Problem) {
	l := &Loaded{}
	places, problems := decodeYAML(text, &l.Config)
	l.places = places
	if len(problems) > 0 {
		return l, problems
	}
	return l, l.Validate()
}
