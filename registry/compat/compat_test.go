package compat

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func js(text string) Schema { return Schema{Kind: JSON, Text: []byte(text)} }

func ids(ds []Difference) string {
	var out []string
	for _, d := range ds {
		out = append(out, d.Rule.ID)
	}
	return strings.Join(out, " ")
}

// The content model decides most surprises: whether a schema is open, what is
// added or removed, and whether readers can do without.
func TestContentModelMatrix(t *testing.T) {
	const (
		openModel   = `{"type":"object","properties":{"a":{"type":"string"}}%s}`
		closedModel = `{"type":"object","properties":{"a":{"type":"string"}}%s,"additionalProperties":false}`
	)
	with := func(model, property, required string) string {
		s := fmt.Sprintf(model, required)
		return strings.Replace(s, `{"a":{"type":"string"}}`, `{"a":{"type":"string"},"b":`+property+`}`, 1)
	}
	type kind struct{ name, property, required string }
	kinds := []kind{
		{"required", `{"type":"string"}`, `,"required":["b"]`},
		{"required with default", `{"type":"string","default":"x"}`, `,"required":["b"]`},
		{"optional", `{"type":"string"}`, ``},
	}
	// what each policy says of old and new, read forwards (new reads old) and
	// backwards (old reads new): the rules that are not forgiven.
	type row struct{ logical, strict, lenient string }
	want := map[string]row{
		"open add required backward":                {"property_added_to_open_model required_added", "property_added_to_open_model required_added", "required_added"},
		"open add required forward":                 {},
		"open add required with default backward":   {"property_added_to_open_model required_with_default_added", "property_added_to_open_model", ""},
		"open add required with default forward":    {},
		"open add optional backward":                {"property_added_to_open_model", "property_added_to_open_model", ""},
		"open add optional forward":                 {},
		"closed add required backward":              {"required_added", "required_added", "required_added"},
		"closed add required forward":               {"property_removed_from_closed_model", "property_removed_from_closed_model", ""},
		"closed add required with default backward": {"required_with_default_added", "", ""},
		"closed add required with default forward":  {"property_removed_from_closed_model", "property_removed_from_closed_model", ""},
		"closed add optional backward":              {},
		"closed add optional forward":               {"property_removed_from_closed_model", "property_removed_from_closed_model", ""},
	}
	mirrored := map[string]string{"add": "remove", "backward": "forward", "forward": "backward"}
	cells := 0
	for _, m := range []struct{ name, text string }{{"open", openModel}, {"closed", closedModel}} {
		for _, k := range kinds {
			small, large := js(fmt.Sprintf(m.text, "")), js(with(m.text, k.property, k.required))
			for _, direction := range []string{"backward", "forward"} {
				for _, change := range []string{"add", "remove"} {
					cells++
					old, next, key := small, large, m.name+" add "+k.name+" "+direction
					if change == "remove" { // removing is adding, seen from the other side
						old, next, key = large, small, m.name+" add "+k.name+" "+mirrored[direction]
					}
					writer, reader := old, next
					if direction == "forward" {
						writer, reader = next, old
					}
					w, ok := want[key]
					if !ok {
						t.Fatalf("no row for %s", key)
					}
					for p, rules := range map[Policy]string{Logical: w.logical, Strict: w.strict, Lenient: w.lenient} {
						if got := ids(Compare(p, writer, reader)); got != rules {
							t.Errorf("%s, %s a %s property, %s, %s: got %q, want %q", m.name, change, k.name, direction, p, got, rules)
						}
					}
				}
			}
		}
	}
	if cells != 24 {
		t.Errorf("%d cells", cells)
	}
}

// Each case is a writer, a reader, and the rules that refuse the pair.
var pairs = []struct{ name, writer, reader, want string }{
	{"anything to nothing", `true`, `false`, "nothing_allowed"},
	{"nothing to anything", `false`, `{"type":"string"}`, ""},
	{"anything to anything", `{}`, `true`, ""},
	{"number to integer", `{"type":"number"}`, `{"type":"integer"}`, "type_narrowed"},
	{"integer to number", `{"type":"integer"}`, `{"type":"number"}`, ""},
	{"types widened", `{"type":"string"}`, `{"type":["string","null"]}`, ""},
	{"types narrowed", `{"type":["string","null"]}`, `{"type":"string"}`, "type_narrowed"},
	{"enum extended", `{"enum":["a"]}`, `{"enum":["a","b"]}`, ""},
	{"enum narrowed", `{"enum":["a","b"]}`, `{"enum":["a"]}`, "enum_narrowed"},
	{"enum given up", `{"enum":["a",1]}`, `{"type":["string","integer"]}`, ""},
	{"enum to a length", `{"enum":["ab","cd"]}`, `{"type":"string","minLength":2,"maxLength":2}`, ""},
	{"enum beyond a length", `{"enum":["ab","c"]}`, `{"type":"string","minLength":2}`, "min_length_raised"},
	{"enum added", `{"type":"string"}`, `{"enum":["a"]}`, "enum_added"},
	{"booleans are listed by their type", `{"type":"boolean"}`, `{"enum":[false,true,null]}`, ""},
	{"numbers are equal by value", `{"const":1}`, `{"enum":[1.0]}`, ""},
	{"const changed", `{"const":1}`, `{"const":2}`, "const_changed"},
	{"maximum lowered", `{"type":"integer","maximum":10}`, `{"maximum":9}`, "maximum_lowered"},
	{"maximum removed", `{"type":"integer","maximum":10}`, `{"type":"integer"}`, ""},
	{"maximum of whole numbers", `{"type":"integer","exclusiveMaximum":10}`, `{"maximum":9}`, ""},
	{"maximum of all numbers", `{"type":"number","exclusiveMaximum":10}`, `{"maximum":9}`, "maximum_lowered"},
	{"maximum of draft 4", `{"type":"number","maximum":10}`, `{"maximum":10,"exclusiveMaximum":true}`, "maximum_lowered"},
	{"minimum raised", `{"type":"number","minimum":1}`, `{"minimum":1.5}`, "minimum_raised"},
	{"minimum lowered", `{"type":"number","exclusiveMinimum":1}`, `{"minimum":1}`, ""},
	{"multiples of a divisor", `{"type":"number","multipleOf":10}`, `{"multipleOf":2.5}`, ""},
	{"multiples of another", `{"type":"number","multipleOf":10}`, `{"multipleOf":3}`, "multiple_of_changed"},
	{"bounds of what is never written", `{"type":"string"}`, `{"maximum":3,"required":["a"],"items":false}`, ""},
	{"lengths", `{"type":"string","minLength":2,"maxLength":4}`, `{"minLength":3,"maxLength":3}`, "max_length_lowered min_length_raised"},
	{"pattern kept", `{"type":"string","pattern":"^a"}`, `{"pattern":"^a"}`, ""},
	{"pattern changed", `{"type":"string","pattern":"^a"}`, `{"pattern":"^b"}`, "pattern_changed"},
	{"format added", `{"type":"string"}`, `{"format":"uuid"}`, "format_changed"},
	{"items", `{"type":"array","items":{"type":"integer"}}`, `{"items":{"type":"number"}}`, ""},
	{"items narrowed", `{"type":"array","items":{"type":"number"}}`, `{"items":{"type":"integer"}}`, "type_narrowed"},
	{"tuple shortened", `{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false}`, `{"prefixItems":[{"type":"integer"}],"items":false}`, "items_removed_from_closed_model"},
	{"tuple and count", `{"type":"array","prefixItems":[{"type":"integer"}],"items":false}`, `{"maxItems":1,"uniqueItems":true}`, ""},
	{"tuple before 2020", `{"type":"array","items":[{"type":"integer"}],"additionalItems":false}`, `{"prefixItems":[{"type":"number"}],"items":false}`, ""},
	{"counts", `{"type":"array","minItems":1,"maxItems":3}`, `{"minItems":2,"maxItems":2}`, "max_items_lowered min_items_raised"},
	{"unique", `{"type":"array"}`, `{"uniqueItems":true}`, "unique_items_added"},
	{"contains", `{"type":"array","contains":{"const":1}}`, `{"contains":{"type":"integer"}}`, ""},
	{"contains added", `{"type":"array"}`, `{"contains":{"type":"integer"}}`, "contains_changed"},
	{"closed", `{"type":"object"}`, `{"additionalProperties":false}`, "additional_properties_removed"},
	{"opened", `{"type":"object","additionalProperties":false}`, `{"type":"object"}`, ""},
	{"partly open", `{"type":"object","additionalProperties":{"type":"string"}}`, `{"properties":{"a":{"type":["string","null"]}}}`, ""},
	{"partly open, bound otherwise", `{"type":"object","additionalProperties":{"type":"string"}}`, `{"properties":{"a":{"type":"integer"}}}`, "type_narrowed"},
	{"never written", `{"type":"object","properties":{"a":false}}`, `{"properties":{"a":{"type":"integer"}},"additionalProperties":true}`, ""},
	{"pattern covers a name", `{"type":"object","properties":{"ab":{"type":"string"}},"additionalProperties":false}`, `{"patternProperties":{"^a":{"type":"integer"}}}`, "type_narrowed"},
	{"pattern removed", `{"type":"object","patternProperties":{"^a":{"type":"string"}},"additionalProperties":false}`, `{"additionalProperties":false}`, "pattern_property_removed"},
	{"pattern added", `{"type":"object"}`, `{"patternProperties":{"^a":{"type":"string"}}}`, "pattern_property_added"},
	{"property called default", `{"type":"object","properties":{"default":{"type":"string"}}}`, `{"properties":{"default":{"type":"integer"}}}`, "type_narrowed"},
	{"property called $ref", `{"type":"object","properties":{"$ref":{"type":"string"}}}`, `{"properties":{"$ref":{"type":"string"}}}`, ""},
	{"names", `{"type":"object","properties":{"ab":{}},"additionalProperties":false}`, `{"propertyNames":{"maxLength":2}}`, ""},
	{"names bound", `{"type":"object"}`, `{"propertyNames":{"maxLength":2}}`, "property_names_added"},
	{"count of properties", `{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}`, `{"minProperties":1,"maxProperties":1}`, ""},
	{"dependency", `{"type":"object","properties":{"a":{},"b":{}}}`, `{"dependentRequired":{"a":["b"]}}`, "dependency_added"},
	{"dependency kept in another spelling", `{"type":"object","dependencies":{"a":["b","c"]}}`, `{"dependentRequired":{"a":["b"]}}`, ""},
	{"union extended", `{"anyOf":[{"type":"string"},{"type":"null"}]}`, `{"anyOf":[{"type":"null"},{"type":"string"},{"type":"integer"}]}`, ""},
	{"union narrowed", `{"anyOf":[{"type":"string"},{"type":"null"}]}`, `{"anyOf":[{"type":"string"}]}`, "union_narrowed"},
	{"types to a union", `{"type":["string","null"]}`, `{"oneOf":[{"type":"null"},{"type":"string"}]}`, ""},
	{"union to types", `{"oneOf":[{"type":"null"},{"type":"string"}]}`, `{"type":["string","null"]}`, ""},
	{"allOf adds up", `{"allOf":[{"type":"integer"},{"minimum":1}]}`, `{"type":"integer","minimum":0}`, ""},
	{"allOf extended", `{"type":"integer"}`, `{"allOf":[{"type":"integer"},{"minimum":0}]}`, "minimum_raised"},
	{"not", `{"not":{"type":["string","null"]}}`, `{"not":{"type":"string"}}`, ""},
	{"not extended", `{"type":["string","null"],"not":{"const":"a"}}`, `{"not":{"type":"string"}}`, "not_extended"},
	{"condition kept", `{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"if":{"required":["a"]},"then":{"required":["b"]},"title":"x"}`, ""},
	{"condition added", `{"type":"object"}`, `{"if":{"required":["a"]},"then":{"required":["b"]}}`, "condition_changed"},
	{"references", `{"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}}`, `{"$ref":"#/definitions/b","definitions":{"b":{"type":"number"}}}`, ""},
	{"beside a reference in draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{}},"$ref":"#/definitions/a","type":"string"}`, `{"type":"string"}`, "type_narrowed"},
	{"anchors", `{"type":"integer"}`, `{"$ref":"#n","$defs":{"x":{"$anchor":"n","type":"number"}}}`, ""},
	{"embedded resources", `{"type":"integer"}`, `{"$ref":"https://example.com/n","$defs":{"x":{"$id":"https://example.com/n","type":"number"}}}`, ""},
	{"reference to nothing", `{"type":"integer"}`, `{"$ref":"https://example.com/absent"}`, "reference_unresolved"},
	{
		"recursion", `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/n"}},"additionalProperties":false}}}`,
		`{"$ref":"#/$defs/m","$defs":{"m":{"type":"object","properties":{"v":{"type":"number"},"next":{"$ref":"#/$defs/m"}},"additionalProperties":false}}}`, "",
	},
	{
		"recursion that fails below", `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":"number"}},"additionalProperties":false}}}`,
		`{"$ref":"#/$defs/m","$defs":{"m":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/m"},{"type":"null"}]},"v":{"type":"integer"}},"additionalProperties":false}}}`, "union_narrowed type_narrowed",
	},
	{"unevaluated", `{"type":"object","properties":{"a":{}},"additionalProperties":false}`, `{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, ""},
	{"unevaluated, alone", `{"properties":{"a":{}},"unevaluatedProperties":{"type":"string"}}`, `{"properties":{"a":{},"b":{"type":"string"}},"unevaluatedProperties":{"type":"string"}}`, ""},
	{"unevaluated, alone, narrowed", `{"properties":{"a":{}}}`, `{"properties":{"a":{}},"unevaluatedProperties":false}`, "additional_properties_removed"},
	{"unevaluated items, alone", `{"prefixItems":[{"type":"string"},{}],"unevaluatedItems":{"type":"string"}}`, `{"prefixItems":[{"type":"string"},{},{"type":"string"}],"unevaluatedItems":{"type":"string"}}`, ""},
	{"unevaluated items beside contains", `{"contains":{"type":"integer"},"unevaluatedItems":{"type":"string"}}`, `{"items":{"type":"string"}}`, "type_narrowed"},
	{"unevaluated, removed", `{"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false}`, `{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, "property_removed_from_closed_model"},
}

func TestPairs(t *testing.T) {
	for _, p := range pairs {
		if got := ids(Compare(Logical, js(p.writer), js(p.reader))); got != p.want {
			t.Errorf("%s: got %q, want %q: %v", p.name, got, p.want, Compare(Logical, js(p.writer), js(p.reader)))
		}
		for _, s := range []string{p.writer, p.reader} {
			// A title makes the texts differ, so that the comparison is not cut short.
			titled := strings.Replace(s, "{", `{"title":"t",`, 1)
			if strings.HasPrefix(s, "{") && s != "{}" && !strings.Contains(s, "absent") {
				if ds := Compare(Logical, js(s), js(titled)); len(ds) > 0 {
					t.Errorf("%s: a schema is incompatible with itself: %v", p.name, ds)
				}
			}
		}
	}
}

// Lenient takes for granted that writers write no undeclared properties: what a
// branch declares is declared.
func TestLenientMindsWhatBranchesDeclare(t *testing.T) {
	for _, key := range []string{"oneOf", "anyOf"} {
		writer := js(`{"` + key + `":[{"properties":{"a":{"type":"string"}}},{"properties":{"a":{"type":"null"}}}]}`)
		for reader, want := range map[string]string{
			`{"properties":{"a":{"type":["integer","null"]}}}`:                                               "type_narrowed",
			`{"` + key + `":[{"properties":{"a":{"type":"integer"}}},{"properties":{"a":{"type":"null"}}}]}`: "union_narrowed",
			`{"properties":{"a":{"type":["string","null"]},"b":{"type":"integer"}}}`:                         "",
		} {
			if got := ids(Compare(Lenient, writer, js(reader))); got != want {
				t.Errorf("%s %s: %q, want %q", key, reader, got, want)
			}
		}
	}
}

// What one policy forgives, every more lenient one forgives.
func TestPoliciesAreNested(t *testing.T) {
	for i, a := range pairs {
		for j, b := range pairs {
			if (i+j)%23 != 0 {
				continue // these are enough
			}
			strict, lenient := len(Compare(Strict, js(a.writer), js(b.reader))), len(Compare(Lenient, js(a.writer), js(b.reader)))
			logical := len(Compare(Logical, js(a.writer), js(b.reader)))
			if (logical == 0 && strict > 0) || (strict == 0 && lenient > 0) {
				t.Errorf("%s to %s: %d, %d, %d differences", a.writer, b.reader, logical, strict, lenient)
			}
		}
	}
}

// Schemas made to take long end within the bound, with the same answer each
// time.
func TestBombs(t *testing.T) {
	branches := func(n int, format string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return `{"anyOf":[` + strings.Join(out, ",") + `]}`
	}
	nested := func(depth int, leaf string) string {
		s := leaf
		for range depth {
			s = `{"anyOf":[{"type":"object","properties":{"a":` + s + `}},{"type":"object","properties":{"b":` + s + `}}]}`
		}
		return s
	}
	doubled := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
		for i := range n {
			fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
		}
		fmt.Fprintf(&b, `"d%d":{"type":"integer"}}}`, n)
		return b.String()
	}
	unions := func(n int) string { // n unions at once: 2^n alternatives
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`{"anyOf":[{"properties":{"p%d":{"type":"string"}}},{"properties":{"p%d":{"type":"integer"}}}]}`, i, i))
		}
		return `{"allOf":[` + strings.Join(out, ",") + `]}`
	}
	for name, p := range map[string][2]string{
		"30 branches":        {branches(30, `{"properties":{"k":{"const":%d}},"required":["k"]}`), branches(30, `{"properties":{"k":{"const":"%d"}},"required":["k"]}`)},
		"nested unions":      {nested(8, `{"type":"integer"}`), nested(8, `{"type":"string"}`)},
		"doubled references": {doubled(64), strings.Replace(doubled(64), `{"type":"integer"}`, `{"type":"string"}`, 1)},
		"many unions":        {unions(40), `{"properties":{"p39":{"type":"null"}}}`},
		"self reference":     {`{"$ref":"#"}`, `{"$ref":"#","type":"string"}`},
		"deep":               {strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100), strings.Repeat(`{"items":`, 100) + `{"type":"null"}` + strings.Repeat(`}`, 100)},
		"too deep":           {strings.Repeat(`{"items":`, 5000) + `{}` + strings.Repeat(`}`, 5000), `{}`},
	} {
		start := time.Now()
		first := Compare(Logical, js(p[0]), js(p[1]))
		t.Logf("%s: %v, %s", name, time.Since(start).Round(time.Millisecond), ids(first))
		if len(first) == 0 {
			t.Errorf("%s: compatible", name)
		}
		if again := Compare(Logical, js(p[0]), js(p[1])); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("%s: two answers:\n%v\n%v", name, first, again)
		}
	}
}

func TestLevels(t *testing.T) {
	v1, v2, v3 := js(`{"type":"integer"}`), js(`{"type":["integer","string"]}`), js(`{"type":["integer","string","null"]}`)
	v1.Version, v2.Version = 1, 2
	narrow := js(`{"type":"string"}`)
	for _, c := range []struct {
		level Level
		next  Schema
		want  int
	}{
		{None, narrow, 0},
		{Backward, v3, 0},
		{BackwardTransitive, v3, 0},
		{Forward, v3, 1},
		{ForwardTransitive, v3, 2},
		{Full, v3, 1},
		{FullTransitive, v3, 2},
		{Backward, narrow, 1},
		{Forward, narrow, 0},
		{ForwardTransitive, narrow, 1},
		{FullTransitive, narrow, 3},
	} {
		ds := Check(c.level, Lenient, c.next, []Schema{v1, v2})
		if len(ds) != c.want {
			t.Errorf("%s: %d reasons, want %d: %v", c.level, len(ds), c.want, ds)
		}
		for _, d := range ds {
			if d.Version == 0 || d.String() == "" {
				t.Errorf("%s: %+v", c.level, d)
			}
		}
	}
	if l, ok := ParseLevel("FULL_TRANSITIVE"); !ok || l != FullTransitive {
		t.Error(l)
	}
	if _, ok := ParseLevel("Full"); ok {
		t.Error("mixed case")
	}
}

// Many versions that are each almost too complex are not compared for ever.
func TestTotalWork(t *testing.T) {
	var unions []string
	for i := range 8 {
		unions = append(unions, fmt.Sprintf(`{"anyOf":[{"properties":{"p%d":{"type":"string"}}},{"properties":{"p%d":{"type":"integer"}}}]}`, i, i))
	}
	old, next := js(`{"allOf":[`+strings.Join(unions, ",")+`]}`), js(`{"title":"t","not":{"required":["x"]}}`)
	var earlier []Schema
	for i := range 1000 {
		old.Version = i + 1
		earlier = append(earlier, old)
	}
	ds := Check(BackwardTransitive, Logical, next, earlier)
	if len(ds) == 0 || len(ds) > maxReasons {
		t.Errorf("%d reasons", len(ds))
	}
	if again := Check(BackwardTransitive, Logical, next, earlier); fmt.Sprint(again) != fmt.Sprint(ds) {
		t.Error("two answers")
	}
}

func TestAvro(t *testing.T) {
	record := func(fields string) Schema {
		return Schema{Kind: Avro, Text: []byte(`{"type":"record","name":"R","fields":[` + fields + `]}`), Version: 1}
	}
	small := record(`{"name":"a","type":"int"}`)
	optional := record(`{"name":"a","type":"int"},{"name":"b","type":"string","default":""}`)
	required := record(`{"name":"a","type":"int"},{"name":"b","type":"string"}`)
	widened := record(`{"name":"a","type":"long"}`)
	for _, c := range []struct {
		name       string
		old, next  Schema
		back, forw int
	}{
		{"a field with a default", small, optional, 0, 0},
		{"a field without one", small, required, 1, 0},
		{"a field removed", required, small, 0, 1},
		{"a type widened", small, widened, 0, 1},
	} {
		if ds := Check(Backward, Lenient, c.next, []Schema{c.old}); len(ds) != c.back {
			t.Errorf("%s backward: %v", c.name, ds)
		}
		if ds := Check(Forward, Lenient, c.next, []Schema{c.old}); len(ds) != c.forw {
			t.Errorf("%s forward: %v", c.name, ds)
		}
	}
	if ds := Compare(Lenient, small, js(`{}`)); ids(ds) != "schema_type_changed" {
		t.Error(ds)
	}
	if err := CheckAvro([]byte(`{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}`), []Document{{Name: "R", Text: small.Text}}); err != nil {
		t.Error(err)
	}
	if err := CheckAvro([]byte(`{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}`), nil); err == nil {
		t.Error("an unknown name was accepted")
	}
}

// Long lists of values are compared in time that grows with their length, and
// a value can be added to one.
func TestLongEnums(t *testing.T) {
	list := func(from, to int) Schema {
		var text strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&text, ",%d", i)
		}
		return Schema{Kind: JSON, Text: []byte(`{"enum":[` + text.String()[1:] + `]}`)}
	}
	if ds := Check(Backward, Lenient, list(0, 16_000), []Schema{list(1, 16_000)}); len(ds) != 0 {
		t.Errorf("a value more: %v", ds)
	}
	if ds := Check(Backward, Lenient, list(1, 16_000), []Schema{list(0, 16_000)}); len(ds) != 1 || ds[0].Rule.ID != "enum_narrowed" {
		t.Errorf("a value less: %v", ds)
	}
}
