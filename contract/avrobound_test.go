package contract

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// avroArrayOf is a datum of n items of no or zero bytes each.
func avroArrayOf(n, bytes int) []byte {
	return append(binary.AppendVarint(nil, int64(n)), make([]byte, n*bytes+1)...)
}

// doubling returns records of which each holds the one before twice.
func doubling(n int, leaf, extra string) string {
	s := fmt.Sprintf(`{"type":"record","name":"R0","fields":[{"name":"a","type":%s},{"name":"b","type":%s}]}`, leaf, leaf)
	for i := 1; i < n; i++ {
		s = fmt.Sprintf(`{"type":"record","name":"R%d","fields":[{"name":"a","type":%s%s},{"name":"b","type":"R%d"%s}]}`, i, s, extra, i-1, extra)
	}
	return s
}

// TestAvroDefaultsAreBounded: a JSON text that leaves large defaults out does
// not become more Avro than its length allows.
func TestAvroDefaultsAreBounded(t *testing.T) {
	fields := make([]string, 200)
	for i := range fields {
		fields[i] = fmt.Sprintf(`{"name":"f%d","type":"string","default":"%s"}`, i, strings.Repeat("x", 900))
	}
	c := compileAvroText(t, `{"type":"record","name":"R","fields":[{"name":"m","type":{"type":"array","items":{"type":"record","name":"I","fields":[`+strings.Join(fields, ",")+`]}}}]}`)
	few := []byte(`{"m":[{},{},{}]}`)
	if out, err := c.AvroFromJSON(few); err != nil || len(out) < 3*200*900 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	many := []byte(`{"m":[{}` + strings.Repeat(`,{}`, 4000) + `]}`)
	v := c.Check(many)
	if v == nil || v.Violations[0].Code != headgate.ViolationTooComplex || !strings.Contains(v.Violations[0].Got, "in Avro") {
		t.Errorf("%+v", v)
	}
	tape, _ := readTape(many, c.policy.limits(), nil)
	r := newAvroRead(&tape, c.policy.Depth, avroMost(len(many)))
	if r.value(c.avro.root, 0) || !r.full || len(r.dst) > avroMost(len(many)) {
		t.Errorf("%d bytes, full %v", len(r.dst), r.full)
	}
}

// TestAvroFaultsAreBounded: the look for faults ends where there are many.
func TestAvroFaultsAreBounded(t *testing.T) {
	fields := make([]string, 200)
	for i := range fields {
		fields[i] = fmt.Sprintf(`{"name":"f%d","type":"string"}`, i)
	}
	c := compileAvroText(t, `{"type":"array","items":{"type":"record","name":"I","fields":[`+strings.Join(fields, ",")+`]}}`)
	v := c.Check([]byte(`[{}` + strings.Repeat(`,{}`, 999) + `]`))
	if v == nil || len(v.Violations)+v.Truncated != maxSought {
		t.Fatalf("%d faults told of 200,000", len(v.Violations)+v.Truncated)
	}
	if v = c.Check([]byte(`[{}` + strings.Repeat(`,{}`, 3) + `]`)); len(v.Violations)+v.Truncated != 200*4 {
		t.Fatalf("%d faults told of 800", len(v.Violations)+v.Truncated)
	}
	if got := v.Violations[0]; got.At != "/0/f0" {
		t.Errorf("%+v", got)
	}
}

// TestAvroAsJSONIsBounded: names that stand in the schema once and in JSON each
// time do not make the JSON grow beyond what the datum's length allows.
func TestAvroAsJSONIsBounded(t *testing.T) {
	long := strings.Repeat("S", 1000)
	fields := make([]string, 200)
	for i := range fields {
		fields[i] = fmt.Sprintf(`{"name":"f%d%s","type":"null"}`, i, long[:900])
	}
	for _, c := range []struct {
		name, schema string
		bytes, few   int
		many         int
	}{
		{"symbols", `{"type":"enum","name":"E","symbols":["` + long + `"]}`, 1, 100, 50_000},
		{"names", `{"type":"record","name":"R","fields":[` + strings.Join(fields, ",") + `,{"name":"b","type":"boolean"}]}`, 1, 3, 80},
		{"branches", `["null","string",{"type":"enum","name":"E` + long + `","symbols":["A"]}]`, 1, 100, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compileAvroText(t, `{"type":"array","items":`+c.schema+`}`)
			if text, err := p.AvroToJSON(avroArrayOf(c.few, c.bytes)); err != nil || p.Check(text) != nil {
				t.Errorf("%d bytes, %v", len(text), err)
			}
			if c.many == 0 {
				return
			}
			datum := avroArrayOf(c.many, c.bytes)
			if v := p.CheckAvro(datum); v != nil {
				t.Fatalf("%+v", v.Violations)
			}
			if _, err := p.AvroToJSON(datum); headgate.CodeOf(err) != headgate.CodeTooLarge {
				t.Errorf("%v", err)
			}
			most := avroMost(len(datum))
			if out, ok := p.avro.toJSON(datum, p.policy.Depth, most); ok || len(out) > most+4*len(long) {
				t.Errorf("%d bytes of %d", len(out), most)
			}
		})
	}
}

// TestAvroFixedDecimalIsBounded: a number is not filled up to a fixed of more
// bytes than its text allows.
func TestAvroFixedDecimalIsBounded(t *testing.T) {
	schema := `{"type":"fixed","name":"F","size":%d,"logicalType":"decimal","precision":4,"scale":0}`
	c := compileAvroText(t, fmt.Sprintf(schema, 32<<20))
	if v := c.Check([]byte(`-7`)); v == nil || v.Violations[0].Code != headgate.ViolationTooComplex {
		t.Errorf("%+v", v)
	}
	c = compileAvroText(t, fmt.Sprintf(schema, 1<<19))
	if out, err := c.AvroFromJSON([]byte(`-7`)); err != nil || len(out) != 1<<19 || out[0] != 0xff || out[1<<19-1] != 0xf9 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// TestAvroDefaultsOfSchemas: the defaults of a schema are bounded together, and
// one that rests on another is whole.
func TestAvroDefaultsOfSchemas(t *testing.T) {
	blob := strings.Repeat("x", 1000)
	schema := doubling(12, `"string"`, `,"default":{}`)
	schema = strings.Replace(schema, `"type":"string"`, `"type":"string","default":"`+blob+`"`, 2)
	if _, _, err := Compile("t", 1, []byte(schema), &CompileOpts{Type: TypeAvro}); headgate.CodeOf(err) != headgate.CodeContractInvalid || !strings.Contains(err.Error(), "together") {
		t.Errorf("%v", err)
	}
	const deep = 20 // written out they are hundreds of megabytes
	rsn := &reasons{}
	screenDefaults([][]byte{[]byte(strings.ReplaceAll(doubling(deep, `"null"`, `,"default":{}`), `"type":"null"`, `"type":"null","default":null`))}, schemaLimits(), rsn)
	if !strings.Contains(rsn.String(), "together") {
		t.Errorf("%s", rsn)
	}
	rsn = &reasons{}
	screenDefaults([][]byte{[]byte(`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"R"},"default":[{}]}]}`)}, schemaLimits(), rsn)
	if rsn.empty() {
		t.Error("a default that rests on itself passes")
	}
	small := compileAvroText(t, strings.ReplaceAll(doubling(3, `"null"`, `,"default":{}`), `"type":"null"`, `"type":"null","default":null`))
	if v := small.Check([]byte(`{}`)); v != nil {
		t.Errorf("%+v", v.Violations)
	}
	nested := compileAvroText(t, `{"type":"record","name":"A","fields":[{"name":"b","default":{},"type":{"type":"record","name":"B","fields":[{"name":"s","type":"string","default":"xyz"}]}}]}`)
	if out, err := nested.AvroFromJSON([]byte(`{}`)); err != nil || string(out) != "\x06xyz" {
		t.Errorf("%x, %v", out, err)
	}
}

// TestAvroSmallestValuePasses: the greatest schema that is taken has a value,
// in both forms.
func TestAvroSmallestValuePasses(t *testing.T) {
	c := compileAvroText(t, doubling(13, `"null"`, ""))
	if v := c.CheckAvro(nil); v != nil {
		t.Errorf("%+v", v.Violations)
	}
	text, err := c.AvroToJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Check(text); v != nil {
		t.Errorf("%+v", v.Violations)
	}
}

// TestAvroDepthIsTheValues: records that are laid out flat count as one level
// each where they stand, and for what stands below them alone.
func TestAvroDepthIsTheValues(t *testing.T) {
	c := compileAvroText(t, `{"type":"record","name":"N","fields":[
		{"name":"m","type":{"type":"record","name":"M","fields":[{"name":"x","type":{"type":"record","name":"X","fields":[{"name":"y","type":"null"}]}}]}},
		{"name":"n","type":["null","N"]}]}`)
	for _, levels := range []int{1, 61, 62, 63} {
		datum := append([]byte(strings.Repeat("\x02", levels-1)), 0)
		text := strings.Repeat(`{"m":{"x":{"y":null}},"n":`, levels) + "null" + strings.Repeat("}", levels)
		passes := levels+2 <= 64 // the last one holds two more
		if v := c.CheckAvro(datum); (v == nil) != passes || v != nil && v.Violations[0].Code != headgate.ViolationTooDeep {
			t.Errorf("%d levels: %+v", levels, v)
		}
		if v := c.Check([]byte(text)); (v == nil) != passes {
			t.Errorf("%d levels in JSON: %+v", levels, v)
		}
	}
}
