package contract

import (
	"bytes"
	"strings"
	"testing"
)

// BenchmarkReport measures refusals with proposals, beside those without.
func BenchmarkReport(b *testing.B) {
	small := compileOK(b, smallSchema)
	largeContract, large := refusedWebhook(b)
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

// refusedWebhook returns a real delivery of about 8 KB with one name misspelt,
// and its contract.
func refusedWebhook(b *testing.B) (*Contract, []byte) {
	document, deliveries := webhooks(b)
	defs := definitionsOf(b, document)
	for _, w := range deliveries {
		if len(w.Payload) < 7500 || len(w.Payload) > 9000 {
			continue
		}
		bundle, err := Bundle(document, w.pointer(defs))
		if err != nil {
			b.Fatal(err)
		}
		c := compileOK(b, string(bundle))
		wrong := bytes.Replace(w.Payload, []byte(`"node_id":"`), []byte(`"nodeId":"`), 1)
		if c.Check(wrong) != nil {
			return c, wrong
		}
	}
	b.Fatal("no delivery is of that size")
	return nil, nil
}

// Proposals cost a refusal a few allocations, whatever the payload's size: what
// a report is worked out with is used again.
func TestProposalsAllocateLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	schema := `{"type":"object","additionalProperties":false,"required":["order_id"],"properties":{
		"order_id":{"type":"string"},"lines":{"type":"array","items":{"type":"object","properties":{"sku":{"type":"string"}}}}}}`
	c := compileOK(t, schema)
	for _, lines := range []int{10, 1000} {
		payload := []byte(`{"orderId":"1","lines":[` + strings.Repeat(`{"sku":"A-1"},`, lines) + `{"sku":"A-2"}]}`)
		check := testing.AllocsPerRun(200, func() { c.Check(payload) })
		report := testing.AllocsPerRun(200, func() { c.Report(payload) })
		if report > check+20 || check > 60 {
			t.Errorf("%d bytes: %.0f allocations for a refusal, %.0f with proposals", len(payload), check, report)
		}
	}
}
