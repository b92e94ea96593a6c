package contract

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
)

// avroNest puts a schema into itself so many times.
func avroNest(open, inner, end string, times int) string {
	return strings.Repeat(open, times) + inner + strings.Repeat(end, times)
}

// TestAvroTwinsAreAsLargeAsSchemas: a union has each branch twice in its twin,
// bare and in Avro's own form, and what stands in a branch once: unions in
// unions double nothing.
func TestAvroTwinsAreAsLargeAsSchemas(t *testing.T) {
	wide := make([]string, 300)
	for i := range wide {
		wide[i] = fmt.Sprintf(`{"type":"record","name":"R%d","fields":[{"name":"a","type":["null","int","R0"]}]}`, i)
	}
	var fields []string
	for i := range 2000 {
		fields = append(fields, fmt.Sprintf(`{"name":"f%d","type":["null","string",{"type":"array","items":["null","R"]}]}`, i))
	}
	for _, schema := range []string{
		avroNest(`["null",{"type":"array","items":`, `"int"`, "}]", 30),
		avroNest(`["null",{"type":"map","values":`, `"int"`, "}]", 30),
		avroNest(`["null","int",{"type":"map","values":`, `"int"`, "}]", 30),
		avroNest(`["null","int",{"type":"array","items":`, `["null",{"type":"record","name":"R","x-headgate-sensitive":true,"fields":[{"name":"r","type":["null","R"]}]}]`, "}]", 28),
		avroNest(`[{"type":"array","items":"int"},{"type":"map","values":`, `"int"`, "}]", 30),
		"[" + strings.Join(wide, ",") + "]",
		`{"type":"record","name":"R","fields":[` + strings.Join(fields, ",") + `]}`,
	} {
		c := compileAvroText(t, schema)
		most := 64 + len(schema)/8
		if n := len(c.avro.twin().prog.nodes); n > most {
			t.Errorf("%.80s…: %d schemas for %d bytes, want at most %d", schema, n, len(schema), most)
		}
	}
}

// TestAvroTwinsOfRecursiveSchemas: proposals and marks of schemas that lead back
// to themselves over unions.
func TestAvroTwinsOfRecursiveSchemas(t *testing.T) {
	const (
		n     = `,{"name":"n","type":"int","default":0}`
		value = `{"type":"record","name":"Value","fields":[{"name":"v","type":["null","boolean","long","double","string",{"type":"array","items":"Value"},{"type":"map","values":"Value"}]}%s]}`
		tree  = `{"type":"record","name":"Node","fields":[{"name":"kids","type":["null",{"type":"map","values":["null","Node"]}],"default":null},{"name":"label","type":"string","default":""}%s]}`
	)
	for _, x := range []struct{ schema, in, step, at, secret string }{
		{value, `{"v":[{"v":1},{"v":{"a":{"V":true}}}],"n":1}`, "spelling", "/v/1/v/a/V", `{"v":[{"v":{"a":{"v":1,"n":"hunter2"}}}],"n":1}`},
		{value, `{"v":{"map":{"a":{"v":1,"n":"4"}}},"n":1}`, "integer_string", "/v/map/a/n", `{"v":{"hunter2":{"v":["hunter2"],"n":1}}}`},
		{tree, `{"kids":{"a":{"kids":{"b":{"lable":"x"}}}},"n":1}`, "rename", "/kids/a/kids/b/lable", `{"kids":{"a":{"n":"hunter2"}},"n":1}`},
		{tree, `{"kids":{"map":{"a":{"Node":{"n":"3"}}}}}`, "integer_string", "/kids/map/a/Node/n", `{"kids":{"map":{"a":{"Node":{"n":"hunter2"}}}}}`},
	} {
		plain := compileAvroText(t, fmt.Sprintf(x.schema, n))
		v, _ := plain.Report([]byte(x.in))
		if v == nil || len(v.Proposals) == 0 || string(v.Proposals[0].Steps[0].Step) != x.step || v.Proposals[0].Steps[0].At != x.at {
			t.Errorf("%s: %s", x.in, encode(t, v))
			continue
		}
		checkProposals(t, plain, []byte(x.in), v, nil)
		if v, _ := plain.Report([]byte(x.secret)); !strings.Contains(string(encode(t, v)), "hunter2") {
			t.Errorf("%s says little without a mark: %s", x.secret, encode(t, v))
		}
		marked := compileAvroText(t, fmt.Sprintf(strings.NewReplacer(`"name":"v",`, `"name":"v","x-headgate-sensitive":true,`, `"name":"kids",`, `"name":"kids","x-headgate-sensitive":true,`).Replace(x.schema), n))
		if v, _ := marked.Report([]byte(x.secret)); v == nil || strings.Contains(string(encode(t, v)), "hunter2") {
			t.Errorf("%s: %s", x.secret, encode(t, v))
		}
	}
}

// TestAvroNumbersAmongOtherFaults: a number that is sent as a string is mended
// beside other faults, while a string that is a value already stays.
func TestAvroNumbersAmongOtherFaults(t *testing.T) {
	c := compileAvroText(t, `{"type":"record","name":"R","fields":[
		{"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}},
		{"name":"fee","type":["null",{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}],"default":null},
		{"name":"tax","type":{"type":"fixed","name":"Tax","size":3,"logicalType":"decimal","precision":6,"scale":2},"default":"\u0000\u0000\u0000"},
		{"name":"any","type":["null","boolean",{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}],"default":null},
		{"name":"ratio","type":"double","default":0},
		{"name":"count","type":"int","default":0}]}`)
	for _, x := range []struct{ in, steps, out string }{
		{`{"Amount":"12.50"}`, "spelling number_string", `{"amount":12.50}`},
		{`{"amont":"12.50","count":"3"}`, "rename number_string integer_string", `{"amount":12.50,"count":3}`},
		{"```json\n{\"amount\":\"12.50\"}\n```", "strip_fence number_string", `{"amount":12.50}`},
		{`{"amount":"12.50",}`, "trailing_comma number_string", `{"amount":12.50}`},
		{`"{\"amount\":\"12.50\"}"`, "decode_text number_string", `{"amount":12.50}`},
		{`{"amount":1,"Fee":"12.50"}`, "spelling number_string", `{"amount":1,"fee":12.50}`},
		{`{"amount":1,"fee":{"bytes":"12.50"},"Count":1}`, "spelling number_string", `{"amount":1,"fee":{"bytes":12.50},"count":1}`},
		{`{"amount":1,"tax":"12.50","Count":1}`, "spelling number_string", `{"amount":1,"tax":12.50,"count":1}`},
		{`{"amount":1,"any":{"bytes":"12.50"},"Count":1}`, "spelling number_string", `{"amount":1,"any":{"bytes":12.50},"count":1}`},
		{`{"amount":1,"any":"12.50","Count":1}`, "spelling number_string", `{"amount":1,"any":12.50,"count":1}`},
		// Two bytes beyond the digits that there are: 0x3939 is 14649.
		{`{"amount":"99","count":1}`, "integer_string", `{"amount":99,"count":1}`},
		// Values as they are: 0x0101, 0x313233, NaN.
		{`{"amount":"\u0001\u0001","Count":1}`, "spelling", `{"amount":"\u0001\u0001","count":1}`},
		{`{"amount":1,"tax":"\u0001\u0002\u0003","Count":1}`, "spelling", `{"amount":1,"tax":"\u0001\u0002\u0003","count":1}`},
		{`{"amount":1,"ratio":"NaN","count":"1"}`, "integer_string", `{"amount":1,"ratio":"NaN","count":1}`},
		{`{"amount":1,"ratio":"1.5","Count":1}`, "spelling number_string", `{"amount":1,"ratio":1.5,"count":1}`},
		// A truth value is no decimal, though its word is bytes.
		{`{"amount":true}`, "", ""},
		{`{"amount":1,"tax":true,"Count":1}`, "", ""},
	} {
		v, mended := c.Report([]byte(x.in))
		if v == nil {
			t.Errorf("%s passes", x.in)
			continue
		}
		checkProposals(t, c, []byte(x.in), v, mended)
		var steps []string
		var doc string
		if len(v.Proposals) > 0 {
			for _, s := range v.Proposals[0].Steps {
				steps = append(steps, string(s.Step))
			}
			doc = string(encode(t, applyProposal(t, []byte(x.in), &v.Proposals[0])))
		}
		want := ""
		if x.out != "" {
			want = string(encode(t, decode(t, []byte(x.out))))
		}
		if wanted := strings.Fields(x.steps); !slices.Equal(slices.Sorted(slices.Values(steps)), slices.Sorted(slices.Values(wanted))) || doc != want {
			t.Errorf("%s:\n got %q %s\nwant %q %s\n%q", x.in, steps, doc, x.steps, want, brief(v))
		}
	}
}

// TestAvroTwinsAreMadeOnce: nothing is made before a payload is refused, and one
// twin serves all that are refused at the same time.
func TestAvroTwinsAreMadeOnce(t *testing.T) {
	c := compileAvroText(t, secretAvro)
	if v := c.Check([]byte(`{"name":"a"}`)); v != nil || c.avro.twinMade != nil {
		t.Errorf("a twin for a payload that passes: %v", brief(v))
	}
	const refused = `{"name":"a","Open":"1","pin":"x"}`
	var group sync.WaitGroup
	reports := make([]string, 16)
	for i := range reports {
		group.Go(func() {
			v, _ := c.WithVersion(1).Report([]byte(refused))
			reports[i] = string(encode(t, v))
		})
	}
	group.Wait()
	if distinct := slices.Compact(slices.Sorted(slices.Values(reports))); len(distinct) != 1 || !strings.Contains(distinct[0], string(headgate.ViolationWrongType)) {
		t.Errorf("%q", distinct)
	}
	if made := c.avro.twinMade; made == nil || made != c.avro.twin() {
		t.Error("another twin")
	}
}
