package contract

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/headgate/headgate"
)

const avroGoldenFile = "testdata/avroverdicts.ndjson"

// avroGolden is the verdict that one payload of an Avro contract must get from
// now on.
type avroGolden struct {
	Schema  string `json:"schema"`
	JSON    bool   `json:"json,omitempty"` // the payload is JSON, not binary
	Payload []byte `json:"payload"`
	Verdict string `json:"verdict"` // "valid", or the start of the SHA-256 of the report
}

func (g *avroGolden) digest(t testing.TB, c *Contract) string {
	t.Helper()
	check := c.CheckAvro
	if g.JSON {
		check = c.Check
	}
	v := check(g.Payload)
	if v == nil {
		return "valid"
	}
	sum := sha256.Sum256(encode(t, v))
	return hex.EncodeToString(sum[:12])
}

// TestAvroGoldenVerdicts is [TestGoldenVerdicts] for Avro contracts.
func TestAvroGoldenVerdicts(t *testing.T) {
	var rows []avroGolden
	if *updateGolden {
		rows = chooseAvroGolden(t)
	} else {
		text, err := os.ReadFile(avroGoldenFile)
		if err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(bytes.NewReader(text))
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var r avroGolden
			if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, r)
		}
	}
	contracts := map[string]*Contract{}
	valid := 0
	var out bytes.Buffer
	for i := range rows {
		r := &rows[i]
		if contracts[r.Schema] == nil {
			contracts[r.Schema] = compileAvroText(t, r.Schema)
		}
		got := r.digest(t, contracts[r.Schema])
		if *updateGolden {
			r.Verdict = got
			out.Write(append(encode(t, r), '\n'))
		}
		if got != r.Verdict {
			t.Errorf("%s on %q: the verdict is %s, it was %s", r.Schema, r.Payload, got, r.Verdict)
		}
		if got == "valid" {
			valid++
		}
	}
	if len(rows) < 300 || valid < 60 || valid > len(rows)-100 {
		t.Errorf("%d verdicts, %d of them valid, hold little", len(rows), valid)
	}
	if *updateGolden {
		if err := os.WriteFile(avroGoldenFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// chooseAvroGolden takes the payloads of the tables, and some changes of each.
func chooseAvroGolden(t *testing.T) []avroGolden {
	var rows []avroGolden
	rng := rand.New(rand.NewPCG(13, 14))
	for _, p := range avroSchemas(t) {
		for _, seed := range seedsOf(t, p) {
			rows = append(rows, avroGolden{Schema: p.text, Payload: seed}, avroGolden{Schema: p.text, Payload: mutateAvro(rng, seed)})
			text, err := p.ours.AvroToJSON(seed)
			if headgate.CodeOf(err) == "" {
				spoilt := bytes.Clone(text)
				spoilt[rng.IntN(len(spoilt))] = '0'
				rows = append(rows, avroGolden{Schema: p.text, JSON: true, Payload: text}, avroGolden{Schema: p.text, JSON: true, Payload: spoilt})
			}
		}
	}
	return rows
}
