package compat

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/internal/outside"
)

// Real schemas are compared within the bound of work, each is compatible with
// itself, with a wider one, and not with a narrower one.
func TestRealSchemas(t *testing.T) {
	document, err := os.ReadFile(outside.Data(t, "github-webhooks", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile(`"type":\s*"integer"`)
	most, narrowed, n := 0, 0, 0
	for i, name := range sortedKeys(doc.Definitions) {
		if i%20 != 0 && os.Getenv("HEADGATE_CAMPAIGN") != "1" {
			continue
		}
		n++
		text, err := contract.Bundle(document, "/definitions/"+escape(name))
		if err != nil {
			t.Fatal(err)
		}
		old := js(string(text))
		for _, p := range []Policy{Logical, Lenient} {
			c := newComparison(newRules(), p)
			ds := c.run(old, js(strings.Replace(string(text), "{", `{"title":"t",`, 1)))
			most = max(most, c.work)
			if len(ds) > 0 {
				t.Errorf("%s: incompatible with itself: %v", name, ds[0])
			}
		}
		wider := js(whole.ReplaceAllString(string(text), `"type":"number"`))
		if ds := Compare(Logical, old, wider); len(ds) > 0 {
			t.Errorf("%s: incompatible with a wider one: %v", name, ds[0])
		}
		if string(wider.Text) != string(text) {
			if ds := Compare(Lenient, wider, old); len(ds) > 0 {
				narrowed++
			}
		}
	}
	t.Logf("%d schemas, at most %d steps, %d narrowed", n, most, narrowed)
	if narrowed == 0 {
		t.Error("none was narrowed")
	}
}
