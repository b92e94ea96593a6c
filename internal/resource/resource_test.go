package resource_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/condition"
	"github.com/headgate/headgate/internal/resource"
)

func TestFaults(t *testing.T) {
	long := strings.Repeat("a", headgate.MaxResourceLength)
	for _, c := range []struct {
		fault func(string) string
		in    string
		want  string // part of the reason; "": good
	}{
		{resource.Fault, "ticket/42", ""},
		{resource.Fault, "ticket/42 \u00e9", ""},
		{resource.Fault, "ticket/42 e\u0301", "NFC"},
		{resource.Fault, "\u212b", "NFC"}, // the sign of the unit, which is a letter
		{resource.Fault, "", "printable"},
		{resource.Fault, "a//b", "empty, "},
		{resource.Fault, "a/../b", `"." or ".." segments`},
		{resource.PatternFault, "*", ""},
		{resource.PatternFault, "ticket/*", ""},
		{resource.PatternFault, "ticket/42", ""},
		{resource.PatternFault, "headgate", ""},
		{resource.PatternFault, "ticket*", "after a slash"},
		{resource.PatternFault, "*/open", "after a slash"},
		{resource.PatternFault, "ticket/*/*", "after a slash"},
		{resource.PatternFault, "ticket/**", "after a slash"},
		{resource.PatternFault, "/*", "printable"},
		{resource.PatternFault, "ticket//*", "empty, "},
		{resource.PatternFault, "e\u0301/*", "NFC"},
		{resource.PatternFault, "headgate/*", "Headgate's own"},
		{resource.PatternFault, "headgate/relay", "Headgate's own"},
		{resource.PatternFault, long, ""},
		{resource.PatternFault, long[:254] + "/*", ""},
		{resource.PatternFault, long[:255] + "/*", "at most 256"},
	} {
		if got := c.fault(c.in); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%.40q: %q, want %q", c.in, got, c.want)
		}
	}
}

func template(t *testing.T, s string) *condition.Value {
	t.Helper()
	v, err := condition.CompileTemplate(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTemplateFaults(t *testing.T) {
	for in, want := range map[string]string{
		"ticket/{data.id}":              "",
		"whole":                         "",
		"{data.a}/{data.b}":             "",
		"{data.id}":                     "",
		"/{data.id}":                    "empty, ",
		"{data.id}/":                    "empty, ",
		"ticket//{data.id}":             "empty, ",
		"ticket/../{data.id}":           "no resource",
		" ticket/{data.id}":             "spaces",
		"t\u0065\u0301/{data.id}":       "NFC",
		"headgate/{data.id}":            "Headgate's own",
		"":                              "printable",
		strings.Repeat("a", 300):        "256",
		"{data.a}{data.b}\u0301/{true}": "",
	} {
		got := resource.TemplateFault(template(t, in))
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.40q: %q, want %q", in, got, want)
		}
	}
}

func TestMayMeet(t *testing.T) {
	for _, c := range []struct {
		pattern, template string
		want              bool
	}{
		{"*", "ticket/{data.id}", true},
		{"ticket/*", "ticket/{data.id}", true},
		{"ticket/eu/*", "ticket/{data.id}", true},
		{"ticket/*", "{data.kind}/{data.id}", true},
		{"ticket/42", "ticket/{data.id}", true},
		{"order/*", "ticket/{data.id}", false},
		{"order/7", "ticket/{data.id}", false},
		{"ticket/*", "whole", false},
		{"whole", "whole", true},
		{"whole/*", "whole", false},
	} {
		if got := resource.MayMeet(c.pattern, template(t, c.template)); got != c.want {
			t.Errorf("%s and %s: %v", c.pattern, c.template, got)
		}
	}
}
