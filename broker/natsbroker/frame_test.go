package natsbroker

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/eventcodec"
)

// makeFrame returns a frame of n events, base offset 40.
func makeFrame(n int) []byte {
	var ids []digest
	var recs [][]byte
	size := 0
	for i := range n {
		e := &headgate.Event{ID: fmt.Sprint(i), Source: "/s", Type: "t", Data: bytes.Repeat([]byte{byte(i)}, 10*i)}
		ids = append(ids, digestOf(e.Source, e.ID))
		recs = append(recs, eventcodec.Append(nil, e))
		size += len(recs[i])
	}
	h := header{base: 40, count: uint32(n), body: uint32(size), time: time.Unix(1, 2), writer: 3, serial: 4}
	return appendFrame(nil, h, ids, recs)
}

func TestFrameRoundTrip(t *testing.T) {
	for _, n := range []int{1, 2, 16, 17, 300} {
		f, err := parseFrame(makeFrame(n))
		if err != nil {
			t.Fatal(err)
		}
		if f.base != 40 || int(f.count) != n || !f.time.Equal(time.Unix(1, 2)) || f.writer != 3 || f.serial != 4 {
			t.Errorf("header %+v", f.header)
		}
		for _, from := range []uint64{0, 40, 41, f.end() - 1, f.end(), f.end() + 5} {
			next := max(from, 40)
			err := f.decode(from, func(base uint64, slab []headgate.Event) bool {
				if base != next || len(slab) == 0 || len(slab) > slabEvents {
					t.Fatalf("slab of %d at %d, want one at %d", len(slab), base, next)
				}
				for i, e := range slab {
					want := &headgate.Event{ID: fmt.Sprint(base + uint64(i) - 40), Source: "/s", Type: "t"}
					want.Data = bytes.Repeat([]byte{byte(base + uint64(i) - 40)}, int(10*(base+uint64(i)-40)))
					if !bytes.Equal(eventcodec.Append(nil, want), eventcodec.Append(nil, &e)) {
						t.Fatal(cmp.Diff(want, &e))
					}
					if f.digest(int(base+uint64(i)-40)) != digestOf(e.Source, e.ID) {
						t.Fatal("id does not belong to the event")
					}
				}
				next = base + uint64(len(slab))
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			if next != max(from, f.end()) {
				t.Errorf("from %d: ended at %d, want %d", from, next, f.end())
			}
		}
	}
}

// No bit of a frame can change, and no byte be missing or too many, without
// being noticed.
func TestEveryDamageIsNoticed(t *testing.T) {
	b := makeFrame(3)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if _, err := parseFrame(b); !errors.Is(err, errFrame) {
				t.Fatalf("bit %d of byte %d flipped: error %v", bit, i, err)
			}
			b[i] ^= 1 << bit
		}
	}
	for n := range b {
		if _, err := parseFrame(b[:n:n]); !errors.Is(err, errFrame) {
			t.Fatalf("cut to %d bytes: error %v", n, err)
		}
	}
	if _, err := parseFrame(append(b, 0)); !errors.Is(err, errFrame) {
		t.Errorf("a byte too many: error %v", err)
	}
}

func TestDigestSeparatesSourceAndID(t *testing.T) {
	if digestOf("ab", "c") == digestOf("a", "bc") {
		t.Error("two events share a digest")
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(makeFrame(1), true)
	f.Add(makeFrame(20), true)
	f.Add(makeFrame(2)[:60], true)
	f.Add([]byte("HGFR\x01\x00\x00\x00"), false)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if mend && len(b) >= frameHeaderLen {
			// Get past the checksum, as a hostile writer would.
			b = bytes.Clone(b)
			sum := checksum(b)
			b[checksumAt], b[checksumAt+1], b[checksumAt+2], b[checksumAt+3] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		}
		fr, err := parseFrame(b)
		if err != nil {
			if !errors.Is(err, errFrame) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		next := fr.base
		err = fr.decode(0, func(base uint64, slab []headgate.Event) bool {
			if base != next || len(slab) == 0 {
				t.Fatalf("slab of %d at %d, want one at %d", len(slab), base, next)
			}
			next += uint64(len(slab))
			return true
		})
		if err == nil && next != fr.end() {
			t.Fatalf("decoded up to %d without an error, want %d", next, fr.end())
		}
		if err != nil && !errors.Is(err, errFrame) {
			t.Fatalf("error of another kind: %v", err)
		}
	})
}
