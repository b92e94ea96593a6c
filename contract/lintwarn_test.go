package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// warned lists the codes and places of warnings.
func warned(list []Warning) []string {
	var out []string
	for _, w := range list {
		out = append(out, w.Code+" "+w.At)
	}
	return out
}

// alike lists the warnings of so many equal alternatives behind the first.
func alike(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("unreachable /items/anyOf/%d", i+1))
	}
	slices.Sort(out)
	return out
}

func TestWeaknesses(t *testing.T) {
	ranges := ""
	for i := range 60 {
		ranges += fmt.Sprintf(`{"type":"number","minimum":%d,"maximum":%d},`, 10*i, 10*i+5)
	}
	for _, c := range []struct {
		schema string
		want   []string
		words  string
	}{
		{`{"tpye":"string"}`, []string{"unknown_keyword /tpye"}, "did you mean type?"},
		{`{"x-owner":"us","x-headgate-sensitive":true}`, nil, ""},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","dependentRequired":{"a":["b"]}}`, []string{"unknown_keyword /dependentRequired"}, "says nothing in draft-07"},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalItems":false}`, []string{"unknown_keyword /additionalItems"}, "2020-12"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","const":1}`, []string{"unknown_keyword /const"}, "draft-04"},
		{`{"properties":{"type":true},"additionalProperties":false}`, nil, ""},
		{`{"pattern":"(?i)^a$"}`, []string{"pattern_engines /pattern"}, "JavaScript"},
		{`{"pattern":"^\\s+$"}`, []string{"pattern_engines /pattern"}, "white space"},
		{`{"pattern":"^[\\s\\S]{1,9}$"}`, nil, ""},
		{`{"pattern":"^[A-Z]{2}\\d+$"}`, nil, ""},
		{`{"patternProperties":{"^\\pL+$":true},"additionalProperties":false}`, []string{`pattern_engines /patternProperties/^\pL+$`}, ""},
		{"{\"properties\":{\"cafe\u0301\":true},\"additionalProperties\":false}", []string{"not_normal /properties/cafe\u0301"}, "NFC"},
		{"{\"properties\":{\"caf\u00e9\":true},\"additionalProperties\":false}", nil, ""},
		{`{"maximum":9007199254740993}`, []string{"number_precision /maximum"}, "double precision"},
		{`{"maximum":9007199254740992,"multipleOf":0.1}`, nil, ""},
		{`{"enum":[1,18446744073709551615]}`, []string{"number_precision /enum"}, ""},
		{`{"anyOf":[{"type":"string"},false]}`, []string{"unreachable /anyOf/1"}, "no value"},
		{`{"oneOf":[{"type":"string"},{"type":"string"}]}`, []string{"unreachable /oneOf/1"}, "is refused"},
		{`{"minLength":5,"maxLength":4}`, []string{"unreachable /minLength"}, "nothing is valid"},
		{`{"type":"string","enum":["a",1]}`, []string{"unreachable /enum"}, "index 1"},
		{`{"type":"string","const":1}`, []string{"unreachable /const"}, ""},
		{`{"properties":{"n":{"type":"integer","default":"1"}},"additionalProperties":false}`, []string{"bad_default /properties/n/default"}, ""},
		{`{"properties":{"n":{"type":"integer","default":1}},"additionalProperties":false}`, nil, ""},
		{`{"type":"object"}`, []string{"open_object "}, ""},
		{`{"items":{"anyOf":[` + strings.Repeat(`{"type":"string","pattern":"a"},`, 39) + `{"type":"array"}]},"type":"array"}`, append([]string{"dear /items"}, alike(38)...), "about 6 ms"},
		{`{"items":{"anyOf":[` + ranges[:len(ranges)-1] + `]},"type":"array"}`, nil, ""}, // classes decide them
	} {
		_, warnings, err := Compile("t", 1, []byte(c.schema), nil)
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

func TestLintAdvises(t *testing.T) {
	schema := `{"type":"object","additionalProperties":false,"required":["id","tags"],"properties":{
		"id":{"type":"string","format":"uuid"},
		"note":{"type":"string"},
		"tags":{"type":"array","items":{"type":"string","maxLength":9},"uniqueItems":true},
		"key":{"type":"string","maxLength":9,"x-headgate-aliases":["k"]}}}`
	list, err := Lint([]byte(schema), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"clients /properties/id/format", "clients /properties/key", "strict_export /properties/tags/uniqueItems",
		"unbounded /properties/note", "unbounded /properties/tags",
	}
	got := warned(list)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, w := range list {
		if !w.IsAdvice() {
			t.Errorf("%+v is no advice", w)
		}
	}
	list, err = Lint([]byte(`{"type":"string","maxLength":3}`), nil)
	if err != nil || len(list) != 1 || list[0].Code != AdviceStrict || !strings.Contains(list[0].Detail, "root must describe an object") {
		t.Errorf("%+v %v", list, err)
	}
	if _, err := Lint([]byte(`{"type":"strin"}`), nil); err == nil {
		t.Error("a broken schema has no error")
	}
}

// Whatever is registered can be linted: no schema of ours or of others makes
// the linter fail, and every warning has a place and a sentence.
func TestLintOfManySchemas(t *testing.T) {
	n := 0
	check := func(schema []byte) {
		list, err := Lint(schema, nil)
		if err != nil {
			t.Errorf("%s: %v", clip(string(schema), 100), err)
		}
		for _, w := range list {
			n++
			if w.Code == "" || w.Detail == "" || w.At != "" && w.At[0] != '/' && !strings.HasPrefix(w.At, "http") {
				t.Errorf("%+v", w)
			}
		}
	}
	for _, s := range sampleSchemas(t) {
		check(s.Schema)
	}
	for _, s := range realSubjects(t, 48) {
		check(s.schema)
	}
	if n < 100 {
		t.Errorf("%d warnings say little", n)
	}
}
