package contract

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// randomRow writes schemas that stand side by side, and values that they have
// something to say about.
type randomRow struct{ rng *rand.Rand }

func (r randomRow) of(list ...string) string { return draw(r.rng, list) }

func (r randomRow) name() string { return fmt.Sprint("k", r.rng.IntN(6)) }

func (r randomRow) scalar() string {
	return r.of(`{"minimum":2}`, `{"type":"integer"}`, `{"type":"string"}`, `{"maxLength":2}`, `{"const":1}`, `{"enum":["a",1,null]}`, `{"pattern":"^a"}`, `true`, `false`, `{"type":"object"}`, `{"not":{"type":"string"}}`)
}

func (r randomRow) names(n int) string {
	var out []string
	for range 1 + r.rng.IntN(n) {
		out = append(out, `"`+r.name()+`"`)
	}
	return "[" + strings.Join(out, ",") + "]"
}

// part is one keyword, or a few that belong together.
func (r randomRow) part(depth int) string {
	switch n := r.rng.IntN(22); n {
	case 0, 1, 2:
		return fmt.Sprintf(`"properties":{%q:%s,"a%s":%s}`, r.name(), r.scalar(), r.name(), r.scalar())
	case 3, 4:
		return fmt.Sprintf(`"patternProperties":{%q:%s}`, r.of("^k1", "k", "2$", "^[a-k]*3"), r.scalar())
	case 5:
		return `"propertyNames":` + r.of(`{"maxLength":1}`, `{"maxLength":2}`, `{"pattern":"^k"}`, `{"enum":["k1","k2"]}`, `{"minLength":1}`)
	case 6:
		return `"dependentRequired":{"` + r.name() + `":` + r.names(2) + `}`
	case 7:
		return `"dependentSchemas":{"` + r.name() + `":{"` + r.of("min", "max") + `Properties":2}}`
	case 8:
		return `"required":` + r.names(1)
	case 9:
		return `"additionalProperties":` + r.scalar()
	case 10:
		return fmt.Sprintf(`"%sProperties":%d`, r.of("min", "max"), r.rng.IntN(3))
	case 11:
		return `"type":` + r.of(`"object"`, `["object","array"]`, `"integer"`, `["number","string","null"]`)
	case 12:
		return `"unevaluatedProperties":` + r.of(`false`, `{"type":"integer"}`)
	case 13:
		return r.of(`"items":`, `"contains":`, `"unevaluatedItems":`) + r.scalar()
	case 14:
		return `"not":` + r.scalar()
	case 15:
		return `"if":{"required":["` + r.name() + `"]},"then":` + r.scalar()
	case 16:
		return r.of(`"minLength":2`, `"format":"date"`, `"pattern":"^b"`, `"pattern":"a"`, `"pattern":"^[ab]"`, `"multipleOf":2`, `"const":{"k1":1}`)
	case 17, 18:
		return `"$ref":"#/$defs/d` + fmt.Sprint(r.rng.IntN(3)) + `"`
	}
	if depth == 0 {
		return `"title":"t"`
	}
	return fmt.Sprintf(`%q:%s`, r.of("allOf", "anyOf", "oneOf"), r.row(1+r.rng.IntN(5), depth-1))
}

func (r randomRow) schema(depth int) string {
	if r.rng.IntN(30) == 0 {
		return r.of("true", "false", "{}")
	}
	parts := map[string]bool{}
	var out []string
	for range 1 + r.rng.IntN(2) {
		p := r.part(depth)
		if key := p[:strings.IndexByte(p, ':')]; !parts[key] {
			parts[key] = true
			out = append(out, p)
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

func (r randomRow) row(n, depth int) string {
	var out []string
	for range n {
		out = append(out, r.schema(depth))
	}
	return "[" + strings.Join(out, ",") + "]"
}

// contract has a row of four to ten schemas, with something around them.
func (r randomRow) contract() string {
	row := fmt.Sprintf(`%q:%s`, r.of("allOf", "anyOf", "oneOf"), r.row(4+r.rng.IntN(7), 1))
	around := ""
	if r.rng.IntN(3) == 0 {
		around = r.of(`"unevaluatedProperties":false,`, `"unevaluatedItems":false,`, `"properties":{"k1":{"type":"integer"}},"additionalProperties":false,`)
	}
	return fmt.Sprintf(`{%s%s,"$defs":{"d0":%s,"d1":%s,"d2":%s}}`, around, row, r.of(`{"properties":{"k1":{"maximum":3}}}`, `true`), r.of(`{"type":"object","allOf":[{"properties":{"k2":false}}]}`, `{"minProperties":1}`), `{"patternProperties":{"4":{"type":"integer"}}}`)
}

func (r randomRow) value(depth int) string {
	n := r.rng.IntN(12)
	switch {
	case depth == 0 || n < 2:
		return r.of(`1`, `2`, `3.5`, `"a"`, `"2024-01-01"`, `"bbb"`, `null`, `true`, `[]`, `{}`)
	case n < 4:
		return "[" + r.value(0) + "," + r.value(depth-1) + "]"
	}
	var out []string
	for i := range 6 {
		if r.rng.IntN(3) == 0 {
			out = append(out, fmt.Sprintf(`%q:%s`, fmt.Sprint(r.of("k", "k", "k", "ak", "x"), i), r.value(depth-1)))
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

// What is found out about schemas side by side changes no verdict and no
// report.
func TestSchemasSideBySide(t *testing.T) {
	rounds := 1500
	switch {
	case os.Getenv("HEADGATE_CAMPAIGN") == "1":
		rounds = 100_000
	case raceEnabled:
		rounds = 100
	}
	r := randomRow{rand.New(rand.NewPCG(71, 72))}
	compiled, refused, cases := 0, 0, 0
	for range rounds {
		schema, pol := r.contract(), Policy{CloseObjects: r.rng.IntN(4) == 0}
		c, _, err := Compile("test", 1, []byte(schema), &CompileOpts{Policy: pol})
		if err != nil {
			continue // a reference that leads back, or names that are told twice
		}
		plain, _, err := Compile("test", 1, []byte(schema), &CompileOpts{Policy: pol, hooks: compileHooks{plain: true}})
		if err != nil {
			t.Fatal(err)
		}
		compiled++
		library := oracle(t, []byte(schema), false)
		for range 20 {
			text := []byte(r.value(2))
			sameEngines(t, schema, c, text)
			got, want := c.Check(text), plain.Check(text)
			if a, b := encode(t, got), encode(t, want); string(a) != string(b) {
				t.Fatalf("%s on %s:\n%s\n%s", schema, text, a, b)
			}
			if ok := library.Validate(decode(t, text)) == nil; !pol.CloseObjects && ok != (got == nil) {
				t.Fatalf("%s on %s: the library says %v", schema, text, ok)
			}
			cases++
			if got != nil {
				refused++
			}
		}
	}
	t.Logf("%d contracts of %d, %d of %d payloads refused", compiled, rounds, refused, cases)
	if compiled < rounds*3/4 || refused < cases/5 || refused > cases*9/10 {
		t.Error("that says little")
	}
}
