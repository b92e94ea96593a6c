package condition_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/condition"
)

func ticket() *headgate.Event {
	return &headgate.Event{
		ID: "e-1", Source: "/desk", Type: "ticket.opened", Subject: "ticket/7", Key: "k",
		Time: time.Date(2026, 11, 4, 23, 30, 0, 0, time.FixedZone("", 3600)),
		Extensions: []headgate.Extension{
			{Name: "n", Value: "5", Kind: headgate.ExtensionInteger},
			{Name: "tenant", Value: "acme"},
			{Name: "urgent", Value: "true", Kind: headgate.ExtensionBool},
		},
		Header: headgate.Header{
			RootID: "r", TTL: 7, Hop: 2, Origin: headgate.OriginHuman, Principal: "helpdesk", Actor: headgate.KindSystem,
		},
		Data: []byte(`{"id":9007199254740993,"huge":123456789012345678901234567890,"max":18446744073709551615,"price":12.5,` +
			`"whole":3.0,"s":"h\u00e9\n","none":null,"yes":true,"list":[1,2,{"a":"b"}],"o":{"a-b":1,"":2}}`),
	}
}

func TestMatch(t *testing.T) {
	tests := []struct {
		expr string
		want string // true, false, or part of the error
	}{
		{`type == "ticket.opened" && id == "e-1" && source == "/desk"`, "true"},
		{`subject.startsWith("ticket/") && key == "k"`, "true"},
		{`time > timestamp("2026-11-04T22:00:00Z") && time.getHours() == 22`, "true"},
		{`origin == "human" && principal == "helpdesk" && actor == "system" && rootid == "r"`, "true"},
		{`ttl == 7 && hop < 3`, "true"},
		{`ext.tenant == "acme" && ext.urgent && ext.n + 1 == 6`, "true"},
		{`"tenant" in ext && !("other" in ext) && !has(ext.other)`, "true"},
		{`ext.other == "x"`, "no such key: other"},
		// Numbers.
		{`data.id == 9007199254740993 && data.id != 9007199254740992`, "true"},
		{`data.max == 18446744073709551615u && data.max > 5`, "true"},
		{`data.price > 12 && data.price < 12.6 && data.id > 1.5`, "true"},
		{`data.whole == 3`, "true"},
		{`data.huge == "123456789012345678901234567890"`, "true"},
		{`data.huge == 123456789012345678`, "false"},
		{`data.huge + 1 > 0`, "no such overload"},
		{`data.huge > 0`, "no such overload"},
		{`data.max + 1u > 0u`, "unsigned integer overflow"},
		// Shapes.
		{`data.s == "hé\n" && data.none == null && data.yes`, "true"},
		{`data.list[2].a == "b" && size(data.list) == 3 && 2 in data.list`, "true"},
		{`data.list.exists(x, x == 1)`, "true"},
		{`data.o["a-b"] == 1 && data.o[""] == 2`, "true"},
		{`has(data.nope) && data.nope.x == 1`, "false"},
		{`data.nope.x == 1`, "no such key: nope"},
		{`data.list[9] == 1`, "index out of bounds"},
		{`data.s > 5`, "no such overload"},
		{`data.s`, "yields a string"},
		{`data.s.matches("^h.\\n$")`, "true"},
		{`data.s.matches("(a+)+$")`, "false"},
		// A branch that decides alone hides the other's error, as CEL says.
		{`data.nope == 1 || type == "ticket.opened"`, "true"},
		{`data.nope == 1 && type == "x"`, "false"},
	}
	for _, tt := range tests {
		c, err := condition.Compile(tt.expr)
		if err != nil {
			t.Errorf("%s: %v", tt.expr, err)
			continue
		}
		matched, err := c.Match(ticket())
		got := fmt.Sprint(matched)
		if err != nil {
			got = err.Error()
			if matched || headgate.AsError(err) == nil {
				t.Errorf("%s: matched %v with %v", tt.expr, matched, err)
			}
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%s: got %s, want %s", tt.expr, got, tt.want)
		}
		if _, again := c.Match(ticket()); fmt.Sprint(again) != fmt.Sprint(err) {
			t.Errorf("%s: two errors: %v, %v", tt.expr, err, again)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	tests := []struct{ expr, want string }{
		{``, "column 1: the expression is empty"},
		{` `, "column 1: the expression is empty"},
		{`nope == 1`, "column 1: undeclared reference to 'nope'"},
		{`type == 1`, "column 6: found no matching overload"},
		{`type`, "column 1: the expression yields string where bool is wanted"},
		{`é == "x"`, "column 1: "},
		{`"é" == nope`, "column 8: undeclared reference"},
		{"type == \"a\" &&\n  nope", "line 2, column 3: undeclared reference"},
		{`data.x ==`, "column 10: "},
		{`data.s.matches("(")`, "column 16: "},
		{`data.s.matches("(a{1000}){1000}")`, "column 16: "},
		{`data.l.all(a, data.l.all(b, data.l.all(c, data.l.all(d, true))))`, "nesting limit"},
		{strings.Repeat("(", 60) + "true" + strings.Repeat(")", 60), "column "},
		{"true" + strings.Repeat(" && true", 600), "column 1: the expression has more than 4096 bytes"},
		{strings.Repeat("[", 2000), "column "},
		{"\"\xff\" == id", "column 1: the expression is not valid UTF-8"},
		{`timestamp("yesterday") == time`, "column 11: "},
		{`env("HOME") == "x"`, "column 4: undeclared reference to 'env'"},
	}
	for _, tt := range tests {
		_, err := condition.Compile(tt.expr)
		e := headgate.AsError(err)
		if e == nil || e.Code != headgate.CodeInvalidArgument || !strings.Contains(e.Detail, tt.want) {
			t.Errorf("%.60s: got %v, want %s", tt.expr, err, tt.want)
			continue
		}
		if e.Where == nil || e.Where.Line < 1 || e.Where.Column < 1 || len(e.Detail) > 500 || strings.Contains(e.Detail, "\n") {
			t.Errorf("%.60s: %+v %q", tt.expr, e.Where, e.Detail)
		}
		if _, again := condition.Compile(tt.expr); again.Error() != err.Error() {
			t.Errorf("%.60s: two texts: %v, %v", tt.expr, err, again)
		}
	}
}

func TestData(t *testing.T) {
	tests := []struct{ name, contentType, data, expr, want string }{
		{"none", "", "", `data == null`, "true"},
		{"text", "text/plain", "héllo", `data.size() == 5 && data.startsWith("h")`, "true"},
		{"bytes", "image/png", "\xff\x00", `data == b"\xff\x00"`, "true"},
		{"scalar", "", `5`, `data == 5`, "true"},
		{"list", "a/b+json", `[1]`, `data[0] == 1`, "true"},
		{"not JSON", "", `{"a":`, `data.a == 1`, "cannot be read as JSON"},
		{"two names", "", `{"a":1,"\u0061":2}`, `data.a == 1`, "already at"},
		{"too deep", "", strings.Repeat("[", 70) + strings.Repeat("]", 70), `data == 1`, "nested more than 64 deep"},
		{"not touched", "", `{"a":`, `type == "t" || data.a == 1`, "true"},
	}
	for _, tt := range tests {
		e := &headgate.Event{Type: "t", DataContentType: tt.contentType}
		if tt.data != "" {
			e.Data = []byte(tt.data)
		}
		c, err := condition.Compile(tt.expr)
		if err != nil {
			t.Fatal(err)
		}
		matched, err := c.Match(e)
		if got := fmt.Sprint(matched, err); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestCost: no event makes a condition expensive.
func TestCost(t *testing.T) {
	list := "[" + strings.Repeat("1,", 9999) + "1]"
	e := &headgate.Event{Type: "t", Data: []byte(`{"l":` + list + `,"s":"` + strings.Repeat("a", 100_000) + `!"}`)}
	for _, expr := range []string{
		`data.l.all(x, data.l.all(y, x == y))`,
		`data.l.map(x, data.l.map(y, x + y)).size() > 0`,
		`data.l.all(x, !data.s.contains("ab"))`,
		`data.l.all(x, !data.s.matches("(a*)*b"))`,
	} {
		c, err := condition.Compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		matched, err := c.Match(e)
		t.Logf("%s: %v", expr, time.Since(start))
		if matched || err == nil || !strings.Contains(err.Error(), "cost limit") {
			t.Errorf("%s: got %v, %v", expr, matched, err)
		}
	}
}

// TestCostAllowsOneLook: what is linear in the largest payload passes.
func TestCostAllowsOneLook(t *testing.T) {
	list := "[" + strings.Repeat("1,", 4999) + "2]"
	e := &headgate.Event{Type: "t", Data: []byte(`{"l":` + list + `,"s":"` + strings.Repeat("a", 490_000) + `!"}`)}
	for _, expr := range []string{
		`data.l.exists(x, x == 2)`, `data.l.filter(x, x > 1).size() == 1`, `2 in data.l`,
		`data.s.contains("a!")`, `data.s.endsWith("!")`, `data.s != "b"`, `data.s.size() == 490001`,
	} {
		c, err := condition.Compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		if matched, err := c.Match(e); !matched || err != nil {
			t.Errorf("%s: got %v, %v", expr, matched, err)
		}
	}
}

// TestScopeIsShared: several goroutines may use one scope.
func TestScopeIsShared(t *testing.T) {
	a, err := condition.Compile(`data.list.size() == 3`)
	if err != nil {
		t.Fatal(err)
	}
	b, err := condition.CompileValue(`data.id`)
	if err != nil {
		t.Fatal(err)
	}
	s := condition.Over(ticket())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			matched, err := a.MatchOver(s)
			if !matched || err != nil {
				t.Errorf("got %v, %v", matched, err)
			}
			id, err := b.EvalOver(s)
			if id != "9007199254740993" || err != nil {
				t.Errorf("got %s, %v", id, err)
			}
		})
	}
	wg.Wait()
}

func TestValue(t *testing.T) {
	tests := []struct{ expr, want string }{
		{`data.id`, "9007199254740993"},
		{`data.max`, "18446744073709551615"},
		{`data.huge`, "123456789012345678901234567890"},
		{`data.yes`, "true"},
		{`"x" + subject`, "xticket/7"},
		{`data.none`, "error: yields a null_type"},
		{`data.price`, "error: yields a double"},
		{`data.o`, "error: yields a map"},
		{`data.nope`, "error: no such key: nope"},
		{`has(data.nope) ? data.nope : "fallback"`, "fallback"},
	}
	for _, tt := range tests {
		v, err := condition.CompileValue(tt.expr)
		if err != nil {
			t.Errorf("%s: %v", tt.expr, err)
			continue
		}
		got, err := v.Eval(ticket())
		if part, isError := strings.CutPrefix(tt.want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %q, %v", tt.expr, got, err)
			}
		} else if got != tt.want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", tt.expr, got, err, tt.want)
		}
	}
	if _, err := condition.CompileValue(`1.5`); err == nil {
		t.Error("a double is accepted as a key")
	}
	long, err := condition.CompileValue(`data`)
	if err != nil {
		t.Fatal(err)
	}
	e := &headgate.Event{DataContentType: "text/plain", Data: []byte(strings.Repeat("x", condition.MaxText+1))}
	if _, err := long.Eval(e); err == nil {
		t.Error("a value may be longer than MaxText")
	}
}

func TestTemplate(t *testing.T) {
	tests := []struct{ template, want string }{
		{``, ""},
		{`plain`, "plain"},
		{`ticket/{data.id}`, "ticket/9007199254740993"},
		{`{type}{hop}-{data.yes}!`, "ticket.opened2-true!"},
		{`{{x}} {id}`, "{x} e-1"},
		{`{ {"a": "b}"}["a"] }`, "b}"},
		{`{'}' + id + "}"}`, "}e-1}"},
		{`{r'\' + id}`, `\e-1`},
		{`{"\"}" + id}`, `"}e-1`},
		{`{'''a'}b''' + id}`, `a'}be-1`},
		{`{id`, "error: column 1: a brace is not closed"},
		{`é{"x}`, "error: column 2: a brace is not closed"},
		{`id}`, "error: column 3: a closing brace"},
		{`é/{}`, "error: column 4: the expression is empty"},
		{`é/{nope}`, "error: column 4: undeclared"},
		{`a{id}b{ 1 + nope}`, "error: column 13: undeclared"},
		{`{1.5}`, "error: column 2: the expression yields double"},
		{strings.Repeat("{id}", 70), "error: more than 64 parts"},
		{strings.Repeat("x", 5000), "error: more than 4096 bytes"},
	}
	for _, tt := range tests {
		v, err := condition.CompileTemplate(tt.template)
		got := ""
		if err == nil {
			got, err = v.Eval(ticket())
		}
		if part, isError := strings.CutPrefix(tt.want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%.40s: got %q, %v, want %s", tt.template, got, err, part)
			}
		} else if got != tt.want || err != nil {
			t.Errorf("%.40s: got %q, %v, want %q", tt.template, got, err, tt.want)
		}
	}
}

// FuzzExpression compiles and evaluates whatever comes: it must neither panic
// nor run long.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{
		`type == "x"`, `data.list.all(x, x > 1)`, `a/{data.id}`, `{`, `}`, `{{`, `{"}"}`, `data[`, `time.getHours()`, `ext["a"]`, `"` + "`",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := ticket()
		if c, err := condition.Compile(s); err == nil {
			_, _ = c.Match(e) // any answer is fine
		} else if headgate.AsError(err) == nil {
			t.Errorf("%v is no *Error", err)
		}
		if v, err := condition.CompileTemplate(s); err == nil {
			if text, err := v.Eval(e); err == nil && len(text) > condition.MaxText {
				t.Errorf("%d bytes", len(text))
			}
		}
	})
}

func BenchmarkMatchAttributes(b *testing.B) {
	c, err := condition.Compile(`subject.startsWith("ticket/") && hop < 3`)
	if err != nil {
		b.Fatal(err)
	}
	e := ticket()
	b.ReportAllocs()
	for b.Loop() {
		if matched, err := c.Match(e); !matched || err != nil {
			b.Fatal(matched, err)
		}
	}
}

func BenchmarkMatchData(b *testing.B) {
	c, err := condition.Compile(`data.price > 3 && data.yes`)
	if err != nil {
		b.Fatal(err)
	}
	e := ticket()
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if matched, err := c.Match(e); !matched || err != nil {
				b.Fatal(matched, err)
			}
		}
	})
	b.Run("shared", func(b *testing.B) {
		s := condition.Over(e)
		b.ReportAllocs()
		for b.Loop() {
			if matched, err := c.MatchOver(s); !matched || err != nil {
				b.Fatal(matched, err)
			}
		}
	})
}
