package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/avro"

	"github.com/headgate/headgate/contract"
)

// orderAvro is the contract of the order event in Avro.
const orderAvro = `{"type":"record","name":"Order","namespace":"shop","fields":[
	{"name":"order_id","type":{"type":"string","logicalType":"uuid"}},{"name":"customer_id","type":{"type":"string","logicalType":"uuid"}},
	{"name":"status","type":{"type":"enum","name":"Status","symbols":["placed","paid","shipped"]}},
	{"name":"currency","type":{"type":"enum","name":"Currency","symbols":["EUR","USD","GBP"]}},
	{"name":"placed_at","type":{"type":"long","logicalType":"timestamp-millis"}},
	{"name":"total","type":"double"},{"name":"channel","type":"string"},{"name":"version","type":"int"},
	{"name":"note","type":["null","string"],"default":null},
	{"name":"items","type":{"type":"array","items":{"type":"record","name":"Item","fields":[{"name":"sku","type":"string"},{"name":"qty","type":"int"}]}}}]}`

// avroOrder is what the library decodes the event into; it has no check that
// does not decode.
type avroOrder struct {
	OrderID    string     `avro:"order_id"`
	CustomerID string     `avro:"customer_id"`
	Status     string     `avro:"status"`
	Currency   string     `avro:"currency"`
	PlacedAt   time.Time  `avro:"placed_at"`
	Total      float64    `avro:"total"`
	Channel    string     `avro:"channel"`
	Version    int        `avro:"version"`
	Note       *string    `avro:"note"`
	Items      []avroItem `avro:"items"`
}

type avroItem struct {
	SKU string `avro:"sku"`
	Qty int    `avro:"qty"`
}

// avroVerdicts measures Avro contracts from raw bytes, and refusals with their
// full report.
func (r *run) avroVerdicts(ctx context.Context) error {
	ours, _, err := contract.Compile("order.placed", 1, []byte(orderAvro), &contract.CompileOpts{Type: contract.TypeAvro})
	if err != nil {
		return err
	}
	library, err := avro.Parse(orderAvro)
	if err != nil {
		return err
	}
	datum, err := ours.AvroFromJSON([]byte(`{"order_id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","customer_id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1c",` +
		`"status":"placed","currency":"EUR","placed_at":1769848200000,"total":129.9,"channel":"web","version":1,` +
		`"note":"leave it at the door, please","items":[{"sku":"ABC-1","qty":1},{"sku":"ABC-2","qty":2},{"sku":"XYZ-9","qty":12}]}`))
	if err != nil {
		return err
	}
	n, theirs := r.long(1_000_000), r.long(200_000)
	const batch = 100 // one clock reading for so many: a verdict is not much longer than a reading
	took := make([]time.Duration, 0, n/batch)
	cpu0 := usage()
	for range n / batch {
		start := time.Now()
		for range batch {
			if v := ours.CheckAvro(datum); v != nil {
				return fmt.Errorf("verdict-avro: a valid payload is refused: %+v", v.Violations)
			}
		}
		took = append(took, time.Since(start)/batch)
	}
	cpu := usage() - cpu0
	if err := ctx.Err(); err != nil {
		return err
	}
	cpu0 = usage()
	for range theirs {
		var o avroOrder
		if rest, err := library.Decode(datum, &o); err != nil || len(rest) > 0 {
			return fmt.Errorf("verdict-avro: the library refuses a valid payload: %w", err)
		}
	}
	decode := usage() - cpu0
	done := len(took) * batch
	l := latency(took)
	r.add(Row{
		ID: "verdict-avro", Work: fmt.Sprintf("the same from Avro binary, %d B", len(datum)), Ours: float64(done) / cpu.Seconds(),
		Baseline: float64(theirs) / decode.Seconds(), Unit: "verdicts/CPU s", Against: "twmb/avro, decoding into a struct",
		P50: l.P50, P99: l.P99, P999: l.P999, CPU: float64(cpu.Nanoseconds()) / 1000 / float64(done), Note: "Latencies are means of 100.",
	})
	return r.refusedAvro(ours, datum)
}

// refusedAvro measures refusals while two workers saturate the cores.
func (r *run) refusedAvro(ours *contract.Contract, datum []byte) error {
	wrong := append([]byte(nil), datum...)
	wrong[1] = 'x' // no hexadecimal digit any more
	n := r.long(200_000)
	took, wall, cpu, err := load(2, n, func(int) error {
		if ours.CheckAvro(wrong) == nil {
			return errors.New("a payload that is wrong is accepted")
		}
		return nil
	})
	if err != nil {
		return err
	}
	l := latency(took)
	r.add(Row{
		ID: "verdict-refused-avro", Work: "refusal with full report, the same in Avro with a wrong UUID, 2 workers", Ours: float64(n) / wall.Seconds(),
		Unit: "refusals/s", P50: l.P50, P99: l.P99, P999: l.P999, CPU: float64(cpu.Nanoseconds()) / 1000 / float64(n), Note: "Promise: p99.9 below 3 ms.",
	})
	return nil
}
