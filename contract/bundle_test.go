package contract

import (
	"testing"

	"github.com/headgate/headgate"
)

func TestBundle(t *testing.T) {
	const doc = `{"$schema":"http://json-schema.org/draft-07/schema#",
		"definitions":{
			"a":{"type":"object","properties":{"b":{"$ref":"#/definitions/b"},"self":{"$ref":"#/definitions/a"},"odd":{"$ref":"#/properties/x~1y/items/0"},"name":{"const":{"$ref":"#/nowhere"}}},"additionalProperties":false},
			"b":{"anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/definitions/b"}}]},
			"unused":{"pattern":"unused"}, "percent %":{"type":"null"},
			"c":{"$ref":"#/definitions/percent%20%25"}},
		"properties":{"x/y":{"items":[{"type":"integer"}]}}}`
	bundle, err := Bundle([]byte(doc), "/definitions/a")
	if err != nil {
		t.Fatal(err)
	}
	c := compileOK(t, string(bundle))
	for payload, valid := range map[string]bool{
		`{}`: true, `{"b":"x"}`: true, `{"b":[["x"],[]]}`: true, `{"b":[1]}`: false, `{"self":{"self":{}}}`: true,
		`{"self":{"z":1}}`: false, `{"odd":1}`: true, `{"odd":"1"}`: false, `{"name":{"$ref":"#/nowhere"}}`: true,
	} {
		if v := c.Check([]byte(payload)); (v == nil) != valid {
			t.Errorf("%s: %q", payload, brief(v))
		}
	}
	if string(bundle) == doc || len(bundle) >= len(doc) {
		t.Errorf("the bundle holds what is not used: %s", bundle)
	}
	if bundle, err = Bundle([]byte(doc), "/definitions/c"); err != nil {
		t.Fatal(err)
	}
	if c := compileOK(t, string(bundle)); c.Check([]byte(`null`)) != nil || c.Check([]byte(`1`)) == nil {
		t.Errorf("%s", bundle)
	}
	anchored := `{"$defs":{"p":{"$anchor":"here","type":"object","properties":{"q":{"$ref":"#here"}},"additionalProperties":false},"r":{"items":{"$ref":"#here"}}}}`
	if bundle, err = Bundle([]byte(anchored), "/$defs/r"); err != nil {
		t.Fatal(err)
	}
	if c := compileOK(t, string(bundle)); c.Check([]byte(`[{"q":{"q":{}}}]`)) != nil || c.Check([]byte(`[{"q":{"z":1}}]`)) == nil {
		t.Errorf("%s", bundle)
	}
	for _, bad := range []struct {
		doc, ptr string
		code     headgate.Code
	}{
		{doc, "/definitions/none", headgate.CodeNotFound},
		{doc, "no pointer", headgate.CodeNotFound},
		{`{"$defs":{"a":{"$ref":"http://x.example/"}}}`, "/$defs/a", headgate.CodeContractInvalid},
		{`{"$defs":{"a":{"$ref":"#/$defs/none"}}}`, "/$defs/a", headgate.CodeContractInvalid},
		{`{"$defs":{"a":{"$ref":"#none"}}}`, "/$defs/a", headgate.CodeContractInvalid},
		{`{"$defs":{"a":{"$id":"http://x.example/"}}}`, "/$defs/a", headgate.CodeContractInvalid},
		{`{"$defs":{"a":{"$dynamicRef":"#x"}}}`, "/$defs/a", headgate.CodeContractInvalid},
		{`{"$schema":"http://x.example/","$defs":{"a":{}}}`, "/$defs/a", headgate.CodeContractInvalid},
		{`{"a":1,"a":2}`, "", headgate.CodeContractInvalid},
		{`{"a":1}`, "/a", headgate.CodeContractInvalid},
	} {
		if _, err := Bundle([]byte(bad.doc), bad.ptr); headgate.CodeOf(err) != bad.code {
			t.Errorf("%s at %s: %v", bad.doc, bad.ptr, err)
		}
	}
}
