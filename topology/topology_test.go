package topology_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/topology"
)

func build(t *testing.T, streams []topology.Stream, types []topology.Type, d topology.Defaults) *topology.Table {
	t.Helper()
	table, err := topology.New(streams, types, d)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestLookup(t *testing.T) {
	table := build(t,
		[]topology.Stream{
			{Name: "support", Types: []string{"ticket.*"}, Partitions: 16, Retain: time.Hour},
			{Name: "urgent", Types: []string{"ticket.opened", "alarm.*"}},
		},
		[]topology.Type{
			{Pattern: "*", TTL: 5},
			{Pattern: "ticket.*", Gas: 70, Contract: "ticket"},
			{Pattern: "ticket.opened", Key: "data.id", Origins: []headgate.Origin{headgate.OriginHuman}},
			{Pattern: "ticket.sub.*", Breadth: 3, PayloadMax: 9, Repeats: 2, Expire: time.Minute},
		},
		topology.Defaults{Gas: 500})
	tests := []struct {
		typ, pattern, stream, contract             string
		ttl, gas, breadth, repeats, payload, keyed int
	}{
		{"ticket.opened", "ticket.opened", "urgent", "ticket.opened", 16, 500, 64, 4, 512 << 10, 1},
		{"ticket.closed", "ticket.*", "support", "ticket", 16, 70, 64, 4, 512 << 10, 0},
		{"ticket.sub.a", "ticket.sub.*", "support", "ticket.sub.a", 16, 500, 3, 2, 9, 0},
		{"ticket.sub.a.b", "ticket.sub.*", "support", "ticket.sub.a.b", 16, 500, 3, 2, 9, 0},
		{"ticket.sub", "ticket.*", "support", "ticket", 16, 70, 64, 4, 512 << 10, 0},
		{"ticket", "*", "events", "ticket", 5, 500, 64, 4, 512 << 10, 0},
		{"tickets.x", "*", "events", "tickets.x", 5, 500, 64, 4, 512 << 10, 0},
		{"alarm.fire", "*", "urgent", "alarm.fire", 5, 500, 64, 4, 512 << 10, 0},
	}
	for range 2 { // the second time from the cache
		for _, tt := range tests {
			r := table.Lookup(tt.typ)
			keyed := 0
			if r.KeyOf != nil {
				keyed = 1
			}
			got := []any{r.Pattern, r.Stream, r.Contract, r.TTL, r.Gas, r.Breadth, r.Repeats, r.PayloadMax, keyed}
			want := []any{tt.pattern, tt.stream, tt.contract, tt.ttl, tt.gas, tt.breadth, tt.repeats, tt.payload, tt.keyed}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", tt.typ, diff)
			}
			if again := table.Lookup(tt.typ); again != r {
				t.Errorf("%s: two answers", tt.typ)
			}
		}
	}
	key, err := table.Lookup("ticket.opened").KeyOf.Eval(&headgate.Event{Data: []byte(`{"id":9007199254740993}`)})
	if key != "9007199254740993" || err != nil {
		t.Errorf("key %q, %v", key, err)
	}
}

func TestEmptyTable(t *testing.T) {
	table := build(t, nil, nil, topology.Defaults{})
	r := table.Lookup("any.thing")
	want := &topology.Resolved{
		Type:   topology.Type{Pattern: "any.thing", TTL: 16, Gas: 1000, Breadth: 64, Repeats: 4, PayloadMax: 512 << 10, Contract: "any.thing"},
		Stream: "events",
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	streams := []topology.Stream{{Name: "events", Partitions: broker.DefaultPartitions, Retain: 7 * 24 * time.Hour}}
	if diff := cmp.Diff(streams, table.Streams()); diff != "" {
		t.Error(diff)
	}
	// Hostile bytes have an answer as well.
	for _, typ := range []string{"", ".", "..", "*", "a.*", "\xff.", strings.Repeat(".", 10_000)} {
		if table.Lookup(typ).Stream != "events" {
			t.Errorf("%q has no stream", typ)
		}
	}
}

func TestDefaultStreamCanBeDeclared(t *testing.T) {
	table := build(t, []topology.Stream{
		{Name: "events", Retain: time.Hour, Partitions: 2},
		{Name: "a", Types: []string{"a.*"}},
	}, nil, topology.Defaults{})
	if s := table.Streams(); len(s) != 2 || s[1].Name != "events" || s[1].Retain != time.Hour || s[1].Partitions != 2 {
		t.Errorf("got %+v", s)
	}
	if s := table.Lookup("a.b").Stream; s != "a" {
		t.Errorf("a.b is in %s", s)
	}
	if s := table.Lookup("b").Stream; s != "events" {
		t.Errorf("b is in %s", s)
	}
}

func TestStreamsFor(t *testing.T) {
	table := build(t, []topology.Stream{
		{Name: "urgent", Types: []string{"ticket.opened", "alarm.*"}},
		{Name: "support", Types: []string{"ticket.*"}},
		{Name: "deep", Types: []string{"a.b.c"}},
	}, nil, topology.Defaults{})
	for patterns, want := range map[string][]string{
		"":                     nil,
		"ticket.opened":        {"urgent"},
		"ticket.closed":        {"support"},
		"ticket.*":             {"support", "urgent"},
		"ticket.sub.*":         {"support"},
		"a.*":                  {"deep", "events"},
		"a.b.c":                {"deep"},
		"a.b.c.*":              {"events"},
		"other":                {"events"},
		"*":                    {"deep", "events", "support", "urgent"},
		"other ticket.closed":  {"events", "support"},
		"alarm.x alarm.*":      {"urgent"},
		"ticket":               {"events"},
		"ticket.opened other ": {"events", "urgent"},
		"a.b.*":                {"deep", "events"},
	} {
		if diff := cmp.Diff(want, table.StreamsFor(strings.Fields(patterns))); diff != "" {
			t.Errorf("%q: %s", patterns, diff)
		}
	}
}

// TestStreamsForHoldsEveryMatch: no stream that Lookup names for a type is
// missing from StreamsFor of a pattern that matches the type.
func TestStreamsForHoldsEveryMatch(t *testing.T) {
	word := rapid.StringMatching(`[ab](\.[ab]){0,3}`)
	pattern := rapid.Custom(func(t *rapid.T) string {
		p := word.Draw(t, "word")
		switch rapid.IntRange(0, 5).Draw(t, "shape") {
		case 0:
			return "*"
		case 1, 2, 3:
			return p + ".*"
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		var streams []topology.Stream
		for i := range rapid.IntRange(0, 4).Draw(t, "streams") {
			streams = append(streams, topology.Stream{Name: fmt.Sprint("s", i), Types: rapid.SliceOfN(pattern, 1, 3).Draw(t, "types")})
		}
		table, err := topology.New(streams, nil, topology.Defaults{})
		if err != nil {
			t.Skip("a pattern in two streams")
		}
		p, typ := pattern.Draw(t, "pattern"), word.Draw(t, "type")
		if !headgate.MatchType(p, typ) {
			return
		}
		if stream := table.Lookup(typ).Stream; !slices.Contains(table.StreamsFor([]string{p}), stream) {
			t.Fatalf("%s is in %s, but StreamsFor(%s) is %v", typ, stream, p, table.StreamsFor([]string{p}))
		}
	})
}

func TestEveryProblemIsReported(t *testing.T) {
	_, err := topology.New(
		[]topology.Stream{
			{Name: "Bad Name", Types: []string{"a"}},
			{Name: "empty"},
			{Name: "two", Types: []string{"x y", "b.*", "b.*"}, Partitions: 257, Retain: -1},
			{Name: "two", Types: []string{"a", "*"}},
		},
		[]topology.Type{
			{Pattern: "*.x", TTL: 1001, Gas: -1, Breadth: -1, Repeats: -1, PayloadMax: -1},
			{Pattern: "a", Key: "data.", Contract: "a b", Origins: []headgate.Origin{"martian"}, Expire: -1},
			{Pattern: "a", Key: "1.5"},
		},
		topology.Defaults{TTL: -1})
	e := headgate.AsError(err)
	if e == nil || e.Code != headgate.CodeInvalidConfig {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		`defaults: ttl: -1`, `streams "Bad Name": a name is`, `streams "empty": types: is empty`, `"x y" is not a type`,
		`"b.*" is already taken by the stream "two"`, `partitions: 257`, `retain: -1ns`, `streams "two": the name is taken`, `"a" is already taken by the stream "Bad Name"`,
		`types "*.x": not a type`, `ttl: 1001`, `gas: -1`, `breadth: -1`, `repeats: -1`, `payload_max: -1`, `types "a": key: column 6`,
		`contract: "a b"`, `origins: "martian"`, `expire: -1ns`, `types "a": declared twice`, `types "a": key: column 1`,
	} {
		if !strings.Contains(e.Detail, want) {
			t.Errorf("%q is missing in: %s", want, e.Detail)
		}
	}
}

// TestBounds: the largest of each limit is taken, one more is not, in defaults as
// in types and streams.
func TestBounds(t *testing.T) {
	largest := topology.Defaults{
		TTL: topology.MaxTTL, Gas: topology.MaxGas, Breadth: topology.MaxBreadth, Repeats: topology.MaxRepeats, PayloadMax: topology.MaxPayload,
		Retain: topology.MaxRetain,
	}
	over := largest
	over.TTL++
	over.Gas++
	over.Breadth++
	over.Repeats++
	over.PayloadMax++
	over.Retain++
	settings := func(d topology.Defaults) (got []string) {
		typ := topology.Type{Pattern: "a", TTL: d.TTL, Gas: d.Gas, Breadth: d.Breadth, Repeats: d.Repeats, PayloadMax: d.PayloadMax, Expire: topology.MaxExpire + d.Retain - topology.MaxRetain}
		_, err := topology.New([]topology.Stream{{Name: "events", Retain: d.Retain}}, []topology.Type{typ}, d)
		for _, f := range topology.Faults(err) {
			got = append(got, f.In+"."+f.Setting)
		}
		return got
	}
	if got := settings(largest); got != nil {
		t.Errorf("refused: %q", got)
	}
	want := []string{
		"defaults.ttl", "defaults.gas", "defaults.breadth", "defaults.repeats", "defaults.payload_max", "defaults.retain", "streams.retain",
		"types.ttl", "types.gas", "types.breadth", "types.repeats", "types.payload_max", "types.expire",
	}
	if diff := cmp.Diff(want, settings(over)); diff != "" {
		t.Error(diff)
	}
}

// TestHostileTypesAreBounded asks for many more types than the cache holds,
// from several goroutines.
func TestHostileTypesAreBounded(t *testing.T) {
	table := build(t, nil, []topology.Type{{Pattern: "x.*", TTL: 3}}, topology.Defaults{})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 20_000 {
				typ := fmt.Sprintf("x.%d.%d", g%2, i)
				if r := table.Lookup(typ); r.TTL != 3 || r.Contract != typ {
					t.Errorf("%s: got %+v", typ, r)
				}
			}
		})
	}
	wg.Wait()
	if n := topology.Cached(table); n > 2*topology.MaxCached {
		t.Errorf("%d answers are cached", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	table, err := topology.New(nil, []topology.Type{{Pattern: "a.*"}, {Pattern: "a.b", TTL: 3}}, topology.Defaults{})
	if err != nil {
		b.Fatal(err)
	}
	for name, typ := range map[string]string{"declared": "a.b", "pattern": "a.c.d"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.Lookup(typ)
			}
		})
	}
}
