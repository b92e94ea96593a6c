package contract

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func compileOK(t testing.TB, schema string, pol ...Policy) *Contract {
	t.Helper()
	opts := &CompileOpts{}
	if len(pol) > 0 {
		opts.Policy = pol[0]
	}
	c, _, err := Compile("test", 1, []byte(schema), opts)
	if err != nil {
		t.Fatalf("%s: %v", clip(schema, 200), err)
	}
	return c
}

// refused compiles a schema that must be refused with all the words in the
// detail.
func refused(t testing.TB, schema string, words ...string) {
	t.Helper()
	_, _, err := Compile("test", 1, []byte(schema), nil)
	if headgate.CodeOf(err) != headgate.CodeContractInvalid {
		t.Errorf("%s: got %v, want contract_invalid", clip(schema, 120), err)
		return
	}
	for _, w := range words {
		if !strings.Contains(headgate.AsError(err).Detail, w) {
			t.Errorf("%s: the detail lacks %q: %v", clip(schema, 120), w, err)
		}
	}
}

func TestSchemaLimits(t *testing.T) {
	fits := `{"description":"` + strings.Repeat("x", MaxSchemaBytes-18) + `"}`
	if len(fits) != MaxSchemaBytes {
		t.Fatal(len(fits))
	}
	compileOK(t, fits)
	refused(t, fits+" ", "262145 bytes")
	nest := func(n int) string { return strings.Repeat(`{"not":`, n) + "{}" + strings.Repeat("}", n) }
	compileOK(t, nest(MaxSchemaDepth-1))
	refused(t, nest(MaxSchemaDepth))
	refused(t, strings.Repeat("[", 200_000))
	name := func(n int) string { return `{"properties":{"` + strings.Repeat("n", n) + `":true}}` }
	compileOK(t, name(MaxSchemaName))
	refused(t, name(MaxSchemaName+1), "1025 bytes")
	refused(t, `{"type":"object","type":"string"}`, "/type", "already")
	refused(t, "{\"type\":\"object\",\"ty\\u0070e\":\"string\"}", "/type")
	refused(t, "{\"title\":\"\xff\"}")
	refused(t, `{"title":"\ud800"}`)
	refused(t, `{"maximum":1e999999}`)
	refused(t, ``)
	refused(t, `{} {}`)
	refused(t, `null`)
	refused(t, `"x"`)
	refused(t, `{"properties":[]}`, "/properties")
	refused(t, `{"maxLength":99999999999999999999}`, "/maxLength", "2^53")
	for _, ok := range []string{`true`, `false`, `{}`, `{"maxLength":9007199254740991}`} {
		compileOK(t, ok)
	}
	var many strings.Builder
	for i := range maxDocumentSchemas + 1 {
		fmt.Fprintf(&many, `,"%d":{}`, i)
	}
	refused(t, `{"properties":{`+many.String()[1:]+`}}`, "more than 8192 schemas")
}

// Nothing that a schema says makes the compiler dial or open a file.
func TestNothingIsFetched(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dialled := make(chan struct{}, 1)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			select {
			case dialled <- struct{}{}:
			default:
			}
		}
	}()
	host := l.Addr().String()
	for _, schema := range []string{
		`{"$ref":"http://HOST/x.json"}`,
		`{"$ref":"https://HOST/x.json#/a"}`,
		`{"$ref":"//HOST/x.json"}`,
		`{"$ref":"file:///etc/passwd"}`,
		`{"$ref":"/etc/passwd"}`,
		`{"$ref":"../../../etc/passwd"}`,
		`{"$ref":"other.json"}`,
		`{"$id":"http://HOST/base/","$ref":"x.json"}`,
		`{"$id":"file:///etc/","$ref":"passwd"}`,
		`{"$id":"http://HOST/","properties":{"a":{"$ref":"/b.json#/c"}}}`,
		`{"properties":{"a":{"$id":"http://HOST/in/","items":{"$ref":"deep.json"}}}}`,
		`{"$defs":{"a":{"$id":"//HOST/a","$ref":"b"}},"$ref":"#/$defs/a"}`,
		`{"$dynamicRef":"http://HOST/x.json#meta"}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveRef":"http://HOST/#"}`,
		`{"$schema":"http://HOST/meta.json"}`,
		`{"$schema":"file:///etc/passwd"}`,
		`{"$defs":{"a":{"$id":"urn:a","$schema":"http://HOST/meta.json"}}}`,
		`{"$defs":{"a":{"$id":"a.json","$schema":"http://HOST/meta.json","type":"string"}},"$ref":"a.json"}`,
		`{"$id":"urn:uuid:0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","$ref":"other.json"}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://HOST/","properties":{"a":{"$ref":"x"}}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"http://HOST/x"}`,
		`{"$ref":"https://json-schema.org/no/such/schema"}`,
		`{"$ref":"http://json-schema.org/../../etc/passwd"}`,
		`{"$ref":"http://[::1"}`,
		`{"$ref":"http://HOST/%zz"}`,
		`{"$ref":"ftp://HOST/x"}`,
		`{"$ref":"data:application/json,{}"}`,
		`{"x":{"$ref":"http://HOST/x"},"$ref":"#/x"}`,
		`{"allOf":[{"if":{"$ref":"http://HOST/x"},"then":{"not":{"$ref":"http://HOST/y"}}}]}`,
	} {
		refused(t, strings.ReplaceAll(schema, "HOST", host))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-closed
	select {
	case <-dialled:
		t.Error("a schema made the compiler dial")
	default:
	}
	// The dialects' own schemas are built in; a name in the payload is data.
	c := compileOK(t, `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`)
	if v := c.Check([]byte(`{"$ref":"http://` + host + `/x","type":"string"}`)); v != nil {
		t.Errorf("%+v", v)
	}
	if v := c.Check([]byte(`{"type":"strin"}`)); v == nil {
		t.Error("the dialect's own schema accepts a wrong type")
	}
}

func TestUnknownReferenceIsNamed(t *testing.T) {
	refused(t, `{"properties":{"a":{"items":{"$ref":"http://x.example/y"}}}}`, "/properties/a/items/$ref", "http://x.example/y", "nothing is fetched")
	refused(t, `{"properties":{"a/b~c":{"$ref":"#/$defs/no"}}}`, "/properties/a~1b~0c/$ref", "#/$defs/no")
	refused(t, `{"$ref":"#no"}`, "#no")
	refused(t, `{"$id":"https://x.example/a.json","items":{"$ref":"#/$defs/no"}}`, "/items/$ref", "points at nothing")
	refused(t, `{"$id":"https://x.example/a.json","items":{"$ref":"b.json"}}`, "/items/$ref", "https://x.example/b.json")
	compileOK(t, `{"$id":"https://x.example/a.json","items":{"$ref":"a.json#/$defs/s"},"$defs":{"s":{"type":"string"}}}`)
	compileOK(t, `{"$defs":{"any":true},"properties":{"a":{"$ref":"#/$defs/any"}}}`)
	refused(t, `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{}},"items":{"$ref":"#/definitions/a","const":1}}`, "/items/const", "allOf")
}

// A schema that stands where no keyword puts one is held to the same rules
// once it is referred to.
func TestStraySchemas(t *testing.T) {
	c := compileOK(t, `{"x-types":{"s":{"type":"string","minLength":2}},"items":{"$ref":"#/x-types/s"}}`)
	if c.Check([]byte(`["ab"]`)) != nil || c.Check([]byte(`["a"]`)) == nil {
		t.Error("a stray schema is not applied")
	}
	refused(t, `{"x":{"s":{"format":"no-such"}},"$ref":"#/x/s"}`, "/x/s/format")
	refused(t, `{"x":{"s":{"items":{"pattern":"(?=a)"}}},"$ref":"#/x/s"}`, "/x/s/items/pattern")
	refused(t, `{"x":{"s":{"$ref":"http://x.example/"}},"$ref":"#/x/s"}`, "/x/s/$ref")
	var types, uses strings.Builder
	for i := range maxStrays + 1 {
		fmt.Fprintf(&types, `,"t%d":{"type":"string"}`, i)
		fmt.Fprintf(&uses, `,"p%d":{"$ref":"#/x/t%d"}`, i, i)
	}
	refused(t, `{"x":{`+types.String()[1:]+`},"properties":{`+uses.String()[1:]+`}}`, "under $defs")
}

// The reasons come in one order, whatever the library's.
func TestReasonsAreDeterministic(t *testing.T) {
	var sb strings.Builder
	for i := range 200 {
		fmt.Fprintf(&sb, `,"p%d":{"type":"strin","minLength":-1}`, i)
	}
	schema := []byte(`{"properties":{` + sb.String()[1:] + `}}`)
	_, _, first := Compile("t", 1, schema, nil)
	for range 20 {
		if _, _, err := Compile("t", 1, schema, nil); err == nil || err.Error() != first.Error() {
			t.Fatalf("%v\n%v", err, first)
		}
	}
	if n := strings.Count(first.Error(), "at /properties/"); n != toldReasons || !strings.Contains(first.Error(), "and 390 more") {
		t.Errorf("%d reasons: %v", n, first)
	}
}

func TestCyclesAreRefused(t *testing.T) {
	for name, schema := range map[string]string{
		"self":       `{"$ref":"#"}`,
		"pair":       `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`,
		"allOf":      `{"allOf":[{"type":"object"},{"$ref":"#"}]}`,
		"anyOf":      `{"anyOf":[{"type":"object"},{"$ref":"#"}]}`,
		"oneOf":      `{"oneOf":[{"$ref":"#"}]}`,
		"not":        `{"not":{"$ref":"#"}}`,
		"if":         `{"if":{"$ref":"#"}}`,
		"then":       `{"if":true,"then":{"$ref":"#"}}`,
		"else":       `{"if":{"type":"string"},"else":{"$ref":"#"}}`,
		"dependent":  `{"dependentSchemas":{"a":{"$ref":"#"}}}`,
		"dynamic":    `{"$dynamicAnchor":"n","$dynamicRef":"#n"}`,
		"recursive":  `{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveRef":"#"}`,
		"deps-7":     `{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":{"$ref":"#"}}}`,
		"id":         `{"$id":"http://x.example/a","allOf":[{"$ref":"a"}]}`,
		"anchor":     `{"$anchor":"x","allOf":[{"$ref":"#x"}]}`,
		"three":      `{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{"$ref":"#/$defs/c"}]},"c":{"not":{"$ref":"#/$defs/a"}}},"properties":{"p":{"$ref":"#/$defs/c"}}}`,
		"in a value": `{"properties":{"p":{"$ref":"#/properties/p"}}}`,
	} {
		t.Run(name, func(t *testing.T) { refused(t, schema, "the same value again") })
	}
	for name, schema := range map[string]string{
		"list":    `{"properties":{"next":{"$ref":"#"}}}`,
		"tree":    `{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}}}`,
		"map":     `{"additionalProperties":{"$ref":"#"}}`,
		"json":    `{"anyOf":[{"type":["string","number","boolean","null"]},{"type":"array","items":{"$ref":"#"}},{"type":"object","additionalProperties":{"$ref":"#"}}]}`,
		"pattern": `{"patternProperties":{"^x":{"$ref":"#"}}}`,
		"tagged":  `{"$defs":{"e":{"oneOf":[{"type":"object","required":["op"],"properties":{"op":{"const":"lit"},"value":{"type":"number"}}},{"type":"object","required":["op"],"properties":{"op":{"enum":["add","mul"]},"left":{"$ref":"#/$defs/e"},"right":{"$ref":"#/$defs/e"}}},{"type":"object","required":["op"],"properties":{"op":{"const":"neg"},"of":{"type":"object","allOf":[{"$ref":"#/$defs/e"}]}}}]}},"$ref":"#/$defs/e"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := compileOK(t, schema)
			deep := "1"
			for range 60 {
				deep = `{"next":` + deep + `}`
			}
			c.Check([]byte(deep))
		})
	}
}

// chain builds n definitions, each referring to the next in the given form.
func chain(n int, form string) string {
	var sb strings.Builder
	sb.WriteString(`{"$defs":{`)
	for i := range n {
		sb.WriteString(fmt.Sprintf(`"d%d":`, i) + strings.ReplaceAll(form, "NEXT", fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)) + ",")
	}
	fmt.Fprintf(&sb, `"d%d":{"type":"string"}},"$ref":"#/$defs/d0"}`, n)
	return sb.String()
}

func TestBombsAreRefused(t *testing.T) {
	for _, n := range []int{7, 8, 16, 24, 32, 64} {
		refused(t, chain(n, `{"allOf":[NEXT,NEXT]}`), "schemas", "more than")
		refused(t, chain(n, `{"anyOf":[NEXT,NEXT]}`), "schemas", "more than")
		refused(t, chain(n, `{"oneOf":[NEXT,NEXT]}`), "schemas", "more than")
		refused(t, chain(n, `{"not":{"allOf":[NEXT,NEXT]}}`), "schemas", "more than")
		refused(t, chain(n, `{"if":NEXT,"then":NEXT,"else":NEXT}`), "schemas", "more than")
	}
	refused(t, chain(16, `{"properties":{"a":{"allOf":[NEXT,NEXT]}}}`), "levels below")
	refused(t, chain(16, `{"items":{"anyOf":[NEXT,NEXT]},"prefixItems":[NEXT]}`), "levels below")
	refused(t, `{"allOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}`, "levels below")
	refused(t, `{"allOf":[{"additionalProperties":{"$ref":"#"}},{"patternProperties":{"":{"$ref":"#"}}}]}`, "levels below")
	refused(t, `{"contains":{"$ref":"#"},"items":{"$ref":"#"}}`, "levels below")
	refused(t, chain(maxChain+2, `{"allOf":[NEXT]}`), "one inside the other")
	wide := strings.Repeat(`{"minLength":1},`, MaxVisits+1)
	refused(t, `{"allOf":[`+wide[:len(wide)-1]+`]}`, "more than 256")
	var tagged strings.Builder
	for i := range 200 { // a large union of tagged branches is no bomb, however it recurses
		fmt.Fprintf(&tagged, `,{"type":"object","required":["op"],"properties":{"op":{"const":"o%d"},"l":{"$ref":"#/$defs/e"},"r%d":{"type":"array","items":{"$ref":"#/$defs/e"}}}}`, i, i)
	}
	compileOK(t, `{"$defs":{"e":{"oneOf":[`+tagged.String()[1:]+`]}},"$ref":"#/$defs/e"}`)
	refused(t, `{"properties":{"x":{"pattern":"`+strings.Repeat("(ab|cd|ef)?", 200)+`"}}}`, "/properties/x/pattern", "steps")
	compileOK(t, chain(5, `{"allOf":[NEXT,NEXT]}`))
}

// work checks a payload and returns the work units it took.
func work(t testing.TB, c *Contract, payload string) (valid bool, units, limit int) {
	t.Helper()
	tp, fault := readTape([]byte(payload), c.policy.limits(), nil)
	if fault != nil {
		t.Fatal(fault)
	}
	e := newEvaluator(c.prog, &tp)
	ok := e.decide(nil)
	return ok, e.work, e.limit
}

// Payloads that are dear in naive engines stay linear here: measured in units
// of work, which do not depend on the machine.
func TestWorkStaysLinear(t *testing.T) {
	items := func(n int, f func(i int) string) string {
		var sb strings.Builder
		for i := range n {
			sb.WriteString(f(i) + ",")
		}
		return "[" + strings.TrimSuffix(sb.String(), ",") + "]"
	}
	enum := items(10_000, func(i int) string { return fmt.Sprintf("%q", fmt.Sprint("value", i)) })
	numbers := items(10_000, func(i int) string { return fmt.Sprint(i) })
	// Many values with the same row of brackets: all ways to nest eight arrays.
	var trees []string
	var build func(open, left int, s string)
	build = func(open, left int, s string) {
		if open == 0 && left == 0 {
			trees = append(trees, strings.ReplaceAll("["+s+"]", "][", "],["))
			return
		}
		if left > 0 {
			build(open+1, left-1, s+"[")
		}
		if open > 0 {
			build(open-1, left, s+"]")
		}
	}
	build(0, 8, "")
	for name, c := range map[string]struct {
		schema  string
		payload func(n int) string
		n       int
	}{
		"enum of 10,000": {`{"items":{"enum":` + enum + `}}`, func(n int) string {
			return items(n, func(i int) string { return fmt.Sprintf("%q", fmt.Sprint("value", i)) })
		}, 5_000},
		"enum of numbers": {`{"items":{"enum":` + numbers + `}}`, func(n int) string { return items(n, func(i int) string { return fmt.Sprintf("%d.0", i) }) }, 5_000},
		"unique objects": {`{"uniqueItems":true}`, func(n int) string {
			return items(n, func(i int) string { return fmt.Sprintf(`{"a":%d,"b":[%d]}`, i, i) })
		}, 20_000},
		"unique numbers": {`{"uniqueItems":true}`, func(n int) string { return items(n, func(i int) string { return fmt.Sprint(i) }) }, 20_000},
		"unique trees":   {`{"uniqueItems":true}`, func(n int) string { return "[" + strings.Join(trees[:n], ",") + "]" }, 1_400},
		"nested unique":  {`{"uniqueItems":true,"items":{"$ref":"#"}}`, func(n int) string { return items(n, func(i int) string { return fmt.Sprintf("[[[%d]]]", i) }) }, 10_000},
		"many names": {`{"required":["k1","k2"],"properties":{"k1":true},"patternProperties":{"^k":true}}`, func(n int) string {
			return "{" + strings.Trim(items(n, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }), "[]") + "}"
		}, 10_000},
		"recursive any": {`{"anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#"}}]}`, func(n int) string { return items(n, func(i int) string { return `[["x"]]` }) }, 10_000},
		"unevaluated": {`{"anyOf":[{"properties":{"k1":true}},{"properties":{"k2":true}}],"unevaluatedProperties":{"type":"number"}}`, func(n int) string {
			return "{" + strings.Trim(items(n, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }), "[]") + "}"
		}, 10_000},
		"a pattern of a bomb": {`{"items":{"pattern":"^(a+)+$"}}`, func(n int) string {
			return items(n/100, func(i int) string { return `"` + strings.Repeat("a", 99) + `"` })
		}, 100_000},
		"numbers, exact":       {`{"items":{"multipleOf":0.000000001,"maximum":1e400}}`, func(n int) string { return items(n, func(i int) string { return fmt.Sprintf("%d.000000001e-1", i) }) }, 0},
		"many required absent": {`{"items":{"required":["a","b","c"]}}`, func(n int) string { return items(n, func(i int) string { return `{"a":1,"b":2,"c":3}` }) }, 10_000},
	} {
		if c.n == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			k := compileOK(t, c.schema)
			ok1, small, _ := work(t, k, c.payload(c.n/4))
			ok2, large, limit := work(t, k, c.payload(c.n))
			if !ok1 || !ok2 {
				t.Errorf("valid: %v %v", ok1, ok2)
			}
			if large > 5*small {
				t.Errorf("%d units for a quarter, %d for all", small, large)
			}
			if large > limit/2 {
				t.Errorf("%d units of %d", large, limit)
			}
		})
	}
}

// What may be dear by its nature is cut off, and the verdict says so.
func TestBudgetEndsTheWork(t *testing.T) {
	patterns, names := "", ""
	for i := range 70 {
		patterns += fmt.Sprintf(`{"pattern":"a[ab]{%d}"},`, 12+i%4)
		names += fmt.Sprintf(`{"propertyNames":{"pattern":"a[ab]{%d}"}},`, 12+i%4)
	}
	long := `"` + strings.Repeat("a", 5000) + `"`
	for name, c := range map[string]struct{ schema, payload string }{
		"many long patterns": {`{"items":{"allOf":[` + patterns[:len(patterns)-1] + `]}}`, `[` + strings.Repeat(long+",", 50) + `""]`},
		"patterns of names":  {`{"allOf":[` + names[:len(names)-1] + `]}`, `{` + long + `:1}`},
	} {
		t.Run(name, func(t *testing.T) {
			k := compileOK(t, c.schema)
			_, units, limit := work(t, k, c.payload)
			if units > limit+limit/4 {
				t.Errorf("%d units, the limit is %d", units, limit)
			}
			v := k.Check([]byte(c.payload))
			if v == nil {
				t.Fatal("valid")
			}
			checkReport(t, []byte(c.payload), v)
			if v.Violations[0].Code != headgate.ViolationTooComplex {
				t.Errorf("%+v", v.Violations[0])
			}
		})
	}
}

// Payloads under no schema at all: the policy alone decides.
func TestPolicy(t *testing.T) {
	c := compileOK(t, `{}`)
	for _, p := range []struct {
		payload string
		code    headgate.ViolationCode
	}{
		{`{"a":1,"a":2}`, headgate.ViolationDuplicateKey},
		{"{\"a\":1,\"\\u0061\":2}", headgate.ViolationDuplicateKey},
		{`{"x":{"":1,"":2}}`, headgate.ViolationDuplicateKey},
		{"{\"a\":\"\xff\"}", headgate.ViolationBadUTF8},
		{`"\ud800"`, headgate.ViolationBadUTF8},
		{`1e401`, headgate.ViolationNumberTooLarge},
		{`1e999999999999999999999`, headgate.ViolationNumberTooLarge},
		{strings.Repeat("9", 65), headgate.ViolationNumberTooLarge},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), headgate.ViolationTooDeep},
		{strings.Repeat("[", 1_000_000), headgate.ViolationTooDeep},
		{strings.Repeat(`{"a":[`, 500_000), headgate.ViolationTooDeep},
		{``, headgate.ViolationSyntax},
		{`{"a":1} x`, headgate.ViolationSyntax},
		{"\xef\xbb\xbf{}", headgate.ViolationSyntax},
		{`{"a":NaN}`, headgate.ViolationSyntax},
	} {
		v := c.Check([]byte(p.payload))
		if v == nil || len(v.Violations) != 1 || v.Violations[0].Code != p.code {
			t.Errorf("%s: got %+v, want %s", clip(p.payload, 60), v, p.code)
			continue
		}
		checkReport(t, []byte(p.payload), v)
	}
	for _, ok := range []string{`1e400`, strings.Repeat("9", 64), strings.Repeat("[", 64) + strings.Repeat("]", 64), `{"a":{"a":1}}`, "{\"e\\u0301\":1,\"\\u00e9\":2}", `{"":1,"__proto__":2}`} {
		if v := c.Check([]byte(ok)); v != nil {
			t.Errorf("%s: %+v", clip(ok, 60), v.Violations)
		}
	}
	loose := compileOK(t, `{}`, Policy{Depth: 100, NumberLength: 100, Exponent: 1000})
	for _, ok := range []string{`1e1000`, strings.Repeat("9", 100), strings.Repeat("[", 100) + strings.Repeat("]", 100)} {
		if v := loose.Check([]byte(ok)); v != nil {
			t.Errorf("%s: %+v", clip(ok, 60), v.Violations)
		}
	}
	for _, bad := range []Policy{{Depth: -1}, {Depth: maxDepth + 1}, {NumberLength: maxNumberLength + 1}, {Exponent: maxExponent + 1}} {
		if _, _, err := Compile("t", 1, []byte(`{}`), &CompileOpts{Policy: bad}); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Numbers compare by their exact values.
func TestExactNumbers(t *testing.T) {
	for _, c := range []struct {
		schema, payload string
		valid           bool
	}{
		{`{"const":9007199254740993}`, `9007199254740993`, true},
		{`{"const":9007199254740993}`, `9007199254740992`, false},
		{`{"enum":[9007199254740993]}`, `9007199254740992`, false},
		{`{"enum":[9007199254740993]}`, `9007199254740993.0`, true},
		{`{"const":0}`, `-0`, true},
		{`{"const":0}`, `-0.0e10`, true},
		{`{"const":1e2}`, `100`, true},
		{`{"const":0.1}`, `0.10000000000000000001`, false},
		{`{"type":"integer"}`, `1.0`, true},
		{`{"type":"integer"}`, `1e300`, true},
		{`{"type":"integer"}`, `12e-1`, false},
		{`{"type":"integer"}`, `120e-1`, true},
		{`{"multipleOf":0.01}`, `1e308`, true},
		{`{"multipleOf":0.01}`, `0.005`, false},
		{`{"multipleOf":3}`, `-9`, true},
		{`{"maximum":1e400}`, `1e400`, true},
		{`{"exclusiveMaximum":1e400}`, `9e399`, true},
		{`{"maximum":0.1}`, `0.1000000000000000000000000001`, false},
		{`{"minimum":-9223372036854775808}`, `-9223372036854775809`, false},
		{`{"uniqueItems":true}`, `[1,1.0]`, false},
		{`{"uniqueItems":true}`, `[9007199254740993,9007199254740992]`, true},
	} {
		if v := compileOK(t, c.schema).Check([]byte(c.payload)); (v == nil) != c.valid {
			t.Errorf("%s on %s: %+v", c.schema, c.payload, v)
		}
	}
}

func TestEscapedStringsAreRead(t *testing.T) {
	for _, c := range []struct {
		schema, payload string
		valid           bool
	}{
		{`{"maxLength":1}`, `"\ud83d\ude00"`, true},
		{`{"maxLength":1}`, `"😀"`, true},
		{`{"maxLength":1}`, `"\u0065\u0301"`, false},
		{`{"required":["a"]}`, `{"\u0061":1}`, true},
		{`{"properties":{"a/b":{"type":"string"}},"additionalProperties":false}`, `{"a\/b":"x"}`, true},
		{`{"enum":["é"]}`, `"e\u0301"`, false},
		{`{"const":{"a":"b"}}`, `{"\u0061":"\u0062"}`, true},
		{`{"uniqueItems":true}`, `["a","\u0061"]`, false},
		{`{"uniqueItems":true}`, `[{"a":1,"b":2},{"b":2,"\u0061":1}]`, false},
		{`{"pattern":"^a$"}`, `"\u0061"`, true},
		{`{"pattern":"^a$"}`, `"a\n"`, false},
	} {
		if v := compileOK(t, c.schema).Check([]byte(c.payload)); (v == nil) != c.valid {
			t.Errorf("%s on %s: %+v", c.schema, c.payload, v)
		}
	}
}

func TestPatternsNameTheConstruct(t *testing.T) {
	for src, word := range map[string]string{
		`^(?=.*a)b`: "lookahead", `a(?!b)`: "negative lookahead", `(?<=a)b`: "lookbehind", `(?<!a)b`: "negative lookbehind",
		`(a)\1`: `\1`, `(?<n>a)\k<n>`: "back reference by name", `(?>a)`: "atomic", `\u0041`: `\x{HHHH}`, `a{1001}`: "1000",
		`a++`: "possessive", `\p{Foo}`: "class", `[`: "missing closing ]", `\Z`: `write $`,
	} {
		schema, err := json.Marshal(map[string]any{"properties": map[string]any{"x": map[string]any{"pattern": src}}})
		if err != nil {
			t.Fatal(err)
		}
		refused(t, string(schema), "/properties/x/pattern", word)
	}
	refused(t, `{"patternProperties":{"(?=a)":true}}`, "/patternProperties", "lookahead")
	compileOK(t, `{"pattern":"^(a+)+$"}`)
}
