package contract

import (
	"fmt"
	"strings"
	"testing"
)

// smallPayloads are lists of values as small as they come, and objects of many
// members, of about so many bytes.
func smallPayloads(size int) map[string][]byte {
	out := map[string][]byte{}
	forms := []string{
		`{}`, `[]`, `[[]]`, `[1]`, `[{}]`, `1`, `"a"`, `"x59"`, `null`, `1.5`, `{"a":1}`, `{"k1":1}`, `{"k1":{}}`, `{"z":1}`, `{"z":{}}`,
		`{"a":"b","c":[],"k5":null}`, `{"k1":1,"k2":2,"k3":3,"k4":4}`,
	}
	for _, f := range forms {
		out["list of "+f] = []byte("[" + strings.Repeat(f+",", size/(len(f)+1)) + f + "]")
		var b strings.Builder
		for i := range size / (len(f) + 7) {
			fmt.Fprintf(&b, `,"k%d":%s`, i, f)
		}
		out["members that are "+f] = []byte("{" + b.String()[1:] + "}")
	}
	return out
}

// stillDear are shapes that take more than others; known-faults.md says why.
var stillDear = map[string]float64{"allOf, if, refused": 30}

// What small values may cost is told when a contract is registered: no list of
// them takes several times as long. And whatever the contract is, they take
// little, verdict and report.
func TestCostIsTold(t *testing.T) {
	const size, mostUnits = 10_000, 8
	payloads := smallPayloads(size)
	if raceEnabled {
		for i, form := range sortedKeys(payloads) {
			if i%5 > 0 {
				delete(payloads, form)
			}
		}
	}
	type shape struct {
		schema string
		closed bool
		own    string
	}
	shapes := map[string]shape{}
	for name, x := range hostileBranches() {
		shapes[name] = shape{x.schema, x.closed, x.payload(size)}
	}
	for name, x := range nestedShapes() {
		shapes["nested: "+name] = shape{x.list(), x.closed, x.fill(60, size)}
	}
	told, dear := 0, 0
	for _, name := range sortedKeys(shapes) {
		x := shapes[name]
		c := compileOK(t, x.schema, Policy{CloseObjects: x.closed})
		p := c.prog.priced(c.policy.Depth)
		estimate := float64(p.units) / float64(p.bytes)
		payloads["its own"] = []byte(x.own)
		worst, at := 0.0, ""
		for form, payload := range payloads {
			tape, fault := readTape(payload, c.policy.limits(), nil)
			if fault != nil {
				t.Fatal(fault)
			}
			e := newEvaluator(c.prog, &tape)
			e.decide(nil)
			if each := float64(e.work) / float64(len(payload)); each > worst {
				worst, at = each, form
			}
			_, d := c.refuse(payload)
			if d == nil {
				continue
			}
			if each, most := float64(d.eval.work)/float64(len(payload)), max(stillDear[name], mostUnits); each > most {
				t.Errorf("%s, %s: %.1f units a byte, the report included", name, form, each)
			}
		}
		if worst > 2*estimate+3 {
			t.Errorf("%s, %s: %.1f units a byte, %.1f told", name, at, worst, estimate)
		}
		if p.micros() > dearMicros {
			dear++
			if worst > estimate/20 {
				told++
			}
		}
	}
	t.Logf("%d of %d contracts are dear, %d take a twentieth of what is told or more", dear, len(shapes), told)
	if told == 0 || dear > len(shapes)*3/4 {
		t.Error("what is told says little")
	}
}
