package contract

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/twmb/avro"

	"github.com/headgate/headgate/internal/jsontext"
)

// avroPair is a schema with both readers of it.
type avroPair struct {
	text    string
	ours    *Contract
	library *avro.Schema
}

// avroSchemas are those of the table and some that nest everything.
func avroSchemas(t testing.TB) []avroPair {
	t.Helper()
	texts := []string{
		orderAvro,
		`{"type":"map","values":["null","boolean",{"type":"array","items":["long","string",{"type":"map","values":"bytes"}]}]}`,
		`{"type":"record","name":"N","fields":[{"name":"v","type":["null","int","float","double","bytes","string"]},{"name":"l","type":["null","N"]},{"name":"r","type":{"type":"map","values":"N"}}]}`,
		`[{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]},{"type":"record","name":"B","fields":[{"name":"x","type":"int"},{"name":"y","type":["null","A","B"]}]},"null"]`,
		`{"type":"array","items":{"type":"array","items":"null"}}`,
		`{"type":"record","name":"W","fields":[{"name":"W","type":["null","W"]}]}`,
		`{"type":"record","name":"M","fields":[{"name":"m","type":["null",{"type":"map","values":{"type":"map","values":"int"}}]}]}`,
	}
	for _, c := range avroCases {
		if c.at != "invalid name" {
			texts = append(texts, c.schema)
		}
	}
	var out []avroPair
	for _, text := range texts {
		if len(out) > 0 && out[len(out)-1].text == text {
			continue
		}
		out = append(out, avroPair{text, compileAvroText(t, text), avro.MustParse(text)})
	}
	return out
}

// compareAvro holds one payload against everything that must agree on it.
func compareAvro(t testing.TB, p avroPair, data []byte) (accepted bool) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Errorf("%s\n%s\n"+format, append([]any{p.text, hex.EncodeToString(data)}, args...)...)
	}
	ok := p.ours.avro.accept(data, DefaultDepth)
	faults, _ := p.ours.avro.diagnose(data, DefaultDepth)
	if ok != (len(faults) == 0) {
		fail("the fast pass says %t, the report has %d faults: %+v", ok, len(faults), faults)
	}
	for i := 1; i < len(faults); i++ {
		if faults[i].Offset < faults[i-1].Offset {
			fail("faults out of order: %+v", faults)
		}
	}
	var v any
	rest, err := p.library.Decode(data, &v)
	if ok && (err != nil || len(rest) > 0) {
		fail("we accept; the library leaves %d bytes and says %v", len(rest), err)
	}
	if !ok {
		return false
	}
	text, err := p.ours.AvroToJSON(data)
	if err != nil {
		fail("to JSON: %v", err)
	}
	if f := jsontext.Check(text, jsontext.Limits{Depth: 200, NumberLength: 64}); f != nil || !json.Valid(text) {
		fail("bad JSON %s: %v", text, f)
	}
	back, err := p.ours.AvroFromJSON(text)
	if err != nil {
		_, faults, _, _ := p.ours.avro.readJSON(text, p.ours.policy, true)
		fail("%s does not read back: %v", text, faults)
		return true
	}
	if !p.ours.avro.accept(back, DefaultDepth) {
		fail("%s reads back as %x, which does not pass", text, back)
	}
	again, err := p.ours.AvroToJSON(back)
	if err != nil || !bytes.Equal(again, text) {
		fail("%s reads back as %s: %v", text, again, err)
	}
	var w any
	if _, err := p.library.Decode(back, &w); err != nil {
		fail("the library refuses what came back: %v", err)
	}
	if a, b := appendPlain(nil, v), appendPlain(nil, w); !bytes.Equal(a, b) {
		fail("%s\ncame back as\n%s", a, b)
	}
	return true
}

// appendPlain writes a decoded value for comparison.
func appendPlain(dst []byte, v any) []byte {
	if m, ok := v.(map[string]any); ok {
		dst = append(dst, '{')
		for _, k := range sortedKeys(m) {
			dst = append(dst, k...)
			dst = appendPlain(append(dst, ':'), m[k])
		}
		return append(dst, '}')
	}
	if l, ok := v.([]any); ok {
		for _, e := range l {
			dst = append(appendPlain(dst, e), ',')
		}
		return dst
	}
	return fmt.Appendf(dst, "%T %v", v, v)
}

func seedsOf(t testing.TB, p avroPair) [][]byte {
	var out [][]byte
	if p.text == orderAvro {
		out = append(out, orderDatum(t))
	}
	for _, c := range avroCases {
		if c.schema == p.text {
			data, err := hex.DecodeString(c.hex)
			if err == nil && len(data) < 1000 {
				out = append(out, data)
			}
		}
	}
	return append(out, bytes.Repeat([]byte{2}, 12), make([]byte, 8))
}

// TestAvroDifferential mutates payloads and holds ours against the library: it
// accepts whatever we accept, and our own passes agree with one another.
func TestAvroDifferential(t *testing.T) {
	rounds := 2000
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds = 50_000
	}
	rng := rand.New(rand.NewPCG(4, 9))
	total, accepted := 0, 0
	for _, p := range avroSchemas(t) {
		pool := seedsOf(t, p)
		for range rounds {
			data := mutateAvro(rng, pool[rng.IntN(len(pool))])
			total++
			if compareAvro(t, p, data) {
				accepted++
				if len(pool) < 200 {
					pool = append(pool, data)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d payloads, %d accepted", total, accepted)
	if accepted < total/50 {
		t.Errorf("only %d of %d payloads were accepted: the mutations find nothing", accepted, total)
	}
}

func mutateAvro(rng *rand.Rand, seed []byte) []byte {
	b := bytes.Clone(seed)
	for range 1 + rng.IntN(3) {
		at := 0
		if len(b) > 0 {
			at = rng.IntN(len(b))
		}
		switch k := rng.IntN(8); {
		case k == 0 && len(b) > 0:
			b[at] ^= 1 << rng.IntN(8)
		case k == 1 && len(b) > 0:
			b[at] = byte(rng.IntN(8))
		case k == 2 && len(b) > 0:
			b[at] = byte(rng.Uint32())
		case k == 3:
			b = append(b[:at:at], append([]byte{byte(rng.IntN(8))}, b[at:]...)...)
		case k == 4 && len(b) > 0:
			b = append(b[:at:at], b[at+1:]...)
		case k == 5:
			b = b[:at]
		case k == 6 && len(b) > 0:
			n := min(len(b)-at, 1+rng.IntN(8))
			b = append(b[:at+n:at+n], b[at:]...)
		case k == 7:
			b = append(b, make([]byte, rng.IntN(4))...)
		}
		if len(b) > 4096 {
			b = b[:4096]
		}
	}
	return b
}

func FuzzAvro(f *testing.F) {
	pairs := avroSchemas(f)
	for i, p := range pairs {
		for _, s := range seedsOf(f, p) {
			f.Add(uint8(i), s)
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		compareAvro(t, pairs[int(i)%len(pairs)], data)
	})
}

// FuzzAvroSchema: no text makes the compiler of schemas panic or take long.
func FuzzAvroSchema(f *testing.F) {
	for _, p := range avroSchemas(f) {
		f.Add([]byte(p.text), []byte{2, 2, 2})
	}
	f.Fuzz(func(t *testing.T, schema, data []byte) {
		c, _, err := Compile("s", 1, schema, &CompileOpts{Type: TypeAvro})
		if err != nil || len(data) > 1<<12 {
			return
		}
		s, err := avro.Parse(string(schema))
		if err != nil {
			t.Fatalf("we compile what the library does not: %v", err)
		}
		compareAvro(t, avroPair{string(schema), c, s}, data)
	})
}
