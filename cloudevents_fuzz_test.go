package headgate_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func seeds(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `[]`, event("a"), minimal(stamped), minimal(`,"data":{"a":[1,2.50e3]},"x":5,"y":true,"z":null`),
		minimal(`,"datacontenttype":"text/plain","data":"\u0061\ud834\udd1e"`), minimal(`,"data_base64":"AAH/"`),
		minimal(`,"time":"2018-04-05T17:31:00.123+02:00","\u0073ubject":"s"`), "[" + event("a") + "," + event("b") + ",7]",
		event("a") + "\n\r\n" + event("b") + "\r\n{", minimal(`,"id":"b"`), minimal(`,"Bad":"b"`), "\xef\xbb\xbf" + event("a"),
	} {
		f.Add([]byte(s))
	}
}

// checkDecoded asserts what holds for every event that a decoder returned:
// it is valid, and it survives being written and read again.
func checkDecoded(t *testing.T, d *headgate.Decoder, e *headgate.Event) {
	t.Helper()
	if err := e.Validate(); err != nil {
		t.Fatalf("decoded an event that is not valid: %v", err)
	}
	text := headgate.AppendStructured(nil, e)
	if !json.Valid(text) {
		t.Fatalf("wrote invalid JSON: %q", text)
	}
	wide := headgate.Decoder{Trusted: d.Trusted, MaxEvent: 1 << 30}
	again, err := wide.Structured(text)
	if err != nil {
		t.Fatalf("cannot read back %q: %v", text, err)
	}
	trimmed := *e
	if headgate.IsJSON(e.DataContentType) && json.Valid(e.Data) {
		trimmed.Data = bytes.Trim(e.Data, " \t\r\n")
	}
	if diff := diffEvents(&trimmed, again.Event); diff != "" {
		t.Fatalf("changed on the way: %s", diff)
	}
	if line := headgate.AppendLine(nil, e); bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("a line holds a line feed: %q", line)
	}
}

func checkRefusal(t *testing.T, text []byte, err error) {
	t.Helper()
	e := headgate.AsError(err)
	if e == nil {
		t.Fatalf("%v is no *Error", err)
	}
	switch e.Code {
	case headgate.CodeSyntax, headgate.CodeBadEnvelope, headgate.CodeTooLarge:
	default:
		t.Fatalf("unexpected code %s", e.Code)
	}
	if e.Detail == "" || len(e.Detail) > 1500 || strings.ContainsFunc(e.Detail, func(r rune) bool { return r < ' ' }) {
		t.Fatalf("detail %q", e.Detail)
	}
	if w := e.Where; w != nil && (w.Offset < 0 || w.Offset > len(text) || w.Line < 1 || w.Column < 1) {
		t.Fatalf("place %+v in %d bytes", *w, len(text))
	}
}

func FuzzStructured(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, d := range []headgate.Decoder{{}, {Trusted: true}} {
			got, err := d.Structured(text)
			if err != nil {
				checkRefusal(t, text, err)
				continue
			}
			if !json.Valid(text) {
				t.Fatalf("accepted invalid JSON")
			}
			checkDecoded(t, &d, got.Event)
		}
	})
}

// FuzzItems reads the same bytes as a batch and as lines, from memory and from
// a reader: the two ways of reading lines agree.
func FuzzItems(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		d := headgate.Decoder{MaxItems: 50, MaxEvent: 4096}
		for _, it := range []*headgate.Items{d.Batch(text), d.Lines(text), d.ReadLines(bytes.NewReader(text))} {
			for n := 0; ; n++ {
				item, found := it.Next()
				if !found {
					break
				}
				if item.Index != n || item.Line < 1 || n >= 50 {
					t.Fatalf("item %d line %d", item.Index, item.Line)
				}
				if item.Err != nil {
					checkRefusal(t, text, item.Err)
				} else {
					checkDecoded(t, &d, item.Event)
				}
			}
			if err := it.Err(); err != nil {
				checkRefusal(t, text, err)
			}
		}
		a, b := outline(d.Lines(text)), outline(d.ReadLines(bytes.NewReader(text)))
		if strings.Join(a, "\n") != strings.Join(b, "\n") {
			t.Fatalf("from memory:\n%s\nfrom a reader:\n%s", a, b)
		}
	})
}

func FuzzBinary(f *testing.F) {
	f.Add("1.0", "t.x", "a", "/s", "x", `"quoted \" %C3%A9"`, "text/plain", []byte("x"))
	f.Add("1.0", "t", "", "", "ttl", "5", "", []byte("{}"))
	f.Add("1.0", "t", "%41", "%", "time", "2018-04-05T17:31:00Z", "application/json", []byte(" {\n}"))
	f.Fuzz(func(t *testing.T, spec, typ, id, source, name, value, contentType string, body []byte) {
		h := map[string][]string{"Ce-Specversion": {spec}, "Ce-Type": {typ}, "ce-" + name: {value}}
		if id != "" {
			h["Ce-Id"] = []string{id}
		}
		if source != "" {
			h["Ce-Source"] = []string{source}
		}
		if contentType != "" {
			h["Content-Type"] = []string{contentType}
		}
		d := headgate.Decoder{Trusted: true}
		got, err := d.Binary(h, body)
		if err != nil {
			checkRefusal(t, nil, err)
			return
		}
		checkDecoded(t, &d, got.Event)
		again := map[string][]string{}
		headgate.SetBinary(again, got.Event)
		second, err := d.Binary(again, got.Event.Data)
		if err != nil {
			t.Fatalf("cannot read back %q: %v", again, err)
		}
		want := *got.Event
		if want.Data != nil && want.DataContentType == "" {
			want.DataContentType = "application/json"
		}
		if diff := diffEvents(&want, second.Event); diff != "" {
			t.Fatalf("changed on the way: %s", diff)
		}
	})
}
