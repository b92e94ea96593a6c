package contract

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/internal/jsontext"
	"github.com/headgate/headgate/internal/outside"
)

// mutate changes a decoded payload at one random place.
func mutate(rng *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		keys := sortedKeys(v)
		if len(keys) > 0 && rng.IntN(4) > 0 {
			k := keys[rng.IntN(len(keys))]
			switch rng.IntN(6) {
			case 0:
				delete(v, k)
			case 1:
				v[k+"x"] = v[k]
				delete(v, k)
			default:
				v[k] = mutate(rng, v[k])
			}
			return v
		}
		if rng.IntN(2) == 0 {
			v["invented"] = scalarFrom(rng)
			return v
		}
	case []any:
		if len(v) > 0 && rng.IntN(4) > 0 {
			i := rng.IntN(len(v))
			switch rng.IntN(5) {
			case 0:
				return append(v[:i:i], v[i+1:]...)
			case 1:
				return append(v, v[i])
			default:
				v[i] = mutate(rng, v[i])
				return v
			}
		}
	case string:
		if v != "" && rng.IntN(2) == 0 {
			r := []rune(v)
			i := rng.IntN(len(r))
			r[i] = []rune("aZ0-:é😀 \x00")[rng.IntN(9)]
			return string(r)
		}
	}
	return scalarFrom(rng)
}

func scalarFrom(rng *rand.Rand) any {
	return []any{
		nil, true, false, "", "x", "2026-02-30T25:00:00Z", "https://example.org", "0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		json.Number("0"), json.Number("-1"), json.Number("1.0"), json.Number("1e2"), json.Number("1.5"), json.Number("9007199254740993"),
		json.Number("1e400"), json.Number("-0"),
		[]any{},
		map[string]any{},
		[]any{nil, nil},
		map[string]any{"a": "b"},
	}[rng.IntN(20)]
}

func decode(t testing.TB, data []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// agree compares a verdict with the library's.
func agree(t testing.TB, name string, c *Contract, s *jsonschema.Schema, payload []byte) {
	t.Helper()
	v := c.Check(payload)
	sameEngines(t, name, c, payload)
	want := s.Validate(decode(t, payload))
	if (v == nil) != (want == nil) {
		t.Errorf("%s on %s: verdict %q, library %v", name, clip(string(payload), 300), brief(v), want)
	}
	if v != nil {
		checkReport(t, payload, v)
	}
}

// Real deliveries, changed at random, get the library's verdict.
func TestDifferentialRealDeliveries(t *testing.T) {
	document, deliveries := webhooks(t)
	defs := definitionsOf(t, document)
	compileOracle := documentOracle(t, document, false)
	src, err := readSource(document)
	if err != nil {
		t.Fatal(err)
	}
	rounds, step := 8, 8 // every eighth delivery
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds, step = 100, 1
	}
	rng := rand.New(rand.NewPCG(1, 2))
	type pair struct {
		c *Contract
		s *jsonschema.Schema
	}
	pairs := map[string]pair{}
	n := 0
	for i, w := range deliveries {
		if i%step != 0 {
			continue
		}
		ptr := w.pointer(defs)
		p, ok := pairs[ptr]
		if !ok {
			bundle, err := src.bundle(ptr)
			if err != nil {
				t.Fatal(err)
			}
			p = pair{compileOK(t, string(bundle)), compileOracle(ptr)}
			pairs[ptr] = p
		}
		for range rounds {
			v := decode(t, w.Payload)
			for range 1 + rng.IntN(3) {
				v = mutate(rng, v)
			}
			agree(t, ptr, p.c, p.s, encode(t, v))
			n++
		}
	}
	t.Logf("%d changed deliveries", n)
}

// The schemas of the outside suite, over changed instances of theirs.
func TestDifferentialSuite(t *testing.T) {
	rounds := 3
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds = 500
	}
	rng := rand.New(rand.NewPCG(3, 4))
	schemas, n := 0, 0
	for _, d := range suiteDrafts {
		files, err := filepath.Glob(filepath.Join(outside.Suites(t, "json-schema", "tests", d.dir), "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var groups []suiteGroup
			if err := json.Unmarshal(data, &groups); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				schema := withDialect(t, g.Schema, d.draft)
				c, _, err := Compile("t", 1, schema, nil)
				if err != nil {
					continue // refers to remotes, or lists formats that we refuse
				}
				schemas++
				s := oracle(t, schema, false)
				for _, tc := range g.Tests {
					for range rounds {
						v := mutate(rng, decode(t, tc.Data))
						agree(t, filepath.Base(path)+" "+g.Description, c, s, encode(t, v))
						n++
					}
				}
			}
		}
	}
	if schemas < 1000 {
		t.Errorf("only %d schemas", schemas)
	}
	t.Logf("%d schemas, %d instances", schemas, n)
}

// withDialect names the draft in a schema that names none.
func withDialect(t testing.TB, schema []byte, draft int) []byte {
	t.Helper()
	obj, ok := decode(t, schema).(map[string]any)
	if !ok || obj["$schema"] != nil {
		return schema
	}
	obj["$schema"] = libraryDraft(draft).String()
	return encode(t, obj)
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		`{}`, `true`, `{"$ref":"#"}`, `{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"enum":[1,"a",null]}}}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://a/b","minimum":1,"exclusiveMinimum":true}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"items":{"$recursiveRef":"#"}}`,
		`{"$id":"a","$dynamicAnchor":"n","items":{"$dynamicRef":"#n"}}`, `{"pattern":"(?=a)"}`, `{"format":"uuid"}`,
		chain(5, `{"allOf":[NEXT,NEXT]}`), pets, petsUntagged, `{"$defs":{"a":{"$id":"b","$anchor":"c"}},"$ref":"b#c"}`,
	} {
		f.Add([]byte(s), []byte(`{"a":[1,"x",null]}`), false)
		f.Add([]byte(s), []byte(`{"a":[1,"x",null]}`), true)
	}
	for _, s := range dearToSort(f, 100) {
		f.Add(s, []byte(`{"p0":1001}`), false)
	}
	f.Fuzz(func(t *testing.T, schema, payload []byte, closing bool) {
		if len(schema) > 8192 || len(payload) > 4096 {
			return
		}
		c, _, err := Compile("fuzz", 1, schema, &CompileOpts{Policy: Policy{CloseObjects: closing}})
		if err != nil {
			return
		}
		if c.Cost() > MaxVisits {
			t.Errorf("cost %d", c.Cost())
		}
		v := c.Check(payload)
		if v != nil {
			checkReport(t, payload, v)
		}
		if closing && v == nil { // closing only ever refuses more
			open, _, err := Compile("fuzz", 1, schema, nil)
			if err != nil {
				t.Fatalf("the policy decides whether a schema compiles: %v", err)
			}
			if w := open.Check(payload); w != nil {
				t.Errorf("valid with closed objects alone: %q", brief(w))
			}
		}
		again, _, err := Compile("fuzz", 1, schema, &CompileOpts{Policy: Policy{CloseObjects: closing}})
		if err != nil {
			t.Fatalf("compiled once, refused the second time: %v", err)
		}
		if a, b := encode(t, v), encode(t, again.Check(payload)); !bytes.Equal(a, b) || again.Ref() != c.Ref() {
			t.Errorf("two verdicts:\n%s\n%s", a, b)
		}
	})
}

func FuzzCheck(f *testing.F) {
	for _, s := range [][2]string{
		{`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","multipleOf":0.5}}}`, `{"a":1e2}`},
		{pets, `{"kind":"dog","bark":true}`},
		{petsUntagged, `{"meow":true,"lives":9.0}`},
		{`{"uniqueItems":true,"contains":{"const":{"a":[1]}}}`, `[{"a":[1.0]},{"a":[1]}]`},
		{`{"allOf":[{"properties":{"a":true}}],"anyOf":[{"properties":{"b":{"type":"string"}}},{"required":["c"]}],"unevaluatedProperties":false}`, `{"a":1,"b":"x","c":2}`},
		{`{"prefixItems":[{"type":"string"}],"contains":{"type":"number"},"unevaluatedItems":{"type":"null"}}`, `["a",1,null]`},
		{`{"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]},"else":{"propertyNames":{"maxLength":2}}}`, `{"a":1}`},
		{`{"patternProperties":{"^x":{"enum":[[1],{"a":null}]}},"additionalProperties":{"format":"date-time"}}`, `{"x1":[1.0],"y":"2026-01-01T00:00:00Z"}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false,"dependencies":{"a":["b"]}}`, `["a",1]`},
		{`{"$schema":"http://json-schema.org/draft-06/schema#","$ref":"#/definitions/a","const":1,"definitions":{"a":{"minLength":2}}}`, `"ab"`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, schema, payload []byte) {
		if len(schema) > 4096 || len(payload) > 4096 {
			return
		}
		c, _, err := Compile("fuzz", 1, schema, nil)
		if err != nil {
			return
		}
		v := c.Check(payload)
		if jsontext.Check(payload, c.policy.limits()) != nil {
			if v == nil {
				t.Error("a payload that breaks the policy is valid")
			}
			return
		}
		if v != nil && v.Violations[0].Code == "too_complex" {
			return
		}
		s, err := oracleCompile(schema, false)
		if err != nil {
			if strings.Contains(err.Error(), "regex") {
				return // an ECMA pattern that the library alone would take otherwise
			}
			t.Fatalf("the library refuses what was compiled: %v", err)
		}
		agree(t, string(schema), c, s, payload)
	})
}

func FuzzInfer(f *testing.F) {
	for _, s := range []string{
		`{"ticket_id":"T-1"}`, `[]`, `null`, `[1,2.5,"a",null,{"a":1},{"b":[]}]`, `{"":{"":{"":[[[]]]}}}`,
		`{"id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","at":"2026-01-31T08:30:00Z","on":"2026-01-31","n":1e2}`,
		`{"a/b":1,"c~d":2,"$ref":"#","$id":"x","\u0000":3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 1<<16 {
			return
		}
		schema, err := Infer(payload)
		if fault := jsontext.Check(payload, Policy{}.limits()); (fault == nil) != (err == nil) {
			t.Fatalf("policy %v, infer %v", fault, err)
		}
		if err != nil {
			return
		}
		c, _, err := Compile("draft", 1, schema, &CompileOpts{Draft: true})
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		if v := c.Check(payload); v != nil {
			t.Errorf("%s does not satisfy %s: %q", payload, schema, brief(v))
		}
	})
}

func FuzzBundle(f *testing.F) {
	f.Add([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"$ref":"#/definitions/b"},"b":{"items":{"$ref":"#/definitions/a"}}}}`), "/definitions/a", []byte(`[[]]`))
	f.Add([]byte(`{"$defs":{"a":{"properties":{"x":{"$ref":"#/$defs/b/items/0"}}},"b":{"items":[{"type":"string"}]}}}`), "/$defs/a", []byte(`{"x":1}`))
	f.Add([]byte(`{"$defs":{"a":{"$anchor":"q","anyOf":[{"type":"null"},{"items":{"$ref":"#q"}}]}},"items":{"$ref":"#"}}`), "/$defs/a", []byte(`[null]`))
	f.Fuzz(func(t *testing.T, document []byte, pointer string, payload []byte) {
		if len(document) > 4096 || len(payload) > 1024 {
			return
		}
		bundle, err := Bundle(document, pointer)
		if err != nil {
			return
		}
		c, _, err := Compile("fuzz", 1, bundle, nil)
		if err != nil || jsontext.Check(payload, c.policy.limits()) != nil {
			return
		}
		lib := jsonschema.NewCompiler()
		lib.AssertFormat()
		lib.UseLoader(refuseLoader{})
		for _, fm := range libraryFormats() {
			lib.RegisterFormat(fm)
		}
		if err := lib.AddResource(rootURL, decode(t, document)); err != nil {
			t.Fatal(err)
		}
		s, err := lib.Compile(rootURL + "#" + encodeFragment(pointer))
		if err != nil {
			return
		}
		agree(t, string(document)+" at "+pointer, c, s, payload)
	})
}
