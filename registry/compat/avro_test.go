package compat

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/avro"

	"github.com/headgate/headgate/internal/outside"
)

// The library's canonical forms and fingerprints are those of the reference
// implementation. A new version of it that changes one would change which
// schemas are the same.
func TestAvroReferenceCases(t *testing.T) {
	text, err := os.ReadFile(outside.Suites(t, "avro", "schema-tests.txt"))
	if err != nil {
		t.Fatal(err)
	}
	cases, prints := 0, 0
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	for _, part := range strings.Split(strings.Join(lines, ""), "<<INPUT")[1:] {
		input, rest, ok := strings.Cut(part, "\n<<canonical")
		if !ok {
			t.Fatalf("no canonical form: %q", part)
		}
		input = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(input), "INPUT"))
		canonicalForm, _, _ := strings.Cut(rest, "\n")
		cases++
		s, err := parseAvro([]byte(input), nil)
		if err != nil {
			t.Errorf("%s: %v", input, err)
			continue
		}
		if got := string(s.Canonical()); got != strings.TrimSpace(canonicalForm) {
			t.Errorf("%s: canonical form %s, want %s", input, got, canonicalForm)
		}
		if _, after, ok := strings.Cut(rest, "<<fingerprint"); ok {
			line, _, _ := strings.Cut(after, "\n")
			want, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			h := avro.NewRabin()
			if _, err := h.Write(s.Canonical()); err != nil {
				t.Fatal(err)
			}
			prints++
			if got := int64(h.Sum64()); got != want {
				t.Errorf("%s: fingerprint %d, want %d", input, got, want)
			}
		}
	}
	if cases < 30 || prints < 10 {
		t.Errorf("%d cases and %d fingerprints", cases, prints)
	}
}

// What the specification forbids in names, defaults and symbols is refused.
func TestAvroSchemasThatAreNone(t *testing.T) {
	record := func(fields string) string { return `{"type":"record","name":"R","fields":[` + fields + `]}` }
	for name, text := range map[string]string{
		"no JSON":                           `{`,
		"an unknown type":                   `{"type":"strin"}`,
		"a name that starts with a digit":   `{"type":"record","name":"1R","fields":[]}`,
		"a name with a dash":                `{"type":"record","name":"R-S","fields":[]}`,
		"no name":                           `{"type":"record","fields":[]}`,
		"a field twice":                     record(`{"name":"a","type":"int"},{"name":"a","type":"int"}`),
		"a field without a type":            record(`{"name":"a"}`),
		"a type twice":                      record(`{"name":"a","type":{"type":"fixed","name":"F","size":1}},{"name":"b","type":{"type":"fixed","name":"F","size":1}}`),
		"a default of another type":         record(`{"name":"a","type":"int","default":"1"}`),
		"a default out of range":            record(`{"name":"a","type":"int","default":2147483648}`),
		"a default of no branch":            record(`{"name":"a","type":["null","int"],"default":"x"}`),
		"a symbol twice":                    `{"type":"enum","name":"E","symbols":["A","A"]}`,
		"a symbol that is no name":          `{"type":"enum","name":"E","symbols":["A-B"]}`,
		"an enum default that is no symbol": `{"type":"enum","name":"E","symbols":["A"],"default":"B"}`,
		"a union in a union":                `["null",["int"]]`,
		"a branch twice":                    `["int","int"]`,
		"a fixed of negative size":          `{"type":"fixed","name":"F","size":-1}`,
		"an array without items":            `{"type":"array"}`,
		"reserved words in another case":    `{"type":"array","ITEMS":"int"}`,
	} {
		if err := CheckAvro([]byte(text), nil); err == nil {
			t.Errorf("%s was accepted: %s", name, text)
		}
	}
}

// Schemas with many branches and cycles are compared in no time.
func TestAvroBombs(t *testing.T) {
	var branches, fields []string
	for i := range 300 {
		n := strconv.Itoa(i)
		branches = append(branches, `{"type":"record","name":"B`+n+`","fields":[{"name":"next","type":["null","R"],"default":null}]}`)
		fields = append(fields, `{"name":"f`+n+`","type":["null","R"],"default":null}`)
	}
	text := `{"type":"record","name":"R","fields":[{"name":"u","type":[` + strings.Join(branches, ",") + `]},` + strings.Join(fields, ",") + `]}`
	old := Schema{Kind: Avro, Text: []byte(text)}
	next := Schema{Kind: Avro, Text: []byte(strings.Replace(text, `"name":"f7"`, `"name":"g7"`, 1))}
	if ds := Compare(Lenient, old, next); len(ds) > 0 {
		t.Error(ds)
	}
	bad := Schema{Kind: Avro, Text: []byte(strings.Replace(text, `"B299"`, `"C299"`, 1))}
	if ds := Compare(Lenient, old, bad); ids(ds) != "avro_resolution" {
		t.Error(ds)
	}
}
