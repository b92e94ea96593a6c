package headgate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
)

// minimal returns a structured event with more members before the brace.
func minimal(members string) string {
	return `{"specversion":"1.0","id":"a","source":"/s","type":"t.x"` + members + `}`
}

func TestStructured(t *testing.T) {
	text := `{
	  "specversion" : "1.0", "type" : "com.example.order.placed", "source" : "/shops/7?x=%20#f",
	  "subject" : "order/é", "id" : "A234-1234-1234", "time" : "2018-04-05T17:31:00.5+02:00",
	  "partitionkey":"k\u0031", "traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	  "tracestate":"a=b", "expirytime":"2030-01-01T00:00:00Z", "dataschema":"https://example.com/s",
	  "zlast":"", "comexampleextension1" : "valu\"e", "comexampleothervalue" : 5, "flag" : true, "gone" : null,
	  "datacontenttype" : "application/vnd.x+json; charset=utf-8",
	  "data" : { "n": 12345678901234567890.10e+00, "s": "\u0061" }
	}`
	var d headgate.Decoder
	got, err := d.Structured([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := &headgate.Event{
		ID: "A234-1234-1234", Source: "/shops/7?x=%20#f", Type: "com.example.order.placed", Subject: "order/é",
		Time:            time.Date(2018, 4, 5, 15, 31, 0, 5e8, time.UTC),
		ExpiryTime:      time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		DataContentType: "application/vnd.x+json; charset=utf-8", DataSchema: "https://example.com/s", Key: "k1",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b",
		Extensions: []headgate.Extension{
			{Name: "comexampleextension1", Value: `valu"e`},
			{Name: "comexampleothervalue", Value: "5", Kind: headgate.ExtensionInteger},
			{Name: "flag", Value: "true", Kind: headgate.ExtensionBool},
			{Name: "zlast", Value: ""},
		},
		Data: []byte(`{ "n": 12345678901234567890.10e+00, "s": "\u0061" }`),
	}
	if diff := cmp.Diff(want, got.Event); diff != "" {
		t.Error(diff)
	}
	if got.Ignored != nil {
		t.Errorf("ignored %q", got.Ignored)
	}
}

func TestStructuredData(t *testing.T) {
	tests := []struct{ name, members, want string }{
		{"none", ``, "<nil>"},
		{"object", `,"data":{"a":[1, 2]}`, `{"a":[1, 2]}`},
		{"JSON string", `,"data":"x\n"`, `"x\n"`},
		{"JSON null", `,"data":null`, `null`},
		{"JSON number", `,"data":1.0`, `1.0`},
		{"data before its type", `,"data":"<a/>","datacontenttype":"application/xml"`, `<a/>`},
		{"text", `,"datacontenttype":"text/plain","data":"x\n\u00e9"`, "x\né"},
		{"text null", `,"datacontenttype":"text/plain","data":null`, "<nil>"},
		{"empty text", `,"datacontenttype":"text/plain","data":""`, ""},
		{"bytes", `,"datacontenttype":"image/png","data_base64":"AAH/"`, "\x00\x01\xff"},
		{"JSON as bytes", `,"data_base64":"eyB9"`, `{ }`},
		{"no bytes", `,"data_base64":""`, ""},
		{"null bytes", `,"data_base64":null,"data":1`, "1"},
		{"names twice inside data are the contract's", `,"data":{"a":1,"a":2}`, `{"a":1,"a":2}`},
		{"numbers inside data are the contract's", `,"data":1e999999`, `1e999999`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var d headgate.Decoder
			got, err := d.Structured([]byte(minimal(tt.members)))
			if err != nil {
				t.Fatal(err)
			}
			data := "<nil>"
			if got.Event.Data != nil {
				data = string(got.Event.Data)
			}
			if data != tt.want {
				t.Errorf("data %q, want %q", data, tt.want)
			}
		})
	}
}

func TestStructuredRefusals(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"x%d":"v"`, i)
		}
		return b.String()
	}
	const syntax, bad, large = headgate.CodeSyntax, headgate.CodeBadEnvelope, headgate.CodeTooLarge
	tests := []struct {
		name, text string
		code       headgate.Code
		attribute  string
		offset     int // -1: no place
	}{
		{"empty", ``, syntax, "", 0},
		{"cut", minimal("")[:20], syntax, "", 20},
		{"trailing", minimal("") + "x", syntax, "", 57},
		{"bad UTF-8", minimal(",\"a\":\"\xff\""), syntax, "", 62},
		{"too deep", minimal(`,"data":` + strings.Repeat("[", 65) + strings.Repeat("]", 65)), syntax, "", 56 + 8 + 64},
		{"array", `[]`, bad, "", 0},
		{"null", ` null`, bad, "", 1},
		{"no specversion", `{"type":"t"}`, bad, "specversion", 0},
		{"null specversion", `{"type":"t","specversion":null}`, bad, "specversion", 0},
		{"specversion 0.3", `{"type":"t","specversion":"0.3"}`, bad, "specversion", 26},
		{"specversion number", `{"type":"t","specversion":1.0}`, bad, "specversion", 26},
		{"no type", `{"specversion":"1.0"}`, bad, "type", 0},
		{"empty type", `{"specversion":"1.0","type":""}`, bad, "type", 28},
		{"type with space", `{"specversion":"1.0","type":"a b"}`, bad, "type", 28},
		{"long type", `{"specversion":"1.0","type":"` + long(201) + `"}`, large, "type", 28},
		{"empty id", `{"specversion":"1.0","type":"t","id":""}`, bad, "id", 37},
		{"id number", `{"specversion":"1.0","type":"t","id":5}`, bad, "id", 37},
		{"long id", `{"specversion":"1.0","type":"t","id":"` + long(257) + `"}`, large, "id", 37},
		{"id with control character", `{"specversion":"1.0","type":"t","id":"a\u0007"}`, bad, "id", 37},
		{"id with C1 character", `{"specversion":"1.0","type":"t","id":"a\u0085"}`, bad, "id", 37},
		{"id with noncharacter", `{"specversion":"1.0","type":"t","id":"a\uffff"}`, bad, "id", 37},
		{"empty source", `{"specversion":"1.0","type":"t","source":""}`, bad, "source", 41},
		{"source with space", `{"specversion":"1.0","type":"t","source":"a b"}`, bad, "source", 41},
		{"source with bad escape", `{"specversion":"1.0","type":"t","source":"a%2"}`, bad, "source", 41},
		{"long source", `{"specversion":"1.0","type":"t","source":"` + long(1025) + `"}`, large, "source", 41},
		{"empty subject", minimal(`,"subject":""`), bad, "subject", 67},
		{"long subject", minimal(`,"subject":"` + long(4097) + `"`), large, "subject", 67},
		{"time without zone", minimal(`,"time":"2018-04-05T17:31:00"`), bad, "time", 64},
		{"time with comma", minimal(`,"time":"2018-04-05T17:31:00,5Z"`), bad, "time", 64},
		{"time with short hour", minimal(`,"time":"2018-04-05T7:31:00Z"`), bad, "time", 64},
		{"time with sign", minimal(`,"time":"2018-04-05T+7:31:00Z"`), bad, "time", 64},
		{"30 February", minimal(`,"time":"2018-02-30T17:31:00Z"`), bad, "time", 64},
		{"29 February of a common year", minimal(`,"time":"2023-02-29T17:31:00Z"`), bad, "time", 64},
		{"hour 24", minimal(`,"time":"2018-04-05T24:00:00Z"`), bad, "time", 64},
		{"offset 24", minimal(`,"time":"2018-04-05T17:31:00+24:00"`), bad, "time", 64},
		{"leap second", minimal(`,"time":"2016-12-31T23:59:60Z"`), bad, "time", 64},
		{"bare fraction", minimal(`,"time":"2016-12-31T23:59:59.Z"`), bad, "time", 64},
		{"time as number", minimal(`,"time":1522949460`), bad, "time", 64},
		{"media type", minimal(`,"datacontenttype":"json"`), bad, "datacontenttype", 75},
		{"key as number", minimal(`,"partitionkey":7`), bad, "partitionkey", 72},
		{"attribute twice", minimal(`,"id":"b"`), bad, "id", 57},
		{"attribute twice by escape", minimal(`,"\u0069d":"b"`), bad, "id", 57},
		{"extension twice", minimal(`,"x":1,"x":2`), bad, "x", 63},
		{"name with capital", minimal(`,"fooBar":1`), bad, "fooBar", 57},
		{"name with dash", minimal(`,"foo-bar":1`), bad, "foo-bar", 57},
		{"empty name", minimal(`,"":1`), bad, "", 57},
		{"long name", minimal(`,"` + long(65) + `":1`), bad, long(64), 57},
		{"extension as object", minimal(`,"x":{}`), bad, "x", 61},
		{"extension as fraction", minimal(`,"x":1.5`), bad, "x", 61},
		{"extension as power", minimal(`,"x":1e3`), bad, "x", 61},
		{"extension beyond 32 bits", minimal(`,"x":2147483648`), bad, "x", 61},
		{"long extension", minimal(`,"x":"` + long(4097) + `"`), large, "x", 61},
		{"65 extensions", minimal(many(65)), large, "", 56 + 10*9 + 54*10 + 1},
		{"all too long", minimal(strings.NewReplacer("v", long(600)).Replace(many(60))), large, "", 0},
		{"both data", minimal(`,"data":1,"data_base64":""`), bad, "data_base64", 80},
		{"base64 without padding", minimal(`,"data_base64":"AA"`), bad, "data_base64", 71},
		{"base64 for URLs", minimal(`,"data_base64":"_-8="`), bad, "data_base64", 71},
		{"base64 with line break", minimal(`,"data_base64":"AAH/\n"`), bad, "data_base64", 71},
		{"base64 with loose bits", minimal(`,"data_base64":"AB=="`), bad, "data_base64", 71},
		{"base64 number", minimal(`,"data_base64":5`), bad, "data_base64", 71},
		{"text as object", minimal(`,"datacontenttype":"text/plain","data":{}`), bad, "data", 95},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var d headgate.Decoder
			_, err := d.Structured([]byte(tt.text))
			e := headgate.AsError(err)
			if e == nil {
				t.Fatalf("got %v, want an error", err)
			}
			offset := -1
			if e.Where != nil {
				offset = e.Where.Offset
			}
			if e.Code != tt.code || e.Attribute != tt.attribute || offset != tt.offset || e.Detail == "" {
				t.Errorf("got %s %q at %d: %s\nwant %s %q at %d", e.Code, e.Attribute, offset, e.Detail, tt.code, tt.attribute, tt.offset)
			}
			if len(e.Detail) > 1000 || strings.ContainsAny(e.Detail, "\n\r\x00\x07") {
				t.Errorf("the detail echoes too much: %q", e.Detail)
			}
		})
	}
}

func TestStructuredLimits(t *testing.T) {
	d := headgate.Decoder{MaxEvent: 100}
	_, err := d.Structured([]byte(minimal(`,"data":"` + strings.Repeat("x", 100) + `"`)))
	if headgate.CodeOf(err) != headgate.CodeTooLarge {
		t.Errorf("got %v", err)
	}
	// Just within every limit.
	var members strings.Builder
	for i := range 64 {
		fmt.Fprintf(&members, `,"x%d":"v"`, i)
	}
	members.WriteString(`,"subject":"` + strings.Repeat("x", 4096) + `","partitionkey":"` + strings.Repeat("é", 2048) + `"`)
	text := strings.Replace(minimal(members.String()), `"id":"a"`, `"id":"`+strings.Repeat("x", 256)+`"`, 1)
	text = strings.Replace(text, `"source":"/s"`, `"source":"`+strings.Repeat("x", 1024)+`"`, 1)
	if _, err := new(headgate.Decoder).Structured([]byte(text)); err != nil {
		t.Error(err)
	}
}

const stamped = `,"rootid":"r","causationid":"c%251,d","ttl":7,"hop":3,"origin":"webhook","principal":"triage","actor":"agent",` +
	`"recordedtime":"2026-11-04T09:30:00Z","fence":"lock@4","sagaid":"s1","sagastep":"pay"`

func TestHeaderIsIgnoredFromClients(t *testing.T) {
	var d headgate.Decoder
	// What is ignored is not judged either.
	for _, members := range []string{stamped, strings.Replace(stamped, `"hop":3`, `"hop":{"x":[]}`, 1)} {
		got, err := d.Structured([]byte(minimal(members)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(headgate.HeaderAttributes(), got.Ignored); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(headgate.Header{}, got.Event.Header); diff != "" || got.Event.Extensions != nil {
			t.Error(diff, got.Event.Extensions)
		}
	}
}

func TestHeaderIsReadWhenTrusted(t *testing.T) {
	d := headgate.Decoder{Trusted: true}
	got, err := d.Structured([]byte(minimal(stamped)))
	if err != nil {
		t.Fatal(err)
	}
	want := headgate.Header{
		RootID: "r", Causes: []string{"c%1", "d"}, TTL: 7, Hop: 3, Origin: headgate.OriginWebhook, Principal: "triage",
		Actor: headgate.KindAgent, RecordedTime: time.Date(2026, 11, 4, 9, 30, 0, 0, time.UTC), Fence: "lock@4",
	}
	if diff := cmp.Diff(want, got.Event.Header); diff != "" {
		t.Error(diff)
	}
	wantExt := []headgate.Extension{{Name: "sagaid", Value: "s1"}, {Name: "sagastep", Value: "pay"}}
	if diff := cmp.Diff(wantExt, got.Event.Extensions); diff != "" || got.Ignored != nil {
		t.Error(diff, got.Ignored)
	}
	for _, members := range []string{`,"ttl":-1`, `,"ttl":1.5`, `,"hop":"x"`, `,"ttl":9999999999`, `,"rootid":5`, `,"recordedtime":"now"`} {
		if _, err := d.Structured([]byte(minimal(members))); headgate.CodeOf(err) != headgate.CodeBadEnvelope {
			t.Errorf("%s: %v", members, err)
		}
	}
}

func TestAppendStructured(t *testing.T) {
	e := &headgate.Event{
		ID: "a\"\n", Source: "/s", Type: "t.x", Time: time.Date(2026, 11, 4, 9, 30, 0, 5e8, time.FixedZone("", 90)),
		Extensions: []headgate.Extension{
			{Name: "Bad", Value: "x"},
			{Name: "b", Value: "maybe", Kind: headgate.ExtensionBool},
			{Name: "i", Value: "-5", Kind: headgate.ExtensionInteger},
			{Name: "id", Value: "twice"},
		},
		Data: []byte(" {\"a\":\n1}\r\n"),
	}
	want := `{"specversion":"1.0","id":"a\"\n","source":"/s","type":"t.x","time":"2026-11-04T09:28:30.5Z","b":"maybe","i":-5,"data":`
	if got := string(headgate.AppendStructured([]byte("x"), e)); got != "x"+want+"{\"a\":\n1}}" {
		t.Errorf("got %s", got)
	}
	if got := string(headgate.AppendLine(nil, e)); got != want+"{\"a\": 1}}\n" {
		t.Errorf("got %s", got)
	}
	if got := string(headgate.AppendBatch(nil, nil)); got != "[]" {
		t.Errorf("got %s", got)
	}
}

// TestEncodingCannotBeForged: data that pretends to be JSON does not get to
// write envelope members.
func TestEncodingCannotBeForged(t *testing.T) {
	for _, data := range []string{`1,"principal":"root"`, `}{`, `{"a":1}}`, ``, ` `, `"x`, "\xff", `{"a":1} {"b":2}`, strings.Repeat("[", 5000)} {
		e := &headgate.Event{ID: "a", Source: "/s", Type: "t", Data: []byte(data)}
		text := headgate.AppendStructured(nil, e)
		if !json.Valid(text) {
			t.Fatalf("%q: invalid JSON %s", data, text)
		}
		d := headgate.Decoder{Trusted: true}
		got, err := d.Structured(text)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if diff := cmp.Diff(e, got.Event); diff != "" {
			t.Errorf("%q: %s", data, diff)
		}
	}
}

func TestValidate(t *testing.T) {
	good := func() *headgate.Event {
		return &headgate.Event{
			ID: "a", Source: "/s", Type: "t.x", Subject: "é", Time: time.Unix(0, 0), Key: "k", DataContentType: "text/plain; charset=x",
			Extensions: []headgate.Extension{{Name: "a", Value: "-1", Kind: headgate.ExtensionInteger}, {Name: "sagaid", Value: "x"}},
		}
	}
	if err := good().Validate(); err != nil {
		t.Error(err)
	}
	if err := (&headgate.Event{Type: "t"}).Validate(); err != nil {
		t.Error(err)
	}
	bad := map[string]func(e *headgate.Event){
		"type":            func(e *headgate.Event) { e.Type = "" },
		"id":              func(e *headgate.Event) { e.ID = strings.Repeat("x", 257) },
		"source":          func(e *headgate.Event) { e.Source = "a b" },
		"subject":         func(e *headgate.Event) { e.Subject = "\x00" },
		"partitionkey":    func(e *headgate.Event) { e.Key = "\xff" },
		"datacontenttype": func(e *headgate.Event) { e.DataContentType = "/" },
		"time":            func(e *headgate.Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"ttl":             func(e *headgate.Event) { e.SetExtension(headgate.Extension{Name: "ttl", Value: "9"}) },
		"A":               func(e *headgate.Event) { e.SetExtension(headgate.Extension{Name: "A"}) },
		"b": func(e *headgate.Event) {
			e.SetExtension(headgate.Extension{Name: "b", Value: "01", Kind: headgate.ExtensionInteger})
		},
		"c":      func(e *headgate.Event) { e.SetExtension(headgate.Extension{Name: "c", Value: "x", Kind: 9}) },
		"sagaid": func(e *headgate.Event) { e.Extensions = append(e.Extensions, headgate.Extension{Name: "sagaid"}) },
		"": func(e *headgate.Event) {
			for i := range 60 {
				e.SetExtension(headgate.Extension{Name: fmt.Sprint("x", i), Value: strings.Repeat("x", 1000)})
			}
		},
	}
	for attribute, spoil := range bad {
		e := good()
		spoil(e)
		err := headgate.AsError(e.Validate())
		if err == nil || err.Attribute != attribute {
			t.Errorf("%s: %v", attribute, err)
		}
	}
}

func TestIsJSON(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "application/json": true, "text/json": true, "APPLICATION/JSON; charset=utf-8": true, "a/b+json": true, "a/b+JSON ;x": true,
		"application/jsonp": false, "text/plain": false, "json": false, "a/+json": false, "application/json-seq": false, "x/y;z=+json": false,
	} {
		if got := headgate.IsJSON(s); got != want {
			t.Errorf("IsJSON(%q) = %v", s, got)
		}
	}
}
