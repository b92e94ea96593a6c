package topology

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/condition"
)

// DefaultStream takes every type that no declared stream takes.
const DefaultStream = "events"

// The defaults of streams, types and [Defaults].
const (
	DefaultRetain     = 7 * 24 * time.Hour
	DefaultTTL        = 16
	DefaultGas        = 1000
	DefaultBreadth    = 64
	DefaultRepeats    = 4
	DefaultPayloadMax = 512 << 10
)

// maxCached bounds how many answers for undeclared types are kept.
const maxCached = 4096

// Stream is a declared stream.
type Stream struct {
	Name       string
	Types      []string      // type patterns; a type belongs to the stream with the most specific one
	Partitions int           // default broker.DefaultPartitions
	Retain     time.Duration // default Defaults.Retain
	NoIndex    bool          // leave its events out of the index (bulk streams)
}

// Type is a declared event type. Zero fields mean the defaults.
type Type struct {
	Pattern    string            // type or pattern; the most specific wins
	Key        string            // CEL expression for the ordering key; a producer's own key wins
	TTL        int               // hops; default Defaults.TTL
	Gas        int               // events under a root of this type; default Defaults.Gas
	Breadth    int               // children per delivery; default Defaults.Breadth
	Repeats    int               // same principal and type on one path; default Defaults.Repeats
	PayloadMax int               // bytes; default Defaults.PayloadMax
	Contract   string            // subject of the contract; default: the type
	Origins    []headgate.Origin // allowed origin classes; empty means all
	Fence      string            // template of the resource whose lease publishing demands, such as ticket/{data.id}
	Expire     time.Duration     // upper bound for expirytime, and its default; 0 means none
}

// Defaults are the limits of types and streams that declare none, the default
// stream too. Zero fields mean TTL 16, Gas 1000, Breadth 64, Repeats 4,
// PayloadMax 512 KiB, Retain 7 days.
type Defaults struct {
	TTL, Gas, Breadth, Repeats, PayloadMax int
	Retain                                 time.Duration
}

// Resolved is a type with every default filled in. It is shared: do not
// modify it.
type Resolved struct {
	Type
	Stream string
	KeyOf  *condition.Value // nil without a key expression
	// FenceOf yields the resource of Fence; nil without one.
	FenceOf *condition.Value
}

// Table answers lookups. It is immutable and safe for concurrent use.
type Table struct {
	streams  []Stream // as declared, with defaults; the default stream last
	defaults Defaults
	owners   map[string]string    // name of the stream, by pattern
	types    map[string]*declared // by pattern
	exact    map[string]*Resolved // declared types that are no patterns
	cache    sync.Map             // string → *Resolved, for all other types
	cached   atomic.Int64
}

// declared is a declared type with its compiled key.
type declared struct {
	Type
	keyOf, fenceOf *condition.Value
}

// New builds a table. The error lists every problem at once (see [Faults]);
// its code is invalid_config.
func New(streams []Stream, types []Type, d Defaults) (*Table, error) {
	var p problems
	t := &Table{
		defaults: p.defaults(d), owners: map[string]string{},
		types: make(map[string]*declared, len(types)), exact: map[string]*Resolved{},
	}
	t.streams = p.streams(streams, t.owners, t.defaults.Retain)
	for _, typ := range types {
		keyOf, fenceOf := p.typ(typ, t.types)
		t.types[typ.Pattern] = &declared{typ, keyOf, fenceOf}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	for pattern := range t.types {
		if headgate.ValidType(pattern) {
			t.exact[pattern] = t.resolve(pattern)
		}
	}
	for pattern := range t.owners {
		if headgate.ValidType(pattern) && t.exact[pattern] == nil {
			t.exact[pattern] = t.resolve(pattern)
		}
	}
	return t, nil
}

// Lookup returns the resolved type of an event. It never fails: an undeclared
// type has the defaults and the stream that takes it.
func (t *Table) Lookup(eventType string) *Resolved {
	if r, found := t.exact[eventType]; found {
		return r
	}
	if r, found := t.cache.Load(eventType); found {
		return r.(*Resolved)
	}
	if len(eventType) > headgate.MaxTypeLength {
		return t.resolve("") // no such type exists: nothing is declared for it
	}
	// The caller's string may be part of a larger one: do not keep that alive.
	eventType = strings.Clone(eventType)
	r := t.resolve(eventType)
	if t.cached.Add(1) > maxCached {
		t.cache.Clear()
		t.cached.Store(1)
	}
	t.cache.Store(eventType, r)
	return r
}

func (t *Table) resolve(eventType string) *Resolved {
	r := &Resolved{Stream: t.streamOf(eventType)}
	if d, found := mostSpecific(t.types, eventType); found {
		r.Type, r.KeyOf, r.FenceOf = d.Type, d.keyOf, d.fenceOf
	} else {
		r.Pattern = eventType
	}
	r.TTL = cmp.Or(r.TTL, t.defaults.TTL)
	r.Gas = cmp.Or(r.Gas, t.defaults.Gas)
	r.Breadth = cmp.Or(r.Breadth, t.defaults.Breadth)
	r.Repeats = cmp.Or(r.Repeats, t.defaults.Repeats)
	r.PayloadMax = cmp.Or(r.PayloadMax, t.defaults.PayloadMax)
	if r.Contract == "" {
		r.Contract = eventType
	}
	return r
}

// mostSpecific returns what is declared for a type, or for all of a pattern:
// under itself, else under the longest prefix, else under "*".
func mostSpecific[V any](declared map[string]V, eventType string) (v V, found bool) {
	if v, found = declared[eventType]; found {
		return v, true
	}
	for prefix := eventType; ; {
		dot := strings.LastIndexByte(prefix, '.')
		if dot < 0 {
			v, found = declared["*"]
			return v, found
		}
		prefix = prefix[:dot]
		if v, found = declared[eventType[:dot+1]+"*"]; found {
			return v, true
		}
	}
}

// streamOf returns the stream of a type, or of what no other stream takes of a
// pattern.
func (t *Table) streamOf(eventType string) string {
	if name, found := mostSpecific(t.owners, eventType); found {
		return name
	}
	return DefaultStream
}

// Streams returns all streams, the default one included, ordered by name. The
// defaults are filled in.
func (t *Table) Streams() []Stream {
	all := slices.Clone(t.streams)
	for i := range all {
		all[i].Types = slices.Clone(all[i].Types)
	}
	slices.SortFunc(all, func(a, b Stream) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// StreamsFor returns the names of the streams that may hold events of any of
// the patterns, ordered by name.
func (t *Table) StreamsFor(patterns []string) []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, p := range patterns {
		add(t.streamOf(p))
		for own, name := range t.owners {
			if headgate.MatchType(p, own) {
				add(name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// RetainOf returns how long the streams that may hold events of any of the
// patterns keep them, the longest of them.
func (t *Table) RetainOf(patterns []string) time.Duration {
	var longest time.Duration
	names := t.StreamsFor(patterns)
	for i := range t.streams {
		if slices.Contains(names, t.streams[i].Name) {
			longest = max(longest, t.streams[i].Retain)
		}
	}
	return longest
}

func (s Stream) withDefaults(retain time.Duration) Stream {
	s.Types = slices.Clone(s.Types)
	s.Partitions = cmp.Or(s.Partitions, broker.DefaultPartitions)
	s.Retain = cmp.Or(s.Retain, retain)
	return s
}
