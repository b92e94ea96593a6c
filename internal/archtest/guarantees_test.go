package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every proof that docs/guarantees.md names is a test that exists.
func TestGuaranteesNameTests(t *testing.T) {
	root := repoRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	proofs := regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(page), -1)
	if len(proofs) < 40 {
		t.Fatalf("only %d proofs were found", len(proofs))
	}
	tests := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		dir := filepath.ToSlash(filepath.Dir(s.path))
		if dir == "." {
			dir = "headgate"
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`).FindAllStringSubmatch(s.text, -1) {
			tests[dir+"."+m[1]] = true
		}
	}
	for _, p := range proofs {
		if !tests[p[1]+"."+p[2]] {
			t.Errorf("docs/guarantees.md names %s.%s, which does not exist", p[1], p[2])
		}
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|---") && !strings.HasPrefix(line, "| promise") && !strings.Contains(line, ".Test") {
			t.Errorf("a promise without a proof: %s", line)
		}
	}
}
