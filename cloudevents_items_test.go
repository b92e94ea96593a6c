package headgate_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
)

// outline prints items in short: index, line, id or the error with its place.
func outline(it *headgate.Items) []string {
	var out []string
	for {
		item, found := it.Next()
		if !found {
			break
		}
		s := fmt.Sprintf("%d line %d ", item.Index, item.Line)
		if e := item.Err; e != nil {
			s += fmt.Sprintf("%s %s at %d:%d:%d", e.Code, e.Attribute, e.Where.Offset, e.Where.Line, e.Where.Column)
		} else {
			s += item.Event.ID
		}
		out = append(out, s)
	}
	if err := it.Err(); err != nil {
		e := headgate.AsError(err)
		s := "stopped: " + string(e.Code)
		if e.Where != nil {
			s += fmt.Sprintf(" at %d:%d:%d", e.Where.Offset, e.Where.Line, e.Where.Column)
		}
		out = append(out, s)
	}
	return out
}

func event(id string) string {
	return `{"specversion":"1.0","id":"` + id + `","source":"/s","type":"t"}`
}

func TestBatch(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"none", ` [ ] `, nil},
		{"two", "[" + event("a") + ",\n " + event("b") + "]", []string{"0 line 1 a", "1 line 2 b"}},
		{
			"one is bad", "[" + event("a") + ",\n  {\"specversion\":\"1.0\",\n\"type\":5}, 7,\n" + event("c") + "]",
			[]string{"0 line 1 a", "1 line 2 bad_envelope type at 89:3:8", "2 line 3 bad_envelope  at 93:3:12", "3 line 4 c"},
		},
		{"bad on the first line", "[" + event("a") + `, {"specversion":"2"}]`, []string{"0 line 1 a", "1 line 1 bad_envelope specversion at 73:1:74"}},
		{"cut", "[" + event("a") + "," + `{"id":`, []string{"0 line 1 a", "stopped: syntax at 63:1:64"}},
		{"text behind", "[" + event("a") + "]x", []string{"0 line 1 a", "stopped: syntax at 57:1:58"}},
		{"object", event("a"), []string{"stopped: syntax at 0:1:1"}},
		{"empty", "", []string{"stopped: syntax at 0:1:1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var d headgate.Decoder
			if diff := cmp.Diff(tt.want, outline(d.Batch([]byte(tt.text)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLines(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"none", "", nil},
		{"blank", "\n \t\r\n\n", nil},
		{"no end", event("a"), []string{"0 line 1 a"}},
		{"both ends", event("a") + "\r\n\n" + event("b") + "\n", []string{"0 line 1 a", "1 line 3 b"}},
		{
			"bad lines", event("a") + "\n{\"id\":}\n[1]\n" + event("d") + "\n{\"specversion\":\"1.0\"}",
			[]string{"0 line 1 a", "1 line 2 syntax  at 62:2:7", "2 line 3 bad_envelope  at 64:3:1", "3 line 4 d", "4 line 5 bad_envelope type at 124:5:1"},
		},
		{
			"long line", event("a") + "\n" + `"` + strings.Repeat("x", 300) + "\"\n\n" + event("b"),
			[]string{"0 line 1 a", "1 line 2 too_large  at 56:2:1", "2 line 4 b"},
		},
		{"long last line", event("a") + "\n" + strings.Repeat("x", 300), []string{"0 line 1 a", "1 line 2 too_large  at 56:2:1"}},
		{"many", event("a") + "\n" + event("b") + "\n" + event("c") + "\n" + event("d") + "\n" + event("e") + "\n" + event("f"), []string{
			"0 line 1 a", "1 line 2 b", "2 line 3 c", "3 line 4 d", "4 line 5 e", "stopped: too_large",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := headgate.Decoder{MaxEvent: 200, MaxItems: 5}
			if diff := cmp.Diff(tt.want, outline(d.Lines([]byte(tt.text)))); diff != "" {
				t.Error(diff)
			}
			for name, r := range map[string]io.Reader{
				"whole": strings.NewReader(tt.text), "one byte": iotest.OneByteReader(strings.NewReader(tt.text)),
				"data with EOF": iotest.DataErrReader(strings.NewReader(tt.text)), "half": iotest.HalfReader(strings.NewReader(tt.text)),
			} {
				if diff := cmp.Diff(tt.want, outline(d.ReadLines(r))); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
		})
	}
}

func TestReadLinesReportsTheReader(t *testing.T) {
	var d headgate.Decoder
	broken := errors.New("connection reset")
	text := event("a") + "\n" + event("b")
	it := d.ReadLines(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)))
	if diff := cmp.Diff([]string{"0 line 1 a", "stopped: unavailable"}, outline(it)); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(it.Err(), broken) {
		t.Errorf("the cause is lost: %v", it.Err())
	}
	limit := &headgate.Error{Code: headgate.CodeTooLarge, Detail: "too much"}
	it = d.ReadLines(iotest.ErrReader(fmt.Errorf("body: %w", limit)))
	outline(it)
	if !errors.Is(it.Err(), limit) {
		t.Errorf("the reader's own error is lost: %v", it.Err())
	}
	it = d.ReadLines(lazy{})
	if diff := cmp.Diff([]string{"stopped: unavailable"}, outline(it)); diff != "" {
		t.Error(diff)
	}
}

type lazy struct{}

func (lazy) Read([]byte) (int, error) { return 0, nil }

// repeat is a reader of n copies of a text.
type repeat struct {
	text string
	at   int
	n    int
}

func (r *repeat) Read(p []byte) (int, error) {
	total := 0
	for total < len(p) && r.n > 0 {
		k := copy(p[total:], r.text[r.at:])
		total += k
		if r.at += k; r.at == len(r.text) {
			r.at, r.n = 0, r.n-1
		}
	}
	if total == 0 {
		return 0, io.EOF
	}
	return total, nil
}

// TestReadLinesIsBounded streams 10 MB (a gigabyte in a campaign), also without
// any line end, through a few hundred kilobytes.
func TestReadLinesIsBounded(t *testing.T) {
	bulk := 10_000_000
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		bulk = 1_000_000_000
	}
	for name, text := range map[string]string{"lines": event("a") + "\n", "no line end": strings.Repeat("x", 1000)} {
		d := headgate.Decoder{MaxItems: headgate.NoLimit, MaxEvent: 64 << 10}
		it := d.ReadLines(&repeat{text: text, n: bulk / len(text)})
		count, peak := 0, uint64(0)
		for {
			item, found := it.Next()
			if !found {
				break
			}
			if item.Err == nil && item.Event.ID != "a" {
				t.Fatalf("item %d is %+v", item.Index, item.Event)
			}
			if count%20_000 == 0 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
			count++
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
		want := 1
		if name == "lines" {
			want = bulk / len(text)
		}
		if count != want {
			t.Errorf("%s: %d items, want %d", name, count, want)
		}
		if peak > 16<<20 {
			t.Errorf("%s: the heap grew to %d bytes", name, peak)
		}
	}
}

// TestItemsDoNotShareFate: what a caller appends to one item's data must not
// reach the next item.
func TestItemsDoNotShareFate(t *testing.T) {
	line := `{"specversion":"1.0","id":"a","source":"/s","type":"t","data":"x"}`
	var d headgate.Decoder
	for name, it := range map[string]*headgate.Items{
		"batch": d.Batch([]byte("[" + line + "," + line + "]")), "lines": d.Lines([]byte(line + "\n" + line)),
		"reader": d.ReadLines(strings.NewReader(line + "\n" + line)),
	} {
		first, _ := it.Next()
		_ = append(first.Event.Data, "}}}}}}}}}}}}"...)
		_ = append(first.Raw, "}}}}}}}}}}}}"...)
		if second, found := it.Next(); !found || second.Err != nil {
			t.Errorf("%s: the second item is lost: %v", name, second.Err)
		}
	}
}
