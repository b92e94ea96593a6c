package contract

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// avroMaker makes schemas of random shape, with names that lead back.
type avroMaker struct {
	rng   *rand.Rand
	names []string
	next  int
}

func (m *avroMaker) schema(depth int, inUnion bool) string {
	if depth <= 0 {
		return m.leaf()
	}
	switch m.rng.IntN(8) {
	case 0:
		return m.leaf()
	case 1, 2:
		return `{"type":"array","items":` + m.schema(depth-1, false) + `}`
	case 3, 4:
		return `{"type":"map","values":` + m.schema(depth-1, false) + `}`
	case 5:
		return m.record(depth-1, 1+m.rng.IntN(3))
	}
	if inUnion {
		return m.leaf()
	}
	return m.union(depth - 1)
}

// union has at most one branch of each sort, as unions must.
func (m *avroMaker) union(depth int) string {
	branches := []string{`"null"`}
	if m.rng.IntN(2) == 0 {
		branches = append(branches, `{"type":"array","items":`+m.schema(depth-1, false)+`}`)
	}
	if m.rng.IntN(2) == 0 {
		branches = append(branches, `{"type":"map","values":`+m.schema(depth-1, false)+`}`)
	}
	if len(branches) == 1 || m.rng.IntN(2) == 0 {
		branches = append(branches, m.record(depth-1, 1))
	}
	if m.rng.IntN(2) == 0 {
		branches = append(branches, `"int"`)
	}
	return "[" + strings.Join(branches, ",") + "]"
}

func (m *avroMaker) record(depth, fields int) string {
	m.next++
	name := fmt.Sprintf("R%d", m.next)
	m.names = append(m.names, name)
	var list []string
	for i := range fields {
		mark := ""
		if m.rng.IntN(4) == 0 {
			mark = `"x-headgate-sensitive":true,`
		}
		list = append(list, fmt.Sprintf(`{"name":"f%d",%s"type":%s}`, i, mark, m.schema(depth-1, false)))
	}
	return fmt.Sprintf(`{"type":"record","name":%q,"fields":[%s]}`, name, strings.Join(list, ","))
}

func (m *avroMaker) leaf() string {
	if len(m.names) > 0 && m.rng.IntN(2) == 0 {
		return fmt.Sprintf(`["null",%q]`, m.names[m.rng.IntN(len(m.names))])
	}
	return []string{
		`"int"`, `"string"`, `"bytes"`, `"null"`, `["null","double"]`, `{"type":"string","logicalType":"uuid"}`,
		`{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}`,
	}[m.rng.IntN(7)]
}

// TestAvroTwinsAreBounded: whatever a schema looks like, what its twin takes is
// in proportion to its length, it takes what the contract takes, and what is
// proposed is right.
func TestAvroTwinsAreBounded(t *testing.T) {
	const perByte = 200
	seeds := uint64(600)
	if raceEnabled {
		seeds = 60
	}
	compiled, accepted, refused, proposed := 0, 0, 0, 0
	for seed := range seeds {
		m := &avroMaker{rng: rand.New(rand.NewPCG(seed, 1))}
		text := m.schema(2+int(seed%26), false)
		c, _, err := Compile("t", 1, []byte(text), &CompileOpts{Type: TypeAvro})
		if err != nil {
			continue // nested too deep, or a union twice in another
		}
		compiled++
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.avro.twin()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(perByte*(len(text)+1000)) {
			t.Errorf("%d bytes of a twin for %d of a schema: %.200s", took, len(text), text)
		}
		for range 12 {
			payload := []byte(m.value(6))
			v, mended := c.Report(payload)
			if d, fault := c.avro.twin().examine(payload, math.MaxInt); fault != nil || !d.eval.over() && d.valid != (v == nil) {
				t.Errorf("%s\n%s\nthe twin says %t, the contract %v", text, payload, fault == nil && d.valid, brief(v))
			}
			if v == nil {
				accepted++
				continue
			}
			refused++
			if len(v.Proposals) > 0 {
				proposed++
			}
			checkProposals(t, c, payload, v, mended)
		}
	}
	t.Logf("%d schemas, %d payloads accepted, %d refused, %d with proposals", compiled, accepted, refused, proposed)
	if !raceEnabled && (compiled < 300 || accepted < 200 || refused < 2000 || proposed < 100) {
		t.Error("that says little")
	}
}

// value makes JSON that is nearly right for some schemas of a maker.
func (m *avroMaker) value(depth int) string {
	if depth <= 0 {
		return []string{`1`, `"1"`, `null`, `"x"`, `12.5`, `"12.50"`, `[]`, `{}`}[m.rng.IntN(8)]
	}
	switch m.rng.IntN(5) {
	case 0:
		return m.value(0)
	case 1:
		return "[" + m.value(depth-1) + "," + m.value(depth-1) + "]"
	}
	name := []string{"f0", "F0", "f1", "map", "array", "int", "k", fmt.Sprintf("R%d", 1+m.rng.IntN(max(m.next, 1)))}[m.rng.IntN(8)]
	return fmt.Sprintf(`{%q:%s}`, name, m.value(depth-1))
}
