package jsontext_test

import (
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/internal/jsontext"
)

const order = `{"order_id":"5b0c2f5e-7f64-4d0b-9a55-0d9c7f1f2a10","customer_id":"c1f6a3b2-09d1-4f5c-8d3e-5a6b7c8d9e0f",` +
	`"placed_at":"2026-11-04T09:30:00Z","currency":"EUR","status":"placed","channel":"web","priority":3,` +
	`"items":[{"sku":"AB-1001","qty":2,"price":1999},{"sku":"AB-1002","qty":1,"price":450},{"sku":"ZX-9","qty":12,"price":99}],"note":"leave at the door"}`

func BenchmarkCheck(b *testing.B) {
	text := []byte(order)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if f := jsontext.Check(text, jsontext.Limits{}); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	text := []byte(order)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if f := walk(text, jsontext.Limits{}); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkStdValid(b *testing.B) {
	text := []byte(order)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if !json.Valid(text) {
			b.Fatal("invalid")
		}
	}
}

// TestNoAllocations holds the promise that valid input costs none.
func TestNoAllocations(t *testing.T) {
	text := []byte(order)
	if n := testing.AllocsPerRun(100, func() {
		if f := jsontext.Check(text, jsontext.Limits{}); f != nil {
			t.Fatal(f)
		}
	}); n != 0 {
		t.Errorf("Check allocates %v times", n)
	}
}
