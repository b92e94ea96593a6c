package jsontext_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/jsontext"
	"github.com/headgate/headgate/internal/outside"
)

// TestSuiteVerdicts runs the public JSON parsing suite: every y_ file is
// accepted, every n_ file refused, and every i_ file, where the standard leaves
// the choice to the parser, meets the choice written down in testdata.
func TestSuiteVerdicts(t *testing.T) {
	dir := outside.Suites(t, "json-parsing", "test_parsing")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("found %d files (%v), want the whole suite", len(files), err)
	}
	choices := readChoices(t)
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f := jsontext.Check(text, jsontext.Limits{})
		switch name[0] {
		case 'y':
			want, known := choices[name]
			delete(choices, name)
			if !known {
				want = "accept"
			}
			if got := codeOf(f); got != want {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
			if f := walk(text, jsontext.Limits{NumberLength: 1000}); f != nil {
				t.Errorf("%s: the grammar refused it: %v", name, f)
			}
		case 'n':
			if f == nil {
				t.Errorf("%s: accepted", name)
			}
		case 'i':
			want, known := choices[name]
			delete(choices, name)
			if got := codeOf(f); !known || got != want {
				t.Errorf("%s: got %s, want %q", name, got, want)
			}
		}
		checkFault(t, text, f)
	}
	for name := range choices {
		t.Errorf("testdata/choices.txt names %s, which the suite lacks", name)
	}
}

// walk returns the first fault that the scanner alone finds.
func walk(text []byte, lim jsontext.Limits) *jsontext.Fault {
	s := jsontext.NewScanner(text, lim)
	for {
		if t, f := s.Next(); f != nil || t.Kind == jsontext.EOF {
			return f
		}
	}
}

func codeOf(f *jsontext.Fault) string {
	if f == nil {
		return "accept"
	}
	return f.Code
}

func readChoices(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "choices.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	choices := map[string]string{}
	for sc := bufio.NewScanner(file); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		choices[fields[0]] = fields[1]
	}
	return choices
}

// checkFault asserts what holds for every verdict, and that whatever is
// accepted or refused agrees with encoding/json as far as the two should.
func checkFault(t *testing.T, text []byte, f *jsontext.Fault) {
	t.Helper()
	std := json.Valid(text)
	if f == nil {
		if !std {
			t.Fatalf("accepted %q, which encoding/json refuses", clip(text))
		}
		return
	}
	if std && f.Code == jsontext.CodeSyntax {
		t.Fatalf("refused %q as syntax (%v), which encoding/json accepts", clip(text), f)
	}
	if f.Offset < 0 || f.Offset > len(text) {
		t.Fatalf("offset %d is outside a text of %d bytes", f.Offset, len(text))
	}
	line, column := jsontext.Place(text, f.Offset)
	if line != f.Line || column != f.Column || line < 1 || column < 1 {
		t.Fatalf("place %d:%d, want %d:%d", f.Line, f.Column, line, column)
	}
	if (f.First >= 0) != (f.Code == jsontext.CodeDuplicateKey) || f.First >= f.Offset && f.First >= 0 {
		t.Fatalf("%s: first %d, offset %d", f.Code, f.First, f.Offset)
	}
	for _, c := range []byte(f.Detail) {
		if c < ' ' {
			t.Fatalf("detail %q holds a control character", f.Detail)
		}
	}
	if f.Detail == "" || len(f.Detail) > 1024 || len(f.At) > 8192 {
		t.Fatalf("detail of %d bytes, pointer of %d bytes", len(f.Detail), len(f.At))
	}
}

func clip(b []byte) []byte { return b[:min(len(b), 200)] }
