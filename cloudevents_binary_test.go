package headgate_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
)

// header builds request headers from lines.
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func TestBinary(t *testing.T) {
	h := header("ce-specversion: 1.0", "CE-Type: com.example.placed", "ce-id: 1234", "ce-source: /ctx?a=%2525",
		`ce-subject: "a \"b\" %C3%A9"`, "ce-time: 2018-04-05T03:56:24Z", "ce-partitionkey: Euro%20%E2%82%AC%20%F0%9F%98%80",
		"ce-x: v%22%25", "ce-a: ", "ce-ttl: 99", "ce-principal: root", "Content-Type: application/avro", "Headgate-Cause: t")
	var d headgate.Decoder
	got, err := d.Binary(h, []byte("\x00\x01"))
	if err != nil {
		t.Fatal(err)
	}
	want := &headgate.Event{
		ID: "1234", Source: "/ctx?a=%25", Type: "com.example.placed", Subject: `a "b" é`, Key: "Euro € 😀",
		Time: time.Date(2018, 4, 5, 3, 56, 24, 0, time.UTC), DataContentType: "application/avro",
		Extensions: []headgate.Extension{{Name: "a"}, {Name: "x", Value: `v"%`}},
		Data:       []byte("\x00\x01"),
	}
	if diff := cmp.Diff(want, got.Event); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"principal", "ttl"}, got.Ignored); diff != "" {
		t.Error(diff)
	}
	d.Trusted = true
	got, err = d.Binary(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Event.Header.TTL != 99 || got.Event.Header.Principal != "root" || got.Event.Data != nil {
		t.Errorf("got %+v", got.Event)
	}
}

func TestBinaryRefusals(t *testing.T) {
	base := []string{"ce-specversion: 1.0", "ce-type: t", "ce-id: a", "ce-source: s"}
	tests := []struct {
		name      string
		lines     []string
		attribute string
		code      headgate.Code
	}{
		{"repeated", []string{"ce-id: a"}, "id", headgate.CodeBadEnvelope},
		{"repeated extension", []string{"ce-x: a", "ce-x: b"}, "x", headgate.CodeBadEnvelope},
		{"repeated content type", []string{"Content-Type: a/b", "Content-Type: a/b"}, "datacontenttype", headgate.CodeBadEnvelope},
		{"content type as attribute", []string{"ce-datacontenttype: a/b"}, "datacontenttype", headgate.CodeBadEnvelope},
		{"two content types", []string{"Content-Type: a/c", "ce-datacontenttype: a/b"}, "datacontenttype", headgate.CodeBadEnvelope},
		{"bad content type", []string{"Content-Type: ab"}, "datacontenttype", headgate.CodeBadEnvelope},
		{"source with space", []string{"ce-dataschema: /a b"}, "dataschema", headgate.CodeBadEnvelope},
		{"source that decodes to a space", []string{"ce-dataschema: /a%20b c"}, "dataschema", headgate.CodeBadEnvelope},
		{"decodes to invalid UTF-8", []string{"ce-subject: %ff"}, "subject", headgate.CodeBadEnvelope},
		{"decodes to control character", []string{"ce-subject: a%0d%0ab"}, "subject", headgate.CodeBadEnvelope},
		{"open quote", []string{`ce-subject: "abc`}, "subject", headgate.CodeBadEnvelope},
		{"text after quote", []string{`ce-subject: "abc"d`}, "subject", headgate.CodeBadEnvelope},
		{"empty subject", []string{"ce-subject: "}, "subject", headgate.CodeBadEnvelope},
		{"dash in name", []string{"ce-foo-bar: x", "ce-foo-baz: x"}, "foo-bar", headgate.CodeBadEnvelope},
		{"data", []string{"ce-data: x"}, "data", headgate.CodeBadEnvelope},
		{"long value", []string{"ce-x: " + strings.Repeat("x", 5000)}, "x", headgate.CodeTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var d headgate.Decoder
			_, err := d.Binary(header(append(base[:4:4], tt.lines...)...), nil)
			e := headgate.AsError(err)
			if e == nil || e.Code != tt.code || e.Attribute != tt.attribute {
				t.Errorf("got %v (%q), want %s %q", err, attributeOf(e), tt.code, tt.attribute)
			}
		})
	}
	var d headgate.Decoder
	for i, attribute := range []string{"specversion", "type"} {
		lines := append([]string{}, base[:i]...)
		_, err := d.Binary(header(append(lines, base[i+1:]...)...), nil)
		if e := headgate.AsError(err); e == nil || e.Attribute != attribute {
			t.Errorf("without %s: %v", attribute, err)
		}
	}
	many := header(base...)
	for i := range 65 {
		many.Set(fmt.Sprint("ce-x", i), "v")
	}
	if _, err := d.Binary(many, nil); headgate.CodeOf(err) != headgate.CodeTooLarge {
		t.Errorf("65 extensions: %v", err)
	}
	mixed := map[string][]string{"ce-id": {"a"}, "Ce-Id": {"b"}, "ce-specversion": {"1.0"}, "ce-type": {"t"}}
	if _, err := d.Binary(mixed, nil); headgate.CodeOf(err) != headgate.CodeBadEnvelope {
		t.Errorf("one field in two spellings: %v", err)
	}
	d.MaxEvent = 3
	if _, err := d.Binary(header(base...), []byte("1234")); headgate.CodeOf(err) != headgate.CodeTooLarge {
		t.Errorf("long body: %v", err)
	}
}

// TestBinaryFromClientsThatDoNotEncode: some widely used clients send values as
// they are, the CloudEvents SDKs for Go (2.16.2) and JavaScript (10) among them.
func TestBinaryFromClientsThatDoNotEncode(t *testing.T) {
	for sent, want := range map[string]headgate.Event{
		"subject: 100% done":    {Subject: "100% done"},
		"subject: 100%":         {Subject: "100%"},
		"subject: 5%zz%4":       {Subject: "5%zz%4"},
		"subject: caf\u00e9 au": {Subject: "caf\u00e9 au"},
		"subject: 100%25":       {Subject: "100%"}, // this one encodes
		"source: /s?x=%20y":     {Source: "/s?x=%20y"},
		"source: /s?x=%2520y":   {Source: "/s?x=%20y"}, // this one encodes
		"source: https%3A//a/b": {Source: "https://a/b"},
	} {
		var d headgate.Decoder
		got, err := d.Binary(header("ce-specversion: 1.0", "ce-type: t", "ce-"+sent), nil)
		if err != nil {
			t.Errorf("%s: %v", sent, err)
			continue
		}
		want.Type = "t"
		if diff := cmp.Diff(&want, got.Event); diff != "" {
			t.Errorf("%s: %s", sent, diff)
		}
	}
}

func attributeOf(e *headgate.Error) string {
	if e == nil {
		return ""
	}
	return e.Attribute
}

func TestIsBinary(t *testing.T) {
	if headgate.IsBinary(header("Content-Type: application/json", "Cookie: ce-type")) {
		t.Error("a plain request counts as binary mode")
	}
	if !headgate.IsBinary(header("Ce-Type: t")) || !headgate.IsBinary(map[string][]string{"CE-SPECVERSION": {"1.0"}}) {
		t.Error("ce- fields are overlooked")
	}
}

func TestSetBinary(t *testing.T) {
	h := header("ce-old: x", "Content-Type: a/b", "X-Other: kept")
	e := &headgate.Event{ID: "é \"%", Source: "/s", Type: "t", Data: []byte("{}"), Header: headgate.Header{RootID: "r"}}
	headgate.SetBinary(h, e)
	want := http.Header{
		"X-Other": {"kept"}, "Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"%C3%A9%20%22%25"},
		"Ce-Source": {"/s"}, "Ce-Type": {"t"}, "Ce-Rootid": {"r"}, "Ce-Ttl": {"0"}, "Ce-Hop": {"0"},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
}
