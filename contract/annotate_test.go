package contract

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func TestAnnotationsAreRead(t *testing.T) {
	for name, schema := range map[string]string{
		"plain":    `{"properties":{"a":{"type":"string","x-headgate-aliases":["b"],"default":"x<y"}}}`,
		"with id":  `{"$id":"https://example.org/x","properties":{"a":{"type":"string","x-headgate-aliases":["b"],"default":"x<y"}}}`,
		"own id":   `{"properties":{"a":{"$id":"https://example.org/a","type":"string","x-headgate-aliases":["b"],"default":"x<y"}}}`,
		"ref":      `{"properties":{"a":{"$ref":"#/$defs/s","x-headgate-aliases":["b"],"default":"x<y"}},"$defs":{"s":{"type":"string"}}}`,
		"draft 7":  `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/s","x-headgate-aliases":["b"],"default":"x<y"}},"definitions":{"s":{"type":"string"}}}`,
		"odd name": `{"properties":{"a":{"properties":{"x/%~y z":{"x-headgate-aliases":["b"],"default":"x<y"}}}}}`,
	} {
		c, warnings, err := Compile("t", 1, []byte(schema), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found := false
		for _, n := range c.prog.nodes {
			if len(n.aliases) == 1 && n.aliases[0] == "b" && string(n.fallback) == `"x<y"` {
				found = true
			}
		}
		if !found {
			t.Errorf("%s: the notes were not found", name)
		}
		for _, w := range warnings {
			if w.Code == WarnRefSiblings && strings.Contains(w.Detail, keyPrefix) {
				t.Errorf("%s: %+v", name, w)
			}
		}
	}
}

func TestAnnotationsAreChecked(t *testing.T) {
	for schema, want := range map[string]string{
		`{"x-headgate-repair":"apply"}`:                            "want off, propose or apply-lossless",
		`{"x-headgate-repair":true}`:                               "want off",
		`{"properties":{"a":{"x-headgate-repair":"off"}}}`:         "at the root",
		`{"x-headgate-alias":["a"]}`:                               "did you mean x-headgate-aliases?",
		`{"x-headgate-frobnicate":1}`:                              "there is no keyword",
		`{"x-headgate-aliases":"a"}`:                               "want a list",
		`{"x-headgate-aliases":[]}`:                                "want a list",
		`{"x-headgate-aliases":[1]}`:                               "1 to 128 bytes",
		`{"x-headgate-sensitive":"yes"}`:                           "want true or false",
		`{"properties":{"a":{"x-headgate-aliases":["b"]},"b":{}}}`: "is the name of a property itself",
		`{"properties":{"a":{"x-headgate-aliases":["x"]},"b":{"x-headgate-aliases":["x"]}}}`:                                   "is an alias of \"a\" already",
		`{"x-headgate-aliases":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"],"type":"object"}`: "1 to 16",
	} {
		_, _, err := Compile("t", 1, []byte(schema), nil)
		if headgate.CodeOf(err) != headgate.CodeContractInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", schema, err)
		}
	}
	for _, schema := range []string{`{"x-headgate-repair":"off"}`, `{"x-headgate-repair":"apply-lossless"}`, `{"x-headgate-sensitive":false}`} {
		if _, _, err := Compile("t", 1, []byte(schema), nil); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// What the contract marks as sensitive is in no report, wherever it stands.
func TestSensitiveValuesAreNotShown(t *testing.T) {
	const secret = "hunter2"
	c := compileOK(t, `{"type":"object","properties":{
		"password":{"type":"string","minLength":20,"x-headgate-sensitive":true},
		"kind":{"enum":["hunter1","hunter3"],"x-headgate-sensitive":true},
		"pin":{"$ref":"#/$defs/pin"},
		"box":{"x-headgate-sensitive":true,"properties":{"deep":{"type":"integer"}}},
		"either":{"anyOf":[{"type":"integer"},{"const":"x","x-headgate-sensitive":true}]}},
		"$defs":{"pin":{"type":"integer","x-headgate-sensitive":true}}}`)
	for _, payload := range []string{
		`{"password":"hunter2"}`, `{"kind":"hunter2"}`, `{"box":{"deep":"hunter2"}}`, `{"either":"hunter2"}`, `{"pin":"hunter2"}`,
	} {
		v := c.Check([]byte(payload))
		if v == nil {
			t.Fatalf("%s is valid", payload)
		}
		if text := string(encode(t, v)); strings.Contains(text, secret) {
			t.Errorf("%s: %s", payload, text)
		}
		if !strings.Contains(v.Violations[0].Got, "sensitive") {
			t.Errorf("%s: %+v", payload, v.Violations[0])
		}
	}
	if v := c.Check([]byte(`{"pin":"4711"}`)); strings.Contains(string(encode(t, v)), "4711") {
		t.Errorf("%+v", v)
	}
}
