package contract

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestAvroVarintEnds: where the fast pass takes a varint to end is where the
// careful reading does.
func TestAvroVarintEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for range 200_000 {
		data := make([]byte, 1+rng.IntN(13))
		for i := range data {
			data[i] = byte(rng.IntN(256)) | 0x80
			if rng.IntN(6) == 0 {
				data[i] &= 0x7f
			}
		}
		if len(data) > 9 && rng.IntN(2) == 0 {
			data[9] = byte(rng.IntN(4))
		}
		data[0] |= 0x80
		want := 0
		if _, n := binary.Uvarint(data); n > 0 {
			want = n
		}
		if got := longEnd(data, 0); got != want {
			t.Fatalf("%x ends at %d, want %d", data, got, want)
		}
	}
}

// TestAvroASCII: strings of every length, at the end of a payload and before
// other bytes, with one byte of two at each place.
func TestAvroASCII(t *testing.T) {
	for size := range 40 {
		for behind := range 10 {
			for at := -1; at < size+behind; at++ {
				data := []byte(strings.Repeat("a", size+behind))
				if at >= 0 {
					data[at] = 0xc3
				}
				want := at < 0 || at >= size
				if got := isASCII(data[:size], data); got != want {
					t.Fatalf("%q of %q: %t", data[:size], data, got)
				}
			}
		}
	}
}

// TestAvroShortcuts: what the fast pass reads in place, it takes and refuses as
// the pass for one value does: every type, alone and behind a union, with every
// first byte, whole and cut short.
func TestAvroShortcuts(t *testing.T) {
	for _, kind := range []string{
		`"null"`, `"boolean"`, `"int"`, `"long"`, `"float"`, `"double"`, `"bytes"`, `"string"`,
		`{"type":"string","logicalType":"uuid"}`, `{"type":"int","logicalType":"time-millis"}`, `{"type":"long","logicalType":"time-micros"}`,
		`{"type":"bytes","logicalType":"decimal","precision":3}`, `{"type":"fixed","name":"F","size":3}`, `{"type":"fixed","name":"F0","size":0}`,
		`{"type":"fixed","name":"D","size":2,"logicalType":"decimal","precision":3}`, `{"type":"enum","name":"E","symbols":["a","b"]}`,
		`{"type":"array","items":"int"}`, `{"type":"record","name":"I","fields":[{"name":"x","type":"int"}]}`,
	} {
		for _, field := range []string{kind, `["null",` + kind + `]`, `[` + kind + `]`} {
			if kind == `"null"` && strings.HasPrefix(field, `["null"`) {
				continue
			}
			c := compileAvroText(t, `{"type":"record","name":"R","fields":[{"name":"f","type":`+field+`}]}`)
			alone := c.avro.root.kids[0]
			for first := range 256 {
				for _, rest := range []string{"", "\x00", "\x02", "\x02\x02", "\x80\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\x01", "abc", "\x06abc", "\x04\xc3\xa4", "\x04\xc3a", "\x02\x06abc\x00\x00\x00\x00", strings.Repeat("\xff", 10), "H0190a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"} {
					data := append([]byte{byte(first)}, rest...)
					w := newAvroWalk(data, DefaultDepth)
					want := w.value(alone) && w.pos == len(data)
					if got := c.avro.accept(data, DefaultDepth); got != want {
						t.Fatalf("%s: %x: %t, want %t", field, data, got, want)
					}
				}
			}
		}
	}
	if utf8.Valid([]byte("\xc3a")) {
		t.Fatal("the payloads of the test are no test")
	}
}
