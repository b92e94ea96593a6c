package contract

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

const profileAvro = `{"type":"record","name":"Profile","namespace":"a","fields":[
	{"name":"id","type":{"type":"string","logicalType":"uuid"}},
	{"name":"age","type":"int"},
	{"name":"big","type":"long","default":7},
	{"name":"nick","type":["null","string"],"default":null},
	{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":6,"scale":2},"default":"\u0001"},
	{"name":"raw","type":{"type":"fixed","name":"Raw","size":2},"default":"\u0000\u00ff"},
	{"name":"how","type":{"type":"enum","name":"How","symbols":["by_mail","by_phone"]},"default":"by_mail"},
	{"name":"who","type":["a.Raw","string",{"type":"record","name":"Who","fields":[{"name":"x","type":"double"}]}],"default":"\u0001\u0002"},
	{"name":"tags","type":{"type":"map","values":{"type":"array","items":"float"}},"default":{}}]}`

const profileID = `"id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"`

// TestAvroJSONBothWays: what passes as JSON, and how it comes back.
func TestAvroJSONBothWays(t *testing.T) {
	c := compileAvroText(t, profileAvro)
	rest := `,"raw":"\u0000ÿ","how":"by_mail","who":{"a.Raw":"\u0001\u0002"},"tags":{}}`
	head := `{` + profileID + `,"age":1`
	for in, want := range map[string]string{
		head + `}`: head + `,"big":7,"nick":null,"price":"\u0001"` + rest,
		head + `,"big":9223372036854775807,"nick":"n","price":12.34}`: head + `,"big":9223372036854775807,"nick":"n","price":"\u0004Ò"` + rest,
		head + `,"big":-9.223372036854775808e18,"price":-0.01}`:       head + `,"big":-9223372036854775808,"nick":null,"price":"ÿ"` + rest,
		head + `,"nick":{"string":"wrapped"}}`:                        head + `,"big":7,"nick":"wrapped","price":"\u0001"` + rest,
		head + `,"price":9999.99}`:                                    head + `,"big":7,"nick":null,"price":"\u000fB?"` + rest,
		head + `,"who":"bare","tags":{"a":[1.5,"NaN","-Infinity",-0]}}`: head + `,"big":7,"nick":null,"price":"\u0001","raw":"\u0000ÿ","how":"by_mail",` +
			`"who":{"string":"bare"},"tags":{"a":[1.5,"NaN","-Infinity",-0]}}`,
		head + `,"who":{"x":1e300}}`:         head + `,"big":7,"nick":null,"price":"\u0001","raw":"\u0000ÿ","how":"by_mail","who":{"a.Who":{"x":1e+300}},"tags":{}}`,
		head + `,"who":{"a.Who":{"x":0.1}}}`: head + `,"big":7,"nick":null,"price":"\u0001","raw":"\u0000ÿ","how":"by_mail","who":{"a.Who":{"x":0.1}},"tags":{}}`,
	} {
		if v := c.Check([]byte(in)); v != nil {
			t.Errorf("%s: %+v", in, v.Violations)
			continue
		}
		datum, err := c.AvroFromJSON([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if v := c.CheckAvro(datum); v != nil {
			t.Errorf("%s: %x: %+v", in, datum, v.Violations)
		}
		got, err := c.AvroToJSON(datum)
		if err != nil || string(got) != want {
			t.Errorf("%s:\n got %s\nwant %s\n%v", in, got, want, err)
		}
		if again, err := c.AvroFromJSON(got); err != nil || string(again) != string(datum) {
			t.Errorf("%s: %x came back as %x, %v", in, datum, again, err)
		}
	}
}

// TestAvroJSONLongBlocks: arrays and maps of more items than those without
// bytes may be come back whole, and so does what stands behind them.
func TestAvroJSONLongBlocks(t *testing.T) {
	c := compileAvroText(t, `{"type":"record","name":"R","fields":[
		{"name":"a","type":{"type":"array","items":"int"}},
		{"name":"m","type":{"type":"map","values":"null"}},
		{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}}]}`)
	for _, n := range []int{maxAvroEmptyItems, maxAvroEmptyItems + 1, 20_000} {
		items := strings.Repeat("7,", n)
		var keys strings.Builder
		for i := range n {
			fmt.Fprintf(&keys, `"%d":null,`, i)
		}
		in := `{"a":[` + strings.TrimSuffix(items, ",") + `],"m":{` + strings.TrimSuffix(keys.String(), ",") + `},"e":"B"}`
		datum, err := c.AvroFromJSON([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.AvroToJSON(datum); err != nil || string(got) != in {
			t.Errorf("%d items: %d bytes came back as %d, %v", n, len(in), len(got), err)
		}
	}
}

// TestAvroJSONReports: what does not pass as JSON, and what the report says.
func TestAvroJSONReports(t *testing.T) {
	c := compileAvroText(t, profileAvro)
	for in, want := range map[string]string{
		`{}`:    `missing_required /id: Add the property "id" to the root (a UUID of 8-4-4-4-12 hexadecimal digits). missing_required /age: Add the property "age" to the root (an integer (int)).`,
		`[]`:    `wrong_type : Send an object (record a.Profile) at the root.`,
		`{"a":`: `syntax`,
		`{"id":"x","age":"1"}`: `bad_format /id: Set "/id" to the id that its owner issued, a UUID of 8-4-4-4-12 hexadecimal digits; do not make one up. ` +
			`wrong_type /age: Send an integer (int) at "/age".`,
		`{` + profileID + `,"age":2147483648}`:              `out_of_range /age: Set "/age" to an integer of 32 bits.`,
		`{` + profileID + `,"age":1.5}`:                     `wrong_type /age`,
		`{` + profileID + `,"age":1,"age":2}`:               `duplicate_key /age`,
		`{` + profileID + `,"age":1,"big":9.3e18}`:          `out_of_range /big: Set "/big" to an integer of 64 bits.`,
		`{` + profileID + `,"age":1,"nik":"x"}`:             `unknown_property /nik: Rename the property "nik" of the root to "nick", or remove it.`,
		`{` + profileID + `,"aeg":1}`:                       `missing_required /age: Rename the property "aeg" of the root to "age" (an integer (int)). unknown_property /aeg`,
		`{` + profileID + `,"age":1,"nick":3}`:              `wrong_type /nick: Send one of null, string at "/nick".`,
		`{` + profileID + `,"age":1,"price":1.234}`:         `out_of_range /price: Set "/price" to a number of at most 6 digits, 2 of them behind the point.`,
		`{` + profileID + `,"age":1,"price":10000}`:         `out_of_range /price`,
		`{` + profileID + `,"age":1,"price":"Ā"}`:           `wrong_type /price`,
		`{` + profileID + `,"age":1,"price":""}`:            `out_of_range /price`,
		`{` + profileID + `,"age":1,"raw":"x"}`:             `bad_length /raw`,
		`{` + profileID + `,"age":1,"how":"by_male"}`:       `not_in_enum /how: Set "/how" to "by_mail".`,
		`{` + profileID + `,"age":1,"who":{"a.Who":{}}}`:    `missing_required /who/a.Who/x`,
		`{` + profileID + `,"age":1,"who":{"x":"y"}}`:       `wrong_type /who/x`,
		`{` + profileID + `,"age":1,"tags":{"a":[1,"b"]}}`:  `wrong_type /tags/a/1`,
		`{` + profileID + `,"age":1,"tags":{"a":[1e400]}}`:  `out_of_range /tags/a/0`,
		`{` + profileID + `,"age":1,"tags":{"a":[1e5000]}}`: `number_too_large /tags/a/0`,
	} {
		v := c.Check([]byte(in))
		var got []string
		if v != nil {
			for _, x := range v.Violations {
				got = append(got, string(x.Code)+" "+x.At+": "+x.Fix)
			}
		}
		if s := strings.Join(got, " "); v == nil || !contains(s, want) {
			t.Errorf("%s:\n got %s\nwant %s", in, s, want)
		}
	}
}

// contains reports whether every part of want stands in s.
func contains(s, want string) bool {
	for _, part := range strings.SplitAfter(want, ". ") {
		if !strings.Contains(s, strings.TrimSpace(part)) {
			return false
		}
	}
	return true
}

// TestAvroUnionsReadAsWritten: the two forms of a union never change places.
func TestAvroUnionsReadAsWritten(t *testing.T) {
	maps := compileAvroText(t, `{"type":"record","name":"M","fields":[{"name":"m","type":["null",{"type":"map","values":{"type":"map","values":"int"}}]}]}`)
	self := compileAvroText(t, `{"type":"record","name":"W","fields":[{"name":"W","type":["null","W"]}]}`)
	for _, c := range []struct {
		c   *Contract
		hex string
		out string
	}{
		{maps, "0202066d617000" + "00", `{"m":{"map":{}}}`},
		{self, "020200", `{"W":{"W":{"W":null}}}`},
		{self, "00", `{"W":null}`},
	} {
		datum, _ := hex.DecodeString(c.hex)
		text, err := c.c.AvroToJSON(datum)
		if err != nil || string(text) != c.out {
			t.Errorf("%s: %s, want %s, %v", c.hex, text, c.out, err)
		}
		if back, err := c.c.AvroFromJSON(text); err != nil || hex.EncodeToString(back) != c.hex {
			t.Errorf("%s came back as %x, %v", c.hex, back, err)
		}
	}
}

// TestAvroJSONIsBounded: unions that look alike in many ways cost no more work
// than a payload may take.
func TestAvroJSONIsBounded(t *testing.T) {
	c := compileAvroText(t, `{"type":"record","name":"A","fields":[{"name":"n","type":["null","A",
		{"type":"record","name":"B","fields":[{"name":"n","type":["null","A","B",{"type":"record","name":"C","fields":[{"name":"n","type":["null","A","B","C"]}]}]}]},"C"]}]}`)
	deep := strings.Repeat(`{"n":`, 50) + `1` + strings.Repeat(`}`, 50)
	v := c.Check([]byte(deep))
	if v == nil || v.Violations[0].Code != headgate.ViolationWrongType || v.Violations[0].At != strings.Repeat("/n", 50) {
		t.Errorf("%+v", v)
	}
	if v := c.Check([]byte(strings.Repeat(`{"n":`, 64) + `{"n":null}` + strings.Repeat(`}`, 64))); v == nil {
		t.Error("65 records deep pass")
	}
}
