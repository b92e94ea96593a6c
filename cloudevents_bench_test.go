package headgate_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/headgate/headgate"
)

const placed = `{"specversion":"1.0","id":"018f2c4e-7d4b-7c3a-9b1e-5f6a7b8c9d0e","source":"/shops/7","type":"order.placed",` +
	`"time":"2026-11-04T09:30:00Z","partitionkey":"5b0c2f5e","datacontenttype":"application/json","data":` +
	`{"order_id":"5b0c2f5e-7f64-4d0b-9a55-0d9c7f1f2a10","currency":"EUR","status":"placed","items":[{"sku":"AB-1001","qty":2,"price":1999},{"sku":"AB-1002","qty":1,"price":450}]}}`

func BenchmarkStructured(b *testing.B) {
	text := []byte(placed)
	var d headgate.Decoder
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Structured(text); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStructuredStd is the baseline: the same members by encoding/json.
func BenchmarkStructuredStd(b *testing.B) {
	text := []byte(placed)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var e struct {
			SpecVersion, ID, Source, Type, Time, PartitionKey, DataContentType string
			Data                                                               json.RawMessage
		}
		if err := json.Unmarshal(text, &e); err != nil || e.ID == "" {
			b.Fatal(err)
		}
	}
}

func BenchmarkBinary(b *testing.B) {
	dec, err := new(headgate.Decoder).Structured([]byte(placed))
	if err != nil {
		b.Fatal(err)
	}
	h := http.Header{}
	headgate.SetBinary(h, dec.Event)
	var d headgate.Decoder
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Binary(h, dec.Event.Data); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkItems(b *testing.B, open func(*headgate.Decoder, []byte) *headgate.Items, body []byte, n int) {
	var d headgate.Decoder
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		it, count := open(&d, body), 0
		for item, found := it.Next(); found; item, found = it.Next() {
			if item.Err != nil {
				b.Fatal(item.Err)
			}
			count++
		}
		if it.Err() != nil || count != n {
			b.Fatal(count, it.Err())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
}

func BenchmarkLines(b *testing.B) {
	body := bytes.Repeat([]byte(placed+"\n"), 1000)
	benchmarkItems(b, (*headgate.Decoder).Lines, body, 1000)
}

func BenchmarkReadLines(b *testing.B) {
	body := bytes.Repeat([]byte(placed+"\n"), 1000)
	benchmarkItems(b, func(d *headgate.Decoder, body []byte) *headgate.Items { return d.ReadLines(bytes.NewReader(body)) }, body, 1000)
}

func BenchmarkBatch(b *testing.B) {
	body := []byte("[" + string(bytes.Repeat([]byte(placed+","), 999)) + placed + "]")
	benchmarkItems(b, (*headgate.Decoder).Batch, body, 1000)
}

func BenchmarkAppendStructured(b *testing.B) {
	dec, err := new(headgate.Decoder).Structured([]byte(placed))
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = headgate.AppendStructured(buf[:0], dec.Event)
	}
}

func BenchmarkValidate(b *testing.B) {
	dec, err := new(headgate.Decoder).Structured([]byte(placed))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := dec.Event.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}
