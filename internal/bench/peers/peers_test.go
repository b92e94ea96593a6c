package peers

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	goccy "github.com/goccy/go-json"
	google "github.com/google/jsonschema-go/jsonschema"
	kaptinlin "github.com/kaptinlin/jsonschema"
	santhosh "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/contract"
)

// fixture is one schema with a valid payload.
type fixture struct {
	name            string
	schema, payload []byte
}

func fixtures(tb testing.TB) []fixture {
	tb.Helper()
	schema, err := os.ReadFile(filepath.Join("testdata", "order.schema.json"))
	if err != nil {
		tb.Fatal(err)
	}
	payload, err := os.ReadFile(filepath.Join("testdata", "order.json"))
	if err != nil {
		tb.Fatal(err)
	}
	out := []fixture{{"400B", schema, bytes.TrimSpace(payload)}}
	if f, ok := webhook(tb); ok {
		out = append(out, f)
	}
	return out
}

// webhook is a real delivery of about 8 KB, where the outside data lies.
func webhook(tb testing.TB) (fixture, bool) {
	tb.Helper()
	dir := os.Getenv("HEADGATE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}
	document, err := os.ReadFile(filepath.Join(dir, "github-webhooks", "schema.json"))
	if err != nil {
		tb.Logf("no real delivery: %v", err)
		return fixture{}, false
	}
	events, err := os.ReadFile(filepath.Join(dir, "github-webhooks", "events.ndjson"))
	if err != nil {
		tb.Fatal(err)
	}
	var doc struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(document, &doc); err != nil {
		tb.Fatal(err)
	}
	for line := range bytes.Lines(events) {
		var row struct {
			Event   string
			Payload json.RawMessage
		}
		var head struct{ Action string }
		if err := json.Unmarshal(line, &row); err != nil {
			tb.Fatal(err)
		}
		_ = json.Unmarshal(row.Payload, &head) // an event without action has none
		name := row.Event + "$" + head.Action
		if doc.Definitions[name] == nil || len(row.Payload) < 7500 || len(row.Payload) > 9000 {
			continue
		}
		schema, err := contract.Bundle(document, "/definitions/"+strings.ReplaceAll(name, "/", "~1"))
		if err != nil {
			tb.Fatal(err)
		}
		c, _, err := contract.Compile("peer", 1, schema, nil)
		if err != nil {
			tb.Fatal(err)
		}
		if c.Check(row.Payload) == nil {
			return fixture{"8KB", schema, row.Payload}, true
		}
	}
	return fixture{}, false
}

// engines returns, by name, the check of each library from raw bytes to the
// verdict. A library that cannot take the schema is left out.
func engines(tb testing.TB, f fixture) map[string]func([]byte) bool {
	tb.Helper()
	out := map[string]func([]byte) bool{}
	c, _, err := contract.Compile("peer", 1, f.schema, nil)
	if err != nil {
		tb.Fatal(err)
	}
	out["headgate"] = func(b []byte) bool { return c.Check(b) == nil }

	doc, err := santhosh.UnmarshalJSON(bytes.NewReader(f.schema))
	if err != nil {
		tb.Fatal(err)
	}
	lib := santhosh.NewCompiler()
	lib.AssertFormat()
	// Its own check refuses legal templates of the real delivery.
	lib.RegisterFormat(&santhosh.Format{Name: "uri-template", Validate: func(any) error { return nil }})
	if err := lib.AddResource("peer:///schema", doc); err != nil {
		tb.Fatal(err)
	}
	s, err := lib.Compile("peer:///schema")
	if err != nil {
		tb.Fatal(err)
	}
	out["santhosh+std"] = func(b []byte) bool {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		var v any
		return dec.Decode(&v) == nil && s.Validate(v) == nil
	}
	out["santhosh+goccy"] = func(b []byte) bool {
		dec := goccy.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		var v any
		return dec.Decode(&v) == nil && s.Validate(v) == nil
	}

	if k, err := kaptinlin.NewCompiler().SetAssertFormat(true).Compile(f.schema); err != nil {
		tb.Logf("kaptinlin: %v", err)
	} else {
		out["kaptinlin"] = func(b []byte) bool { return k.ValidateJSON(b).IsValid() }
	}

	var g google.Schema
	if err := json.Unmarshal(f.schema, &g); err != nil {
		tb.Logf("google: %v", err)
	} else if resolved, err := g.Resolve(nil); err != nil {
		tb.Logf("google: %v", err)
	} else {
		out["google"] = func(b []byte) bool {
			var v any
			return json.Unmarshal(b, &v) == nil && resolved.Validate(v) == nil
		}
	}
	return out
}

// cpu is the time that this process spent computing, which other load on the
// machine disturbs less than the clock.
func cpu() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkAccept(b *testing.B) {
	for _, f := range fixtures(b) {
		all := engines(b, f)
		for _, name := range []string{"headgate", "santhosh+std", "santhosh+goccy", "kaptinlin", "google"} {
			check, ok := all[name]
			if !ok {
				continue
			}
			b.Run(f.name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(f.payload)))
				b.ReportAllocs()
				if !check(f.payload) {
					b.Skip("this library refuses the payload")
				}
				begin := cpu()
				for b.Loop() {
					check(f.payload)
				}
				b.ReportMetric(float64(cpu()-begin)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// The peers agree on the fixture, so that the benchmark compares like with
// like.
func TestPeersAgree(t *testing.T) {
	f := fixtures(t)[0]
	wrong := bytes.Replace(f.payload, []byte(`"EUR"`), []byte(`"EURO"`), 1)
	for name, check := range engines(t, f) {
		if !check(f.payload) || check(wrong) {
			t.Errorf("%s: valid %v, wrong %v", name, check(f.payload), check(wrong))
		}
	}
}
