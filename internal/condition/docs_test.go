package condition_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/condition"
)

var exampleRow = regexp.MustCompile("^\\| `(.+)` \\| (.+) \\|$")

// TestDocumentedExamples runs every row of the tables in docs/conditions.md
// that are headed expression or template, over the event on that page.
func TestDocumentedExamples(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "conditions.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```json\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the page shows no event")
	}
	d := headgate.Decoder{Trusted: true}
	dec, err := d.Structured([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	kind, count := "", 0
	for _, line := range strings.Split(string(page), "\n") {
		switch {
		case line == "| expression | result |" || line == "| template | result |":
			kind = strings.Fields(line)[1]
		case !strings.HasPrefix(line, "|"):
			kind = ""
		}
		row := exampleRow.FindStringSubmatch(line)
		if kind == "" || row == nil {
			continue
		}
		count++
		expr, want := strings.ReplaceAll(row[1], `\|`, "|"), row[2]
		got, err := example(kind, expr, want, dec.Event)
		if part, isError := strings.CutPrefix(want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %q, %v", expr, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%s: got %q, %v, the page says %q", expr, got, err, want)
		}
	}
	if count < 40 {
		t.Errorf("only %d examples were found", count)
	}
}

// example evaluates one row: as a condition where the page shows a truth value.
func example(kind, expr, want string, e *headgate.Event) (string, error) {
	if kind == "expression" && (want == "true" || want == "false") {
		c, err := condition.Compile(expr)
		if err != nil {
			return "", err
		}
		matched, err := c.Match(e)
		if matched {
			return "true", err
		}
		return "false", err
	}
	compile := condition.CompileValue
	if kind == "template" {
		compile = condition.CompileTemplate
	}
	v, err := compile(expr)
	if err != nil {
		return "", err
	}
	return v.Eval(e)
}
