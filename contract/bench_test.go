package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// smallSchema is an event contract as users write them; smallPayload has
// about 400 bytes.
const smallSchema = `{"type":"object","additionalProperties":false,
	"required":["order_id","customer_id","status","currency","placed_at","total","channel","items","version"],
	"properties":{
		"order_id":{"type":"string","format":"uuid"},"customer_id":{"type":"string","format":"uuid"},
		"status":{"enum":["placed","paid","shipped"]},"currency":{"enum":["EUR","USD","GBP"]},
		"placed_at":{"type":"string","format":"date-time"},"total":{"type":"number","minimum":0},
		"channel":{"const":"web"},"version":{"type":"integer","minimum":1},
		"note":{"type":"string","maxLength":200},
		"items":{"type":"array","minItems":1,"items":{"type":"object","additionalProperties":false,
			"required":["sku","qty"],"properties":{"sku":{"type":"string","pattern":"^[A-Z0-9-]{3,20}$"},"qty":{"type":"integer","minimum":1}}}}}}`

const smallPayload = `{"order_id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","customer_id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1c","status":"placed","currency":"EUR","placed_at":"2026-01-31T08:30:00Z","total":129.9,"channel":"web","version":1,"note":"leave it at the door, please","items":[{"sku":"ABC-1","qty":1},{"sku":"ABC-2","qty":2},{"sku":"XYZ-9","qty":12}]}`

// BenchmarkCheck compares the contract with the schema library and
// encoding/json in one run: from raw bytes to the verdict.
func BenchmarkCheck(b *testing.B) {
	document, deliveries := webhooks(b)
	defs := definitionsOf(b, document)
	large := webhook{}
	var largeContract *Contract
	var largeOracle *jsonschema.Schema
	for _, w := range deliveries {
		if len(w.Payload) < 7500 || len(w.Payload) > 9000 {
			continue
		}
		bundle, err := Bundle(document, w.pointer(defs))
		if err != nil {
			b.Fatal(err)
		}
		if c := compileOK(b, string(bundle)); c.Check(w.Payload) == nil {
			large, largeContract, largeOracle = w, c, documentOracle(b, document, false)(w.pointer(defs))
			break
		}
	}
	for _, c := range []struct {
		name     string
		contract *Contract
		library  *jsonschema.Schema
		accept   []byte
		refuse   []byte
	}{
		{"400B", compileOK(b, smallSchema), oracle(b, []byte(smallSchema), false), []byte(smallPayload), []byte(strings.Replace(smallPayload, `"EUR"`, `"EURO"`, 1))},
		{"8KB", largeContract, largeOracle, large.Payload, bytes.Replace(large.Payload, []byte(`"node_id":"`), []byte(`"node_id":1,"nodeId":"`), 1)},
	} {
		for _, p := range []struct {
			name    string
			payload []byte
			valid   bool
		}{{"accept", c.accept, true}, {"refuse", c.refuse, false}} {
			b.Run(fmt.Sprintf("%s/%s/headgate", c.name, p.name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(p.payload)))
				for b.Loop() {
					if (c.contract.Check(p.payload) == nil) != p.valid {
						b.Fatal("wrong verdict")
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%s/library", c.name, p.name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(p.payload)))
				for b.Loop() {
					dec := json.NewDecoder(bytes.NewReader(p.payload))
					dec.UseNumber()
					var v any
					if err := dec.Decode(&v); err != nil {
						b.Fatal(err)
					}
					if (c.library.Validate(v) == nil) != p.valid {
						b.Fatal("wrong verdict")
					}
				}
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		compileOK(b, smallSchema)
	}
}

// BenchmarkDeliveries checks all real deliveries that are valid, one after the
// other.
func BenchmarkDeliveries(b *testing.B) {
	document, deliveries := webhooks(b)
	defs := definitionsOf(b, document)
	src, err := readSource(document)
	if err != nil {
		b.Fatal(err)
	}
	byPointer := map[string]*Contract{}
	var payloads [][]byte
	var contracts []*Contract
	size := 0
	for _, w := range deliveries {
		ptr := w.pointer(defs)
		if byPointer[ptr] == nil {
			bundle, err := src.bundle(ptr)
			if err != nil {
				b.Fatal(err)
			}
			byPointer[ptr] = compileOK(b, string(bundle))
		}
		if byPointer[ptr].Check(w.Payload) == nil {
			payloads, contracts = append(payloads, w.Payload), append(contracts, byPointer[ptr])
			size += len(w.Payload)
		}
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for i, p := range payloads {
			if contracts[i].Check(p) != nil {
				b.Fatal("refused")
			}
		}
	}
}
