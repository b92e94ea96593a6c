package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// StrictLimits bounds what decoders for constrained output take. They are data
// because their makers raise them.
type StrictLimits struct {
	Properties int `json:"properties"`  // of all objects together
	Depth      int `json:"depth"`       // levels of objects and arrays
	EnumValues int `json:"enum_values"` // of all enums together
	Characters int `json:"characters"`  // of property names, definition names, enum values and constants
}

// DefaultStrictLimits returns the limits of OpenAI's strict mode as of 2026.
func DefaultStrictLimits() StrictLimits {
	return StrictLimits{Properties: 5000, Depth: 10, EnumValues: 1000, Characters: 120_000}
}

// StrictEffect says what a keyword that could not be exported means.
type StrictEffect string

// The effects.
const (
	// StrictNarrowed: the export allows less than the contract.
	StrictNarrowed StrictEffect = "narrowed"
	// StrictLoosened: the export allows what the contract refuses.
	StrictLoosened StrictEffect = "loosened"
)

// StrictLoss is a part of a contract that its strict export does not say.
type StrictLoss struct {
	At      string       `json:"at"` // JSON Pointer into the contract
	Keyword string       `json:"keyword"`
	Effect  StrictEffect `json:"effect"`
	Detail  string       `json:"detail"`
}

// StrictExport is a contract in the part of JSON Schema that decoders for
// constrained output take: every object closed, every property required, and
// null where an optional property is left out.
//
// Every document that is valid under Schema, with [StrictExport.Back] applied,
// is valid under the contract, if no loss is of the effect loosened; otherwise
// it breaks at most what those losses name. What a model sends is checked
// against the contract either way.
type StrictExport struct {
	Schema json.RawMessage `json:"schema"`
	// NullMeansAbsent lists the properties of Schema, as JSON Pointers into it,
	// whose value null stands for a property that is left out.
	NullMeansAbsent []string     `json:"null_means_absent,omitempty"`
	Losses          []StrictLoss `json:"losses,omitempty"`
	// Exceeds lists the limits that the export is over.
	Exceeds []string `json:"exceeds,omitempty"`

	back *Contract
	null map[string]bool // of NullMeansAbsent
}

// Exact reports whether every document of the export maps to a valid one.
func (x *StrictExport) Exact() bool {
	return !slices.ContainsFunc(x.Losses, func(l StrictLoss) bool { return l.Effect == StrictLoosened })
}

// Strict exports the contract. The error, of code invalid_argument, says why it
// has no strict form: its root is no object, or it is put together in a way
// that no rewriting reaches. Nil limits mean the defaults.
func (c *Contract) Strict(limits *StrictLimits) (*StrictExport, error) {
	if c.avro != nil {
		return c.strictAvro(limits)
	}
	doc := parseSchema(c.schema, &reasons{})
	s := &stricter{c: c, doc: doc, defs: map[string]string{}, out: map[string]any{}, byPtr: map[string]*node{}, x: &StrictExport{null: map[string]bool{}}}
	for _, n := range c.prog.nodes {
		s.byPtr[n.at] = n
	}
	if p := s.embedded(); p != "" {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "no strict form: at %s: a schema with an identifier of its own", placeWords(p))
	}
	root, ok := s.object(doc, "")
	if !ok {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "no strict form: the root must describe an object")
	}
	for len(s.queue) > 0 {
		ptr := s.queue[0]
		s.queue = s.queue[1:]
		target, _ := lookupPointer(doc, ptr)
		s.out[s.defs[ptr]] = s.schema(target, ptr, "/$defs/"+escapeToken(s.defs[ptr]), 0)
	}
	if s.failed != "" {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "no strict form: %s", s.failed)
	}
	if len(s.out) > 0 {
		root["$defs"] = s.out
	}
	text, err := json.Marshal(root)
	if err != nil {
		return nil, headgate.NewError(headgate.CodeInternal, "%v", err)
	}
	return s.finish(text, limits)
}

func (s *stricter) finish(text []byte, limits *StrictLimits) (*StrictExport, error) {
	x := s.x
	x.Schema = text
	var err error
	if x.back, _, err = Compile(s.c.ref.Subject, s.c.ref.Version, text, &CompileOpts{Policy: s.c.policy}); err != nil {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "no strict form: %s", headgate.AsError(err).Detail)
	}
	x.NullMeansAbsent = sortedKeys(x.null)
	x.sortLosses()
	lim := DefaultStrictLimits()
	if limits != nil {
		lim = *limits
	}
	for _, l := range []struct {
		what     string
		got, max int
	}{
		{"properties", s.size.Properties, lim.Properties},
		{"levels of nesting", s.size.Depth, lim.Depth},
		{"enum values", s.size.EnumValues, lim.EnumValues},
		{"characters of names and values", s.size.Characters, lim.Characters},
	} {
		if l.got > l.max {
			x.Exceeds = append(x.Exceeds, fmt.Sprintf("%d %s, at most %d are taken", l.got, l.what, l.max))
		}
	}
	return x, nil
}

func (x *StrictExport) sortLosses() {
	slices.SortFunc(x.Losses, func(a, b StrictLoss) int { return strings.Compare(a.At+"\n"+a.Keyword, b.At+"\n"+b.Keyword) })
	x.Losses = slices.Compact(x.Losses)
}

// Back takes the members out of a document of the export whose null stands for
// a property that is left out. A document that is not valid under the export
// comes back as it is, as far as that goes.
func (x *StrictExport) Back(payload []byte) []byte {
	t, fault := readTape(payload, x.back.policy.limits(), nil)
	if fault != nil || len(t.values) == 0 {
		return payload
	}
	b := &backwards{x: x, e: newEvaluator(x.back.prog, &t), gone: map[int32]bool{}}
	b.walk(x.back.prog.root, 0)
	if len(b.gone) == 0 {
		return payload
	}
	return b.without(nil, 0)
}

// backwards finds the nulls that stand for nothing.
type backwards struct {
	x    *StrictExport
	e    *evaluator
	gone map[int32]bool
}

func (b *backwards) walk(n *node, v int32) {
	if n == nil || b.e.over() {
		return
	}
	b.walk(n.ref, v)
	if n.anyOf != nil {
		b.walk(b.branch(n.anyOf.branches, v), v)
	}
	val := &b.e.t.values[v]
	for child := v + 1; child < val.next; child = b.e.t.values[child].next {
		switch {
		case val.kind == kindArray && n.array != nil:
			b.walk(n.array.rest, child)
		case val.kind == kindObject && n.object != nil:
			name := string(b.e.t.name(child))
			if b.e.t.values[child].kind == kindNull && b.x.null[n.at+"/properties/"+escapeToken(name)] {
				b.gone[child] = true
				continue
			}
			b.walk(n.object.props[name], child)
		}
	}
}

// without writes a value without what is gone.
func (b *backwards) without(dst []byte, v int32) []byte {
	val := &b.e.t.values[v]
	if val.kind < kindArray {
		return append(dst, b.e.t.raw(v)...)
	}
	brackets := "[]"
	if val.kind == kindObject {
		brackets = "{}"
	}
	dst = append(dst, brackets[0])
	first := true
	for child := v + 1; child < val.next; child = b.e.t.values[child].next {
		if b.gone[child] {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if c := &b.e.t.values[child]; c.nameEnd > 0 {
			dst = append(append(dst, b.e.t.text[c.nameStart:c.nameEnd]...), ':')
		}
		dst = b.without(dst, child)
	}
	return append(dst, brackets[1])
}

// branch returns the first alternative that the value matches.
func (b *backwards) branch(branches []*node, v int32) *node {
	for _, c := range branches {
		if b.e.eval(c, v, nil, nil) {
			return c
		}
	}
	return nil
}
