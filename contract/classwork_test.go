package contract

import (
	"encoding/json"
	"fmt"
	"testing"
)

// dearToSort are schemas whose scalars, names or arrays would take long to
// prepare if every way to a schema were gone, or every schema looked at again.
func dearToSort(t testing.TB, values int) map[string][]byte {
	t.Helper()
	enum := make([]any, values)
	texts := make([]any, values)
	many := map[string]any{}
	for i := range enum {
		enum[i], texts[i] = 1000+i, fmt.Sprint("v", i)
		many[fmt.Sprint("n", i)] = map[string]any{"type": "string"}
	}
	ref := func(name string) map[string]any { return map[string]any{"$ref": "#/$defs/" + name} }
	four := func(name string) []any { return []any{ref(name), ref(name), ref(name), ref(name)} }
	lattice := func(bottom map[string]any) map[string]any {
		defs := map[string]any{"E": bottom}
		for i := range 2 {
			below := "E"
			if i > 0 {
				below = fmt.Sprint("L", i-1)
			}
			defs[fmt.Sprint("L", i)] = map[string]any{"anyOf": four(below)}
		}
		return defs
	}
	wide := func(n int, defs map[string]any, at string) map[string]any {
		props := map[string]any{}
		for i := range n {
			props[fmt.Sprint("p", i)] = map[string]any{"anyOf": append(four(at), map[string]any{"const": i})}
		}
		return map[string]any{"properties": props, "$defs": defs}
	}
	out := map[string][]byte{}
	for name, schema := range map[string]any{
		"numbers":  wide(1, lattice(map[string]any{"enum": enum}), "L1"),
		"texts":    wide(1, lattice(map[string]any{"enum": texts}), "L1"),
		"repeated": wide(30, map[string]any{"L": map[string]any{"anyOf": []any{map[string]any{"enum": enum}, map[string]any{"enum": texts}}}}, "L"),
		"patterns": wide(40, map[string]any{"L": map[string]any{"anyOf": []any{
			map[string]any{"pattern": "(a|b|c)*d$"}, map[string]any{"enum": texts}, map[string]any{"format": "regex"},
		}}}, "L"),
		"objects": wide(60, map[string]any{"O": map[string]any{"type": "object", "properties": many}}, "O"),
	} {
		text, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = text
	}
	return out
}

// TestPreparingIsBounded counts what is prepared beside the schemas, whatever
// they are: more than is afforded is never done.
func TestPreparingIsBounded(t *testing.T) {
	for name, schema := range dearToSort(t, 1990) {
		t.Run(name, func(t *testing.T) {
			c, _, err := Compile("prepared", 1, schema, &CompileOpts{Draft: true})
			if err != nil {
				t.Fatal(err)
			}
			if done, limit := c.prog.prepared, spareWork(len(schema)); done > limit {
				t.Errorf("%d schemas were asked, more than %d", done, limit)
			}
			plain, _, err := Compile("plain", 1, schema, &CompileOpts{Draft: true, hooks: compileHooks{plain: true}})
			if err != nil {
				t.Fatal(err)
			}
			for _, payload := range []string{`{"p0":0}`, `{"p0":1001}`, `{"p0":"v7"}`, `{"p0":{"n1":"x"}}`, `{"p0":null}`, `{"p0":{"n1":1}}`} {
				want, got := plain.Check([]byte(payload)), c.Check([]byte(payload))
				if (want == nil) != (got == nil) {
					t.Errorf("%s: %v, and %v where nothing is prepared", payload, got, want)
				}
			}
		})
	}
}
