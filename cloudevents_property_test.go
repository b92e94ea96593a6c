package headgate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate"
)

// attributeText draws a non-empty string that CloudEvents allows.
func attributeText(limit int) *rapid.Generator[string] {
	return rapid.StringOfN(rapid.RuneFrom(nil, unicode.L, unicode.N, unicode.P, unicode.Zs, unicode.So), 1, limit/4, limit)
}

func moment() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		sec := rapid.Int64Range(-62135596799, 253402300799-86400).Draw(t, "sec")
		zone := rapid.IntRange(-23*60-59, 23*60+59).Draw(t, "zone") * 60
		at := time.Unix(sec, rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
		if local := at.Add(time.Duration(zone) * time.Second); local.Year() < 0 || local.Year() > 9999 {
			return at
		}
		return at.In(time.FixedZone("", zone))
	})
}

func maybe(t *rapid.T, name string, g *rapid.Generator[string]) string {
	if rapid.Bool().Draw(t, "has "+name) {
		return g.Draw(t, name)
	}
	return ""
}

// anEvent draws an event that Validate accepts, with a header as the perimeter
// writes it.
func anEvent() *rapid.Generator[*headgate.Event] {
	return rapid.Custom(func(t *rapid.T) *headgate.Event {
		e := &headgate.Event{
			ID:          maybe(t, "id", attributeText(headgate.MaxIDLength)),
			Source:      maybe(t, "source", rapid.StringMatching(`[a-zA-Z0-9/:?#.~_=&+-]{1,40}(%[0-9a-fA-F]{2}){0,3}`)),
			Type:        rapid.StringMatching(`[a-zA-Z0-9_/-]{1,12}(\.[a-z0-9]{1,8}){0,3}`).Draw(t, "type"),
			Subject:     maybe(t, "subject", attributeText(200)),
			Key:         maybe(t, "key", attributeText(200)),
			DataSchema:  maybe(t, "schema", rapid.StringMatching(`[a-z./:@]{1,20}`)),
			TraceParent: maybe(t, "traceparent", attributeText(60)),
			TraceState:  maybe(t, "tracestate", attributeText(60)),
		}
		if rapid.Bool().Draw(t, "timed") {
			e.Time, e.ExpiryTime = moment().Draw(t, "time"), moment().Draw(t, "expiry")
		}
		for range rapid.IntRange(0, 12).Draw(t, "extensions") {
			e.SetExtension(extension().Draw(t, "extension"))
		}
		if rapid.Bool().Draw(t, "admitted") {
			e.Header = aHeader().Draw(t, "header")
		}
		drawData(t, e)
		return e
	})
}

func extension() *rapid.Generator[headgate.Extension] {
	return rapid.Custom(func(t *rapid.T) headgate.Extension {
		x := headgate.Extension{
			Name: rapid.StringMatching(`x[a-z0-9]{0,20}`).Draw(t, "name"),
			Kind: headgate.ExtensionKind(rapid.IntRange(0, 2).Draw(t, "kind")),
		}
		switch x.Kind {
		case headgate.ExtensionString:
			x.Value = maybe(t, "value", attributeText(100))
		case headgate.ExtensionBool:
			x.Value = fmt.Sprint(rapid.Bool().Draw(t, "value"))
		case headgate.ExtensionInteger:
			x.Value = fmt.Sprint(rapid.Int32().Draw(t, "value"))
		}
		return x
	})
}

func aHeader() *rapid.Generator[headgate.Header] {
	return rapid.Custom(func(t *rapid.T) headgate.Header {
		return headgate.Header{
			RootID:       attributeText(headgate.MaxIDLength).Draw(t, "root"),
			Causes:       rapid.SliceOfN(attributeText(60), 0, 3).Draw(t, "causes"),
			TTL:          rapid.IntRange(1, 1<<20).Draw(t, "ttl"),
			Hop:          rapid.IntRange(0, 1<<20).Draw(t, "hop"),
			Origin:       rapid.SampledFrom([]headgate.Origin{headgate.OriginHuman, headgate.OriginChange}).Draw(t, "origin"),
			Principal:    rapid.StringMatching(`[a-z-]{1,20}`).Draw(t, "principal"),
			Actor:        headgate.KindAgent,
			RecordedTime: moment().Draw(t, "recorded"),
			Fence:        maybe(t, "fence", rapid.StringMatching(`[a-z]{1,9}@[0-9]{1,9}`)),
		}
	})
}

func drawData(t *rapid.T, e *headgate.Event) {
	switch rapid.IntRange(0, 4).Draw(t, "data") {
	case 1:
		v := rapid.MapOf(rapid.String(), rapid.Float64Range(-1e9, 1e9)).Draw(t, "json")
		e.Data, _ = json.Marshal(v) // a map of finite numbers cannot fail
		e.DataContentType = rapid.SampledFrom([]string{"", "application/json", "a/x+json; v=1"}).Draw(t, "media type")
	case 2:
		e.DataContentType = "text/plain"
		e.Data = []byte(rapid.String().Draw(t, "text"))
	case 3:
		e.DataContentType = "application/octet-stream"
		e.Data = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
	case 4: // says JSON and is none
		e.Data = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		if json.Valid(bytes.TrimSpace(e.Data)) {
			e.Data = []byte("{")
		}
	}
}

// untrusted is the event as a client sees it come back: without header.
func untrusted(e *headgate.Event) *headgate.Event {
	c := *e
	c.Header = headgate.Header{}
	return &c
}

func diffEvents(want, got *headgate.Event) string {
	w, g := *want, *got
	if len(w.Header.Causes) == 0 {
		w.Header.Causes = nil
	}
	if len(g.Header.Causes) == 0 {
		g.Header.Causes = nil
	}
	if bytes.Equal(w.Data, g.Data) && (w.Data == nil) == (g.Data == nil) {
		w.Data, g.Data = nil, nil // cmp would walk byte by byte
	}
	return cmp.Diff(&w, &g)
}

func TestRoundTrips(t *testing.T) {
	trusted := headgate.Decoder{Trusted: true}
	rapid.Check(t, func(t *rapid.T) {
		e := anEvent().Draw(t, "event")
		if err := e.Validate(); err != nil {
			t.Fatalf("the generator is wrong: %v", err)
		}
		text := headgate.AppendStructured(nil, e)
		if !json.Valid(text) {
			t.Fatalf("invalid JSON: %s", text)
		}
		got, err := trusted.Structured(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := diffEvents(e, got.Event); diff != "" {
			t.Fatalf("structured: %s", diff)
		}
		got, err = new(headgate.Decoder).Structured(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffEvents(untrusted(e), got.Event); diff != "" {
			t.Fatalf("structured, untrusted: %s", diff)
		}
		if (len(got.Ignored) > 0) != (e.Header.RootID != "") {
			t.Fatalf("ignored %q", got.Ignored)
		}
		checkBinaryRoundTrip(t, e)
	})
}

// checkBinaryRoundTrip sends the event through real HTTP headers. The binary
// mode turns extensions into strings, and no data and empty data are the same.
func checkBinaryRoundTrip(t *rapid.T, e *headgate.Event) {
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	headgate.SetBinary(req.Header, e)
	var wire bytes.Buffer
	if err := req.Header.Write(&wire); err != nil {
		t.Fatal(err)
	}
	wire.WriteString("\r\n")
	received, err := textproto.NewReader(bufio.NewReader(&wire)).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	d := headgate.Decoder{Trusted: true}
	got, err := d.Binary(received, e.Data)
	if err != nil {
		t.Fatalf("%v: %v", received, err)
	}
	want := *e
	want.Extensions = append([]headgate.Extension(nil), e.Extensions...)
	for i := range want.Extensions {
		want.Extensions[i].Kind = headgate.ExtensionString
	}
	if e.Data != nil && want.DataContentType == "" {
		want.DataContentType = "application/json"
	}
	if len(e.Data) == 0 {
		want.Data = nil
	}
	if diff := diffEvents(&want, got.Event); diff != "" {
		t.Fatalf("binary: %s", diff)
	}
}

func TestRoundTripsOfMany(t *testing.T) {
	trusted := headgate.Decoder{Trusted: true}
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(anEvent(), 0, 5).Draw(t, "events")
		var lines []byte
		for _, e := range events {
			lines = headgate.AppendLine(lines, e)
		}
		if n := bytes.Count(lines, []byte{'\n'}); n != len(events) {
			t.Fatalf("%d events in %d lines", len(events), n)
		}
		for name, it := range map[string]*headgate.Items{
			"batch":  trusted.Batch(headgate.AppendBatch(nil, events)),
			"lines":  trusted.Lines(lines),
			"reader": trusted.ReadLines(bytes.NewReader(lines)),
		} {
			for i, e := range events {
				item, found := it.Next()
				if !found || item.Err != nil {
					t.Fatalf("%s: item %d: %v %v", name, i, item.Err, it.Err())
				}
				if diff := diffEvents(e, item.Event); diff != "" {
					t.Fatalf("%s: item %d: %s", name, i, diff)
				}
			}
			if _, found := it.Next(); found || it.Err() != nil {
				t.Fatalf("%s: more than came in, or %v", name, it.Err())
			}
		}
	})
}
