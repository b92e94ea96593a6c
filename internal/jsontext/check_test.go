package jsontext_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/jsontext"
)

func TestFaults(t *testing.T) {
	long := strings.Repeat("9", 65)
	tests := []struct {
		name, text, code string
		offset           int
		at               string
		detail           string // a part of it
	}{
		{"empty", "", "syntax", 0, "", "the text ends"},
		{"only space", " \n ", "syntax", 3, "", "the text ends"},
		{"two values", `1 2`, "syntax", 2, "", "Nothing may follow"},
		{"missing comma in array", `{"a":[1 2]}`, "syntax", 8, "/a", `A comma or "]"`},
		{"missing comma in object", "{\"a\":1\n\"b\":2}", "syntax", 7, "", `A comma or "}"`},
		{"trailing comma in array", `{"a":[1,]}`, "syntax", 8, "/a/1", "A value"},
		{"trailing comma in object", `{"a":1,}`, "syntax", 7, "", "A name in quotes"},
		{"missing value", `{"x":{"a/b~c":}}`, "syntax", 14, "/x/a~1b~0c", "A value"},
		{"missing colon", `{"a" 1}`, "syntax", 5, "", "colon"},
		{"wrong bracket", `[{"a":1]]`, "syntax", 7, "/0", `A comma or "}"`},
		{"open string", `["abc`, "syntax", 5, "/0", "inside a string"},
		{"open escape", `["a\`, "syntax", 4, "/0", "inside a string"},
		{"bad escape", `["a\x"]`, "syntax", 4, "/0", `"x"`},
		{"bad hex", `["\u12g4"]`, "syntax", 6, "/0", `"g"`},
		{"control character", "[\"a\tb\"]", "syntax", 3, "/0", "0x09"},
		{"NUL", "[\"a\x00\"]", "syntax", 3, "/0", "0x00"},
		{"NUL outside", "[1,\x00]", "syntax", 3, "/1", "0x00"},
		{"bare word", `[nul]`, "syntax", 4, "/0", "true, false and null"},
		{"leading zero", `{"n":01}`, "syntax", 6, "", "A comma"},
		{"bare minus", `{"n":-}`, "syntax", 6, "/n", "digit"},
		{"bare point", `[1.]`, "syntax", 3, "/0", "digit"},
		{"bare exponent", `[1e+]`, "syntax", 4, "/0", "digit"},
		{"byte order mark", "\xef\xbb\xbf{}", "syntax", 0, "", "byte order mark"},
		{"comment", `{"a":1 // no`, "syntax", 7, "", `"/"`},
		{"single quotes", `{'a':1}`, "syntax", 1, "", "A name in quotes"},
		{"invalid UTF-8", "{\"a\":\"x\xff\"}", "bad_utf8", 7, "/a", "0xFF"},
		{"overlong", "[\"\xc0\xaf\"]", "bad_utf8", 2, "/0", "UTF-8"},
		{"encoded surrogate", "[\"\xed\xa0\x80\"]", "bad_utf8", 2, "/0", "UTF-8"},
		{"invalid UTF-8 in a name", "{\"\xff\":1}", "bad_utf8", 2, "", "UTF-8"},
		{"lone high surrogate", `["\ud834"]`, "bad_utf8", 2, "/0", "surrogate"},
		{"lone low surrogate", `["\udd1e"]`, "bad_utf8", 2, "/0", "surrogate"},
		{"two high surrogates", `["\ud834\ud834"]`, "bad_utf8", 2, "/0", "surrogate"},
		{"number too long", `{"n":[0,` + long + `]}`, "number_too_large", 8, "/n/1", "64"},
		{"exponent too big", `{"n":1e401}`, "number_too_large", 5, "/n", "400"},
		{"exponent too small", `{"n":1E-999999}`, "number_too_large", 5, "/n", "400"},
		{"too deep", strings.Repeat("[", 65), "too_deep", 64, strings.Repeat("/0", 64), "64"},
		{"duplicate", `{"o":{"sku":1,"sku":2}}`, "duplicate_key", 14, "/o/sku", "column 7"},
		{"duplicate by escape", `[0,{"sku":1,"x":[{}],"\u0073ku":2}]`, "duplicate_key", 21, "/1/sku", `"sku"`},
		{"duplicate of escape", `{"\u0073ku":1,"sku":2}`, "duplicate_key", 14, "/sku", ""},
		{"duplicate by surrogates", `{"𝄞":1,"\uD834\udd1e":2}`, "duplicate_key", 10, "/𝄞", `\U0001d11e`},
		{"duplicate empty name", `{"":1,"":2}`, "duplicate_key", 6, "/", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := jsontext.Check([]byte(tt.text), jsontext.Limits{})
			if f == nil {
				t.Fatal("accepted")
			}
			if f.Code != tt.code || f.Offset != tt.offset || f.At != tt.at || !strings.Contains(f.Detail, tt.detail) {
				t.Errorf("got %s at %d %q: %s\nwant %s at %d %q: …%s…", f.Code, f.Offset, f.At, f.Detail, tt.code, tt.offset, tt.at, tt.detail)
			}
			checkFault(t, []byte(tt.text), f)
		})
	}
}

func TestAccepted(t *testing.T) {
	for _, text := range []string{
		`0`, `-0`, `"x"`, ` null `, `[]`, `{}`, "\t[\r\n] ", `1e400`, `-1.5E-400`,
		strings.Repeat("9", 64), `"\u0000"`, `"\uD834\uDD1E"`, `"` + "\x7f" + `"`, `"é𝄞"`,
		`{"a":1,"A":2,"a ":3}`,            // names differ by case and space
		"{\"é\":1,\"e\u0301\":2}",         // names are compared as written, never normalised
		`{"a":{"a":{"a":1}},"b":{"a":1}}`, // equal names in different objects
		`[{"a":1},{"a":1}]`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64),
	} {
		if f := jsontext.Check([]byte(text), jsontext.Limits{}); f != nil {
			t.Errorf("%s: %v", text, f)
		}
	}
}

func TestLimitsAreSettable(t *testing.T) {
	if f := jsontext.Check([]byte(`[[1]]`), jsontext.Limits{Depth: 1}); f == nil || f.Code != "too_deep" || f.Offset != 1 {
		t.Errorf("depth 1: %v", f)
	}
	if f := jsontext.Check([]byte(`123`), jsontext.Limits{NumberLength: 2}); f == nil || f.Code != "number_too_large" {
		t.Errorf("length 2: %v", f)
	}
	if f := jsontext.Check([]byte(`1e11`), jsontext.Limits{Exponent: 10}); f == nil || f.Code != "number_too_large" {
		t.Errorf("exponent 10: %v", f)
	}
	deep := strings.Repeat("[", 2000)
	if f := jsontext.Check([]byte(deep), jsontext.Limits{Depth: 1 << 30}); f == nil || f.Offset != jsontext.MaxDepth {
		t.Errorf("unlimited depth: %v", f)
	}
	huge := strings.Repeat(`{"a":`, 1_000_000)
	if f := jsontext.Check([]byte(huge), jsontext.Limits{}); f == nil || f.Code != "too_deep" {
		t.Errorf("a million objects: %v", f)
	}
}

// TestLargeObjects finds one duplicate among many names, at any distance, and
// stays linear: 100,000 names in well under what 5·10⁹ comparisons would take.
func TestLargeObjects(t *testing.T) {
	build := func(n, dupOf int, spell func(int) string) []byte {
		var b bytes.Buffer
		b.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&b, `%s:{"a":%d},`, spell(i), i)
		}
		fmt.Fprintf(&b, `%s:0}`, spell(dupOf))
		return b.Bytes()
	}
	plain := func(i int) string { return fmt.Sprintf(`"name%d"`, i) }
	escaped := func(i int) string { return fmt.Sprintf(`"\u006eame%d"`, i) }
	for _, n := range []int{1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000, 10_000} {
		for _, dup := range []int{0, n / 2, n - 1} {
			text := build(n, dup, plain)
			f := jsontext.Check(text, jsontext.Limits{})
			if f == nil || f.At != fmt.Sprintf("/name%d", dup) || f.First != bytes.Index(text, []byte(plain(dup))) {
				t.Fatalf("%d names, duplicate of %d: %v", n, dup, f)
			}
		}
		if f := jsontext.Check(build(n, n, plain), jsontext.Limits{}); f != nil {
			t.Fatalf("%d distinct names: %v", n, f)
		}
		if f := jsontext.Check(build(n, n, escaped), jsontext.Limits{}); f != nil {
			t.Fatalf("%d distinct escaped names: %v", n, f)
		}
	}
	start := time.Now()
	if f := jsontext.Check(build(100_000, 100_000, escaped), jsontext.Limits{}); f != nil {
		t.Fatal(f)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("100,000 names took %v: not linear", took)
	}
}

func TestNestedLargeObjects(t *testing.T) {
	object := func(inner string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range 40 {
			fmt.Fprintf(&b, `"k%d":%s,`, i, inner)
		}
		return b.String() + `"last":1}`
	}
	text := object(object(`{"k1":1}`))
	if f := jsontext.Check([]byte(text), jsontext.Limits{}); f != nil {
		t.Fatal(f)
	}
	text = strings.TrimSuffix(text, "}") + `,"k7":1}`
	if f := jsontext.Check([]byte(text), jsontext.Limits{}); f == nil || f.At != "/k7" {
		t.Fatalf("got %v", f)
	}
}

// TestDuplicatesAtEveryDepth plants a duplicate in random nests of large and
// small objects with the same names at every level, and finds exactly it.
func TestDuplicatesAtEveryDepth(t *testing.T) {
	var object func(depth int) *rapid.Generator[string]
	object = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			n := rapid.SampledFrom([]int{0, 3, 15, 16, 17, 18, 40, 200}).Draw(t, "members")
			nested := -1
			if depth > 0 && n > 0 {
				nested = rapid.IntRange(0, n-1).Draw(t, "nested")
			}
			var b strings.Builder
			b.WriteByte('{')
			for i := range n {
				value := "1"
				if i == nested {
					value = object(depth-1).Draw(t, "object")
				}
				name := fmt.Sprintf(`"k%d"`, i)
				if i%7 == 3 {
					name = fmt.Sprintf(`"\u006b%d"`, i)
				}
				fmt.Fprintf(&b, "%s:%s,", name, value)
			}
			return b.String() + `"end":0}`
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := object(rapid.IntRange(0, 8).Draw(t, "depth")).Draw(t, "text")
		if f := jsontext.Check([]byte(text), jsontext.Limits{}); f != nil {
			t.Fatalf("%v in %s", f, text)
		}
		ends := strings.Count(text, `"end":0}`)
		at := 0
		for range rapid.IntRange(1, ends).Draw(t, "which") {
			at += strings.Index(text[at:], `"end":0}`) + 1
		}
		twice := text[:at-1] + `"\u0065nd":1,` + text[at-1:]
		f := jsontext.Check([]byte(twice), jsontext.Limits{})
		if f == nil || f.Code != jsontext.CodeDuplicateKey || f.First != at-1 || !strings.HasSuffix(f.At, "/end") {
			t.Fatalf("got %v (%+v), want a duplicate of %d in %s", f, f, at-1, twice)
		}
	})
}

// TestAgainstReference compares the scanner with the standard library on
// random values: the tokens rebuild the same value.
func TestAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value(4).Draw(t, "value")
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "indent") {
			var b bytes.Buffer
			_ = json.Indent(&b, text, " ", "\t")
			text = b.Bytes()
		}
		if f := jsontext.Check(text, jsontext.Limits{}); f != nil {
			t.Fatalf("%s: %v", text, f)
		}
		got, want := rebuild(t, text), any(nil)
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %s", text, diff)
		}
	})
}

func value(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 4
		if depth > 0 {
			kinds = 6
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Float64Range(-1e300, 1e300).Draw(t, "number")
		case 3:
			return rapid.String().Draw(t, "string")
		case 4:
			return rapid.SliceOfN(value(depth-1), 0, 5).Draw(t, "array")
		default:
			return rapid.MapOfN(rapid.String(), value(depth-1), 0, 25).Draw(t, "object")
		}
	})
}

func rebuild(t *rapid.T, text []byte) any {
	s := jsontext.NewScanner(text, jsontext.Limits{})
	next := func() jsontext.Token {
		tok, f := s.Next()
		if f != nil {
			t.Fatal(f)
		}
		return tok
	}
	var build func(tok jsontext.Token) any
	build = func(tok jsontext.Token) any {
		raw := text[tok.Start:tok.End]
		switch tok.Kind {
		case jsontext.BeginObject:
			m := map[string]any{}
			for tok = next(); tok.Kind != jsontext.EndObject; tok = next() {
				name := string(jsontext.Unquote(nil, text[tok.Start:tok.End]))
				m[name] = build(next())
			}
			return m
		case jsontext.BeginArray:
			a := []any{}
			for tok = next(); tok.Kind != jsontext.EndArray; tok = next() {
				a = append(a, build(tok))
			}
			return a
		case jsontext.String:
			return string(jsontext.Unquote(nil, raw))
		case jsontext.Number:
			var f float64
			if err := json.Unmarshal(raw, &f); err != nil {
				t.Fatal(err)
			}
			return f
		case jsontext.True, jsontext.False:
			return tok.Kind == jsontext.True
		default:
			return nil
		}
	}
	v := build(next())
	if tok := next(); tok.Kind != jsontext.EOF {
		t.Fatalf("got %v after the value", tok)
	}
	return v
}

func TestSkip(t *testing.T) {
	text := []byte(`{"a":{"x":[1,{"y":2}]},"b":[[],[]],"c":7}`)
	s := jsontext.NewScanner(text, jsontext.Limits{})
	var spans []string
	for {
		tok, f := s.Next()
		if f != nil {
			t.Fatal(f)
		}
		if tok.Kind == jsontext.EOF {
			break
		}
		if tok.Kind != jsontext.Name {
			continue
		}
		start := s
		v, _ := start.Next()
		end, f := s.Skip()
		if f != nil {
			t.Fatal(f)
		}
		spans = append(spans, string(text[v.Start:end]))
		if again, _ := s.Skip(); again != end {
			t.Errorf("a second Skip moved from %d to %d", end, again)
		}
	}
	want := []string{`{"x":[1,{"y":2}]}`, `[[],[]]`, `7`}
	if diff := cmp.Diff(want, spans); diff != "" {
		t.Error(diff)
	}
	s = jsontext.NewScanner([]byte(`[1,[2`), jsontext.Limits{})
	if _, f := s.Next(); f != nil {
		t.Fatal(f)
	}
	_, f := s.Skip()
	if f == nil || f.Offset != 5 {
		t.Errorf("skipping a cut value: %v", f)
	}
	if _, again := s.Next(); again != f {
		t.Errorf("a scanner that failed went on: %v", again)
	}
}

func TestAppendString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		if rapid.Bool().Draw(t, "text") {
			b = []byte(rapid.String().Draw(t, "string"))
		}
		quoted := jsontext.AppendString([]byte("x"), b)[1:]
		if f := jsontext.Check(quoted, jsontext.Limits{}); f != nil {
			t.Fatalf("%q: %v", quoted, f)
		}
		var want string
		if err := json.Unmarshal(quoted, &want); err != nil {
			t.Fatal(err)
		}
		// One U+FFFD for each invalid byte, as ranging over the string yields.
		if got := string([]rune(string(b))); want != got {
			t.Fatalf("%q read back as %q", got, want)
		}
		if got := jsontext.Unquote(nil, quoted); string(got) != want {
			t.Fatalf("Unquote(%s) = %q, want %q", quoted, got, want)
		}
	})
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `[1,-2.5e3,true,false,null,"x"]`, `{"a":{"b":[{"c":"\ud834\udd1e"}]}}`, `{"a":1,"\u0061":2}`,
		`"\ud800"`, "\"\xff\"", `1e999`, strings.Repeat("[", 70), "\xef\xbb\xbf1", `{"a" :1 , "b": [ ] }`, `[1 2]`,
		strings.Repeat("7", 70), `{"k0":0,"k1":1,"k2":2,"k3":3,"k4":4,"k5":5,"k6":6,"k7":7,"k8":8,"k9":9,"k10":1,"k11":1,"k12":1,"k13":1,"k14":1,"k15":1,"k16":1,"k3":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fault := jsontext.Check(text, jsontext.Limits{})
		checkFault(t, text, fault)
		walked := walk(text, jsontext.Limits{})
		if fault == nil && walked != nil {
			t.Fatalf("Check accepts what the scanner refuses: %v", walked)
		}
		if walked == nil && fault != nil && fault.Code != jsontext.CodeDuplicateKey {
			t.Fatalf("Check refuses what the scanner accepts: %v", fault)
		}
	})
}
