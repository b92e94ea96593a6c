package contract

import (
	"bufio"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// avroOpinion is one payload with our verdict, for implementations in other
// languages.
type avroOpinion struct {
	Schema string `json:"schema"`
	Hex    string `json:"hex"`
	Valid  bool   `json:"valid"`
	JSON   string `json:"json,omitempty"` // our reading of a valid payload
}

// TestWriteAvroOpinions writes changed payloads with our verdicts into the
// folder that HEADGATE_OPINIONS names. The script scripts/opinions has the
// Python implementation of the Avro project judge them.
func TestWriteAvroOpinions(t *testing.T) {
	dir := os.Getenv("HEADGATE_OPINIONS")
	if dir == "" {
		t.Skip("HEADGATE_OPINIONS names no folder: see scripts/opinions")
	}
	each := 400
	if v := os.Getenv("HEADGATE_MUTATIONS"); v != "" {
		each, _ = strconv.Atoi(v)
	}
	f, err := os.Create(filepath.Join(dir, "avro.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	rng := rand.New(rand.NewPCG(31, 32))
	n := 0
	for _, p := range avroSchemas(t) {
		pool := seedsOf(t, p)
		for range each {
			data := mutateAvro(rng, pool[rng.IntN(len(pool))])
			o := avroOpinion{Schema: p.text, Hex: hex.EncodeToString(data), Valid: p.ours.CheckAvro(data) == nil}
			if o.Valid {
				if len(pool) < 100 {
					pool = append(pool, data)
				}
				text, err := p.ours.AvroToJSON(data)
				if err != nil {
					t.Fatal(err)
				}
				o.JSON = string(text)
			}
			if _, err := w.Write(append(encode(t, o), '\n')); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cases", n)
}
