package eventcodec

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate"
)

func fullEvent() *headgate.Event {
	return &headgate.Event{
		ID: "e1", Source: "/s", Type: "ticket.opened", Subject: "T-1",
		Time:            time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 7200)),
		DataContentType: "application/json", DataSchema: "ticket.opened@3", Key: "k",
		TraceParent: "00-aa-bb-01", TraceState: "x=y",
		ExpiryTime: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC),
		Extensions: []headgate.Extension{
			{Name: "a", Value: "", Kind: headgate.ExtensionString},
			{Name: "b", Value: "true", Kind: headgate.ExtensionBool},
		},
		Data: []byte("{\"a\": 1.10}\x00\xff"),
		Header: headgate.Header{
			RootID: "r", Causes: []string{"c1", "", "c,2"}, TTL: 16, Hop: 3,
			Origin: headgate.OriginAgent, Principal: "triage", Actor: headgate.KindAgent,
			RecordedTime: time.Date(2026, 1, 2, 3, 4, 6, 1, time.UTC),
			Fence:        "lock@7", Lineage: []byte{0, 1, 2},
		},
	}
}

func TestRoundTripOfWholeEvents(t *testing.T) {
	empty := &headgate.Event{Data: []byte{}}
	large := fullEvent()
	large.Data = bytes.Repeat([]byte("x"), 3<<20)
	negative := &headgate.Event{Header: headgate.Header{TTL: -1, Hop: 1 << 40}}
	old := &headgate.Event{Time: time.Date(-5, 1, 1, 0, 0, 0, 0, time.FixedZone("", -86399))}
	var all []byte
	events := []*headgate.Event{fullEvent(), {}, empty, large, negative, old}
	for _, e := range events {
		all = Append(all, e)
	}
	rest := all
	for i, want := range events {
		size, err := Size(rest)
		if err != nil {
			t.Fatal(err)
		}
		got, next, err := Decode(rest)
		if err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if len(rest)-len(next) != size {
			t.Errorf("event %d: Size says %d, Decode took %d", i, size, len(rest)-len(next))
		}
		if !bytes.Equal(want.Data, got.Data) {
			t.Errorf("event %d: data changed", i)
		}
		// Compared above: cmp takes a minute for megabytes.
		plain, read := *want, *got
		plain.Data, read.Data = nil, nil
		if diff := cmp.Diff(plain, read); diff != "" {
			t.Errorf("event %d changed (-want +got):\n%s", i, diff)
		}
		if (want.Data == nil) != (got.Data == nil) {
			t.Errorf("event %d: nil and empty data were confused", i)
		}
		rest = next
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes left over", len(rest))
	}
}

// Times keep the offset that the producer wrote, which cmp's Equal ignores.
func TestTimesKeepTheirOffset(t *testing.T) {
	got, _, err := Decode(Append(nil, fullEvent()))
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Time.Format(time.RFC3339Nano); s != "2026-01-02T03:04:05.000000678+02:00" {
		t.Errorf("time came back as %s", s)
	}
}

func TestRoundTripProperty(t *testing.T) {
	text := rapid.StringN(0, 40, -1)
	times := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		zone := time.FixedZone("", rapid.IntRange(-86399, 86399).Draw(t, "zone"))
		return time.Unix(rapid.Int64Range(-1<<35, 1<<35).Draw(t, "sec"), rapid.Int64Range(0, 999999999).Draw(t, "nsec")).In(zone)
	})
	rapid.Check(t, func(t *rapid.T) {
		e := &headgate.Event{
			ID: text.Draw(t, "id"), Source: text.Draw(t, "source"), Type: text.Draw(t, "type"),
			Subject: text.Draw(t, "subject"), Time: times.Draw(t, "time"), Key: text.Draw(t, "key"),
			ExpiryTime: times.Draw(t, "expiry"), Data: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data"),
		}
		e.Header.Principal = text.Draw(t, "principal")
		e.Header.TTL = rapid.Int().Draw(t, "ttl")
		for range rapid.IntRange(0, 4).Draw(t, "causes") {
			e.Header.Causes = append(e.Header.Causes, text.Draw(t, "cause"))
		}
		for range rapid.IntRange(0, 4).Draw(t, "extensions") {
			e.SetExtension(headgate.Extension{
				Name: text.Draw(t, "name"), Value: text.Draw(t, "value"),
				Kind: headgate.ExtensionKind(rapid.IntRange(0, 2).Draw(t, "kind")),
			})
		}
		got, rest, err := Decode(Append(nil, e))
		if err != nil || len(rest) != 0 {
			t.Fatalf("decode: %v, %d bytes left", err, len(rest))
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Fatalf("changed (-want +got):\n%s", diff)
		}
	})
}

// A record that was cut anywhere is an error, never a shorter event.
func TestEveryCutIsAnError(t *testing.T) {
	b := Append(nil, fullEvent())
	for n := range len(b) {
		if _, _, err := Decode(b[:n:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut to %d of %d bytes: error %v", n, len(b), err)
		}
	}
}

func TestMalformedRecords(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty":                  {},
		"other version":          {2, 1, 0},
		"length beyond input":    {1, 200, 1, 0},
		"overlong length":        {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"unknown field":          {1, 4, 0x80, 0x80, 0x80, 0x08},
		"left over":              {1, 2, 0, 0},
		"text beyond body":       {1, 2, 1, 9},
		"a billion extensions":   {1, 7, 0x80, 0x10, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"a billion causes":       {1, 8, 0x80, 0x80, 0x01, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"unknown extension kind": {1, 6, 0x80, 0x10, 1, 9, 0, 0},
		"nanoseconds too many":   {1, 8, 0x10, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0},
	} {
		if _, _, err := Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Append(nil, fullEvent()))
	f.Add(Append(nil, &headgate.Event{}))
	f.Add(Append(Append(nil, &headgate.Event{Data: []byte{}}), &headgate.Event{ID: "x"}))
	f.Add([]byte{1, 7, 0x80, 0x10, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, rest, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if len(rest) >= len(b) {
			t.Fatalf("no progress: %d bytes left of %d", len(rest), len(b))
		}
		again, left, err := Decode(Append(nil, e))
		if err != nil || len(left) != 0 {
			t.Fatalf("second decode: %v", err)
		}
		if diff := cmp.Diff(e, again); diff != "" {
			t.Fatalf("unstable (-first +second):\n%s", diff)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	e := fullEvent()
	e.Data = bytes.Repeat([]byte("x"), 400)
	var buf []byte
	for b.Loop() {
		buf = Append(buf[:0], e)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkDecode(b *testing.B) {
	e := fullEvent()
	e.Time, e.Extensions = e.Time.UTC(), nil
	e.Data = bytes.Repeat([]byte("x"), 400)
	buf := Append(nil, e)
	var into headgate.Event
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeInto(&into, buf); err != nil {
			b.Fatal(err)
		}
	}
}
