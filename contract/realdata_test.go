package contract

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/outside"
)

type webhook struct {
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload"`
}

func webhooks(t testing.TB) (document []byte, deliveries []webhook) {
	t.Helper()
	document, err := os.ReadFile(outside.Data(t, "github-webhooks", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(outside.Data(t, "github-webhooks", "events.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var w webhook
		if err := json.Unmarshal(sc.Bytes(), &w); err != nil {
			t.Fatal(err)
		}
		deliveries = append(deliveries, w)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return document, deliveries
}

// pointer returns the definition of a delivery: by event and action where
// there is one, else the one for all actions of the event.
func (w webhook) pointer(definitions map[string]json.RawMessage) string {
	var head struct{ Action string }
	_ = json.Unmarshal(w.Payload, &head) // an event without action has none
	for _, name := range []string{w.Event + "$" + head.Action, w.Event + "_event", w.Event + "$event"} {
		if definitions[name] != nil {
			return "/definitions/" + escapeToken(name)
		}
	}
	return "/definitions/" + escapeToken(w.Event)
}

func definitionsOf(t testing.TB, document []byte) map[string]json.RawMessage {
	t.Helper()
	var doc struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Definitions
}

// Every definition of the document can be cut out and compiled.
func TestBundleRealDefinitions(t *testing.T) {
	document, _ := webhooks(t)
	defs := definitionsOf(t, document)
	src, err := readSource(document)
	if err != nil {
		t.Fatal(err)
	}
	largest, dearest := 0, 0
	var engines engineCount
	for name := range defs {
		bundle, err := src.bundle("/definitions/" + escapeToken(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(bundle) > MaxSchemaBytes {
			t.Errorf("%s: %d bytes", name, len(bundle))
		}
		c, _, err := Compile(name, 1, bundle, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		largest, dearest = max(largest, len(bundle)), max(dearest, c.Cost())
		engines.add(c)
		if c.ref.Engine != headgate.EngineFast {
			t.Errorf("%s: engine %s: %s", name, c.ref.Engine, c.ref.Why)
		}
	}
	engines.log(t, "definitions")
	t.Logf("%d definitions, the largest bundle has %d bytes, the greatest cost is %d", len(defs), largest, dearest)
}

// Every real delivery gets the verdict of the library by itself, under its
// schema as it stands in the whole document; a refusal points where the
// library points.
func TestRealDeliveries(t *testing.T) {
	document, deliveries := webhooks(t)
	defs := definitionsOf(t, document)
	contracts, oracles := map[string]*Contract{}, map[string]*jsonschema.Schema{}
	compileOracle := documentOracle(t, document, true)
	src, err := readSource(document)
	if err != nil {
		t.Fatal(err)
	}
	valid, invalid := 0, 0
	var engines engineCount
	for i, w := range deliveries {
		ptr := w.pointer(defs)
		c := contracts[ptr]
		if c == nil {
			bundle, err := src.bundle(ptr)
			if err != nil {
				t.Fatal(err)
			}
			if c, _, err = Compile(w.Event, 1, bundle, nil); err != nil {
				t.Fatal(err)
			}
			contracts[ptr], oracles[ptr] = c, compileOracle(ptr)
		}
		faults := oracleFaults(t, oracles[ptr], w.Payload)
		v := c.Check(w.Payload)
		sameEngines(t, ptr, c, w.Payload)
		engines.add(c)
		if (v == nil) != (faults == nil) {
			t.Errorf("delivery %d (%s): verdict %+v, library %v", i, ptr, v, faults)
			continue
		}
		if v == nil {
			valid++
			continue
		}
		invalid++
		checkReport(t, w.Payload, v)
		for _, viol := range v.Violations {
			if !faults[viol.At] {
				t.Errorf("delivery %d (%s): fault at %s, the library has %v", i, ptr, viol.At, faults)
			}
			t.Logf("delivery %d %s: %s at %s: %s", i, ptr, viol.Code, viol.At, viol.Fix)
		}
	}
	engines.log(t, "deliveries")
	t.Logf("%d valid, %d invalid of %d deliveries", valid, invalid, len(deliveries))
}

// documentOracle reads the document for the library, which compiles each
// definition where it stands, without Bundle. The formats are ours, or the
// library's own: all but one, see TestLibraryURITemplate.
func documentOracle(t testing.TB, document []byte, ownFormats bool) func(ptr string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	lib := jsonschema.NewCompiler()
	lib.AssertFormat()
	for _, f := range libraryFormats() {
		if !ownFormats || f.Name == "uri-template" {
			lib.RegisterFormat(f)
		}
	}
	if err := lib.AddResource("test:///schema.json", doc); err != nil {
		t.Fatal(err)
	}
	return func(ptr string) *jsonschema.Schema {
		s, err := lib.Compile("test:///schema.json#" + ptr)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// The library's own checker of uri-template refuses the path expressions of
// RFC 6570, section 3.2.6, which nearly every one of these deliveries holds. If
// this fails, the library was mended and the exception in documentOracle can go.
func TestLibraryURITemplate(t *testing.T) {
	schema := []byte(`{"format":"uri-template"}`)
	for _, s := range []string{`"/users{/who}"`, `"https://example.org/events{/privacy}"`} {
		if oracleFaults(t, oracle(t, schema, true), []byte(s)) == nil {
			t.Errorf("the library accepts %s now", s)
		}
		c, _, err := Compile("t", 1, schema, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v := c.Check([]byte(s)); v != nil {
			t.Errorf("%s: %+v", s, v)
		}
	}
}
