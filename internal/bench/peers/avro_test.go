package peers

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	hamba "github.com/hamba/avro/v2"
	goavro "github.com/linkedin/goavro/v2"
	"github.com/twmb/avro"

	"github.com/headgate/headgate/contract"
)

// order is the type that the libraries decode into: none of them checks a
// datum without decoding it.
type order struct {
	OrderID    string  `avro:"order_id"`
	CustomerID string  `avro:"customer_id"`
	Status     string  `avro:"status"`
	Currency   string  `avro:"currency"`
	PlacedAt   int64   `avro:"placed_at"`
	Total      float64 `avro:"total"`
	Channel    string  `avro:"channel"`
	Version    int     `avro:"version"`
	Note       *string `avro:"note"`
	Items      []struct {
		SKU string `avro:"sku"`
		Qty int    `avro:"qty"`
	} `avro:"items"`
}

// avroEngines returns, by name, what each library makes of a datum. The plain
// schema is for libraries that would turn logical types into other Go types
// than the fields have.
func avroEngines(tb testing.TB, schema string) map[string]func([]byte) bool {
	tb.Helper()
	c, _, err := contract.Compile("peer", 1, []byte(schema), &contract.CompileOpts{Type: contract.TypeAvro})
	if err != nil {
		tb.Fatal(err)
	}
	plain := plainSchema(tb, schema)
	t := avro.MustParse(plain)
	h, err := hamba.Parse(plain)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := goavro.NewCodec(plain)
	if err != nil {
		tb.Fatal(err)
	}
	return map[string]func([]byte) bool{
		"headgate": func(b []byte) bool { return c.CheckAvro(b) == nil },
		"twmb": func(b []byte) bool {
			var o order
			rest, err := t.Decode(b, &o)
			return err == nil && len(rest) == 0
		},
		"twmb-reused": func() func(b []byte) bool {
			var o order
			return func(b []byte) bool {
				rest, err := t.Decode(b, &o)
				return err == nil && len(rest) == 0
			}
		}(),
		"hamba": func(b []byte) bool {
			var o order
			return hamba.Unmarshal(h, b, &o) == nil
		},
		"hamba-reused": func() func(b []byte) bool {
			var o order
			return func(b []byte) bool { return hamba.Unmarshal(h, b, &o) == nil }
		}(),
		"goavro": func(b []byte) bool {
			_, rest, err := g.NativeFromBinary(b)
			return err == nil && len(rest) == 0
		},
	}
}

// plainSchema drops the logical types.
func plainSchema(tb testing.TB, schema string) string {
	tb.Helper()
	var v any
	if err := json.Unmarshal([]byte(schema), &v); err != nil {
		tb.Fatal(err)
	}
	var drop func(any)
	drop = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "logicalType")
			for _, e := range v {
				drop(e)
			}
		case []any:
			for _, e := range v {
				drop(e)
			}
		}
	}
	drop(v)
	out, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(out)
}

func avroOrder(tb testing.TB) (schema string, datum []byte) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "order.avsc"))
	if err != nil {
		tb.Fatal(err)
	}
	encoded, err := os.ReadFile(filepath.Join("testdata", "order.avro.base64"))
	if err != nil {
		tb.Fatal(err)
	}
	if datum, err = base64.StdEncoding.DecodeString(string(encoded)); err != nil {
		tb.Fatal(err)
	}
	return string(text), datum
}

// TestAvroPeersAccept: every library takes the datum that it is measured with.
func TestAvroPeersAccept(t *testing.T) {
	schema, datum := avroOrder(t)
	for name, check := range avroEngines(t, schema) {
		if !check(datum) {
			t.Errorf("%s refuses the datum", name)
		}
	}
}

// BenchmarkAvroVerdict measures raw bytes to the verdict.
func BenchmarkAvroVerdict(b *testing.B) {
	schema, datum := avroOrder(b)
	all := avroEngines(b, schema)
	for _, name := range []string{"headgate", "twmb", "twmb-reused", "hamba", "hamba-reused", "goavro"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(datum)))
			var before, after syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			for b.Loop() {
				if !all[name](datum) {
					b.Fatal("a valid datum is refused")
				}
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}
