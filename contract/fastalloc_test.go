package contract

import (
	"testing"

	"github.com/headgate/headgate"
)

// What is accepted by the fast engine costs no allocation: over all real
// deliveries that are valid, and over the samples that need no hybrid.
func TestAcceptanceAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ran := 0
	check := func(name string, c *Contract, payload []byte) {
		if c.ref.Engine != headgate.EngineFast || !c.engine.accept(payload) {
			return
		}
		ran++
		if n := testing.AllocsPerRun(20, func() { c.Check(payload) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for _, r := range sampleSchemas(t) {
		switch r.Name {
		case "format regex", // the expression is compiled
			"unique": // arrays of arrays are compared by the general engine
			continue
		}
		c := compileOK(t, string(r.Schema))
		for _, p := range r.Payloads {
			check(r.Name, c, p)
		}
	}
	samples := ran
	document, deliveries := webhooks(t)
	defs := definitionsOf(t, document)
	src, err := readSource(document)
	if err != nil {
		t.Fatal(err)
	}
	contracts := map[string]*Contract{}
	for _, w := range deliveries {
		ptr := w.pointer(defs)
		if contracts[ptr] == nil {
			bundle, err := src.bundle(ptr)
			if err != nil {
				t.Fatal(err)
			}
			contracts[ptr] = compileOK(t, string(bundle))
		}
		check(ptr, contracts[ptr], w.Payload)
	}
	if samples < 50 || ran-samples < 150 {
		t.Errorf("%d samples and %d deliveries are few", samples, ran-samples)
	}
	t.Logf("%d samples and %d deliveries accepted without an allocation", samples, ran-samples)
}
