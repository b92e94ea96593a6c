package contract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// hostileAvroUnions are refusals by unions of dozens of types.
func hostileAvroUnions() map[string]struct{ schema, payload string } {
	list := func(n int, form string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ","+form, i)
		}
		return b.String()[1:]
	}
	of := func(item string) string {
		return `{"type":"record","name":"Root","fields":[{"name":"list","type":{"type":"array","items":` + item + `}}]}`
	}
	repeat := func(item string) string {
		n := 10_000 / (len(item) + 1)
		return `{"list":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `]}`
	}
	own := list(60, `{"type":"record","name":"R%d","fields":[{"name":"a%[1]d","type":"int"},{"name":"b%[1]d","type":"string"}]}`)
	same := list(60, `{"type":"record","name":"R%d","fields":[{"name":"a","type":{"type":"enum","name":"E%[1]d","symbols":["S%[1]d"]}}]}`)
	// Alike records that hold a union of all of them.
	tree := `{"type":"record","name":"W","fields":[{"name":"u","type":["null",` +
		list(30, `{"type":"record","name":"R%d","fields":[{"name":"c","type":"W"},{"name":"d","type":["null","W"],"default":null}]}`) + `]}]}`
	deep := func(leaf string) string { return strings.Repeat(`{"u":{"c":`, 25) + leaf + strings.Repeat(`}}`, 25) }
	return map[string]struct{ schema, payload string }{
		"empty objects":            {of("[" + own + "]"), repeat(`{}`)},
		"one field":                {of("[" + own + "]"), repeat(`{"a7":1}`)},
		"unknown fields":           {of("[" + own + "]"), repeat(`{"x":1}`)},
		"fields of enums":          {of("[" + same + "]"), repeat(`{"a":"x"}`)},
		"fields of another type":   {of("[" + same + "]"), repeat(`{"a":1}`)},
		"enums":                    {of("[" + list(60, `{"type":"enum","name":"E%d","symbols":["S%[1]d"]}`) + "]"), repeat(`"x"`)},
		"a large enum":             {of(`{"type":"enum","name":"E","symbols":[` + list(5000, `"S%d"`) + `]}`), repeat(`"x"`)},
		"fixed of many sizes":      {of("[" + list(60, `{"type":"fixed","name":"F%d","size":1%[1]d}`) + "]"), repeat(`"x"`)},
		"numbers for strings":      {of("[" + list(60, `{"type":"fixed","name":"F%d","size":1%[1]d}`) + "]"), repeat(`1`)},
		"wrapped":                  {of("[" + own + "]"), repeat(`{"R59":{}}`)},
		"maps of unions":           {of(`{"type":"map","values":[` + own + `]}`), repeat(`{"k":{}}`)},
		"arrays of unions":         {of(`["null",{"type":"array","items":[` + own + `]}]`), repeat(`[{}]`)},
		"nested":                   {of(tree), repeat(deep(`{"u":{"x":1}}`))},
		"nested, flat":             {of(tree), repeat(`{"u":{"c":1}}`)},
		"nested, right in parts":   {of(tree), repeat(strings.Repeat(`{"u":{"c":{"u":null},"d":{"u":null},"c2":`, 1) + deep(`{"u":null}`) + `}}`)},
		"nested, large and right":  {of(tree), repeat(`{"u":{"c":` + deep(`{"u":null}`) + `,"d":1}}`)},
		"nested, wrong everywhere": {of(tree), repeat(`{"u":{"d":{"u":{"d":{"u":{"d":{"u":{"c":1}},"c":1}},"c":1}},"c":1}}`)},
	}
}

// unpickedAvro is a contract whose unions are read without a look at names and
// without memory: every branch is tried.
func unpickedAvro(t testing.TB, schema string) *Contract {
	c := compileAvroText(t, schema)
	seen := map[*avroNode]bool{}
	var walk func(n *avroNode)
	walk = func(n *avroNode) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		n.pick, n.id = nil, 0
		walk(n.item)
		for _, k := range n.kids {
			walk(k)
		}
	}
	walk(c.avro.root)
	return c
}

// A union is read, and reported on, as if every branch had been tried.
func TestAvroPickChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	values := []string{`1`, `"S1"`, `"x"`, `null`, `{}`, `[]`, `"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"`, `1.5`, `true`}
	names := []string{"a", "b", "c", "d", "R1", "R2", "E", "map", "string", "x"}
	var value func(depth int) string
	value = func(depth int) string {
		if depth == 0 || rng.IntN(3) == 0 {
			return draw(rng, values)
		}
		var parts []string
		if rng.IntN(4) == 0 {
			for range rng.IntN(3) {
				parts = append(parts, value(depth-1))
			}
			return "[" + strings.Join(parts, ",") + "]"
		}
		for i, at := range rng.Perm(len(names))[:rng.IntN(4)] {
			if i >= 0 {
				parts = append(parts, fmt.Sprintf(`"%s":%s`, names[at], value(depth-1)))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	accepted, refused, each := 0, 0, 12_000
	if raceEnabled {
		each = 2000
	}
	for _, schema := range []string{
		`{"type":"record","name":"R0","fields":[{"name":"a","type":["null","R0",
			{"type":"record","name":"R1","fields":[{"name":"a","type":"int"},{"name":"b","type":"string","default":"z"}]},
			{"type":"record","name":"R2","fields":[{"name":"a","type":["string","R1","R0","R2"]},{"name":"c","type":["null","R2"],"default":null}]},
			{"type":"enum","name":"E","symbols":["S1","S2"]},{"type":"enum","name":"E2","symbols":["S2","x"]},
			{"type":"map","values":["int","R1","R2"]}]},{"name":"d","type":"int","default":3}]}`,
		`[{"type":"record","name":"R1","fields":[{"name":"a","type":"int"}]},{"type":"record","name":"R2","fields":[{"name":"a","type":"string"},{"name":"b","type":["R1","R2"]}]},
			{"type":"array","items":["R1","R2","null"]},"float","double",{"type":"fixed","name":"F","size":1},{"type":"map","values":{"type":"map","values":"R2"}}]`,
		`["null",{"type":"record","name":"R1","fields":[{"name":"R1","type":["null","R1"]},{"name":"a","type":["null",{"type":"array","items":"R1"}],"default":null}]}]`,
	} {
		c, plain := compileAvroText(t, schema), unpickedAvro(t, schema)
		for range each {
			text := []byte(value(4))
			got, want := c.Check(text), plain.Check(text)
			if (got == nil) != (want == nil) || got != nil && !bytes.Equal(encode(t, got.Violations), encode(t, want.Violations)) || got != nil && got.Truncated != want.Truncated {
				t.Fatalf("%s:\n%s\n%s", text, encode(t, got), encode(t, want))
			}
			if got != nil {
				refused++
				continue
			}
			accepted++
			a, _ := c.AvroFromJSON(text)
			b, _ := plain.AvroFromJSON(text)
			if !bytes.Equal(a, b) {
				t.Fatalf("%s is %x, and %x plainly", text, a, b)
			}
		}
	}
	if accepted < 500 || refused < 500 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// What a refusal by a union of dozens of types takes is a few units for each
// byte, the search for the branch that was meant included.
func TestAvroUnionWorkIsBounded(t *testing.T) {
	for name, x := range hostileAvroUnions() {
		c := compileAvroText(t, x.schema)
		tape, fault := readTape([]byte(x.payload), c.policy.limits(), nil)
		if fault != nil {
			t.Fatal(fault)
		}
		most := 4 * len(x.payload)
		for _, report := range []bool{false, true} {
			r := newAvroRead(&tape, c.policy.Depth, avroMost(len(x.payload)))
			if report {
				r.rep = new([]avroFault)
			}
			before := r.work
			if r.value(c.avro.root, 0) {
				t.Errorf("%s: it is valid", name)
			}
			t.Logf("%s, report %v: %d units for %d bytes", name, report, before-r.work, len(x.payload))
			if before-r.work > most {
				t.Errorf("%s, report %v: %d units for %d bytes", name, report, before-r.work, len(x.payload))
			}
		}
	}
}

// BenchmarkAvroUnions shows what 10 KB of each cost.
func BenchmarkAvroUnions(b *testing.B) {
	shapes := hostileAvroUnions()
	for _, name := range sortedKeys(shapes) {
		b.Run(name, func(b *testing.B) {
			c, payload := compileAvroText(b, shapes[name].schema), []byte(shapes[name].payload)
			b.ReportAllocs()
			benchCPU(b, func() { c.Check(payload) })
		})
	}
}
