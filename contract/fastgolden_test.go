package contract

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden verdicts")

const goldenFile = "testdata/verdicts.ndjson"

// goldenVerdict is the verdict that one payload must get from now on.
type goldenVerdict struct {
	Contract string `json:"contract"` // a name in contracts.json
	Payload  []byte `json:"payload"`
	Verdict  string `json:"verdict"` // "valid", or the start of the SHA-256 of the report
}

func verdictDigest(t testing.TB, c *Contract, payload []byte) string {
	t.Helper()
	v := c.Check(payload)
	if v == nil {
		return "valid"
	}
	sum := sha256.Sum256(encode(t, v))
	return hex.EncodeToString(sum[:12])
}

// TestGoldenVerdicts fails when any verdict or report differs from the one that
// is checked in. A change is only right together with a new EngineVersion, or
// for a report, with a line in the changelog; then -update writes the new ones.
func TestGoldenVerdicts(t *testing.T) {
	contracts := map[string]*Contract{}
	for _, r := range sampleSchemas(t) {
		contracts[r.Name] = compileOK(t, string(r.Schema))
	}
	rows := readGolden(t)
	if *updateGolden && len(rows) == 0 {
		rows = chooseGolden(t)
	}
	valid := 0
	for i := range rows {
		r := &rows[i]
		got := verdictDigest(t, contracts[r.Contract], r.Payload)
		if *updateGolden {
			r.Verdict = got
		}
		if got != r.Verdict {
			t.Errorf("%s on %s: the verdict is %s, it was %s", r.Contract, r.Payload, got, r.Verdict)
		}
		if got == "valid" {
			valid++
		}
	}
	if len(rows) < 500 || valid < 100 || valid > len(rows)-100 {
		t.Errorf("%d verdicts, %d of them valid, hold little", len(rows), valid)
	}
	if *updateGolden {
		var out bytes.Buffer
		for _, r := range rows {
			out.Write(append(encode(t, r), '\n'))
		}
		if err := os.WriteFile(goldenFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readGolden(t *testing.T) []goldenVerdict {
	f, err := os.Open(goldenFile)
	if err != nil {
		if *updateGolden && os.IsNotExist(err) {
			return nil
		}
		t.Fatal(err)
	}
	defer f.Close()
	var rows []goldenVerdict
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var r goldenVerdict
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// chooseGolden takes the samples and some changes of each.
func chooseGolden(t *testing.T) []goldenVerdict {
	var rows []goldenVerdict
	rng := rand.New(rand.NewPCG(11, 12))
	for _, s := range sampleSubjects(t) {
		m := newMutator(t, rng, s.schema, s.payloads)
		for _, p := range s.payloads {
			rows = append(rows, goldenVerdict{Contract: s.name, Payload: m.write(nil, p, false)})
		}
		for range 9 {
			root := draw(rng, s.payloads).clone()
			m.change(root)
			text := m.text(root)
			if rng.IntN(10) == 0 {
				text = m.spoil(text)
			}
			rows = append(rows, goldenVerdict{Contract: s.name, Payload: text})
		}
	}
	return rows
}
