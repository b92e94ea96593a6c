package contract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// nestedShape is a contract under whose unions values nest, and what opens and
// ends a level of them.
type nestedShape struct {
	schema, open, core, end string
	closed                  bool
}

func nestedShapes() map[string]nestedShape {
	return map[string]nestedShape{
		"anyOf, arrays":            {schema: `{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"const":1}]}`, open: `[1,1,1,`, core: `2`, end: `]`},
		"oneOf, arrays":            {schema: `{"oneOf":[{"type":"array","items":{"$ref":"#"}},{"const":1}]}`, open: `[1,1,1,`, core: `2`, end: `]`},
		"anyOf, objects":           {schema: `{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}},{"const":1}]}`, open: `{"b":1,"a":`, core: `2`, end: `}`},
		"anyOf, closed objects":    {schema: `{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}},{"const":1}]}`, open: `{"b":1,"a":`, core: `2`, end: `}`, closed: true},
		"discriminated, only":      {schema: `{"oneOf":[{"type":"object","required":["t","n"],"properties":{"t":{"const":"a"},"n":{"$ref":"#"}}},{"type":"object","required":["t"],"properties":{"t":{"const":"b"},"n":{"$ref":"#"}}}]}`, open: `{"t":"a","n":`, core: `{"t":"c"}`, end: `}`},
		"nullable":                 {schema: `{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#"},{"type":"null"}]},"v":{"type":"string"}}}`, open: `{"v":"","n":`, core: `{"v":1}`, end: `}`},
		"two that call each other": {schema: `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/b"}},{"const":1}]},"b":{"oneOf":[{"type":"array","items":{"$ref":"#/$defs/a"}},{"const":1}]}}}`, open: `[1,1,`, core: `2`, end: `]`},
		"if":                       {schema: `{"if":{"type":"array","items":{"$ref":"#"}},"then":{"minItems":1},"else":{"const":1}}`, open: `[1,`, core: `2`, end: `]`},
		"not":                      {schema: `{"anyOf":[{"type":"array","items":{"not":{"not":{"$ref":"#"}}}},{"const":1}]}`, open: `[1,`, core: `2`, end: `]`},
		"contains":                 {schema: `{"anyOf":[{"type":"array","contains":{"$ref":"#"}},{"const":1}]}`, open: `[2,`, core: `2`, end: `]`},
		"dynamic":                  {schema: `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://x.example/a","$dynamicAnchor":"n","anyOf":[{"type":"array","items":{"$dynamicRef":"#n"}},{"const":1}]}`, open: `[1,`, core: `2`, end: `]`},
		"unevaluated":              {schema: `{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#"}},"unevaluatedProperties":false},{"const":1}]}`, open: `{"a":`, core: `2`, end: `}`},
		"two in a row":             {schema: `{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"const":1}]}`, open: `[2,`, core: `2`, end: `]`},
	}
}

// list is the contract of a list of such values.
func (s *nestedShape) list() string {
	if s.open[0] == '[' {
		return s.schema // which is one
	}
	return `{"items":{"$ref":"#/$defs/n"},"$defs":{"n":` + strings.ReplaceAll(s.schema, `"#"`, `"#/$defs/n"`) + `}}`
}

// fill is a payload of about so many bytes, of values so deep.
func (s *nestedShape) fill(depth, size int) string {
	one := strings.Repeat(s.open, depth) + s.core + strings.Repeat(s.end, depth)
	return "[" + strings.Repeat(one+",", size/len(one)) + one + "]"
}

// What a refusal takes grows with the payload, not with how deep it is nested:
// a union within unions is asked once for its verdict and once for its report.
func TestNestedUnionsTakeLinearWork(t *testing.T) {
	for name, s := range nestedShapes() {
		t.Run(name, func(t *testing.T) {
			c := compileOK(t, s.list(), Policy{CloseObjects: s.closed, Depth: maxDepth})
			units := func(depth int) float64 {
				payload := []byte(s.fill(depth, 10_000))
				v, d := c.refuse(payload)
				if v == nil {
					t.Fatalf("%.80s: it is valid", payload)
				}
				checkReport(t, payload, v)
				return float64(d.eval.work) / float64(len(payload))
			}
			flat := units(10)
			for _, depth := range []int{60, 500} {
				if deep := units(depth); deep > 2*flat+1 {
					t.Errorf("%d levels take %.1f units a byte, 10 levels %.1f", depth, deep, flat)
				}
			}
		})
	}
}

// BenchmarkNestedUnions shows what 10 KB of each cost.
func BenchmarkNestedUnions(b *testing.B) {
	shapes := nestedShapes()
	for _, name := range sortedKeys(shapes) {
		for _, depth := range []int{10, 60} {
			b.Run(fmt.Sprint(name, "/", depth), func(b *testing.B) {
				s := shapes[name]
				c := compileOK(b, s.list(), Policy{CloseObjects: s.closed})
				payload := []byte(s.fill(depth, 10_000))
				benchCPU(b, func() { c.Check(payload) })
				b.ReportMetric(float64(len(payload)), "bytes")
			})
		}
	}
}

// A report is the same when every union is asked for its verdict anew.
func TestMemoryOfUnionsChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 44))
	scalars := []string{`1`, `2`, `3`, `"a"`, `null`, `true`, `[]`, `{}`, `{"t":"a"}`, `{"t":"b","n":1}`, `{"a":2}`}
	names := []string{"a", "b", "n", "t", "v"}
	var value func(depth int) string
	value = func(depth int) string {
		if depth == 0 || rng.IntN(5) == 0 {
			return draw(rng, scalars)
		}
		var parts []string
		if rng.IntN(2) == 0 {
			for range rng.IntN(4) {
				parts = append(parts, value(depth-1))
			}
			return "[" + strings.Join(parts, ",") + "]"
		}
		for _, at := range rng.Perm(len(names))[:rng.IntN(4)] {
			parts = append(parts, fmt.Sprintf(`"%s":%s`, names[at], value(depth-1)))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	examine := func(c *Contract, text []byte, reports bool) (list []byte, over bool) {
		tape, fault := readTape(text, c.policy.limits(), nil)
		if fault != nil {
			t.Fatal(fault)
		}
		e := newEvaluator(c.prog, &tape)
		e.applied.on, e.reports, e.distances = true, reports, nearDistances
		rep := &report{t: &tape, e: e}
		e.decide(rep)
		rep.finish()
		found, cut := e.violations(rep)
		return append(encode(t, found), fmt.Sprint(cut)...), e.over()
	}
	each, refused := 3000, 0
	if raceEnabled {
		each = 300
	}
	for name, s := range nestedShapes() {
		for _, closed := range []bool{false, true} {
			c := compileOK(t, s.list(), Policy{CloseObjects: closed})
			for range each {
				text := []byte("[" + value(6) + "," + value(6) + "]")
				got, over := examine(c, text, true)
				want, beyond := examine(c, text, false)
				if !over && !beyond && !bytes.Equal(got, want) {
					t.Fatalf("%s, closed %v: %s\n%s\n%s", name, closed, text, got, want)
				}
				if len(got) > 6 {
					refused++
				}
			}
		}
	}
	if refused < 10*each {
		t.Errorf("%d refused", refused)
	}
}
