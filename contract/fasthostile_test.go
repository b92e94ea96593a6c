package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// hostilePayloads are shapes that are dear in naive engines, with the schema
// that makes them so. Each generator takes the size in bytes, about.
func hostilePayloads() map[string]struct {
	schema  string
	payload func(size int) string
} {
	type shape = struct {
		schema  string
		payload func(size int) string
	}
	list := func(n int, item func(i int) string) string {
		var b strings.Builder
		for i := range max(n, 1) {
			b.WriteString("," + item(i))
		}
		return b.String()[1:]
	}
	nested := func(open, inner, closing string, depth int) string {
		return strings.Repeat(open, depth) + inner + strings.Repeat(closing, depth)
	}
	branches := func(n int) string {
		return list(n, func(i int) string { return fmt.Sprintf(`{"required":["k%d"]}`, i) })
	}
	return map[string]shape{
		"undeclared names": {`{}`, func(n int) string {
			return "{" + list(n/10, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }) + "}"
		}},
		"undeclared names, escaped": {`{"additionalProperties":{"type":"integer"}}`, func(n int) string {
			return "{" + list(n/16, func(i int) string { return fmt.Sprintf(`"\u006b%d":1`, i) }) + "}"
		}},
		"many small objects": {`{"items":{"required":["a"]}}`, func(n int) string { return "[" + list(n/8, func(int) string { return `{"a":1}` }) + "]" }},
		"nested objects with many names": {`{}`, func(n int) string {
			wide := list(n/500, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) })
			return nested(`{`+wide+`,"n":`, "1", "}", 50)
		}},
		"tag at the end of every level": {`{"$ref":"#/$defs/n","$defs":{"n":{"oneOf":[{"required":["t"],"properties":{"t":{"const":"a"},"n":{"$ref":"#/$defs/n"}}},{"required":["t"],"properties":{"t":{"const":"b"},"n":{"$ref":"#/$defs/n"}}}]}}}`, func(n int) string {
			pad := strings.Repeat("x", n/60)
			return nested(`{"p":"`+pad+`","n":`, `{"t":"a"}`, `,"t":"b"}`, 60)
		}},
		"branches at every level": {`{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"n":{"$ref":"#/$defs/n"}},"anyOf":[` + branches(60) + `]}}}`, func(n int) string {
			pad := strings.Repeat("x", n/60)
			return nested(`{"p":"`+pad+`","k59":1,"n":`, `{"k59":1}`, `}`, 60)
		}},
		"branches that fail late": {`{"items":{"anyOf":[` + list(60, func(i int) string {
			return fmt.Sprintf(`{"properties":{"z":{"const":%d}},"required":["z"]}`, i)
		}) + `]}}`, func(n int) string {
			return "[" + list(n/200, func(int) string { return `{"a":"` + strings.Repeat("x", 180) + `","z":59}` }) + "]"
		}},
		"long strings": {`{"items":{"minLength":1,"maxLength":1000000,"pattern":"^[a-z]+$"}}`, func(n int) string { return `["` + strings.Repeat("a", n) + `"]` }},
		"wide strings": {`{"items":{"minLength":1,"maxLength":1000000}}`, func(n int) string { return `["` + strings.Repeat("é", n/2) + `"]` }},
		"escapes":      {`{"items":{"minLength":1,"maxLength":1000000}}`, func(n int) string { return `["` + strings.Repeat(`\u00e9`, n/6) + `"]` }},
		"pattern bomb": {`{"items":{"pattern":"^(a+)+$"}}`, func(n int) string {
			return "[" + list(n/100, func(int) string { return `"` + strings.Repeat("a", 98) + `"` }) + "]"
		}},
		"long numbers": {`{"items":{"multipleOf":0.0000001,"maximum":1e300}}`, func(n int) string {
			return "[" + list(n/61, func(i int) string { return strings.Repeat("123456789", 5) + fmt.Sprintf(".%07d", i%10000000) + "e2" }) + "]"
		}},
		"huge exponents": {`{"items":{"multipleOf":3,"minimum":1}}`, func(n int) string { return "[" + list(n/8, func(int) string { return "333e399" }) + "]" }},
		"unique numbers": {`{"uniqueItems":true}`, func(n int) string { return "[" + list(n/6, func(i int) string { return fmt.Sprint(10000 + i) }) + "]" }},
		"unique objects": {`{"uniqueItems":true}`, func(n int) string {
			return "[" + list(n/11, func(i int) string { return fmt.Sprintf(`{"a":%d}`, i) }) + "]"
		}},
		"contains, late": {`{"contains":{"required":["z"]},"minContains":1}`, func(n int) string { return "[" + list(n/6, func(int) string { return `{"a":1}` }) + `,{"z":1}]` }},
		"large enum": {`{"items":{"enum":[` + list(5000, func(i int) string { return fmt.Sprint(`"v`, i, `"`) }) + `]}}`, func(n int) string {
			return "[" + list(n/8, func(i int) string { return fmt.Sprint(`"v`, i%5000, `"`) }) + "]"
		}},
		"brackets": {`{}`, func(n int) string {
			return "[" + list(n/126, func(int) string { return nested("[", "", "]", 62) }) + "]"
		}},
		"tagged, many": {`{"items":{"oneOf":[` + list(100, func(i int) string { return fmt.Sprintf(`{"required":["t"],"properties":{"t":{"const":"t%d"}}}`, i) }) + `]}}`, func(n int) string {
			return "[" + list(n/30, func(i int) string { return fmt.Sprintf(`{"a":[1,2,3],"t":"t%d"}`, i%100) }) + "]"
		}},
		"pattern names": {`{"patternProperties":{"^a":{"type":"integer"},"b$":{"type":"integer"},"c":{"minimum":0}}}`, func(n int) string {
			return "{" + list(n/12, func(i int) string { return fmt.Sprintf(`"ac%db":1`, i) }) + "}"
		}},
		"a hundred patterns of names": {`{"patternProperties":{` + list(100, func(i int) string { return fmt.Sprintf(`"^x%d-":{"type":"integer"}`, i) }) + `}}`, func(n int) string {
			return "{" + list(n/10, func(i int) string { return fmt.Sprintf(`"y%d-z":1`, i) }) + "}"
		}},
		"a hundred endings of names": {`{"patternProperties":{` + list(100, func(i int) string { return fmt.Sprintf(`"(a|b)*%d$":{"type":"integer"}`, i) }) + `}}`, func(n int) string {
			return "{" + list(n/12, func(i int) string { return fmt.Sprintf(`"abab%d":1`, i) }) + "}"
		}},
		"patterns without an automaton": {`{"patternProperties":{` + list(100, func(i int) string { return fmt.Sprintf(`"a[ab]{12}%d$":{"type":"integer"}`, i) }) + `}}`, func(n int) string {
			return "{" + list(n/12, func(i int) string { return fmt.Sprintf(`"abab%d":1`, i) }) + "}"
		}},
		"a pattern of many strings": {`{"items":{"pattern":"^[a-z0-9]+(?:-[a-z0-9]+)*$"}}`, func(n int) string {
			return "[" + list(n/20, func(i int) string { return fmt.Sprintf(`"some-text-%07d"`, i) }) + "]"
		}},
		"regular expressions as values": {`{"items":{"format":"regex"}}`, func(n int) string {
			return "[" + list(n/30, func(int) string { return `"(a|b)*[c-x]{1,300}(d+)?"` }) + "]"
		}},
		"dependent schemas": {`{"dependentSchemas":{` + list(100, func(i int) string { return fmt.Sprintf(`"k%d":{"minProperties":%[1]d}`, i) }) + `}}`, func(n int) string {
			return "{" + list(n/10, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }) + "}"
		}},
		"dependent names": {`{"dependentRequired":{` + list(200, func(i int) string {
			return fmt.Sprintf(`"k%d":[%s]`, i, list(20, func(j int) string { return fmt.Sprintf(`"k%d"`, i+j) }))
		}) + `}}`, func(n int) string {
			return "{" + list(n/10, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }) + "}"
		}},
		"unique at every level": {`{"uniqueItems":true,"items":{"$ref":"#"}}`, func(n int) string {
			row := "[" + list(n/300, func(i int) string { return fmt.Sprint(i) }) + "]"
			for range 55 {
				row = "[" + row + "," + list(n/600, func(i int) string { return fmt.Sprintf(`"x%d"`, i) }) + "]"
			}
			return row
		}},
		"lengths of one string": {`{"items":{"anyOf":[` + list(60, func(i int) string { return fmt.Sprintf(`{"maxLength":%d}`, i) }) + `]}}`, func(n int) string {
			return `["` + strings.Repeat("é", n/2) + `"]`
		}},
		"enum of objects": {`{"items":{"enum":[` + list(2000, func(i int) string { return fmt.Sprintf(`{"a":%d,"b":[1,2]}`, i) }) + `]}}`, func(n int) string {
			return "[" + list(n/20, func(i int) string { return fmt.Sprintf(`{"b":[1,2],"a":%d}`, i%2000) }) + "]"
		}},
		"names by a rule": {`{"propertyNames":{"maxLength":30,"pattern":"^[a-z0-9]+$"}}`, func(n int) string {
			return "{" + list(n/10, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }) + "}"
		}},
		"dear patterns": {`{"items":{"anyOf":[` + list(60, func(i int) string { return fmt.Sprintf(`{"pattern":"(a|b|ab){1,40}c[a-d]{0,90}x%d$"}`, i) }) + `]}}`, func(n int) string {
			return "[" + list(n/22, func(int) string { return `"` + strings.Repeat("ab", 10) + `"` }) + "]"
		}},
		"a dear pattern and a long string": {`{"items":{"pattern":"([a-d]{0,90}){1,5}x$"}}`, func(n int) string {
			return `["` + strings.Repeat("ab", n/2) + `"]`
		}},
		"an open bracket": {`{"type":"array"}`, func(n int) string { return "[" + strings.Repeat("1,", n/2) }},
		"unevaluated, any": {`{"anyOf":[{"properties":{"k1":true}},{"properties":{"k2":true}}],"unevaluatedProperties":{"type":"number"}}`, func(n int) string {
			return "{" + list(n/9, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }) + "}"
		}},
	}
}

// The work of the fast engine is bounded by the payload's length, and grows no
// faster than it. Where it gives up, the general engine's own bound holds.
func TestFastWorkIsBounded(t *testing.T) {
	for name, h := range hostilePayloads() {
		t.Run(name, func(t *testing.T) {
			c := compileOK(t, h.schema)
			f, ok := c.engine.(*fast)
			if !ok {
				t.Fatalf("no fast engine: %s", c.ref.Why)
			}
			small, large := h.payload(10_000), h.payload(40_000)
			_, few := f.steps([]byte(small))
			accepted, many := f.steps([]byte(large))
			if many > 5*few+2000 {
				t.Errorf("%d steps for %d bytes, %d for %d", few, len(small), many, len(large))
			}
			limit := fastBudgetBase + fastBudgetPerByte*len(large)
			if f.p.hybrids == nil && many > limit+limit/8 {
				t.Errorf("%d steps of %d", many, limit)
			}
			if got := c.general().Check([]byte(large)) == nil; accepted != got && many <= limit {
				t.Errorf("accepted: %v, the general engine says %v", accepted, got)
			}
			t.Logf("%d steps for %d bytes, accepted: %v", many, len(large), accepted)
		})
	}
}

// What the general engine does for them, where the fast one gives up, is a few
// units of work for each byte.
func TestHostileWorkIsBounded(t *testing.T) {
	shapes := hostilePayloads()
	for name, perByte := range map[string]int{
		"a hundred patterns of names": 2, "a hundred endings of names": 2, "a pattern of many strings": 2,
		"regular expressions as values": 24, "dependent schemas": 4, "dependent names": 1, "unique at every level": 10,
		"lengths of one string": 1, "enum of objects": 1,
	} {
		h := shapes[name]
		for _, size := range []int{10_000, 40_000} {
			payload := h.payload(size)
			_, units, _ := work(t, compileOK(t, h.schema), payload)
			t.Logf("%s: %d units for %d bytes", name, units, len(payload))
			if units > perByte*len(payload) {
				t.Errorf("%s: %d units for %d bytes", name, units, len(payload))
			}
		}
	}
}

// BenchmarkHostile shows what 10 KB of each hostile shape cost.
func BenchmarkHostile(b *testing.B) {
	shapes := hostilePayloads()
	for _, name := range sortedKeys(shapes) {
		b.Run(name, func(b *testing.B) {
			c := compileOK(b, shapes[name].schema)
			payload := []byte(shapes[name].payload(10_000))
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			benchCPU(b, func() { c.Check(payload) })
		})
	}
}

// A schema whose merged schemas are exponentially many is left to the general
// engine before it costs much.
func TestFastCompileIsBounded(t *testing.T) {
	defs := ""
	const n = 40
	for i := range n {
		next := fmt.Sprintf(`{"$ref":"#/$defs/n%d"}`, i+1)
		if i == 0 {
			next = `{"allOf":[{"$ref":"#/$defs/n0"},{"$ref":"#/$defs/n1"}]}`
		}
		other := next
		if i == 0 {
			other = `{"$ref":"#/$defs/n0"}`
		}
		defs += fmt.Sprintf(`"n%d":{"properties":{"a":%s,"b":%s}},`, i, next, other)
	}
	schema := fmt.Sprintf(`{"$ref":"#/$defs/n0","$defs":{%s"n%d":{"type":"object"}}}`, defs, n)
	c := compileOK(t, schema)
	if c.ref.Engine != headgate.EngineFallback || !strings.Contains(c.ref.Why, "ways") {
		t.Errorf("engine %s: %q", c.ref.Engine, c.ref.Why)
	}
	payload := []byte(strings.Repeat(`{"a":`, 50) + `{}` + strings.Repeat("}", 50))
	if v := c.Check(payload); v != nil {
		t.Errorf("%+v", v.Violations)
	}
}
