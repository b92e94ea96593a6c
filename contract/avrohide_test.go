package contract

import (
	"fmt"
	"strings"
	"testing"
)

const secretAvro = `{"type":"record","name":"Account","fields":[
	{"name":"name","type":"string"},
	{"name":"pin","type":"int","x-headgate-sensitive":true,"default":0,"aliases":["code"]},
	{"name":"token","type":["null",{"type":"string","logicalType":"uuid"}],"x-headgate-sensitive":true,"default":null},
	{"name":"mood","type":{"type":"enum","name":"Mood","symbols":["hunter3","calm"]},"x-headgate-sensitive":true,"default":"calm"},
	{"name":"card","type":["null",{"type":"record","name":"Card","x-headgate-sensitive":true,"fields":[{"name":"number","type":"string"},{"name":"until","type":{"type":"int","logicalType":"time-millis"},"default":0}]}],"default":null},
	{"name":"cards","type":{"type":"array","items":"Card"},"default":[]},
	{"name":"extra","type":{"type":"map","values":"int"},"x-headgate-sensitive":true,"default":{}},
	{"name":"open","type":"int","default":1}]}`

// TestAvroSecrets: no report on an Avro contract shows what it marks as
// sensitive, in JSON or binary, wherever it stands; what is not marked is shown.
func TestAvroSecrets(t *testing.T) {
	c := compileAvroText(t, secretAvro)
	const canary = "hunter2"
	plain := compileAvroText(t, strings.ReplaceAll(secretAvro, `"x-headgate-sensitive":true`, `"x-headgate-sensitive":false`))
	shown := 0
	for _, in := range []string{
		`{"name":"a","pin":"hunter2"}`, `{"name":"a","pin":{"hunter2":1}}`, `{"name":"a","pin":["hunter2"]}`, `{"name":"a","code":"hunter2"}`,
		`{"name":"a","token":"hunter2"}`, `{"name":"a","token":{"string":"hunter2"}}`, `{"name":"a","token":{"hunter2":"x"}}`,
		`{"name":"a","mood":"hunter2"}`, `{"name":"a","card":{"number":1,"until":"hunter2"}}`, `{"name":"a","card":"hunter2"}`,
		`{"name":"a","card":{"hunter2":1}}`, `{"name":"a","card":{"Card":{"number":7,"hunter2":"hunter2"}}}`, `{"name":"a","cards":["hunter2"]}`,
		`{"name":"a","cards":"hunter2"}`, `{"name":"a","cards":{"number":"hunter2"}}`, `{"name":"a","cards":[{"numbr":"hunter2"}]}`,
		`{"name":"a","extra":{"hunter2":"x"}}`, `{"name":"a","extra":{"x":"hunter2"}}`, `{"name":"a","pinn":"hunter2"}`, `{"name":"a","pin":1,"pin":"hunter2"}`,
		`{"name":"a","pin":hunter2}`, `["hunter2"]`, `"hunter2"`, "```\n{\"name\":\"a\",\"pin\":\"hunter2\"}\n```", `{"account":{"name":"a","pin":"hunter2"}}`,
	} {
		v, _ := c.Report([]byte(in))
		if v == nil {
			t.Errorf("%s passes", in)
			continue
		}
		if report := string(encode(t, v)); strings.Contains(report, canary) {
			t.Errorf("%s: %s", in, report)
		}
		if v, _ := plain.Report([]byte(in)); strings.Contains(string(encode(t, v)), canary) {
			shown++
		}
	}
	if shown < 12 {
		t.Errorf("only %d reports would show it without marks: the test says little", shown)
	}
	if v, _ := c.Report([]byte(`{"name":"a","mood":"hunter2"}`)); strings.Contains(string(encode(t, v)), "hunter3") {
		t.Errorf("what is near to a secret: %s", encode(t, v))
	}
	v, _ := c.Report([]byte(`{"name":"a","open":"seven","pin":"hunter2"}`))
	got := []string{v.Violations[0].Got, v.Violations[1].Got, v.Violations[1].At}
	if want := []string{`string "seven"`, "string, which the contract marks as sensitive", "/pin"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, datum := range []string{
		"\x02a\x00\x02\x0ehunter2", "\x0ehunter2", "\x02a\x00\x00\x02\x00\x00\x00\x02\x0ehunter2", "\x02a\x00\x00\x02\x02\x0ehunter2\x80\x80\x80\xff\x0e\x00",
		"\x02a\x00\x00\x02\x00\x00\x04\x0ehunter2\x02\x0ehunter2\x02\x00\x02", "hunter2hunter2",
	} {
		if v := c.CheckAvro([]byte(datum)); v == nil || strings.Contains(string(encode(t, v)), canary) {
			t.Errorf("%x: %s", datum, encode(t, v))
		}
	}
}

// TestAvroSecretsOfLargeSchemas: marks are kept to and proposals are made in
// schemas of any size and shape.
func TestAvroSecretsOfLargeSchemas(t *testing.T) {
	var sb strings.Builder
	for i := range 400 {
		fmt.Fprintf(&sb, `,{"type":"record","name":"R%d","fields":[{"name":"x","type":"int"}]}`, i)
	}
	c := compileAvroText(t, `{"type":"record","name":"R","fields":[{"name":"u","type":["null"`+sb.String()+`]},{"name":"s","type":"int","x-headgate-sensitive":true},{"name":"open","type":"int"}]}`)
	v, _ := c.Report([]byte(`{"u":null,"s":"hunter2","open":1}`))
	if v == nil || len(v.Proposals) != 0 || strings.Contains(string(encode(t, v)), "hunter2") {
		t.Errorf("%s", encode(t, v))
	}
	if v, _ = c.Report([]byte(`{"u":null,"s":1,"open":"7"}`)); v == nil || len(v.Proposals) != 1 {
		t.Errorf("%s", encode(t, v))
	}
}
