package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestPagesAreFresh fails when a page differs from what the code says.
func TestPagesAreFresh(t *testing.T) {
	root, err := repoRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages() {
		got, err := os.ReadFile(filepath.Join(root, p.path))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, p.render()) {
			t.Errorf("%s is stale: run go run ./internal/gendocs", p.path)
		}
	}
}

// TestEveryCodeHasAnAnchor: problems link to the heading of their code.
func TestEveryCodeHasAnAnchor(t *testing.T) {
	text := string(errorsPage())
	for _, c := range headgate.Codes() {
		if strings.Count(text, "\n## "+string(c.Code)+"\n") != 1 {
			t.Errorf("%s has no heading of its own", c.Code)
		}
	}
}
