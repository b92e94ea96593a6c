package contract

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/avro"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/outside"
)

func compileAvroText(t testing.TB, schema string) *Contract {
	t.Helper()
	c, _, err := Compile("s", 1, []byte(schema), &CompileOpts{Type: TypeAvro})
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return c
}

// TestAvroRejections: the payloads that the Avro project says every reader
// must reject.
func TestAvroRejections(t *testing.T) {
	text, err := os.ReadFile(outside.Suites(t, "avro", "binary-rejections.json"))
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		MustReject []struct{ Name, Schema, BytesHex string } `json:"must_reject"`
	}
	if err := json.Unmarshal(text, &suite); err != nil || len(suite.MustReject) != 9 {
		t.Fatalf("%d cases, %v", len(suite.MustReject), err)
	}
	for _, c := range suite.MustReject {
		data, err := hex.DecodeString(c.BytesHex)
		if err != nil {
			t.Fatal(err)
		}
		v := compileAvroText(t, c.Schema).CheckAvro(data)
		if v == nil || len(v.Violations) == 0 || v.Violations[0].Code == headgate.ViolationTooComplex {
			t.Errorf("%s: %+v", c.Name, v)
		}
	}
}

// TestAvroCanonicalForms: the Avro project's vectors of canonical forms and
// fingerprints.
func TestAvroCanonicalForms(t *testing.T) {
	text, err := os.ReadFile(outside.Suites(t, "avro", "schema-tests.txt"))
	if err != nil {
		t.Fatal(err)
	}
	cases, prints := 0, 0
	for _, part := range strings.Split(string(text), "\n// ")[1:] {
		input, rest, ok := section(part, "INPUT")
		if !ok {
			continue
		}
		canonical, rest, ok := section(rest, "canonical")
		if !ok {
			t.Errorf("no canonical form of %s", input)
			continue
		}
		cases++
		if strings.Contains(input, `"size":015`) { // a number with a leading zero is no JSON: one parser takes it
			if _, _, err := Compile("s", 1, []byte(input), &CompileOpts{Type: TypeAvro}); headgate.CodeOf(err) != headgate.CodeContractInvalid {
				t.Errorf("%s: %v", input, err)
			}
			continue
		}
		c := compileAvroText(t, input)
		if print, err := FingerprintAvro([]byte(input)); err != nil || print != c.AvroFingerprint() {
			t.Errorf("%s: %x, %v", input, print, err)
		}
		if got := string(c.AvroCanonical()); got != canonical {
			t.Errorf("%s:\n got %s\nwant %s", input, got, canonical)
		}
		if print, _, ok := section(rest, "fingerprint"); ok {
			prints++
			want, err := strconv.ParseInt(print, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got := int64(c.AvroFingerprint()); got != want {
				t.Errorf("%s: fingerprint %d, want %d", input, got, want)
			}
		}
	}
	if cases != 34 || prints < 10 {
		t.Errorf("only %d cases and %d fingerprints were found", cases, prints)
	}
}

// section cuts a value out of the vectors: <<NAME value, or lines between
// <<NAME and NAME.
func section(s, name string) (value, rest string, ok bool) {
	_, s, ok = strings.Cut(s, "<<"+name)
	if !ok {
		return "", "", false
	}
	line, rest, _ := strings.Cut(s, "\n")
	if line = strings.TrimSpace(line); line != "" {
		return line, rest, true
	}
	value, rest, ok = strings.Cut(rest, "\n"+name+"\n")
	return strings.TrimSpace(value), rest, ok
}

// avroCases are payloads by schema, in hex, with the code and place of their
// first violation; "" means that they pass.
var avroCases = []struct{ schema, hex, code, at string }{
	{`"null"`, "", "", ""},
	{`"null"`, "00", "syntax", ""},
	{`"boolean"`, "00", "", ""},
	{`"boolean"`, "01", "", ""},
	{`"boolean"`, "02", "wrong_type", ""},
	{`"boolean"`, "", "syntax", ""},
	{`"int"`, "ffffffff0f", "", ""},
	{`"int"`, "feffffff0f", "", ""},
	{`"int"`, "ffffffff1f", "syntax", ""},
	{`"int"`, "8000", "", ""}, // longer than it need be
	{`"int"`, "808080808000", "syntax", ""},
	{`"int"`, "80", "syntax", ""},
	{`"long"`, "ffffffffffffffffff01", "", ""},
	{`"long"`, "ffffffffffffffffff02", "syntax", ""},
	{`"long"`, "ffffffffffffffffff7f", "syntax", ""},
	{`"float"`, "0000c07f", "", ""},
	{`"float"`, "000000", "syntax", ""},
	{`"double"`, "0000000000000000", "", ""},
	{`"double"`, "000000000000000000", "syntax", ""},
	{`"string"`, "00", "", ""},
	{`"string"`, "0261", "", ""},
	{`"string"`, "02ff", "bad_utf8", ""},
	{`"string"`, "06eda080", "bad_utf8", ""}, // half a surrogate pair
	{`"string"`, "04c080", "bad_utf8", ""},   // a NUL in two bytes
	{`"string"`, "0461", "syntax", ""},
	{`"string"`, "feffffffffffffffff01", "syntax", ""},
	{`"bytes"`, "02ff", "", ""},
	{`{"type":"fixed","name":"F","size":2}`, "0102", "", ""},
	{`{"type":"fixed","name":"F","size":2}`, "01", "syntax", ""},
	{`{"type":"enum","name":"E","symbols":["A","B"]}`, "02", "", ""},
	{`{"type":"enum","name":"E","symbols":["A","B"]}`, "04", "not_in_enum", ""},
	{`["null","string"]`, "00", "", ""},
	{`["null","string"]`, "020261", "", ""},
	{`["null","string"]`, "04", "no_branch", ""},
	{`{"type":"array","items":"int"}`, "00", "", ""},
	{`{"type":"array","items":"int"}`, "04020400", "", ""},
	{`{"type":"array","items":"int"}`, "0304020400", "", ""},
	{`{"type":"array","items":"int"}`, "0302020400", "syntax", ""}, // block of another size
	{`{"type":"array","items":"int"}`, "0306020400", "syntax", ""},
	{`{"type":"array","items":"int"}`, "0301020400", "syntax", ""}, // negative size
	{`{"type":"array","items":"int"}`, "03ffffffffffffffffff0102", "syntax", ""},
	{`{"type":"array","items":"int"}`, "040204", "syntax", ""},
	{`{"type":"array","items":"int"}`, "feffffffffffffffff0102", "syntax", ""},
	{`{"type":"array","items":"boolean"}`, "04000200", "wrong_type", "/1"},
	{`{"type":"array","items":"null"}`, "1400", "", ""},
	{`{"type":"array","items":"null"}`, "feffffffffffffffff0100", "too_complex", ""},
	{`{"type":"array","items":"null"}`, "80888080100000", "too_complex", ""},
	{`{"type":"array","items":{"type":"record","name":"R","fields":[]}}`, "80888080100000", "too_complex", ""},
	{`{"type":"map","values":"int"}`, "02026104" + "00", "", ""},
	{`{"type":"map","values":"int"}`, "0402610402610600", "duplicate_key", "/a"},
	{`{"type":"map","values":"int"}`, "0202ff0400", "bad_utf8", "/\uFFFD"},
	{`{"type":"map","values":"boolean"}`, "0202610700", "wrong_type", "/a"},
	{`{"type":"string","logicalType":"uuid"}`, "48" + hexOf("0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"), "", ""},
	{`{"type":"string","logicalType":"uuid"}`, "48" + hexOf("0190a1b27-c3d-7e4f-8a5b-6c7d8e9f0a1b"), "bad_format", ""},
	{`{"type":"string","logicalType":"uuid"}`, "00", "bad_format", ""},
	{`{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}`, strings.Repeat("ff", 16), "", ""},
	{`{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`, "0403e7", "", ""}, // 999
	{`{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`, "0403e8", "out_of_range", ""},
	{`{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`, "04fc19", "", ""}, // -999
	{`{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`, "04fc18", "out_of_range", ""},
	{`{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`, "08000003e7", "", ""},
	{`{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`, "08fffffc19", "", ""},
	{`{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`, "02ff", "", ""},
	{`{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`, "00", "out_of_range", ""},
	{`{"type":"fixed","name":"D","size":2,"logicalType":"decimal","precision":3}`, "fc18", "out_of_range", ""},
	{`{"type":"int","logicalType":"time-millis"}`, "feefb252", "", ""},
	{`{"type":"int","logicalType":"time-millis"}`, "80f0b252", "out_of_range", ""},
	{`{"type":"int","logicalType":"time-millis"}`, "01", "out_of_range", ""},
	{`{"type":"long","logicalType":"time-micros"}`, "01", "out_of_range", ""},
	{`{"type":"int","logicalType":"date"}`, "ffffffff0f", "", ""},
	{`{"type":"long","logicalType":"timestamp-micros"}`, "ffffffffffffffffff01", "", ""},
	{`{"type":"int","logicalType":"uuid"}`, "02", "", ""}, // does not fit its type: ignored
	{`{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":{"type":"record","name":"S","fields":[{"name":"c","type":"string"}]}}]}`, "020261", "", ""},
	{`{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":{"type":"record","name":"S","fields":[{"name":"c/~","type":"string"}]}}]}`, "0202ff", "", "invalid name"},
	{`{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":{"type":"record","name":"S","fields":[{"name":"c","type":"string"}]}}]}`, "0202ff", "bad_utf8", "/b/c"},
	{`{"type":"record","name":"L","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","L"]}]}`, strings.Repeat("0202", 63) + "0200", "", ""},
	{`{"type":"record","name":"L","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","L"]}]}`, strings.Repeat("0202", 64) + "0200", "too_deep", strings.Repeat("/next", 64)},
	{`{"type":"record","name":"T","fields":[{"name":"kids","type":{"type":"array","items":"T"}}]}`, strings.Repeat("02", 100000), "too_deep", "/kids" + strings.Repeat("/0/kids", 31) + "/0"},
}

func hexOf(s string) string { return hex.EncodeToString([]byte(s)) }

func TestAvroTable(t *testing.T) {
	for _, c := range avroCases {
		contract, _, err := Compile("s", 1, []byte(c.schema), &CompileOpts{Type: TypeAvro})
		if c.at == "invalid name" {
			if headgate.CodeOf(err) != headgate.CodeContractInvalid {
				t.Errorf("%s: %v", c.schema, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		v := contract.CheckAvro(data)
		code, at := "", ""
		if v != nil {
			code, at = string(v.Violations[0].Code), v.Violations[0].At
			if v.Violations[0].Fix == "" || v.Violations[0].Want == "" || v.Violations[0].Got == "" {
				t.Errorf("%s %s: a report without words: %+v", c.schema, c.hex, v.Violations[0])
			}
		}
		if code != c.code || at != c.at {
			t.Errorf("%s %s: %q at %q, want %q at %q", c.schema, clip(c.hex, 80), code, at, c.code, c.at)
		}
		if diff := cmp.Diff(v, contract.CheckAvro(data)); diff != "" {
			t.Errorf("%s: two verdicts: %s", c.schema, diff)
		}
	}
}

// TestAvroRefusesContracts: schemas that parse and are refused all the same.
func TestAvroRefusesContracts(t *testing.T) {
	doubling := func(n int) string {
		s := `{"type":"record","name":"R0","fields":[]}`
		for i := 1; i <= n; i++ {
			s = fmt.Sprintf(`{"type":"record","name":"R%d","fields":[{"name":"a","type":%s},{"name":"b","type":"R%d"}]}`, i, s, i-1)
		}
		return s
	}
	for schema, want := range map[string]string{
		`{"type":"record","name":"A","fields":[{"name":"a","type":"A"}]}`:                                                             "no value of the record",
		`{"type":"record","name":"A","fields":[{"name":"b","type":{"type":"record","name":"B","fields":[{"name":"a","type":"A"}]}}]}`: "no value of the record",
		doubling(20): "smallest value",
		`{"type":"bytes","logicalType":"decimal","precision":1001}`: "at most 1000 digits",
		`{"type":"string","type":"int"}`:                            "already",
		`"nothing"`:                                                 "",
		`{"type":"array"}`:                                          "",
		`{`:                                                         "line 1",
		strings.Repeat(`[`, 100) + `"int"`:                          "nested",
		`"` + strings.Repeat("x", MaxSchemaBytes) + `"`: "bytes",
	} {
		_, _, err := Compile("s", 1, []byte(schema), &CompileOpts{Type: TypeAvro})
		if headgate.CodeOf(err) != headgate.CodeContractInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", clip(schema, 100), err, want)
		}
	}
}

// TestAvroReferences: a schema that refers to others is one text, and its
// digest is that of the text.
func TestAvroReferences(t *testing.T) {
	address := `{"type":"record","name":"Address","namespace":"a.b","fields":[{"name":"city","type":"string"}]}`
	c, _, err := Compile("s", 1, []byte(`{"type":"record","name":"P","fields":[{"name":"home","type":"a.b.Address"},{"name":"office","type":"a.b.Address"}]}`),
		&CompileOpts{Type: TypeAvro, References: [][]byte{[]byte(address)}})
	if err != nil {
		t.Fatal(err)
	}
	again := compileAvroText(t, string(c.Schema()))
	if again.Ref().Digest != c.Ref().Digest {
		t.Errorf("digests %s and %s", c.Ref().Digest, again.Ref().Digest)
	}
	for _, c := range []*Contract{c, again} {
		if v := c.CheckAvro([]byte("\x02a\x02b")); v != nil {
			t.Errorf("%+v", v)
		}
		if v := c.CheckAvro([]byte("\x02a\x02\xff")); v == nil || v.Violations[0].At != "/office/city" {
			t.Errorf("%+v", v)
		}
	}
}

// TestAvroReportGoesOn: one report names every fault that can be read past.
func TestAvroReportGoesOn(t *testing.T) {
	c := compileAvroText(t, orderAvro)
	bad := bytes.Clone(orderDatum(t))
	bad[1] = 'x'                     // order_id
	bad[2*37] = 40                   // status
	v := c.CheckAvro(append(bad, 0)) // and a byte too many
	var got []string
	for _, x := range v.Violations {
		got = append(got, fmt.Sprintf("%s %s %d", x.Code, x.At, x.Offset))
	}
	want := []string{"bad_format /order_id 0", "not_in_enum /status 74", fmt.Sprintf("syntax  %d", len(bad))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAvroManyFaults: a report is bounded and counts the rest.
func TestAvroManyFaults(t *testing.T) {
	c := compileAvroText(t, `{"type":"array","items":"boolean"}`)
	v := c.CheckAvro(append(append([]byte{0x80, 0x01}, bytes.Repeat([]byte{7}, 64)...), 0))
	if len(v.Violations) != headgate.MaxViolations || v.Truncated != 32 {
		t.Errorf("%d violations, %d more", len(v.Violations), v.Truncated)
	}
}

// orderAvro is an event as users write them, and orderDatum one of 170 bytes.
const orderAvro = `{"type":"record","name":"Order","namespace":"shop","fields":[
	{"name":"order_id","type":{"type":"string","logicalType":"uuid"}},{"name":"customer_id","type":{"type":"string","logicalType":"uuid"}},
	{"name":"status","type":{"type":"enum","name":"Status","symbols":["placed","paid","shipped"]}},
	{"name":"currency","type":{"type":"enum","name":"Currency","symbols":["EUR","USD","GBP"]}},
	{"name":"placed_at","type":{"type":"long","logicalType":"timestamp-millis"}},
	{"name":"total","type":"double"},{"name":"channel","type":"string"},{"name":"version","type":"int"},
	{"name":"note","type":["null","string"],"default":null},
	{"name":"items","type":{"type":"array","items":{"type":"record","name":"Item","fields":[{"name":"sku","type":"string"},{"name":"qty","type":"int"}]}}}]}`

func orderDatum(t testing.TB) []byte {
	t.Helper()
	data, err := avro.MustParse(orderAvro).Encode(map[string]any{
		"order_id": "0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b", "customer_id": "0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1c", "status": "placed",
		"currency": "EUR", "placed_at": int64(1769848200000), "total": 129.9, "channel": "web", "version": 1, "note": "leave it at the door, please",
		"items": []any{map[string]any{"sku": "ABC-1", "qty": 1}, map[string]any{"sku": "ABC-2", "qty": 2}, map[string]any{"sku": "XYZ-9", "qty": 12}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAvroAcceptsWithoutAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c, data := compileAvroText(t, orderAvro), orderDatum(t)
	if v := c.CheckAvro(data); v != nil {
		t.Fatalf("%+v", v)
	}
	if n := testing.AllocsPerRun(200, func() { c.CheckAvro(data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAvro(b *testing.B) {
	c, data := compileAvroText(b, orderAvro), orderDatum(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if c.CheckAvro(data) != nil {
			b.Fatal()
		}
	}
}

type orderStruct struct {
	OrderID    string  `avro:"order_id"`
	CustomerID string  `avro:"customer_id"`
	Status     string  `avro:"status"`
	Currency   string  `avro:"currency"`
	PlacedAt   int64   `avro:"placed_at"`
	Total      float64 `avro:"total"`
	Channel    string  `avro:"channel"`
	Version    int     `avro:"version"`
	Note       *string `avro:"note"`
	Items      []struct {
		SKU string `avro:"sku"`
		Qty int    `avro:"qty"`
	} `avro:"items"`
}

func BenchmarkAvroLibrary(b *testing.B) {
	s, data := avro.MustParse(orderAvro), orderDatum(b)
	b.ReportAllocs()
	for b.Loop() {
		var o orderStruct
		if _, err := s.Decode(data, &o); err != nil {
			b.Fatal(err)
		}
	}
}

// TestJSONSentAsAvro: a JSON text that comes as Avro binary is called that, behind
// a frame too; what only begins like one is read as a datum.
func TestJSONSentAsAvro(t *testing.T) {
	c := compileAvroText(t, `{"type":"record","name":"R","fields":[{"name":"id","type":"string"},{"name":"n","type":"int"}]}`)
	named := func(f Frame) (*Contract, error) {
		if f.Kind == FrameConfluent && f.ID == 7 {
			return c, nil
		}
		return nil, nil
	}
	for payload, want := range map[string]string{
		`{"id":"a","n":1}`: "a JSON text 0", " \n[1,2]\n": "a JSON text 0", `{}`: "a JSON text 0", "\x00\x00\x00\x00\x07" + `{"id":"a"}`: "a JSON text 5",
		`{"id":"a","n":`: "", `{id:1}`: "", `12345`: "", `"abc"`: "",
	} {
		j, err := c.Judge("application/avro", []byte(payload), named)
		if err != nil || j.Verdict == nil {
			t.Errorf("%q: %v %+v", payload, err, j)
			continue
		}
		x := j.Verdict.Violations[0]
		if got := fmt.Sprintf("%s %d", x.Got, x.Offset); want != "" && (got != want || len(j.Verdict.Violations) != 1 || !strings.Contains(x.Fix, "application/json")) || want == "" && strings.Contains(got, "JSON") {
			t.Errorf("%q: %+v, want %s", payload, j.Verdict.Violations, want)
		}
	}
	// A record of an array and a string whose bytes are JSON stays a datum.
	data := compileAvroText(t, `{"type":"record","name":"R","fields":[{"name":"x","type":"long"},{"name":"y","type":{"type":"fixed","name":"F","size":1}}]}`)
	if v := data.CheckAvro([]byte("{}")); v != nil {
		t.Errorf("a datum of the bytes of JSON: %+v", v.Violations)
	}
}
