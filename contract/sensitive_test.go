package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/jsontext"
)

// assertSilent checks a payload and that no report on it, in any form, holds one
// of the secrets.
func assertSilent(t *testing.T, schema, payload string, secrets ...string) *headgate.Verdict {
	t.Helper()
	var first *headgate.Verdict
	for _, closed := range []bool{false, true} {
		c, _, err := Compile("t", 1, []byte(schema), &CompileOpts{Policy: Policy{CloseObjects: closed}})
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		v, mended := c.Report([]byte(payload))
		if v == nil {
			if !closed {
				t.Errorf("%s is valid for %s", payload, schema)
			}
			continue
		}
		if first == nil {
			first = v
		}
		var g Guesses
		g.Add(v)
		checkReport(t, []byte(payload), v)
		if jsonOK(payload, c.policy.limits()) {
			checkProposals(t, c, []byte(payload), v, mended)
		}
		agent := (&api.Refusal{Violations: v.Violations, Proposals: v.Proposals}).AgentText()
		for _, text := range []string{string(encode(t, v)), agent, string(encode(t, g.Of("t")))} {
			for _, s := range secrets {
				if strings.Contains(text, s) {
					t.Errorf("%s for %s (closed: %v) shows %q:\n%s", payload, schema, closed, s, text)
				}
			}
		}
	}
	return first
}

const mark = `"x-headgate-sensitive":true`

// In each schema property a is sensitive; nothing else is.
var sensitiveForms = map[string]string{
	"plain":             `{"properties":{"a":{"type":"integer",` + mark + `}}}`,
	"ref":               `{"properties":{"a":{"$ref":"#/$defs/s"}},"$defs":{"s":{"type":"integer",` + mark + `}}}`,
	"beside ref":        `{"properties":{"a":{"$ref":"#/$defs/s","type":"integer"}},"$defs":{"s":{` + mark + `}}}`,
	"beside allOf":      `{"properties":{"a":{"type":"integer","allOf":[{` + mark + `}]}}}`,
	"ref with allOf":    `{"properties":{"a":{"$ref":"#/$defs/s"}},"$defs":{"s":{"allOf":[{` + mark + `}],"type":"integer"}}}`,
	"anyOf":             `{"properties":{"a":{"type":"integer","anyOf":[{},{` + mark + `}]}}}`,
	"oneOf":             `{"properties":{"a":{"oneOf":[{"type":"integer"},{"type":"boolean",` + mark + `}]}}}`,
	"not":               `{"properties":{"a":{"type":"integer","not":{"const":1,` + mark + `}}}}`,
	"if":                `{"properties":{"a":{"type":"integer","if":{` + mark + `,"const":1}}}}`,
	"then":              `{"properties":{"a":{"type":"integer"}},"if":{"required":["z"]},"then":{"properties":{"a":{` + mark + `}}}}`,
	"else":              `{"properties":{"a":{"type":"integer"}},"if":{"required":["a"]},"else":{"properties":{"a":{` + mark + `}}}}`,
	"allOf first":       `{"allOf":[{"properties":{"a":{` + mark + `}}}],"properties":{"a":{"type":"integer"}}}`,
	"branch":            `{"anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"type":"boolean",` + mark + `}},"required":["a"]}]}`,
	"dependent schemas": `{"dependentSchemas":{"z":{"properties":{"a":{` + mark + `}}}},"properties":{"a":{"type":"integer"}}}`,
	"pattern":           `{"properties":{"a":{"type":"integer"}},"patternProperties":{"^a":{` + mark + `}}}`,
	"additional":        `{"properties":{"z":{}},"additionalProperties":{"type":"integer",` + mark + `}}`,
	"unevaluated":       `{"properties":{"z":{}},"unevaluatedProperties":{"type":"integer",` + mark + `}}`,
	"around":            `{` + mark + `,"properties":{"a":{"type":"integer"}}}`,
	"draft 7":           `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/s",` + mark + `}},"definitions":{"s":{"type":"integer"}}}`,
	"dynamic":           `{"$id":"https://example.org/x","properties":{"a":{"$dynamicRef":"#s"}},"$defs":{"s":{"$dynamicAnchor":"s","type":"integer",` + mark + `}}}`,
	"type of a parent":  `{"type":"object","minProperties":5,"properties":{"a":{"type":"integer",` + mark + `}}}`,
	"not of a parent":   `{"properties":{"a":{` + mark + `}},"not":{"properties":{"a":{"const":"hunter2"}},"required":["a"]}}`,
}

// Whatever form the mark has and whatever fails first, and whatever is sent in
// the property's place.
func TestSensitiveInEveryForm(t *testing.T) {
	for name, schema := range sensitiveForms {
		t.Run(name, func(t *testing.T) {
			assertSilent(t, schema, `{"a":"hunter2"}`, "hunter2")
		})
	}
	assertSilent(t, sensitiveForms["type of a parent"], `"{\"a\":\"hunter2\"}"`, "hunter2")
}

// Under another name, in another shape, and with names that are secrets
// themselves.
func TestSensitiveUnderOtherNames(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"card":{"type":"integer",` + mark + `,"x-headgate-aliases":["pan"]},
		"password":{"type":"string","pattern":"^x",` + mark + `},
		"kind":{"enum":["hunter1","hunter3"],` + mark + `},
		"box":{"type":"object",` + mark + `,"properties":{"in":{"type":"integer"},"en":{"enum":["hunter3"]}},"required":["in"],"additionalProperties":false},
		"open":{"type":"object","properties":{"card":{"type":"integer",` + mark + `}},"additionalProperties":false},
		"list":{"type":"array","items":{"type":"integer",` + mark + `}},
		"texts":{"type":"array","items":{"type":"string",` + mark + `},"uniqueItems":true},
		"pair":{"type":"array","prefixItems":[{"type":"string"},{"type":"string",` + mark + `}]},
		"rows":{"type":"array","items":{"type":"object","properties":{"card":{"type":"string",` + mark + `}}}},
		"n":{"type":"integer"}},
		"patternProperties":{"^k_":{"type":"integer",` + mark + `},"^(pa|c).*":{"maxLength":2}},
		"additionalProperties":{"type":"boolean"}}`
	for _, payload := range []string{
		`{"pan":"hunter2"}`, `{"Card":"hunter2"}`, `{"crad":"hunter2"}`, `{"card ":"hunter2"}`, `{"C-A-R-D":"hunter2"}`,
		`{"passwrod":"hunter2"}`, `{"PassWord":"hunter2"}`, `{"zz":"hunter2"}`, `{"zz":{"card":"hunter2"}}`, `{"k_1":"hunter2"}`,
		`{"password":"hunter2"}`, `{"kind":"hunter2"}`, `{"kind":"Hunter3"}`, `{"password":["hunter2"]}`, `{"card":{"hunter2":"hunter2"}}`,
		`{"box":"hunter2"}`, `{"box":["hunter2"]}`, `{"box":[{"in":"hunter2"}]}`, `{"box":{"in":"hunter2"}}`, `{"box":{"in":1,"hunter2":1}}`,
		`{"box":{"hunter2":1}}`, `{"box":{"hunter2":{"x":1}}}`, `{"box":{"en":"hunter2","in":1}}`, `{"box":{"i_n":1,"hunter2":null}}`, `{"box":"{\"in\":\"hunter2\"}"}`,
		`{"open":"hunter2"}`, `{"open":{"cards":"hunter2"}}`, `{"open":"{\"card\":\"hunter2\"}"}`, `{"open":[{"card":"hunter2"}]}`,
		`{"list":"hunter2"}`, `{"list":{"0":"hunter2"}}`, `{"list":[["hunter2"]]}`, `{"list":["hunter2"]}`, `{"list":"[\"hunter2\"]"}`,
		`{"texts":"hunter2"}`, `{"texts":["hunter2","hunter2"]}`, `{"texts":{"a":"hunter2"}}`,
		`{"pair":"hunter2"}`, `{"pair":["a",["hunter2"]]}`, `{"pair":[{"x":"hunter2"}]}`,
		`{"rows":{"card":"hunter2"}}`, `{"rows":"hunter2"}`, `{"rows":[{"card":["hunter2"]}]}`, `{"rows":["hunter2"]}`,
		`{"wrap":{"card":"hunter2"}}`, `["hunter2"]`, `[{"card":"hunter2"}]`, `"hunter2"`, `"{\"card\":\"hunter2\"}"`,
		`{"card":hunter2}`, `{"card":1,"hunter2":1,"hunter2":2}`, `{"box":{"hunter2":1,"hunter2":2}}`, "{\"password\":\"hunter2\x01\"}", `{"card":"hunter2`,
	} {
		assertSilent(t, schema, payload, "hunter2", "hunter3")
	}
	// Numbers are values too.
	assertSilent(t, schema, `{"list":4111111}`, "4111111")
	assertSilent(t, schema, `{"card":4111111.5}`, "4111111")
	assertSilent(t, schema, `{"pan":"4111111"}`, "4111111")
	// What a contract says of a sensitive property is not shown either.
	for _, schema := range []string{
		`{"properties":{"a":{"const":"hunter2",` + mark + `}},"required":["a"]}`,
		`{"properties":{"a":{"enum":["hunter2"],"allOf":[{` + mark + `}]}},"required":["a"]}`,
		`{"properties":{"a":{"default":"hunter2"}},"allOf":[{"properties":{"a":{` + mark + `}}}],"required":["a"]}`,
	} {
		assertSilent(t, schema, `{}`, "hunter2")
		assertSilent(t, strings.Replace(schema, `"required":["a"]`, `"minProperties":2,"required":["a"]`, 1), `{"a":"hunter"}`, "hunter2")
	}
	// The rest is shown as ever.
	v := assertSilent(t, schema, `{"n":"seven","card":"hunter2"}`, "hunter2")
	if !strings.Contains(string(encode(t, v)), "seven") {
		t.Errorf("%s", encode(t, v))
	}
}

// What many schemas may say is found once for values in equal places; a payload
// that takes too much work all the same is hidden whole.
func TestSensitiveIsBounded(t *testing.T) {
	const branch = `{"required":["p%d"],"properties":{"b":{"type":"integer","maximum":%[1]d}},"patternProperties":{"^q%[1]d":{}}}`
	branches := make([]string, 200)
	for i := range branches {
		branches[i] = fmt.Sprintf(branch, i)
	}
	schema := `{"type":"array","items":{"properties":{"a":{` + mark + `},"n":{"type":"integer"}},"anyOf":[{},` + strings.Join(branches, ",") + `]}}`
	c := compileOK(t, schema)
	v, _ := c.Report([]byte("[" + strings.Repeat(`{"b":1},`, 20000) + `{"n":"seven"}]`))
	if v == nil || v.Violations[0].At != "/20000/n" || !strings.Contains(v.Violations[0].Got, "seven") {
		t.Errorf("the same members over and over: %s", encode(t, v))
	}
	var sb strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&sb, `{"c%d":1},`, i)
	}
	v = assertSilent(t, schema, "["+sb.String()+`{"n":"hunter2"}]`, "hunter2")
	if v != nil && v.Violations[0].At != "/20000/…" {
		t.Errorf("%+v", v.Violations[0])
	}
}

func jsonOK(text string, lim jsontext.Limits) bool { return jsontext.Check([]byte(text), lim) == nil }

// A member under an alias is one fault in a report, and its name is counted for
// the declared one.
func TestAliasesAreNear(t *testing.T) {
	c := compileOK(t, `{"type":"object","properties":{"sub_path":{"type":"string","x-headgate-aliases":["path","where"]},"paths":{"type":"integer"}},"required":["sub_path"],"additionalProperties":false}`)
	for _, payload := range []string{`{"path":1}`, `{"where":[]}`} {
		v, _ := c.Report([]byte(payload))
		checkReport(t, []byte(payload), v)
		refusal := api.Refusal{Violations: v.Violations}
		if text := refusal.AgentText(); strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "Rename the property ") || !strings.Contains(text, `to "sub_path"`) {
			t.Errorf("%s: %s", payload, text)
		}
		var g Guesses
		g.Add(v)
		if all := g.Of(v.Contract.Subject); len(all) != 1 || all[0].Meant != "sub_path" {
			t.Errorf("%s: %+v", payload, all)
		}
	}
}
