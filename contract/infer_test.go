package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/outside"
)

func TestInfer(t *testing.T) {
	got, err := Infer([]byte(`{"ticket_id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","opened":"2026-01-31T08:30:00Z","n":3,"score":1.5,"urgent":true,"note":null,
		"tags":["a","b"],"lines":[{"sku":"x","qty":1},{"sku":"y","qty":2.5,"gift":null}],"empty":[],"mixed":[1,"a",null]}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"required":["empty","lines","mixed","n","note","opened","score","tags","ticket_id","urgent"],
		"properties":{
			"empty":{"type":"array"},
			"lines":{"type":"array","items":{"type":"object","required":["qty","sku"],"properties":{"gift":{"type":"null"},"qty":{"type":"number"},"sku":{"type":"string"}}}},
			"mixed":{"type":"array","items":{"type":["null","string","integer"]}},
			"n":{"type":"integer"},"note":{"type":"null"},
			"opened":{"type":"string","format":"date-time"},"score":{"type":"number"},
			"tags":{"type":"array","items":{"type":"string"}},
			"ticket_id":{"type":"string","format":"uuid"},"urgent":{"type":"boolean"}}}`
	a, err := Canonical(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Canonical([]byte(want))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{``, `{"a":1,"a":2}`, "\"\xff\"", `1e999`} {
		_, err := Infer([]byte(bad))
		if !errors.Is(err, &headgate.Error{Code: headgate.CodeSyntax}) && headgate.CodeOf(err) != headgate.CodeSyntax {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestInferLargePayloads(t *testing.T) {
	var wide, names strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&wide, `"key%d":{"a":%d,"b":"x%d"},`, i, i, i)
		fmt.Fprintf(&names, `"%s%d":1,`, strings.Repeat("n", 900), i)
	}
	tree := "1"
	for i := range 60 {
		tree = fmt.Sprintf(`{"level%d":%s,"x":[%s]}`, i, "1", tree)
		if i > 25 {
			tree = fmt.Sprintf(`[%s]`, "1")
			break
		}
	}
	var bushy func(depth int) string
	bushy = func(depth int) string {
		if depth == 0 {
			return "1"
		}
		var sb strings.Builder
		for i := range 6 {
			fmt.Fprintf(&sb, `,"some_property_name_%d_%d":%s`, depth, i, bushy(depth-1))
		}
		return "{" + sb.String()[1:] + "}"
	}
	for name, payload := range map[string]string{
		"a map":      "{" + strings.TrimSuffix(wide.String(), ",") + "}",
		"long names": "{" + strings.TrimSuffix(names.String(), ",") + "}",
		"deep":       strings.Repeat(`{"a":[`, 32) + strings.Repeat(`]}`, 32),
		"bushy":      bushy(6),
		"tree":       tree,
	} {
		t.Run(name, func(t *testing.T) {
			schema, err := Infer([]byte(payload))
			if err != nil {
				t.Fatal(err)
			}
			if v := compileOK(t, string(schema)).Check([]byte(payload)); v != nil {
				t.Errorf("%q", brief(v))
			}
		})
	}
}

// jsonValue draws a random JSON value.
func jsonValue(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Custom(func(t *rapid.T) any { return json.Number(fmt.Sprint(rapid.Int64().Draw(t, "int"))) }),
		rapid.Custom(func(t *rapid.T) any {
			return json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?(e[+-]?[0-9]{1,2})?`).Draw(t, "num"))
		}),
		rapid.String().AsAny(),
		rapid.SampledFrom([]any{"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b", "2026-01-31T08:30:00Z", "2026-01-31", ""}),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	return rapid.OneOf(append(scalars,
		rapid.SliceOfN(jsonValue(depth-1), 0, 4).AsAny(),
		rapid.MapOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"a", "b", "$ref", "properties", "a/b"})), jsonValue(depth-1), 0, 4).AsAny(),
	)...)
}

// Whatever the payload, it satisfies the schema that was inferred from it.
func TestInferProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		payload, err := json.Marshal(jsonValue(4).Draw(rt, "payload"))
		if err != nil {
			rt.Fatal(err)
		}
		schema, err := Infer(payload)
		if err != nil {
			rt.Fatalf("%s: %v", payload, err)
		}
		c, _, err := Compile("draft", 1, schema, &CompileOpts{Draft: true})
		if err != nil {
			rt.Fatal(err)
		}
		if v := c.Check(payload); v != nil {
			rt.Fatalf("%s does not satisfy %s: %q", payload, schema, brief(v))
		}
		if oracleFaults(t, oracle(t, schema, false), payload) != nil {
			rt.Fatalf("the library refuses %s under %s", payload, schema)
		}
	})
}

// Real deliveries satisfy what is inferred from them.
func TestInferRealDeliveries(t *testing.T) {
	_, deliveries := webhooks(t)
	for i, w := range deliveries {
		if i%20 != 0 { // a part of them will do
			continue
		}
		schema, err := Infer(w.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if v := compileOK(t, string(schema)).Check(w.Payload); v != nil {
			t.Errorf("delivery %d: %q", i, brief(v))
		}
	}
}

// The outside parser suite, against a contract that accepts everything: what
// must be accepted is valid, what must be refused is a violation.
func TestSuiteParsing(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(outside.Suites(t, "json-parsing", "test_parsing"), "*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	c := compileOK(t, `{}`)
	refusedByPolicy := map[string]bool{ // valid JSON that may not pass
		"y_object_duplicated_key.json":           true, // a name twice
		"y_object_duplicated_key_and_value.json": true, // a name twice
		"y_number_double_close_to_zero.json":     true, // a number of more than 64 bytes
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		v := c.Check(data)
		switch {
		case refusedByPolicy[name] || name[0] == 'n':
			if v == nil {
				t.Errorf("%s is valid", name)
			}
		case name[0] == 'y' && v != nil:
			t.Errorf("%s: %+v", name, v.Violations)
		}
		if v != nil {
			checkReport(t, data, v)
		}
	}
}
