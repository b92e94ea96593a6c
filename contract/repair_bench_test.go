package contract

import (
	"bytes"
	"strings"
	"testing"
)

// BenchmarkReport measures refusals with proposals, beside those without.
func BenchmarkReport(b *testing.B) {
	document, deliveries := webhooks(b)
	defs := definitionsOf(b, document)
	small := compileOK(b, smallSchema)
	large, largeContract := []byte(nil), (*Contract)(nil)
	for _, w := range deliveries {
		if len(w.Payload) < 7500 || len(w.Payload) > 9000 {
			continue
		}
		bundle, err := Bundle(document, w.pointer(defs))
		if err != nil {
			b.Fatal(err)
		}
		large, largeContract = bytes.Replace(w.Payload, []byte(`"node_id":"`), []byte(`"nodeId":"`), 1), compileOK(b, string(bundle))
		if largeContract.Check(large) != nil {
			break
		}
	}
	for _, c := range []struct {
		name     string
		contract *Contract
		payload  []byte
	}{
		{"400B lossless", small, []byte(strings.Replace(smallPayload, `"version":1`, `"Version":"1"`, 1))},
		{"400B guess", small, []byte(strings.Replace(smallPayload, `"EUR"`, `"EURO"`, 1))},
		{"400B none", small, []byte(strings.Replace(smallPayload, `"qty":12`, `"qty":-12`, 1))},
		{"8KB", largeContract, large},
	} {
		b.Run(c.name+"/check", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c.contract.Check(c.payload) == nil {
					b.Fatal("it is valid")
				}
			}
		})
		b.Run(c.name+"/report", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v, _ := c.contract.Report(c.payload); v == nil {
					b.Fatal("it is valid")
				}
			}
		})
	}
}
