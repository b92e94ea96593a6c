package headgate_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
	"github.com/headgate/headgate/internal/outside"
)

// realEvents makes events of the webhook deliveries of a large service. The
// members are found by the tokenizer, so that the payloads keep their bytes.
func realEvents(tb testing.TB) []*headgate.Event {
	tb.Helper()
	text, err := os.ReadFile(outside.Data(tb, "github-webhooks", "events.ndjson"))
	if err != nil {
		tb.Fatal(err)
	}
	var events []*headgate.Event
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		e := &headgate.Event{ID: fmt.Sprint("d-", len(events)), Source: "/github", Type: "github", DataContentType: "application/json"}
		s := jsontext.NewScanner(line, jsontext.Limits{})
		for t, f := s.Next(); t.Kind != jsontext.EOF; t, f = s.Next() {
			if f != nil {
				tb.Fatal(f)
			}
			if t.Kind != jsontext.Name {
				continue
			}
			name := string(jsontext.Unquote(nil, line[t.Start:t.End]))
			v, f := s.Next()
			if f != nil {
				tb.Fatal(f)
			}
			end, f := s.Skip()
			if f != nil {
				tb.Fatal(f)
			}
			switch raw := line[v.Start:end]; name {
			case "event":
				e.Type = "github." + string(jsontext.Unquote(nil, raw))
			case "payload":
				e.Data = raw
			}
		}
		events = append(events, e)
	}
	return events
}

// TestRealDeliveries: real payloads pass the strict tokenizer and come back
// byte for byte from every encoding.
func TestRealDeliveries(t *testing.T) {
	events := realEvents(t)
	if len(events) != 329 {
		t.Fatalf("%d deliveries, want 329", len(events))
	}
	if n := testing.AllocsPerRun(1, func() {
		for _, e := range events {
			jsontext.Check(e.Data, jsontext.Limits{})
		}
	}); n != 0 {
		t.Errorf("checking all of them allocates %v times", n)
	}
	var d headgate.Decoder
	var lines []byte
	for _, e := range events {
		if f := jsontext.Check(e.Data, jsontext.Limits{}); f != nil {
			t.Errorf("%s: %v", e.ID, f)
		}
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", e.ID, err)
		}
		h := http.Header{}
		headgate.SetBinary(h, e)
		got, err := d.Binary(h, e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffEvents(e, got.Event); diff != "" {
			t.Errorf("binary: %s", diff)
		}
		lines = headgate.AppendLine(lines, e)
	}
	for name, it := range map[string]*headgate.Items{
		"batch": d.Batch(headgate.AppendBatch(nil, events)), "lines": d.Lines(lines), "reader": d.ReadLines(bytes.NewReader(lines)),
	} {
		for _, e := range events {
			item, _ := it.Next()
			if item.Err != nil || item.Event == nil {
				t.Fatalf("%s: %s: %v %v", name, e.ID, item.Err, it.Err())
			}
			if diff := diffEvents(e, item.Event); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if _, more := it.Next(); more || it.Err() != nil {
			t.Errorf("%s: not at the end: %v", name, it.Err())
		}
	}
}

func BenchmarkRealDeliveries(b *testing.B) {
	var lines []byte
	events := realEvents(b)
	for _, e := range events {
		lines = headgate.AppendLine(lines, e)
	}
	b.Run("decode", func(b *testing.B) {
		benchmarkItems(b, (*headgate.Decoder).Lines, lines, len(events))
	})
	b.Run("check", func(b *testing.B) {
		b.SetBytes(int64(len(lines)))
		b.ReportAllocs()
		for b.Loop() {
			for _, e := range events {
				if f := jsontext.Check(e.Data, jsontext.Limits{}); f != nil {
					b.Fatal(f)
				}
			}
		}
	})
}
