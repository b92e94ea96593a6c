package contract

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// branchShape is a contract under which one small value meets dozens of
// schemas, and payloads of about so many bytes.
type branchShape struct {
	schema  string
	payload func(size int) string
	closed  bool
}

// hostileBranches are shapes in which the many schemas are told apart by
// nothing that every one of them requires.
func hostileBranches() map[string]branchShape {
	list := func(n int, form string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ","+form, i)
		}
		return b.String()[1:]
	}
	// array repeats a form with another number in it each time.
	array := func(form string) func(int) string {
		return func(size int) string {
			var b strings.Builder
			b.WriteByte('[')
			for i := 0; b.Len() < size; i++ {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(strings.ReplaceAll(form, "#", fmt.Sprint(i%1000)))
			}
			return b.String() + "]"
		}
	}
	names := func(form string) func(int) string {
		return func(size int) string {
			var b strings.Builder
			b.WriteByte('{')
			for i := 0; b.Len() < size; i++ {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(strings.ReplaceAll(form, "#", fmt.Sprint(i)))
			}
			return b.String() + "}"
		}
	}
	items := func(keyword, form string) string {
		return `{"items":{"` + keyword + `":[` + list(60, form) + `]}}`
	}
	return map[string]branchShape{
		"anyOf, optional property, refused": {schema: items("anyOf", `{"properties":{"z":{"type":"string","minLength":%d}}}`), payload: array(`{"z":#}`)},
		"anyOf, optional property, taken":   {schema: items("anyOf", `{"properties":{"z":{"type":"integer","exclusiveMaximum":%d}}}`), payload: array(`{"z":58}`)},
		"anyOf, closed, refused":            {schema: items("anyOf", `{"additionalProperties":false,"properties":{"k%d":{"type":"string"}}}`), payload: array(`{"x":1}`)},
		"anyOf, closed, taken":              {schema: items("anyOf", `{"additionalProperties":false,"properties":{"k%d":{"type":"integer"}}}`), payload: array(`{"k59":1}`)},
		"anyOf, required, refused":          {schema: items("anyOf", `{"required":["k%d"]}`), payload: array(`{}`)},
		"anyOf, types, refused":             {schema: items("anyOf", `{"type":"string","maxLength":%d}`), payload: array(`#`)},
		"anyOf, minimum, refused":           {schema: items("anyOf", `{"minimum":1%03d}`), payload: array(`#`)},
		"anyOf, minimum, short, refused":    {schema: items("anyOf", `{"minimum":1%03d}`), payload: array(`1`)},
		"oneOf, minimum, refused":           {schema: items("oneOf", `{"minimum":%d}`), payload: array(`#`)},
		"oneOf, ranges, taken":              {schema: items("oneOf", `{"minimum":%[1]d,"exclusiveMaximum":%[1]d.5}`), payload: array(`59`)},
		"anyOf, multipleOf, refused":        {schema: items("anyOf", `{"multipleOf":1%d3}`), payload: array(`1`)},
		"anyOf, lengths, refused":           {schema: items("anyOf", `{"minLength":1%d}`), payload: array(`"a"`)},
		"anyOf, patterns, refused":          {schema: items("anyOf", `{"pattern":"^x%d"}`), payload: array(`"a"`)},
		"anyOf, formats, refused":           {schema: items("anyOf", `{"format":"date-time","maxLength":9%d}`), payload: array(`"2024-01-01T00:00:00x"`)},
		"anyOf, patterns, taken":            {schema: items("anyOf", `{"pattern":"^x%d$"}`), payload: array(`"x59"`)},
		"anyOf, const, refused":             {schema: items("anyOf", `{"const":1%d}`), payload: array(`#`)},
		"anyOf, const objects, refused":     {schema: items("anyOf", `{"const":{"a":%d}}`), payload: array(`{}`)},
		"anyOf, enum, refused":              {schema: items("anyOf", `{"enum":["a%[1]d","b%[1]d",5%[1]d]}`), payload: array(`"a"`)},
		"oneOf, enum, taken":                {schema: items("oneOf", `{"enum":["a%[1]d","b%[1]d",5%[1]d]}`), payload: array(`"a59"`)},
		"contains, refused":                 {schema: `{"allOf":[` + list(60, `{"contains":{"const":"c%d"}}`) + `]}`, payload: array(`#`)},
		"contains, minimum, refused":        {schema: `{"allOf":[` + list(60, `{"contains":{"minimum":1%d0}}`) + `]}`, payload: array(`1`)},
		"contains, counted":                 {schema: `{"allOf":[` + list(60, `{"contains":{"minimum":%d},"minContains":0,"maxContains":9000}`) + `]}`, payload: array(`#`)},
		"allOf, minimum, refused":           {schema: items("allOf", `{"minimum":1%d}`), payload: array(`1`)},
		"allOf, minimum, taken":             {schema: items("allOf", `{"minimum":-%d}`), payload: array(`1`)},
		"allOf, equal, taken":               {schema: items("allOf", `{"minimum":-1,"title":"%d"}`), payload: array(`1`)},
		"anyOf, equal, refused":             {schema: items("anyOf", `{"minimum":1000,"title":"%d"}`), payload: array(`#`)},
		"allOf, not, taken":                 {schema: items("allOf", `{"not":{"const":-1%d}}`), payload: array(`#`)},
		"allOf, not, refused":               {schema: items("allOf", `{"not":{"minimum":-%d}}`), payload: array(`1`)},
		"allOf, if, taken":                  {schema: items("allOf", `{"if":{"const":1%d},"then":{"minimum":3},"else":{"maximum":2000}}`), payload: array(`#`)},
		"allOf, if, refused":                {schema: items("allOf", `{"if":{"properties":{"z":{"const":%d}}},"then":{"required":["a"]}}`), payload: array(`{}`)},
		"not chain":                         {schema: `{"items":` + strings.Repeat(`{"not":`, 50) + `{"const":2000}` + strings.Repeat(`}`, 50) + `}`, payload: array(`#`)},
		"if chain":                          {schema: `{"items":` + strings.Repeat(`{"if":{"const":2000},"else":`, 50) + `{"const":2001}` + strings.Repeat(`}`, 50) + `}`, payload: array(`#`)},
		"propertyNames, taken":              {schema: `{"allOf":[` + list(60, `{"propertyNames":{"maxLength":1%d}}`) + `]}`, payload: names(`"k#":1`)},
		"propertyNames, refused":            {schema: `{"allOf":[` + list(60, `{"propertyNames":{"maxLength":%d}}`) + `]}`, payload: names(`"k#":1`)},
		"propertyNames, anyOf":              {schema: `{"propertyNames":{"anyOf":[` + list(60, `{"const":"x%d"}`) + `]}}`, payload: names(`"k#":1`)},
		"patternProperties, taken":          {schema: `{"patternProperties":{` + list(60, `"k[0-9]*%d":{"minimum":0}`) + `}}`, payload: names(`"k#":1`)},
		"patternProperties, refused":        {schema: `{"patternProperties":{` + list(60, `"^.{0,%d}":{"minimum":2}`) + `}}`, payload: names(`"k#":1`)},
		"patternProperties of items":        {schema: `{"items":{"allOf":[` + list(60, `{"patternProperties":{"^k%d":{"type":"string"}}}`) + `]}}`, payload: array(`{"k1":1}`)},
		"additionalProperties, refused":     {schema: `{"allOf":[` + list(60, `{"additionalProperties":{"minimum":1%d}}`) + `]}`, payload: names(`"k#":1`)},
		"unevaluated over anyOf":            {schema: `{"items":{"unevaluatedProperties":false,"anyOf":[` + list(60, `{"properties":{"k%d":{"type":"integer"}}}`) + `]}}`, payload: array(`{"k5":#}`)},
		"closed policy over anyOf":          {schema: items("anyOf", `{"properties":{"k%d":{"type":"integer"}}}`), payload: array(`{"k5":#}`), closed: true},
		"dependentSchemas":                  {schema: `{"items":{"dependentSchemas":{` + list(60, `"k%d":{"minProperties":2}`) + `}}}`, payload: array(`{"k5":1}`)},
		"allOf, properties":                 {schema: items("allOf", `{"properties":{"k%d":{"minimum":5}},"description":"of k%[1]d"}`), payload: array(`{"k5":#}`)},
		"allOf, required":                   {schema: items("allOf", `{"properties":{"k%d":{"minimum":5},"a":{"type":"integer"}},"required":["a"]}`), payload: array(`{"k5":#}`)},
		"allOf, of all kinds":               {schema: `{"items":{"additionalProperties":{"type":"integer"},"allOf":[` + list(20, `{"properties":{"k%d":{"minimum":5}}},{"patternProperties":{"^k%[1]d":{"maximum":70}}},{"propertyNames":{"maxLength":1%[1]d}},{"dependentRequired":{"k%[1]d":["k1"]}},{"dependentSchemas":{"k%[1]d":{"maxProperties":1}}}`) + `]}}`, payload: array(`{"k5":#,"k1":1}`)},
		"allOf, items":                      {schema: items("allOf", `{"items":{"minimum":%d}}`), payload: array(`{"k5":#}`)},
		"allOf, references":                 {schema: `{"$defs":{` + list(60, `"d%d":{"properties":{"k%[1]d":{"minimum":5}}}`) + `},"items":{"allOf":[` + list(60, `{"$ref":"#/$defs/d%d"}`) + `]}}`, payload: array(`{"k5":#}`)},
		"anyOf, patterns of names, refused": {schema: items("anyOf", `{"patternProperties":{"^k%d":{"type":"string"},"^k":{"type":"string"}}}`), payload: array(`{"k5":#}`)},
		"oneOf, patterns of names":          {schema: items("oneOf", `{"patternProperties":{"^[a-k]%d":{"type":"string"}},"required":["k5"]}`), payload: array(`{"k5":#}`)},
		"oneOf, names":                      {schema: items("oneOf", `{"propertyNames":{"enum":["k%d","k"]}}`), payload: array(`{"k5":#}`)},
		"unevaluated over allOf":            {schema: `{"items":{"unevaluatedProperties":false,"allOf":[` + list(60, `{"properties":{"k%d":{"minimum":5}}}`) + `]}}`, payload: array(`{"k5":#}`)},
		"closed policy over allOf":          {schema: items("allOf", `{"properties":{"k%d":{"minimum":5}}}`), payload: array(`{"k5":#}`), closed: true},
		"nested anyOf":                      {schema: `{"items":{"anyOf":[` + list(15, `{"anyOf":[{"minimum":1%[1]d00},{"minimum":2%[1]d00},{"maximum":-%[1]d},{"const":-%[1]d}]}`) + `]}}`, payload: array(`#`)},
		"anyOf of arrays, refused":          {schema: items("anyOf", `{"items":{"minimum":1%d}}`), payload: array(`[1]`)},
		"multipleOf 7, exponents":           {schema: `{"items":{"multipleOf":7}}`, payload: array(`1e399`)},
		"multipleOf, 30 digits":             {schema: `{"items":{"multipleOf":123456789012345678901234567891}}`, payload: array(`1e399`)},
		"multipleOf, 30 digits, taken":      {schema: `{"items":{"multipleOf":123456789012345678901234567891}}`, payload: array(`123456789012345678901234567891e30`)},
		"minimum, exponents, refused":       {schema: `{"items":{"minimum":1e400}}`, payload: array(`1e399`)},
		"integer, exponents, refused":       {schema: `{"items":{"type":"integer"}}`, payload: array(`1e-399`)},
	}
}

// BenchmarkHostileBranches shows what 10 KB of each cost.
func BenchmarkHostileBranches(b *testing.B) {
	shapes := hostileBranches()
	for _, name := range sortedKeys(shapes) {
		b.Run(name, func(b *testing.B) {
			x := shapes[name]
			c := compileOK(b, x.schema, Policy{CloseObjects: x.closed})
			payload := []byte(x.payload(10_000))
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			benchCPU(b, func() { c.Check(payload) })
		})
	}
}

// The look for faults ends where more of them would only be counted, so that
// the time of a refusal is not the sender's choice; the first by place are
// found, and what is refused stays refused.
func TestLooksForFaultsEnd(t *testing.T) {
	for name, x := range hostileBranches() {
		c := compileOK(t, x.schema, Policy{CloseObjects: x.closed})
		for _, size := range []int{10_000, 40_000} {
			payload := []byte(x.payload(size))
			v, d := c.refuse(payload)
			if v == nil && strings.HasSuffix(name, "refused") || v != nil && strings.HasSuffix(name, "taken") {
				t.Errorf("%s: refused %v", name, v != nil)
			}
			if v == nil {
				continue
			}
			checkReport(t, payload, v)
			if found := len(v.Violations) + v.Truncated; found > maxSought {
				t.Errorf("%s: %d faults in %d bytes", name, found, len(payload))
			}
			if d.eval.sought < 0 || d.eval.compared < 0 {
				t.Errorf("%s: %d and %d faults more than enough", name, -d.eval.sought, -d.eval.compared)
			}
			if v.Violations[0].At != firstAt(v.Violations) {
				t.Errorf("%s: the first fault is at %s", name, v.Violations[0].At)
			}
		}
	}
}

func firstAt(list []headgate.Violation) string {
	first := list[0]
	for _, v := range list {
		if v.Offset < first.Offset {
			first = v
		}
	}
	return first.At
}

// What decides many schemas at once gives the verdicts and the reports that the
// schemas give one by one, and the schema library agrees.
func TestShortcutsChangeNothing(t *testing.T) {
	each := 100
	if raceEnabled {
		each = 10
	}
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		each = 20_000
	}
	shapes := hostileBranches()
	refused, cases := 0, 0
	for _, name := range sortedKeys(shapes) {
		x := shapes[name]
		plain, _, err := Compile("test", 1, []byte(x.schema), &CompileOpts{Policy: Policy{CloseObjects: x.closed}, hooks: compileHooks{plain: true}})
		if err != nil {
			t.Fatal(err)
		}
		s := &subject{name: name, schema: []byte(x.schema), contract: compileOK(t, x.schema, Policy{CloseObjects: x.closed}), library: oracle(t, []byte(x.schema), false)}
		s.payloads = []*tree{parseTree(t, []byte(x.payload(20))), parseTree(t, []byte(x.payload(60)))}
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		rng := rand.New(rand.NewPCG(51, h.Sum64()))
		m := newMutator(t, rng, s.schema, s.payloads)
		var d differential
		for range each {
			root := draw(rng, s.payloads).clone()
			for range rng.IntN(5) {
				m.change(root)
			}
			text := m.text(root)
			d.compare(t, s, text, !x.closed)
			got, want := s.contract.Check(text), plain.Check(text)
			if a, b := encode(t, got), encode(t, want); string(a) != string(b) {
				t.Fatalf("%s on %s:\n%s\n%s", name, text, a, b)
			}
			if got != nil {
				refused++
			}
			cases++
		}
	}
	t.Logf("%d cases, %d refused", cases, refused)
	if refused < cases/5 || refused > cases*9/10 {
		t.Errorf("%d of %d refused", refused, cases)
	}
}

// A verdict does not look for the names that are asked for behind the first that
// is not there.
func TestVerdictOnDependenciesEndsEarly(t *testing.T) {
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf(`"k%d"`, i))
	}
	c := compileOK(t, `{"dependentRequired":{"a":[`+strings.Join(names, ",")+`]}}`)
	tape, fault := readTape([]byte(`{"a":1}`), c.policy.limits(), nil)
	if fault != nil {
		t.Fatal(fault)
	}
	if e := newEvaluator(c.prog, &tape); e.decide(nil) || e.work > 10 {
		t.Errorf("it takes %d units", e.work)
	}
}
