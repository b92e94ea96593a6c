package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestPatternWidth: what one character may make the matcher look at, and not
// the length of the program, is the price of a pattern.
func TestPatternWidth(t *testing.T) {
	for _, c := range []struct {
		src       string
		low, high int
	}{
		{`^[a-z]+$`, 1, 6},
		{``, 1, 3},
		{`^a{0,200}-b{0,200}$`, 1, 8},
		{`^arn:aws:[a-z]{0,63}:[a-z0-9-]{0,63}:\d{12}:.{1,200}$`, 1, 8},
		{`^(?i)k\x{212a}$`, 1, 6},
		{`(.*)(.*)(.*)(.*)(.*)(.*)(.*)[^a]$`, 20, 40},
		{`[a-z]{1,63}\.com`, 100, 140},
		{`([a-d]{0,90}){1,5}c$`, 450, 920},
		{`(a|b|ab){1,40}c[a-d]{0,90}x1$`, 200, 470},
		{`^(\p{Lu}|\p{Nd}|\p{Greek}|\p{Han})+$`, 5, 20}, // too many classes
	} {
		p, err := compilePattern(c.src)
		if err != nil {
			t.Fatal(err)
		}
		if p.width < c.low || p.width > c.high || p.width > p.steps {
			t.Errorf("%s: width %d of %d steps, want %d to %d", c.src, p.width, p.steps, c.low, c.high)
		}
	}
}

// TestDearPatternsAreCounted: patterns that keep hundreds of instructions busy
// at each byte, and many short ones at each name, end at the budget, in work
// that was counted; the same patterns on what they are meant for pass.
func TestDearPatternsAreCounted(t *testing.T) {
	var dear, short []string
	for i := range 60 {
		dear = append(dear, fmt.Sprintf(`{"pattern":"(a|b|ab){1,40}c[a-d]{0,90}x%d$"}`, i))
	}
	for i := range 100 {
		short = append(short, fmt.Sprintf(`"a[ab]{12}%d$":{"type":"integer"}`, i))
	}
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"abab%d":1`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	for _, c := range []struct{ name, schema, passes, bomb string }{
		{"dear", `{"items":{"anyOf":[` + strings.Join(dear, ",") + `]}}`, `["abcx7"]`, `["` + strings.Repeat("ab", 5000) + `"]`},
		{"short", `{"patternProperties":{` + strings.Join(short, ",") + `}}`, names(2), names(5000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compileOK(t, c.schema)
			if v := p.Check([]byte(c.passes)); v != nil {
				t.Errorf("%+v", v.Violations)
			}
			v := p.Check([]byte(c.bomb))
			if v == nil || v.Violations[0].Code != headgate.ViolationTooComplex {
				t.Fatalf("%+v", v)
			}
			tp, _ := readTape([]byte(c.bomb), p.policy.limits(), nil)
			e := newEvaluator(p.prog, &tp)
			if e.eval(e.p.root, 0, nil, nil) || !e.over() {
				t.Error("the budget is not spent")
			}
			if f, ok := p.engine.(*fast); ok {
				if accepted, steps := f.steps([]byte(c.bomb)); accepted || steps <= fastBudgetBase+fastBudgetPerByte*len(c.bomb) {
					t.Errorf("accepted: %v after %d steps", accepted, steps)
				}
			}
		})
	}
}

// TestPatternPrice: a match takes about as many units as it keeps instructions
// busy, so that patterns cost no more time than visits of schemas do.
func TestPatternPrice(t *testing.T) {
	for src, most := range map[string]int{
		``: 2000, `^x-`: 2000, `^[a-z0-9-]{0,400}$`: 2000, `^[a-z0-9]+(?:-[a-z0-9]+)*$`: 40_000,
	} {
		p, err := compilePattern(src)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.work(1000); got > most {
			t.Errorf("%s: %d units for 1,000 bytes", src, got)
		}
	}
	for _, src := range []string{`(a|b|ab){1,40}c[a-d]{0,90}x1$`, `([a-d]{0,90}){1,5}c$`, `[a-z]{1,63}\.com`} {
		p, err := compilePattern(src)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.work(1000); got < 4*budgetPerByte*1000 {
			t.Errorf("%s: %d units for 1,000 bytes", src, got)
		}
	}
}

func TestRepetitionsThatMultiply(t *testing.T) {
	for src, want := range map[string]string{
		`(a{1000}){1000}`: "multiplied", `a{1001}`: "at most 1000; use", `(a{2,1000}){2,}`: "",
	} {
		if _, err := compilePattern(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", src, err)
		}
	}
	_, _, err := Compile("s", 1, []byte(`{"multipleOf":0}`), nil)
	if err == nil || !strings.Contains(err.Error(), "greater than 0") {
		t.Errorf("%v", err)
	}
}
