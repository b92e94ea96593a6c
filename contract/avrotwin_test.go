package contract

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// orderedAvro holds every kind of type, names of old, and a list of itself.
const orderedAvro = `{"type":"record","name":"Order","namespace":"shop","doc":"An order.","x-headgate-repair":"apply-lossless","fields":[
	{"name":"order_id","type":{"type":"string","logicalType":"uuid"},"aliases":["id","orderRef"],"doc":"Of the shop."},
	{"name":"count","type":"int","default":1},
	{"name":"total","type":{"type":"bytes","logicalType":"decimal","precision":8,"scale":2}},
	{"name":"paid","type":"boolean","default":false},
	{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
	{"name":"noon","type":["null",{"type":"int","logicalType":"time-millis"}],"default":null},
	{"name":"state","type":{"type":"enum","name":"State","symbols":["open","closed","in_transit"]}},
	{"name":"last_state","type":["null","State"],"default":null},
	{"name":"weight","type":["null","double"],"default":null},
	{"name":"ratio","type":"float","default":0.5},
	{"name":"mark","type":{"type":"fixed","name":"Mark","size":3},"default":"abc"},
	{"name":"big_mark","type":{"type":"fixed","name":"BigMark","size":16,"logicalType":"decimal","precision":20,"scale":0},"default":"\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0001"},
	{"name":"raw","type":"bytes","default":""},
	{"name":"from","type":["null","string",{"type":"record","name":"Shop","fields":[{"name":"shop_name","type":"string"},{"name":"size","type":["null","int"],"default":null}]},{"type":"array","items":"long"}],"default":null},
	{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string","aliases":["article"]},{"name":"n","type":"long"}]}}},
	{"name":"next","type":["null","Order"],"default":null},
	{"name":"voids","type":{"type":"array","items":"null"},"default":[]}]}`

const orderedJSON = `"order_id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","total":12.5,"at":1,"state":"open","lines":[]`

// TestAvroProposals: what is proposed for JSON that an Avro contract refuses.
func TestAvroProposals(t *testing.T) {
	c := compileAvroText(t, orderedAvro)
	for _, x := range []struct{ in, steps, out string }{
		{`{` + orderedJSON + `,"count":"5"}`, "integer_string", `{` + orderedJSON + `,"count":5}`},
		{`{` + strings.Replace(orderedJSON, "order_id", "orderRef", 1) + `}`, "alias", `{` + orderedJSON + `}`},
		{`{` + strings.Replace(orderedJSON, "order_id", "orderId", 1) + `}`, "spelling", `{` + orderedJSON + `}`},
		{`{` + strings.Replace(orderedJSON, "order_id", "ordr_id", 1) + `}`, "rename", `{` + orderedJSON + `}`},
		{`{` + strings.Replace(orderedJSON, "open", "In Transit", 1) + `}`, "nearest_value", `{` + strings.Replace(orderedJSON, "open", "in_transit", 1) + `}`},
		{`{` + orderedJSON + `,"paid":"yes"}`, "truth_word", `{` + orderedJSON + `,"paid":true}`},
		{`{` + orderedJSON + `,"weight":"2.5"}`, "number_string", `{` + orderedJSON + `,"weight":2.5}`},
		{`{` + orderedJSON + `,"weight":{"double":"2.5"}}`, "number_string", `{` + orderedJSON + `,"weight":{"double":2.5}}`},
		{`{` + orderedJSON + `,"noon":"5","weight":{"double":1}}`, "integer_string", `{` + orderedJSON + `,"noon":5,"weight":{"double":1}}`},
		{`{` + strings.Replace(orderedJSON, "12.5", `"1234.50"`, 1) + `}`, "number_string", `{` + strings.Replace(orderedJSON, "12.5", "1234.50", 1) + `}`},
		{`{` + strings.Replace(orderedJSON, "[]", `[{"article":"a","N":"1"}]`, 1) + `}`, "alias spelling integer_string", `{` + strings.Replace(orderedJSON, "[]", `[{"sku":"a","n":1}]`, 1) + `}`},
		{`{` + orderedJSON + `,"from":{"ShopName":"x"}}`, "spelling", `{` + orderedJSON + `,"from":{"shop_name":"x"}}`},
		{`{` + orderedJSON + `,"next":{` + orderedJSON + `,"count":"7"}}`, "integer_string", `{` + orderedJSON + `,"next":{` + orderedJSON + `,"count":7}}`},
		{"```json\n{" + orderedJSON + ",}\n```", "strip_fence trailing_comma", `{` + orderedJSON + `}`},
		{`{"order":{` + orderedJSON + `}}`, "unwrap", `{` + orderedJSON + `}`},
		{`{` + orderedJSON + `,"count":2147483648}`, "", ""},     // no step makes it smaller
		{`{` + orderedJSON + `,"lines2":1,"count":1.5}`, "", ""}, // and none rounds
		// "12" are the two bytes of a decimal, and no fault: they stay.
		{`{` + strings.Replace(orderedJSON, "12.5", `"12"`, 1) + `,"count":"5"}`, "integer_string", `{` + strings.Replace(orderedJSON, "12.5", `"12"`, 1) + `,"count":5}`},
	} {
		v, mended := c.Report([]byte(x.in))
		if v == nil {
			t.Errorf("%s passes", x.in)
			continue
		}
		if len(v.Proposals) == 0 {
			if x.steps != "" {
				t.Errorf("%s: no proposal, want %s; %v", x.in, x.steps, brief(v))
			}
			continue
		}
		var steps []string
		for _, s := range v.Proposals[0].Steps {
			steps = append(steps, string(s.Step))
		}
		slices.Sort(steps)
		want := strings.Fields(x.steps)
		slices.Sort(want)
		doc := encode(t, applyProposal(t, []byte(x.in), &v.Proposals[0]))
		if !slices.Equal(steps, want) || string(doc) != string(encode(t, decode(t, []byte(x.out)))) {
			t.Errorf("%s:\n got %q %s\nwant %q %s", x.in, steps, doc, want, x.out)
		}
		if (mended != nil) != v.Proposals[0].Lossless || mended != nil && c.Check(mended) != nil {
			t.Errorf("%s: mended to %s", x.in, mended)
		}
	}
}

// TestAvroRepairModes: the mode is the schema's, and binary has no proposals.
func TestAvroRepairModes(t *testing.T) {
	const schema = `{"type":"record","name":"R",%"fields":[{"name":"n","type":"int"}]}`
	for mode, want := range map[string]string{
		``: "1 propose", `"x-headgate-repair":"off",`: "0 off", `"x-headgate-repair":"apply-lossless",`: "1 apply-lossless", `"x-headgate-repair":7,`: "1 propose",
	} {
		c := compileAvroText(t, strings.Replace(schema, "%", mode, 1))
		v, mended := c.Report([]byte(`{"n":"1"}`))
		if got := strconv.Itoa(len(v.Proposals)) + " " + string(c.Repair()); got != want || (mended != nil) != (c.Repair() == RepairLossless) {
			t.Errorf("%s: %s, want %s; %s", mode, got, want, mended)
		}
		if v := c.CheckAvro([]byte("\x80")); v == nil || v.Proposals != nil {
			t.Errorf("binary: %+v", v)
		}
	}
}

// avroTwinSchemas are schemas that have a form in JSON Schema.
func avroTwinSchemas(t testing.TB) (out []*Contract) {
	t.Helper()
	for _, p := range avroSchemas(t) {
		out = append(out, p.ours)
	}
	return append(out, compileAvroText(t, orderedAvro), compileAvroText(t, profileAvro))
}

// TestAvroStrictDocumentsEncode holds the promise of the export for Avro
// contracts: every document of an exact one, mapped back, becomes a datum that
// the contract takes, and reads back the same.
func TestAvroStrictDocumentsEncode(t *testing.T) {
	each := 400
	if raceEnabled {
		each = 40
	}
	rng := rand.New(rand.NewPCG(11, 12))
	exports, exact, documents := 0, 0, 0
	for _, c := range avroTwinSchemas(t) {
		x, err := c.Strict(nil)
		if err != nil {
			continue
		}
		exports++
		if x.Exact() {
			exact++
		}
		root, _ := decode(t, x.Schema).(map[string]any)
		for range each {
			doc := encode(t, generateAvro(rng, root, root, 0))
			if v := x.back.Check(doc); v != nil {
				if v.Violations[0].Code == headgate.ViolationTooDeep {
					continue
				}
				t.Fatalf("%s: the generator is wrong: %s: %v", x.Schema, doc, brief(v))
			}
			documents++
			back := x.Back(doc)
			datum, err := c.AvroFromJSON(back)
			if err != nil {
				t.Fatalf("%s\nexport %s\ndocument %s\n%v", c.schema, x.Schema, clip(string(back), 600), brief(c.Check(back)))
			}
			if v := c.CheckAvro(datum); v != nil {
				t.Fatalf("%s: %x: %v", back, datum, brief(v))
			}
			text, err := c.AvroToJSON(datum)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := c.AvroFromJSON(text); err != nil || string(again) != string(datum) {
				t.Fatalf("%s: %x came back as %x, %v", text, datum, again, err)
			}
		}
	}
	t.Logf("%d exports, %d exact, %d documents", exports, exact, documents)
	if exports < 5 || exact != exports || documents < each {
		t.Errorf("%d exports, %d exact, %d documents say little", exports, exact, documents)
	}
}

var avroBytesPattern = regexp.MustCompile(`^\^\[\\x00-\\xff\](?:\*|\{(\d+)\})\$$`)

// generateAvro is generate for the forms of numbers and bytes that exports of
// Avro contracts have, at their bounds too.
func generateAvro(rng *rand.Rand, root, schema map[string]any, depth int) any {
	if list, ok := schema["type"].([]any); ok && list[0] != "object" {
		schema = map[string]any{
			"type": draw(rng, list), "pattern": schema["pattern"], "minimum": schema["minimum"], "maximum": schema["maximum"],
			"format": schema["format"], "multipleOf": schema["multipleOf"], "exclusiveMaximum": schema["exclusiveMaximum"],
		}
	}
	switch schema["type"] {
	case "object":
		out := map[string]any{}
		props, _ := schema["properties"].(map[string]any)
		for _, k := range sortedKeys(props) {
			out[k] = generateAvro(rng, root, props[k].(map[string]any), depth+1)
		}
		return out
	case "array":
		out := []any{}
		for n := rng.IntN(3); n > 0 && depth < 12; n-- {
			out = append(out, generateAvro(rng, root, schema["items"].(map[string]any), depth+1))
		}
		return out
	case "integer", "number":
		low, _ := schema["minimum"].(json.Number)
		high, _ := schema["maximum"].(json.Number)
		if most, ok := schema["exclusiveMaximum"].(json.Number); ok {
			step, _ := schema["multipleOf"].(json.Number)
			if most == "1e4" && step == "1e-2" {
				return json.Number(draw(rng, []string{"9999.99", "-9999.99", "0.01", "0", "-0.00", "12.5", "1e3"}))
			}
			if most == "1e6" && step == "1e-2" {
				return json.Number(draw(rng, []string{"999999.99", "-999999.99", "0.01", "-1", "25e1"}))
			}
			return step
		}
		return draw(rng, []json.Number{low, high, "1", "2", "0"})
	case "string":
		pattern, _ := schema["pattern"].(string)
		m := avroBytesPattern.FindStringSubmatch(pattern)
		if m == nil {
			break
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			n = rng.IntN(5)
		}
		text := make([]rune, n)
		for i := range text {
			text[i] = rune(rng.IntN(256))
		}
		return string(text)
	}
	if ref, ok := schema["$ref"].(string); ok {
		target, _ := lookupPointer(root, strings.TrimPrefix(ref, "#"))
		obj, _ := target.(map[string]any)
		return generateAvro(rng, root, obj, depth+1)
	}
	if list, ok := schema["anyOf"].([]any); ok {
		if depth > 12 {
			for _, b := range list {
				if b.(map[string]any)["type"] == "null" {
					return nil
				}
			}
		}
		return generateAvro(rng, root, draw(rng, list).(map[string]any), depth+1)
	}
	return generate(rng, root, schema, depth)
}

// TestAvroStrictExport: what the export says, and what it loses.
func TestAvroStrictExport(t *testing.T) {
	c := compileAvroText(t, `{"type":"record","name":"R","fields":[
		{"name":"a","type":"string","doc":"First."},{"name":"b","type":"int","default":1},{"name":"m","type":{"type":"map","values":"int"}},
		{"name":"u","type":["null",{"type":"record","name":"x.U","fields":[]},"long"]},{"name":"f","type":{"type":"fixed","name":"F","size":401}}]}`)
	x, err := c.Strict(nil)
	if err != nil {
		t.Fatal(err)
	}
	const object = `"type":"object","additionalProperties":false,`
	const long = `"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807`
	want := `{` + object + `"properties":{
		"a":{"type":"string","description":"First."},"b":{"type":["integer","null"],"minimum":-2147483648,"maximum":2147483647},
		"m":{` + object + `"properties":{},"required":[]},
		"u":{"anyOf":[{"type":"null"},{` + object + `"properties":{"x.U":{"$ref":"#/$defs/x.U"}},"required":["x.U"]},{` + object + `"properties":{"long":{` + long + `}},"required":["long"]}]},
		"f":{"type":"string","pattern":"^[\\x00-\\xff]*$"}},"required":["a","b","f","m","u"],"$defs":{"x.U":{` + object + `"properties":{},"required":[]}}}`
	got, err1 := Canonical(sortRequired(t, x.Schema))
	wanted, err2 := Canonical(sortRequired(t, []byte(want)))
	if err1 != nil || err2 != nil || string(got) != string(wanted) {
		t.Errorf("got %s\nwant %s", got, wanted)
	}
	var losses []string
	for _, l := range x.Losses {
		losses = append(losses, string(l.Effect)+" "+l.Keyword+" "+l.At)
	}
	if want := []string{"narrowed additionalProperties /fields/2", "loosened maxLength /fields/4", "loosened minLength /fields/4"}; !slices.Equal(losses, want) || x.Exact() {
		t.Errorf("losses %q, want %q", losses, want)
	}
	if !slices.Equal(x.NullMeansAbsent, []string{"/properties/b"}) {
		t.Errorf("null means absent: %q", x.NullMeansAbsent)
	}
	for _, schema := range []string{`"string"`, `["null","int"]`, `{"type":"array","items":"int"}`} {
		if _, err := compileAvroText(t, schema).Strict(nil); headgate.CodeOf(err) != headgate.CodeInvalidArgument || !strings.Contains(err.Error(), "the root must describe an object") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// TestAvroProposalsAlwaysValidate is [TestProposalsAlwaysValidate] for Avro
// contracts.
func TestAvroProposalsAlwaysValidate(t *testing.T) {
	rounds := 600
	if raceEnabled {
		rounds = 40
	}
	rng := rand.New(rand.NewPCG(13, 14))
	refused, proposed := 0, 0
	for _, c := range []*Contract{compileAvroText(t, strings.Replace(orderedAvro, "apply-lossless", "propose", 1)), compileAvroText(t, profileAvro)} {
		x, err := c.Strict(nil)
		if err != nil {
			t.Fatal(err)
		}
		root, _ := decode(t, x.Schema).(map[string]any)
		for range rounds {
			doc := decode(t, x.Back(encode(t, generateAvro(rng, root, root, 8))))
			for range 1 + rng.IntN(3) {
				doc = damage(rng, doc)
			}
			text := damageText(rng, encode(t, doc))
			v, mended := c.Report(text)
			if v == nil {
				continue
			}
			refused++
			checkProposals(t, c, text, v, mended)
			if len(v.Proposals) > 0 {
				proposed++
			}
		}
	}
	t.Logf("%d refused, %d with proposals", refused, proposed)
	if !raceEnabled && (refused < 500 || proposed < refused/10) {
		t.Errorf("%d refused, %d with proposals say little", refused, proposed)
	}
}

// TestAvroTwinAgrees: what the form in JSON Schema refuses and the contract
// takes has no proposal that would change it; what a datum is written as, the
// form of the export takes.
func TestAvroTwinAgrees(t *testing.T) {
	for _, p := range avroSchemas(t) {
		text, _, err := p.ours.avro.form()
		if err != nil {
			t.Fatal(err)
		}
		form, _, err := Compile("f", 1, text, &CompileOpts{Policy: twinPolicy(p.ours.policy)})
		if err != nil {
			t.Errorf("%s: %s: %v", p.text, text, err)
			continue
		}
		for _, seed := range seedsOf(t, p) {
			doc, err := p.ours.AvroToJSON(seed)
			if err != nil || strings.Contains(string(doc), `"NaN"`) || strings.Contains(string(doc), `Infinity`) || strings.Contains(p.text, "decimal") {
				continue // what the form leaves out
			}
			if v := form.Check(doc); v != nil {
				t.Errorf("%s: %s: %v", p.text, doc, brief(v))
			}
		}
	}
}

// TestAvroWarnings: what is valid and likely not meant.
func TestAvroWarnings(t *testing.T) {
	field := func(f string) string { return `{"type":"record","name":"R","fields":[{"name":"f",` + f + `}]}` }
	for _, c := range []struct {
		schema string
		want   []string
		words  string
	}{
		{orderedAvro, nil, ""},
		{profileAvro, nil, ""},
		{`{"type":"string","logicalType":"uuid4"}`, []string{"unknown_logical_type /logicalType"}, "did you mean uuid?"},
		{`{"type":"string","logicalType":"money\u001b"}`, []string{"unknown_logical_type /logicalType"}, `checked as string alone`},
		{`{"type":"int","logicalType":"timestamp-millis"}`, []string{"ignored_logical_type /logicalType"}, "belongs to long"},
		{`{"type":"long","logicalType":"timestamp-seconds"}`, []string{"unknown_logical_type /logicalType"}, ""},
		{`{"type":"long","logicalType":"local-timestamp-nanos"}`, nil, ""},
		{`{"type":"bytes","logicalType":"big-decimal"}`, nil, ""},
		{`{"type":"string","logicalType":7}`, []string{"unknown_logical_type /logicalType"}, "a string"},
		{`{"type":"fixed","name":"F","size":3,"logicalType":"duration"}`, []string{"ignored_logical_type /logicalType"}, "fixed of 12 bytes"},
		{`{"type":"array","items":"int","logicalType":"date"}`, []string{"ignored_logical_type /logicalType"}, "of an array"},
		{`{"type":"map","values":{"type":"int","logicalType":"set"},"logicalType":"set"}`, []string{"unknown_logical_type /logicalType", "unknown_logical_type /values/logicalType"}, ""},
		{`{"type":"enum","name":"E","symbols":["a"],"logicalType":"x"}`, []string{"unknown_logical_type /logicalType"}, "an enum"},
		{field(`"type":"string","logicalType":"uuid"`), []string{"ignored_logical_type /fields/0/logicalType"}, "into the field's type"},
		{field(`"type":["null",{"type":"int","logicalType":"time-micros"}]`), []string{"ignored_logical_type /fields/0/type/1/logicalType"}, ""},
		{field(`"type":"int","defualt":1`), []string{"unknown_keyword /fields/0/defualt"}, "did you mean default?"},
		{field(`"type":{"type":"string","logicaltype":"uuid"}`), []string{"unknown_keyword /fields/0/type/logicaltype"}, "did you mean logicalType?"},
		{field(`"type":"string","x-headgate-sensitive":true`), nil, ""},
		{field(`"type":"string","x-headgate-sensitive":"yes"`), []string{"unknown_keyword /fields/0/x-headgate-sensitive"}, "taken for true"},
		{field(`"type":"string","x-headgate-aliases":["g"]`), []string{"unknown_keyword /fields/0/x-headgate-aliases"}, "says nothing here"},
		{field(`"type":"string","com.acme.owner":"us","pii":true`), nil, ""},
		{`{"type":"record","name":"R","x-headgate-repair":"maybe","fields":[]}`, []string{"unknown_keyword /x-headgate-repair"}, "apply-lossless"},
	} {
		for _, read := range []func() ([]Warning, error){
			func() ([]Warning, error) {
				_, w, err := Compile("t", 1, []byte(c.schema), &CompileOpts{Type: TypeAvro})
				return w, err
			},
			func() ([]Warning, error) {
				w, err := Lint([]byte(c.schema), &CompileOpts{Type: TypeAvro})
				return slices.DeleteFunc(w, Warning.IsAdvice), err
			},
		} {
			warnings, err := read()
			if err != nil {
				t.Errorf("%s: %v", c.schema, err)
				continue
			}
			if got := warned(warnings); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", c.schema, got, c.want)
			} else if c.words != "" && !strings.Contains(warnings[0].Detail, c.words) {
				t.Errorf("%s: %q lacks %q", c.schema, warnings[0].Detail, c.words)
			}
		}
	}
	many := `{"type":"record","name":"R","fields":[` + strings.Repeat(`{"name":"f%","type":{"type":"int","logicalType":"x"}},`, 200)
	for i := range 200 {
		many = strings.Replace(many, "%", strconv.Itoa(i), 1)
	}
	if _, w, err := Compile("t", 1, []byte(strings.TrimSuffix(many, ",")+"]}"), &CompileOpts{Type: TypeAvro}); err != nil || len(w) != maxWarnings+1 || w[maxWarnings].Code != WarnMore {
		t.Errorf("%d warnings, %v", len(w), err)
	}
}
