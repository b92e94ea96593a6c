package contract

import (
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/internal/jsontext"
)

// sampleSchema is a schema of ours with payloads that exercise it.
type sampleSchema struct {
	Name     string            `json:"name"`
	Schema   json.RawMessage   `json:"schema"`
	Payloads []json.RawMessage `json:"payloads"`
}

func sampleSchemas(t testing.TB) []sampleSchema {
	t.Helper()
	data, err := os.ReadFile("testdata/contracts.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []sampleSchema
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// subject is one contract under differential test.
type subject struct {
	name     string
	schema   []byte
	contract *Contract
	closed   *Contract // the same under a policy that closes objects
	library  *jsonschema.Schema
	payloads []*tree
}

// differential counts what a differential run saw.
type differential struct {
	cases, valid, refused, spoilt int
	fast                          int // cases that the fast engine had alone
}

// run changes payloads n times and compares four opinions: the contract's
// engine, the general engine, the schema library, and the same under closed
// objects.
func (d *differential) run(t testing.TB, s *subject, rng *rand.Rand, n int, library bool) {
	t.Helper()
	m := newMutator(t, rng, s.schema, s.payloads)
	for range n {
		root := draw(rng, s.payloads).clone()
		for range rng.IntN(4) {
			m.change(root)
		}
		text := m.text(root)
		if rng.IntN(16) == 0 {
			text = m.spoil(text)
			d.spoilt++
		}
		d.compare(t, s, text, library)
	}
}

func (d *differential) compare(t testing.TB, s *subject, text []byte, library bool) {
	t.Helper()
	d.cases++
	sameEngines(t, s.name, s.contract, text)
	if s.closed != nil {
		sameEngines(t, s.name+" (closed)", s.closed, text)
	}
	f, isFast := s.contract.engine.(*fast)
	got := s.contract.engine.accept(text)
	if isFast && len(f.p.hybrids) == 0 {
		d.fast++
	}
	if got {
		d.valid++
	} else {
		d.refused++
	}
	if !library {
		return
	}
	want := jsontext.Check(text, s.contract.policy.limits()) == nil && s.library.Validate(decode(t, text)) == nil
	if got != want {
		t.Errorf("%s on %s: we say %v, the library %v", s.name, clip(string(text), 400), got, want)
	}
}

// sampleSubjects compiles the schemas of testdata.
func sampleSubjects(t testing.TB) []*subject {
	var out []*subject
	for _, r := range sampleSchemas(t) {
		s := &subject{name: r.Name, schema: r.Schema, contract: compileOK(t, string(r.Schema)), library: oracle(t, r.Schema, false)}
		closed, _, err := Compile("closed", 1, r.Schema, &CompileOpts{Policy: Policy{CloseObjects: true}})
		if err != nil {
			t.Fatal(err)
		}
		s.closed = closed
		for _, p := range r.Payloads {
			s.payloads = append(s.payloads, parseTree(t, p))
		}
		out = append(out, s)
	}
	return out
}

// realSubjects compiles the definitions that real deliveries come under. Those
// without a delivery get one of a kindred definition, or an empty object. Only
// every step-th is taken.
func realSubjects(t testing.TB, step int) []*subject {
	document, deliveries := webhooks(t)
	defs := definitionsOf(t, document)
	src, err := readSource(document)
	if err != nil {
		t.Fatal(err)
	}
	compileOracle := documentOracle(t, document, false)
	byPointer := map[string][]*tree{}
	for _, w := range deliveries {
		byPointer[w.pointer(defs)] = append(byPointer[w.pointer(defs)], parseTree(t, w.Payload))
	}
	var out []*subject
	for i, name := range sortedKeys(defs) {
		if i%step != 0 {
			continue
		}
		ptr := "/definitions/" + escapeToken(name)
		bundle, err := src.bundle(ptr)
		if err != nil {
			t.Fatal(err)
		}
		s := &subject{name: name, schema: bundle, contract: compileOK(t, string(bundle)), library: compileOracle(ptr), payloads: byPointer[ptr]}
		if len(s.payloads) == 0 {
			if event, _, ok := cutEvent(name); ok {
				for _, p := range sortedKeys(byPointer) {
					if e, _, _ := cutEvent(p[len("/definitions/"):]); e == event && len(s.payloads) < 1 {
						s.payloads = byPointer[p][:1]
					}
				}
			}
		}
		if len(s.payloads) == 0 {
			s.payloads = []*tree{{kind: kindObject}}
		}
		out = append(out, s)
	}
	return out
}

// cutEvent splits the name of a definition at its "$".
func cutEvent(name string) (event, action string, ok bool) {
	for i := range len(name) {
		if name[i] == '$' {
			return name[:i], name[i+1:], true
		}
	}
	return name, "", false
}

// TestDifferentialEngines compares the compiled engine with the general one and
// with the schema library on changed payloads. HEADGATE_CAMPAIGN=1 makes it
// long; HEADGATE_MUTATIONS says how long, HEADGATE_SEED where to start.
func TestDifferentialEngines(t *testing.T) {
	total, seed, step := 60_000, uint64(1), 12 // every twelfth definition
	if raceEnabled {
		total = 10_000
	}
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		total, step = 10_000_000, 1
	}
	if v := os.Getenv("HEADGATE_MUTATIONS"); v != "" {
		total, _ = strconv.Atoi(v)
	}
	if v := os.Getenv("HEADGATE_SEED"); v != "" {
		seed, _ = strconv.ParseUint(v, 10, 64)
	}
	samples := sampleSubjects(t)
	if len(samples) < 40 {
		t.Errorf("only %d schemas", len(samples))
	}
	var sum differential
	runAll(t, "samples", samples, seed, total*9/10/len(samples)+1, &sum)
	t.Run("deliveries", func(t *testing.T) {
		real := realSubjects(t, step)
		runAll(t, "definitions", real, seed, total/10/len(real)+1, &sum)
	})
	t.Logf("seed %d: %d cases (%d damaged as text), %d accepted, %d refused; %d on the fast engine alone", seed, sum.cases, sum.spoilt, sum.valid, sum.refused, sum.fast)
	if sum.valid < sum.cases/20 || sum.refused < sum.cases/20 {
		t.Error("the changes are too strong or too weak to say anything")
	}
}

func runAll(t *testing.T, what string, subjects []*subject, seed uint64, each int, sum *differential) {
	for _, s := range subjects {
		if t.Failed() {
			return
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(s.name))
		var d differential
		d.run(t, s, rand.New(rand.NewPCG(seed, h.Sum64())), each, true)
		sum.cases, sum.valid, sum.refused = sum.cases+d.cases, sum.valid+d.valid, sum.refused+d.refused
		sum.spoilt, sum.fast = sum.spoilt+d.spoilt, sum.fast+d.fast
	}
	t.Logf("%s: %d contracts, %d changes each", what, len(subjects), each)
}
