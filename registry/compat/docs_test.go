package compat

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the rules into docs/registry.md")

// The page of rules is that of this very code.
func TestReferenceIsFresh(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "registry.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), "<!-- rules -->\n")
	_, after, ok2 := strings.Cut(rest, "<!-- /rules -->\n")
	if !ok || !ok2 {
		t.Fatal("the page has no place for the rules")
	}
	var b strings.Builder
	b.WriteString("| rule | what the reader's schema does | overlooked by | instead |\n|---|---|---|---|\n")
	for _, r := range Rules() {
		by := "none"
		for _, p := range []Policy{Lenient, Strict, Logical} { // the strictest last
			if r.Forgiven(p) {
				by = p.Wire()
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.ID, r.Says, by, r.Fix)
	}
	want := before + "<!-- rules -->\n" + b.String() + "<!-- /rules -->\n" + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Error("docs/registry.md is stale: run go test ./registry/compat -run ReferenceIsFresh -update, and look at the difference")
	}
}
