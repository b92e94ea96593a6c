package contract

import (
	"slices"
	"testing"
)

// Closed objects refuse what no schema declares, without breaking composition.
func TestCloseObjects(t *testing.T) {
	for _, c := range []struct {
		name, schema, payload string
		want                  []string // unknown properties, nil: valid
	}{
		{"declared", `{"properties":{"a":true}}`, `{"a":1}`, nil},
		{"invented", `{"properties":{"a":true}}`, `{"a":1,"b":2}`, []string{"/b"}},
		{"nested", `{"properties":{"a":{"properties":{"b":true}}}}`, `{"a":{"b":1,"c":2}}`, []string{"/a/c"}},
		{"items", `{"items":{"properties":{"a":true}}}`, `[{"a":1},{"b":1}]`, []string{"/1/b"}},
		{"allOf adds up", `{"allOf":[{"properties":{"a":true}},{"properties":{"b":true}}]}`, `{"a":1,"b":2}`, nil},
		{"allOf, deep", `{"allOf":[{"properties":{"x":{"properties":{"a":true}}}},{"properties":{"x":{"properties":{"b":true}}}}]}`, `{"x":{"a":1,"b":2,"c":3}}`, []string{"/x/c"}},
		{"ref", `{"$defs":{"base":{"properties":{"id":true}}},"$ref":"#/$defs/base","properties":{"a":true}}`, `{"id":1,"a":2}`, nil},
		{"the branch that matched", `{"oneOf":[{"required":["a"],"properties":{"a":true}},{"required":["b"],"properties":{"b":true,"c":true}}]}`, `{"b":1,"c":2}`, nil},
		{"not the other branch", `{"oneOf":[{"required":["a"],"properties":{"a":true,"x":true}},{"required":["b"],"properties":{"b":true}}]}`, `{"b":1,"x":2}`, []string{"/x"}},
		{"both of anyOf", `{"anyOf":[{"properties":{"a":true}},{"properties":{"b":true}}]}`, `{"a":1,"b":2}`, nil},
		{"if and then", `{"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"properties":{"a":true}},"else":{"properties":{"k":true,"b":true}}}`, `{"k":1,"a":2}`, nil},
		{"else", `{"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"properties":{"a":true}},"else":{"properties":{"k":true,"b":true}}}`, `{"k":2,"a":2,"b":3}`, []string{"/a"}},
		{"not declares nothing", `{"not":{"required":["z"],"properties":{"a":true}}}`, `{"a":1}`, []string{"/a"}},
		{"a dependency declares", `{"properties":{"a":true},"dependentSchemas":{"a":{"properties":{"b":true}}}}`, `{"a":1,"b":2}`, nil},
		{"a pattern declares", `{"patternProperties":{"^x-":true}}`, `{"x-a":1,"y":2}`, []string{"/y"}},
		{"additionalProperties with a schema declares", `{"additionalProperties":{"type":"string"}}`, `{"a":"b"}`, nil},
		{"additionalProperties true says nothing", `{"properties":{"a":true},"additionalProperties":true}`, `{"a":1,"b":2}`, []string{"/b"}},
		{"nor does an empty schema", `{"additionalProperties":{}}`, `{"b":2}`, []string{"/b"}},
		{"unevaluatedProperties with a schema declares", `{"unevaluatedProperties":{"type":"number"}}`, `{"a":1}`, nil},
		{"no schema, no members", `{"properties":{"a":{}}}`, `{"a":{"b":1}}`, []string{"/a/b"}},
		{"open on purpose", `{"properties":{"a":{"patternProperties":{"":{}}}}}`, `{"a":{"b":1,"c":"x"}}`, nil},
		{"an empty object", `{}`, `{}`, nil},
		{"inside of an unknown one", `{}`, `{"a":{"b":1}}`, []string{"/a"}},
		{"contains declares in what it matches", `{"contains":{"type":"object","properties":{"a":true},"required":["a"]}}`, `[{"a":1},{"b":1}]`, []string{"/1/b"}},
		{"draft 7 ref", `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"properties":{"x":true}}},"allOf":[{"$ref":"#/definitions/a"}]}`, `{"x":1,"y":2}`, []string{"/y"}},
		{"discriminated", pets, `{"kind":"dog","bark":true}`, nil},
		{"names that are escaped", `{"properties":{"a":true}}`, "{\"\\u0061\":1}", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := compileOK(t, c.schema, Policy{CloseObjects: true})
			v := k.Check([]byte(c.payload))
			var got []string
			if v != nil {
				checkReport(t, []byte(c.payload), v)
				for _, x := range v.Violations {
					if x.Code != "unknown_property" {
						t.Errorf("%+v", x)
					}
					got = append(got, x.At)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if open := compileOK(t, c.schema).Check([]byte(c.payload)); open != nil {
				t.Errorf("without the policy: %q", brief(open))
			}
		})
	}
}

// A report under the policy still names the faults of the schema, and does not
// call declared members unknown because their branch failed.
func TestCloseObjectsReports(t *testing.T) {
	for _, c := range []struct {
		schema, payload string
		want            []string
	}{
		{`{"properties":{"a":{"type":"string"}}}`, `{"a":1,"b":2}`, []string{"wrong_type /a", "unknown_property /b"}},
		{pets, `{"kind":"dog","bark":1}`, []string{"wrong_type /bark"}},
		{pets, `{"kind":"cow","bark":true}`, []string{"not_in_enum /kind"}},
		{petsUntagged, `{"bark":7,"x":1}`, []string{"wrong_type /bark", "unknown_property /x"}},
		{`{"properties":{"a":{"type":"string"}}}`, `{"a":{"x":1}}`, []string{"wrong_type /a"}},
		{`{"properties":{"status":true}}`, `{"stauts":1}`, []string{"unknown_property /stauts"}},
		{`{"allOf":[{"properties":{"a":{"type":"string"}}},{"required":["z"]}]}`, `{"a":"x"}`, []string{"missing_required /z"}},
	} {
		v := compileOK(t, c.schema, Policy{CloseObjects: true}).Check([]byte(c.payload))
		if got := brief(v); !slices.Equal(got, c.want) {
			t.Errorf("%s on %s: got %q, want %q", c.schema, c.payload, got, c.want)
		}
		checkReport(t, []byte(c.payload), v)
		for _, x := range v.Violations {
			if x.At == "/stauts" && !slices.Equal(x.Near, []string{"status"}) {
				t.Errorf("near: %+v", x)
			}
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		schema string
		want   []string
	}{
		{`{"type":"object"}`, []string{"open_object "}},
		{`{"properties":{"a":{"type":"object"}},"additionalProperties":false}`, []string{"open_object /properties/a"}},
		{`{"type":"object","additionalProperties":true}`, []string{"open_object "}},
		{`{"type":"object","additionalProperties":{"type":"string"}}`, nil},
		{`{"type":"object","additionalProperties":false}`, nil},
		{`{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, nil},
		{`{"$defs":{"c":{"type":"object","additionalProperties":false}},"$ref":"#/$defs/c"}`, nil},
		{pets, nil},
		{`{"type":"string"}`, nil},
		{`{}`, nil},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/s","minLength":2}},"additionalProperties":false,"definitions":{"s":{"type":"string"}}}`, []string{"ref_siblings /properties/a"}},
		{`{"additionalProperties":false,"properties":{"ticket_id":true},"required":["ticketId"]}`, []string{"required_undeclared /required"}},
	} {
		_, warnings, err := Compile("t", 1, []byte(c.schema), nil)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
		}
		var got []string
		for _, w := range warnings {
			got = append(got, w.Code+" "+w.At)
			if w.Detail == "" {
				t.Errorf("%+v", w)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.schema, got, c.want)
		}
	}
	_, warnings, err := Compile("t", 1, []byte(`{"type":"object"}`), &CompileOpts{Policy: Policy{CloseObjects: true}})
	if err != nil || len(warnings) != 0 {
		t.Errorf("closed by policy: %v %v", warnings, err)
	}
}
