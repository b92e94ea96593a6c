package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/contract"
)

// orderSchema is an event contract as users write them; orderPayload has about
// 400 bytes.
const (
	orderSchema = `{"type":"object","additionalProperties":false,
		"required":["order_id","customer_id","status","currency","placed_at","total","channel","items","version"],
		"properties":{
			"order_id":{"type":"string","format":"uuid"},"customer_id":{"type":"string","format":"uuid"},
			"status":{"enum":["placed","paid","shipped"]},"currency":{"enum":["EUR","USD","GBP"]},
			"placed_at":{"type":"string","format":"date-time"},"total":{"type":"number","minimum":0},
			"channel":{"const":"web"},"version":{"type":"integer","minimum":1},
			"note":{"type":"string","maxLength":200},
			"items":{"type":"array","minItems":1,"items":{"type":"object","additionalProperties":false,
				"required":["sku","qty"],"properties":{"sku":{"type":"string","pattern":"^[A-Z0-9-]{3,20}$"},"qty":{"type":"integer","minimum":1}}}}}}`
	orderPayload = `{"order_id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","customer_id":"0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1c",` +
		`"status":"placed","currency":"EUR","placed_at":"2026-01-31T08:30:00Z","total":129.9,"channel":"web","version":1,` +
		`"note":"leave it at the door, please","items":[{"sku":"ABC-1","qty":1},{"sku":"ABC-2","qty":2},{"sku":"XYZ-9","qty":12}]}`
)

// checked is one payload with the two validators of its schema.
type checked struct {
	payload []byte
	ours    *contract.Contract
	library *jsonschema.Schema
}

func (c *checked) byLibrary() bool {
	dec := json.NewDecoder(bytes.NewReader(c.payload))
	dec.UseNumber()
	var v any
	return dec.Decode(&v) == nil && c.library.Validate(v) == nil
}

// verdicts measures contract checks from raw bytes, and refusals with their
// full report on all cores.
func (r *run) verdicts(ctx context.Context) error {
	order, err := newChecked([]byte(orderSchema), "", []byte(orderPayload))
	if err != nil {
		return err
	}
	if err := r.verdict(ctx, "verdict-400B", "contract verdict from raw bytes, 400 B event, 1 core", []checked{order}, 200_000, 10_000); err != nil {
		return err
	}
	wrong := order
	wrong.payload = bytes.Replace(order.payload, []byte(`"EUR"`), []byte(`"EURO"`), 1)
	r.refusedVerdict("verdict-refused-400B", "refusal with full report, 400 B event, 2 workers", wrong, 200_000)
	real, err := deliveries()
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(r.Out, "skipping verdict-8KB and verdict-real: no real deliveries (HEADGATE_DATA)")
		return nil
	}
	if err != nil {
		return err
	}
	for _, c := range real {
		if len(c.payload) < 7500 || len(c.payload) > 9000 {
			continue
		}
		if err := r.verdict(ctx, "verdict-8KB", "the same, a real webhook of 8 KB", []checked{c}, 20_000, 500); err != nil {
			return err
		}
		wrong := c
		wrong.payload = bytes.Replace(c.payload, []byte(`"node_id":"`), []byte(`"node_id":1,"nodeId":"`), 1)
		r.refusedVerdict("verdict-refused-8KB", "refusal with full report, webhook of 8 KB, 2 workers", wrong, 20_000)
		break
	}
	return r.verdict(ctx, "verdict-real", fmt.Sprintf("the same, %d real webhooks that are valid", len(real)), real, 60, 2)
}

// verdict checks every payload so many times, by us and by the library.
func (r *run) verdict(ctx context.Context, id, work string, all []checked, ours, theirs int) error {
	took := make([]time.Duration, 0, r.long(ours)*len(all))
	cpu0 := usage()
	for range r.long(ours) {
		for i := range all {
			start := time.Now()
			v := all[i].ours.Check(all[i].payload)
			took = append(took, time.Since(start))
			if v != nil {
				return fmt.Errorf("%s: a valid payload is refused: %+v", id, v.Violations)
			}
		}
	}
	cpu := usage() - cpu0
	if err := ctx.Err(); err != nil {
		return err
	}
	count := 0
	cpu0 = usage()
	for range max(r.long(theirs), 2) {
		for i := range all {
			if !all[i].byLibrary() {
				return fmt.Errorf("%s: the library refuses a valid payload", id)
			}
			count++
		}
	}
	library := usage() - cpu0
	l, n := latency(took), len(took)
	r.add(Row{
		ID: id, Work: work, Ours: float64(n) / cpu.Seconds(), Baseline: float64(count) / library.Seconds(), Unit: "verdicts/CPU s",
		Against: "santhosh-tekuri/jsonschema v6 behind encoding/json with exact numbers, formats asserted",
		P50:     l.P50, P99: l.P99, P999: l.P999, CPU: float64(cpu.Nanoseconds()) / 1000 / float64(n),
		Note: fmt.Sprintf("Engine: %s.", all[0].ours.Ref().Engine),
	})
	return nil
}

// refusedVerdict measures reports while two workers saturate the cores. What
// the operating system and other processes add to the tail is shown by a
// control: a loop that computes about as long and does nothing else.
func (r *run) refusedVerdict(id, work string, c checked, n int) {
	n = r.long(n)
	took, wall, cpu, err := load(2, n, func(int) error {
		if v, _ := c.ours.Report(c.payload); v == nil { // with proposals, as the perimeter asks for it
			return errors.New("a payload that is wrong is accepted")
		}
		return nil
	})
	if err != nil {
		fmt.Fprintf(r.Out, "%s: %v\n", id, err)
		return
	}
	l := latency(took)
	turns := turnsIn(time.Duration(l.P50 * float64(time.Microsecond)))
	idle, _, _, err := load(2, n, func(int) error {
		if spin(turns) == 0 {
			return errors.New("the control computes nothing")
		}
		return nil
	})
	if err != nil {
		fmt.Fprintf(r.Out, "%s: %v\n", id, err)
		return
	}
	control := latency(idle)
	r.add(Row{
		ID: id, Work: work, Ours: float64(n) / wall.Seconds(), Unit: "refusals/s", P50: l.P50, P99: l.P99, P999: l.P999,
		CPU: float64(cpu.Nanoseconds()) / 1000 / float64(n),
		Note: fmt.Sprintf("Promise: p99.9 below 3 ms. A loop of p50 %.0f µs that only computes had p99 %.0f µs, p99.9 %.0f µs.",
			control.P50, control.P99, control.P999),
	})
}

// spin computes for a number of turns.
func spin(turns int) uint64 {
	x := uint64(turns) | 1
	for range turns {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// turnsIn returns how many turns of spin take so long.
func turnsIn(d time.Duration) int {
	const probe = 100_000
	best := time.Hour
	for range 20 {
		start := time.Now()
		if spin(probe) == 0 { // the result must count, or the loop is left out
			return 0
		}
		best = min(best, time.Since(start))
	}
	return int(int64(d) * probe / max(int64(best), 1))
}

func newChecked(schema []byte, pointer string, payload []byte) (checked, error) {
	bundle := schema
	if pointer != "" {
		var err error
		if bundle, err = contract.Bundle(schema, pointer); err != nil {
			return checked{}, err
		}
	}
	c, _, err := contract.Compile("bench", 1, bundle, nil)
	if err != nil {
		return checked{}, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(bundle))
	if err != nil {
		return checked{}, err
	}
	lib := jsonschema.NewCompiler()
	lib.AssertFormat()
	// Its own check of this format refuses legal templates that the real
	// deliveries hold; here it may pass them all.
	lib.RegisterFormat(&jsonschema.Format{Name: "uri-template", Validate: func(any) error { return nil }})
	if err := lib.AddResource("bench:///schema", doc); err != nil {
		return checked{}, err
	}
	s, err := lib.Compile("bench:///schema")
	return checked{payload, c, s}, err
}

// deliveries reads the real webhooks, and returns those that are valid.
func deliveries() ([]checked, error) {
	dir := os.Getenv("HEADGATE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "shared", "data")
	}
	document, err := os.ReadFile(filepath.Join(dir, "github-webhooks", "schema.json"))
	if err != nil {
		return nil, err
	}
	var doc struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, "github-webhooks", "events.ndjson"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	byPointer := map[string]checked{}
	var out []checked
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var row struct {
			Event   string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			return nil, err
		}
		ptr := definition(row.Event, row.Payload, doc.Definitions)
		c, ok := byPointer[ptr]
		if !ok {
			if c, err = newChecked(document, ptr, nil); err != nil {
				return nil, fmt.Errorf("%s: %w", ptr, err)
			}
			byPointer[ptr] = c
		}
		c.payload = row.Payload
		if c.ours.Check(c.payload) == nil {
			out = append(out, c)
		}
	}
	return out, sc.Err()
}

// definition returns the pointer of the schema of one delivery.
func definition(event string, payload []byte, defs map[string]json.RawMessage) string {
	var head struct{ Action string }
	_ = json.Unmarshal(payload, &head) // an event without action has none
	for _, name := range []string{event + "$" + head.Action, event + "_event", event + "$event"} {
		if defs[name] != nil {
			event = name
			break
		}
	}
	return "/definitions/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(event)
}
