package contract

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// hostileReports are refusals whose report or repair is dear for an engine
// that compares every name with every other.
func hostileReports() map[string]struct{ schema, payload string } {
	list := func(n int, form string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ","+form, i)
		}
		return b.String()[1:]
	}
	required := list(60, `"required_name_%d"`)
	properties := list(400, `"required_name_%d":{"x-headgate-aliases":["alias_%[1]d","other_%[1]d"]}`)
	values := list(2000, `"value number %d"`)
	return map[string]struct{ schema, payload string }{
		"many missing, many strangers":     {`{"required":[` + required + `],"properties":{` + properties + `}}`, `{` + list(3500, `"requird_%d":1`) + `}`},
		"some missing, many strangers":     {`{"required":[` + required + `],"properties":{` + properties + `}}`, `{` + list(500, `"requird_%d":1`) + `}`},
		"many unknown":                     {`{"additionalProperties":false,"required":[` + required + `],"properties":{` + properties + `}}`, `{` + list(3500, `"requird_%d":1`) + `}`},
		"names that are all alike":         {`{"additionalProperties":false,"properties":{` + list(500, `"field_%03d_of_it":{}`) + `}}`, `{` + list(60, `"field_%03d_if_it":1`) + `}`},
		"names of the same letters":        {`{"additionalProperties":false,"properties":{` + list(500, `"%03[1]d_ab_%03[1]d":{}`) + `}}`, `{` + list(60, `"ba_%03[1]d_%03[1]d":1`) + `}`},
		"some unknown":                     {`{"additionalProperties":false,"properties":{` + properties + `}}`, `{` + list(60, `"requird_%d":1`) + `}`},
		"values of a large enum":           {`{"items":{"enum":[` + values + `]}}`, `[` + list(60, `"valuee numbr %d"`) + `]`},
		"many values of a large enum":      {`{"items":{"enum":[` + values + `]}}`, `[` + list(600, `"valuee numbr %d"`) + `]`},
		"unions of large enums":            {`{"items":{"anyOf":[` + list(5, `{"enum":["a%[1]d",`+strings.ReplaceAll(list(1500, `"value number %d"`), "value", "value of %[1]d,")+`]}`) + `]}}`, `[` + list(600, `"valuee numbr %d"`) + `]`},
		"unions of enums by type":          {`{"items":` + enumsByType(4500) + `}`, `[` + list(300, `"valuee numbr %d",%[1]d.5`) + `]`},
		"tags of a large union":            {`{"items":{"oneOf":[` + list(200, `{"type":"object","required":["t"],"properties":{"t":{"const":"tag %d"}}}`) + `]}}`, `[` + list(600, `{"t":"tga %d"}`) + `]`},
		"objects of many kinds":            {`{"items":{"additionalProperties":false,"properties":{` + properties + `}}}`, `[` + list(60, `{"requird_%d":1}`) + `]`},
		"branches with names of their own": {`{"items":{"anyOf":[` + list(60, `{"required":["name_%d"],"properties":{"name_%[1]d":{"type":"string"}}}`) + `]}}`, `[` + list(60, `{"nam_%d":1}`) + `]`},
	}
}

// enumsByType is a union of enums of strings, two of them of numbers, too: a
// string is asked of other branches than a number is.
func enumsByType(values int) string {
	var of [3]strings.Builder
	for i := range values {
		fmt.Fprintf(&of[i%3], `,"value number %d"`, i)
	}
	return `{"anyOf":[{"enum":["a"` + of[0].String() + `],"type":"string"},{"enum":[-1` + of[1].String() + `]},{"enum":[-2` + of[2].String() + `]}]}`
}

// What a refusal of a hostile payload takes is bounded, its report and the
// search for a repair included: in names that are looked at, in distances
// between names, in units of work and in allocations.
func TestHostileReportsAreBounded(t *testing.T) {
	for name, x := range hostileReports() {
		t.Run(name, func(t *testing.T) {
			c, payload := compileOK(t, x.schema), []byte(x.payload)
			v, d := c.refuse(payload)
			if v == nil {
				t.Fatal("it is valid")
			}
			checkReport(t, payload, v)
			if d.eval.distances < 0 || d.eval.looked > 1<<17 {
				t.Errorf("the report looked at %d names and left %d distances", d.eval.looked, d.eval.distances)
			}
			r := &repairer{}
			r.begin(c, payload, d)
			r.propose(v, payload)
			if floor := -len(payload) - 1<<16; r.work < floor {
				t.Errorf("the repair went %d units beyond its bound", -r.work)
			}
			checkProposals(t, c, payload, v, nil)
			if raceEnabled {
				return
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c.Report(payload)
			runtime.ReadMemStats(&after)
			if n := after.Mallocs - before.Mallocs; n > 15_000 {
				t.Errorf("%d allocations", n)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
				t.Errorf("%d bytes", n)
			}
		})
	}
}

// hostileAvro is an array over a union of records, and items that are none.
func hostileAvro(items int) (schema, payload string) {
	var kinds []string
	for i := range 30 {
		kinds = append(kinds, fmt.Sprintf(`{"type":"record","name":"R%d","fields":[{"name":"a%[1]d","type":"int"},{"name":"b%[1]d","type":"string"}]}`, i))
	}
	return `{"type":"record","name":"Root","fields":[{"name":"list","type":{"type":"array","items":[` + strings.Join(kinds, ",") + `]}}]}`,
		`{"list":[` + strings.TrimSuffix(strings.Repeat("{},", items), ",") + `]}`
}

// A twin looks at what an Avro contract refuses within the budget of a repair.
func TestAvroTwinLooksAreBounded(t *testing.T) {
	schema, payload := hostileAvro(20_000)
	c, _, err := Compile("test", 1, []byte(schema), &CompileOpts{Type: TypeAvro})
	if err != nil {
		t.Fatal(err)
	}
	twin := c.avro.twin()
	r := &repairer{}
	r.begin(twin, []byte(payload), nil)
	d, fault := twin.examine([]byte(payload), r.work)
	if fault != nil || !d.eval.over() || d.eval.work > r.work+len(payload) { // a unit for each value that is passed over
		t.Errorf("fault %v: the look took %d units of %d", fault, d.eval.work, r.work)
	}
	if x := r.examine([]byte(payload)); x.valid || x.d != nil {
		t.Error("a look that ended early is of use")
	}
	if v, mended := c.Report([]byte(payload)); v == nil || v.Proposals != nil || mended != nil {
		t.Error("a payload with thousands of faults is accepted or mended")
	}
}

// BenchmarkHostileReport shows what they cost.
func BenchmarkHostileReport(b *testing.B) {
	shapes := hostileReports()
	for _, name := range sortedKeys(shapes) {
		b.Run(name, func(b *testing.B) {
			c, payload := compileOK(b, shapes[name].schema), []byte(shapes[name].payload)
			b.ReportAllocs()
			benchCPU(b, func() { c.Report(payload) })
		})
	}
}

// A repair gives up at the first fault that has no step: what the others would
// take is not looked for.
func TestRepairGivesUpEarly(t *testing.T) {
	x := hostileReports()["some missing, many strangers"]
	c, payload := compileOK(t, x.schema), []byte(x.payload)
	v, d := c.refuse(payload)
	r := &repairer{}
	r.begin(c, payload, d)
	r.propose(v, payload)
	if looked := d.eval.looked; len(v.Proposals) > 0 || looked > 4*nearCandidates {
		t.Errorf("%d proposals, %d names looked at", len(v.Proposals), looked)
	}
}

// What branches of a union ask for is put together once for each set of them,
// and kept: not again for each payload whose values ask others in turn.
func TestMergedWantsAreKept(t *testing.T) {
	c := compileOK(t, enumsByType(30))
	var u *union
	for _, n := range c.prog.nodes {
		if n.anyOf != nil {
			u = n.anyOf
		}
	}
	refuse := func() {
		for _, payload := range []string{`"valuee"`, `7`} {
			if v, _ := c.Report([]byte(payload)); v == nil {
				t.Fatal("it is valid")
			}
		}
	}
	refuse()
	kept := u.merged.Load()
	if kept == nil {
		t.Fatal("nothing is merged")
	}
	refuse()
	if u.merged.Load() != kept {
		t.Error("it is put together again")
	}
	for i := range 2 * maxMerged {
		u.merge([]wantedSource{{n: c.prog.root, keyword: fmt.Sprint(i)}})
	}
	n := 0
	for m := u.merged.Load(); m != nil; m = m.older {
		n++
	}
	if n != maxMerged {
		t.Errorf("%d lists are kept", n)
	}
}
