package contract

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/jsontext"
)

// opinionCase is one payload with our verdict, for validators in other
// languages.
type opinionCase struct {
	Description string          `json:"description"`
	Valid       bool            `json:"valid"`
	Data        json.RawMessage `json:"data"`
}

// TestWriteOpinions writes changed payloads with our verdicts into the folder
// that HEADGATE_OPINIONS names, in the form of the JSON Schema test suite. The
// script scripts/opinions has Ajv and Blaze judge them.
func TestWriteOpinions(t *testing.T) {
	dir := os.Getenv("HEADGATE_OPINIONS")
	if dir == "" {
		t.Skip("HEADGATE_OPINIONS names no folder: see scripts/opinions")
	}
	each := 400
	if v := os.Getenv("HEADGATE_MUTATIONS"); v != "" {
		each, _ = strconv.Atoi(v)
	}
	rng := rand.New(rand.NewPCG(21, 22))
	n := 0
	for i, s := range sampleSubjects(t) {
		n += writeOpinions(t, filepath.Join(dir, fmt.Sprintf("sample-%03d.json", i)), s, rng, each)
	}
	for i, s := range realSubjects(t, 1) {
		n += writeOpinions(t, filepath.Join(dir, fmt.Sprintf("real-%03d.json", i)), s, rng, each/40+1)
	}
	t.Logf("%d cases", n)
}

func writeOpinions(t *testing.T, path string, s *subject, rng *rand.Rand, each int) int {
	t.Helper()
	m := newMutator(t, rng, s.schema, s.payloads)
	var cases []opinionCase
	for len(cases) < each {
		root := draw(rng, s.payloads).clone()
		for range rng.IntN(4) {
			m.change(root)
		}
		text := m.write(nil, root, false)
		if !plainNumbers(text) {
			continue
		}
		cases = append(cases, opinionCase{fmt.Sprint(s.name, " ", len(cases)), s.contract.Check(text) == nil, text})
	}
	schema := s.schema
	if obj, ok := decode(t, schema).(map[string]any); ok && obj["$schema"] == nil {
		obj["$schema"] = libraryDraft(2020).String()
		schema = encode(t, obj)
	}
	data := encode(t, []any{map[string]any{"description": s.name, "schema": json.RawMessage(schema), "tests": cases}})
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return len(cases)
}

// plainNumbers reports whether a payload keeps the policy and has no numbers
// that a double cannot tell apart from their neighbours: other validators read
// numbers as doubles.
func plainNumbers(text []byte) bool {
	sc := jsontext.NewScanner(text, jsontext.Limits{})
	if jsontext.Check(text, jsontext.Limits{}) != nil {
		return false
	}
	for {
		tok, fault := sc.Next()
		if fault != nil || tok.Kind == jsontext.EOF {
			return fault == nil
		}
		if tok.Kind != jsontext.Number {
			continue
		}
		d := parseDecimal(text[tok.Start:tok.End])
		if len(d.digits) > 12 || d.exp > 12 || d.exp < -12 || strings.HasPrefix(string(text[tok.Start:tok.End]), "-0") {
			return false
		}
	}
}
