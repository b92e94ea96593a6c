package contract

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func strictOf(t testing.TB, schema string) *StrictExport {
	t.Helper()
	x, err := compileOK(t, schema).Strict(nil)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return x
}

func TestStrictExport(t *testing.T) {
	const object = `"type":"object","additionalProperties":false,`
	for _, c := range []struct{ schema, want, losses string }{
		{
			`{` + object + `"properties":{"a":{"type":"string"},"b":{"type":"integer","minimum":1}},"required":["a"]}`,
			`{` + object + `"properties":{"a":{"type":"string"},"b":{"type":["integer","null"],"minimum":1}},"required":["a","b"]}`, "",
		},
		{
			`{` + object + `"properties":{"a":{"type":"object"},"n":{"type":["string","null"]}}}`,
			`{` + object + `"properties":{"a":{"anyOf":[{` + object + `"properties":{},"required":[]},{"type":"null"}]},"n":{"type":["string","null"]}},"required":["a","n"]}`,
			"narrowed additionalProperties",
		},
		{
			`{` + object + `"properties":{"s":{"type":"string","minLength":1,"maxLength":9}},"required":["s"]}`,
			`{` + object + `"properties":{"s":{"type":"string","pattern":"^[\\s\\S]{1,9}$"}},"required":["s"]}`, "",
		},
		{
			`{` + object + `"properties":{"s":{"type":"string","pattern":"^a","maxLength":9,"format":"uri"}},"required":["s"]}`,
			`{` + object + `"properties":{"s":{"type":"string","pattern":"^a"}},"required":["s"]}`, "loosened format, loosened maxLength",
		},
		{
			`{` + object + `"properties":{"l":{"type":"array","items":{"$ref":"#/definitions/x"},"uniqueItems":true}},"required":["l"],"definitions":{"x":{"enum":["a","b"]}}}`,
			`{` + object + `"properties":{"l":{"type":"array","items":{"$ref":"#/$defs/x"}}},"required":["l"],"$defs":{"x":{"type":"string","enum":["a","b"]}}}`,
			"loosened uniqueItems",
		},
		{
			`{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"boolean"}},"required":["b"]}],"unevaluatedProperties":false}`,
			`{` + object + `"properties":{"a":{"type":"string"},"b":{"type":"boolean"}},"required":["a","b"]}`, "narrowed additionalProperties",
		},
		{
			`{` + object + `"properties":{"p":` + pets + `},"required":["p"]}`,
			`{` + object + `"properties":{"p":{"anyOf":[
				{` + object + `"properties":{"kind":{"type":"string","enum":["cat"]},"meow":{"type":"boolean"}},"required":["kind","meow"]},
				{` + object + `"properties":{"kind":{"type":"string","enum":["dog"]},"bark":{"type":"boolean"}},"required":["bark","kind"]}]}},"required":["p"]}`, "",
		},
		{
			`{` + object + `"properties":{"x":{"oneOf":[{"type":"integer"},{"type":"number"}]}},"required":["x"]}`,
			`{` + object + `"properties":{"x":{"anyOf":[{"type":"integer"},{"type":"number"}]}},"required":["x"]}`, "loosened oneOf",
		},
		{
			`{` + object + `"properties":{"x":{}},"required":["x"],"not":{"required":["y"]}}`,
			`{` + object + `"properties":{"x":{"type":["string","number","boolean","null"]}},"required":["x"]}`, "loosened not, narrowed ",
		},
		{
			`{"$schema":"http://json-schema.org/draft-04/schema#",` + object + `"properties":{"x":{"type":"number","minimum":1,"exclusiveMinimum":true}},"required":["x"]}`,
			`{` + object + `"properties":{"x":{"type":"number","exclusiveMinimum":1}},"required":["x"]}`, "",
		},
		{
			`{"$ref":"#/$defs/tree","$defs":{"tree":{` + object + `"properties":{"next":{"$ref":"#/$defs/tree"}}}}}`,
			`{` + object + `"properties":{"next":{"anyOf":[{"$ref":"#/$defs/tree"},{"type":"null"}]}},"required":["next"],
			  "$defs":{"tree":{` + object + `"properties":{"next":{"anyOf":[{"$ref":"#/$defs/tree"},{"type":"null"}]}},"required":["next"]}}}`, "",
		},
	} {
		x := strictOf(t, c.schema)
		got, err1 := Canonical(sortRequired(t, x.Schema))
		want, err2 := Canonical(sortRequired(t, []byte(c.want)))
		if err1 != nil || err2 != nil || string(got) != string(want) {
			t.Errorf("%s\n got %s\nwant %s", c.schema, got, want)
		}
		var losses []string
		for _, l := range x.Losses {
			losses = append(losses, string(l.Effect)+" "+l.Keyword)
		}
		slices.Sort(losses)
		if got := strings.Join(losses, ", "); got != c.losses {
			t.Errorf("%s: losses %q, want %q", c.schema, got, c.losses)
		}
		if x.Exact() != !strings.Contains(c.losses, "loosened") || len(x.Exceeds) > 0 {
			t.Errorf("%s: %+v", c.schema, x)
		}
	}
}

// sortRequired orders the lists that are sets.
func sortRequired(t testing.TB, schema []byte) []byte {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if list, ok := v["required"].([]any); ok {
				slices.SortFunc(list, func(a, b any) int {
					x, _ := a.(string)
					y, _ := b.(string)
					return strings.Compare(x, y)
				})
			}
			for _, k := range sortedKeys(v) {
				walk(v[k])
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	v := decode(t, schema)
	walk(v)
	return encode(t, v)
}

func TestStrictRefuses(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"string"}`: "the root must describe an object",
		`true`:              "the root must describe an object",
		`{"anyOf":[{"type":"object"},{"type":"null"}]}`:                                                    "the root must describe an object",
		`{"type":"object","properties":{"a":{"allOf":[{"type":"string"},{"minLength":1}]}}}`:               "allOf",
		`{"type":"object","properties":{"a":{"prefixItems":[{"type":"string"}],"type":"array"}}}`:          "tuples",
		`{"type":"object","required":["a"]}`:                                                               "not declared",
		`{"type":"object","properties":{"a":{"const":{"b":1}}}}`:                                           "fixed values",
		`{"type":"object","properties":{"a":{"$ref":"#x"}},"$defs":{"x":{"$anchor":"x","type":"string"}}}`: "of the form #/",
		`{"type":"object","properties":{"a":{"$id":"https://example.org/a","type":"string"}}}`:             "identifier of its own",
	} {
		_, err := compileOK(t, schema).Strict(nil)
		if headgate.CodeOf(err) != headgate.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", schema, err, want)
		}
	}
	x, err := compileOK(t, `{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"enum":["x","y"]}}}}}`).Strict(&StrictLimits{Properties: 1, Depth: 1, EnumValues: 1, Characters: 1})
	if err != nil || len(x.Exceeds) != 4 {
		t.Errorf("%+v %v", x, err)
	}
}

// generate makes a document of a strict schema at random.
func generate(rng *rand.Rand, root map[string]any, schema map[string]any, depth int) any {
	if ref, ok := schema["$ref"].(string); ok {
		target, _ := lookupPointer(root, strings.TrimPrefix(ref, "#"))
		obj, _ := target.(map[string]any)
		return generate(rng, root, obj, depth+1)
	}
	if list, ok := schema["enum"].([]any); ok {
		return draw(rng, list)
	}
	if list, ok := schema["anyOf"].([]any); ok {
		if depth > 12 { // null is the last one, where it is one
			return generate(rng, root, list[len(list)-1].(map[string]any), depth+1)
		}
		return generate(rng, root, draw(rng, list).(map[string]any), depth+1)
	}
	name, ok := schema["type"].(string)
	if list, isList := schema["type"].([]any); !ok && isList {
		name = draw(rng, list).(string)
	}
	switch name {
	case "object":
		out := map[string]any{}
		props, _ := schema["properties"].(map[string]any)
		for _, k := range sortedKeys(props) {
			out[k] = generate(rng, root, props[k].(map[string]any), depth+1)
		}
		return out
	case "array":
		n := rng.IntN(4)
		if depth > 12 {
			n = 0
		}
		n = max(n, min(countOf(schema["minItems"], 0), 20))
		out := make([]any, n)
		for i := range out {
			out[i] = generate(rng, root, schema["items"].(map[string]any), depth+1)
		}
		return out
	case "string":
		switch schema["format"] {
		case "uuid":
			return "0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"
		case "date-time":
			return "2026-02-03T04:05:06Z"
		case "date":
			return "2026-02-03"
		case "email":
			return "a@example.org"
		}
		return draw(rng, []string{"", "x", "abc", "ABC-1", "https://example.org/", "0190a1b2", "12", "é😀", "refs/heads/main", "T-1", "a b"})
	case "integer":
		return json.Number(draw(rng, []string{"0", "1", "2", "7", "50", "-3", "1000"}))
	case "number":
		return json.Number(draw(rng, []string{"0", "1", "2.5", "7", "50", "-3.25", "1000"}))
	case "boolean":
		return rng.IntN(2) == 0
	}
	return nil
}

// TestStrictDocumentsAreValid holds the promise of the export: what is valid
// under it, and mapped back, is valid under the contract, unless a loss says
// that the contract asks for more.
func TestStrictDocumentsAreValid(t *testing.T) {
	each, step := 150, 48
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		each, step = 500, 1
	}
	if raceEnabled {
		each = 15
	}
	var exports, exact, documents, narrowed int
	rng := rand.New(rand.NewPCG(3, 4))
	run := func(c *Contract) {
		x, err := c.Strict(nil)
		if err != nil {
			return
		}
		exports++
		if x.Exact() {
			exact++
		}
		root, _ := decode(t, x.Schema).(map[string]any)
		for range each {
			doc := encode(t, generate(rng, root, root, 0))
			if x.back.Check(doc) != nil {
				continue
			}
			documents++
			back := x.Back(doc)
			if v := c.Check(back); v != nil && x.Exact() {
				t.Fatalf("%s\nexport %s\ndocument %s\nback %s\n%v", c.ref, x.Schema, clip(string(doc), 600), clip(string(back), 600), brief(v))
			}
			if string(back) != string(doc) {
				narrowed++
			}
		}
	}
	for _, s := range sampleSchemas(t) {
		c, _, err := Compile(s.Name, 1, s.Schema, nil)
		if err != nil {
			t.Fatal(err)
		}
		run(c)
	}
	run(compileOK(t, repairSchema))
	for _, s := range realSubjects(t, step) {
		run(s.contract)
	}
	t.Logf("%d exports, %d exact; %d documents, %d of them with nulls taken out", exports, exact, documents, narrowed)
	if !raceEnabled && (exports < 20 || exact < 10 || documents < 1000 || narrowed < 200) {
		t.Errorf("%d exports, %d exact, %d documents, %d mapped say little", exports, exact, documents, narrowed)
	}
}
