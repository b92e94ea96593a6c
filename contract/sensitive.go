package contract

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// Bounds of the walk that finds what may not be shown. A payload that takes more
// is hidden whole.
const (
	hideWorkBase    = 1 << 17
	hideWorkPerByte = 16
	hideNearNames   = 256
)

// hiding says what of one payload no report may show. It depends on the schemas
// alone that could speak about a value, never on what held or failed first.
type hiding struct {
	e    *evaluator
	all  bool       // the work was used up
	sets []*hideSet // by value: the schemas that may apply to it
	why  []secrecy  // by value
	// exact has the members that some schema declares by name.
	exact  []bool
	known  map[string]*hideSet // by the schemas that a set was spread from
	key    []byte
	work   int
	looked int // names that were compared with those of sensitive properties
}

type secrecy uint8

const (
	secretNot secrecy = iota
	secretUndeclared
	secretMarked
)

// hideSensitive finds what may not be shown, where the contract marks anything
// as sensitive: what is marked or stands inside of it, what stands where a
// container of such values belongs, and every value that no schema declares, as
// nobody knows which property was meant.
func (e *evaluator) hideSensitive() {
	if !e.p.sensitive || e.hiding != nil {
		return
	}
	n := len(e.t.values)
	h := &hiding{
		e: e, sets: make([]*hideSet, n), why: make([]secrecy, n), exact: make([]bool, n),
		known: map[string]*hideSet{}, work: hideWorkBase + hideWorkPerByte*len(e.t.text),
	}
	e.hiding = h
	h.sets[0] = h.spread([]*node{e.p.root})
	for i := int32(0); i < int32(n) && !h.all; i++ {
		h.judge(i)
		switch e.t.values[i].kind {
		case kindObject:
			h.members(i)
		case kindArray:
			h.items(i)
		}
	}
}

// spend takes work off, and hides everything when none is left.
func (h *hiding) spend(n int) {
	h.work -= n + 1
	h.all = h.all || h.work < 0
}

// judge marks a value that its schemas mark, or that stands where they want a
// container of what they mark.
func (h *hiding) judge(i int32) {
	s := h.sets[i]
	misplaced := s.inObject || s.inArray
	switch h.e.t.values[i].kind {
	case kindObject:
		misplaced = s.inArray && !s.inObject
	case kindArray:
		misplaced = s.inObject && !s.inArray
	}
	if s.marked || misplaced {
		h.why[i] = secretMarked
	}
}

func (h *hiding) members(v int32) {
	end := h.e.t.values[v].next
	for child := v + 1; child < end && !h.all; child = h.e.t.values[child].next {
		m := h.member(h.sets[v], h.e.t.name(child))
		h.exact[child], h.sets[child] = m.exact, m.set
		if !m.declared {
			h.why[child] = secretUndeclared
		}
	}
}

// meant returns the sensitive properties that a name may stand for.
func (h *hiding) meant(o *objectRules, name string) []*node {
	if h.looked++; h.looked > hideNearNames {
		h.all = true
		return nil
	}
	var names []string
	var out []*node
	for _, declared := range o.names {
		sub := o.props[declared]
		h.spend(len(sub.aliases))
		switch {
		case !sub.secretBelow:
		case sub.hasAlias(name), foldName(name) == foldName(declared):
			out = append(out, sub)
		default:
			names = append(names, declared)
		}
	}
	for _, near := range nearest(name, names) {
		out = append(out, o.props[near])
	}
	return out
}

func (h *hiding) items(v int32) {
	end, i := h.e.t.values[v].next, 0
	for child := v + 1; child < end && !h.all; child = h.e.t.values[child].next {
		h.sets[child] = h.item(h.sets[v], i)
		i++
	}
}

// hidden reports whether a value, or one around it, may not be shown.
func (e *evaluator) hidden(v int32) bool { return e.secrecy(v) != secretNot }

// secrecy says why a value may not be shown.
func (e *evaluator) secrecy(v int32) secrecy {
	if e.hiding == nil {
		return secretNot
	}
	if e.hiding.all {
		return secretMarked
	}
	most := secretNot
	for ; v >= 0; v = e.t.values[v].parent {
		most = max(most, e.hiding.why[v])
	}
	return most
}

// hiddenWithin reports whether a value, or one around or inside of it, may not
// be shown.
func (e *evaluator) hiddenWithin(v int32) bool {
	if e.hidden(v) {
		return true
	}
	if e.hiding == nil {
		return false
	}
	for i := v; i < e.t.values[v].next; i++ {
		if e.hiding.why[i] != secretNot {
			return true
		}
	}
	return false
}

// hiddenName reports whether the name of a member may not be shown: it stands in
// an object that may not be, and the contract does not have it.
func (e *evaluator) hiddenName(v int32) bool {
	if e.hiding == nil || e.t.values[v].nameEnd == 0 {
		return false
	}
	return e.hiding.all || !e.hiding.exact[v] && e.hidden(e.t.values[v].parent)
}

// hiddenPath returns the outermost member around a value, or the value itself,
// whose name may not be shown; -1 if there is none.
func (e *evaluator) hiddenPath(v int32) int32 {
	found := int32(-1)
	for ; e.hiding != nil && v >= 0; v = e.t.values[v].parent {
		if e.hiddenName(v) {
			found = v
		}
	}
	return found
}

// hiddenProperty reports whether the value of a property that an object has not,
// or what the contract says about it, may not be shown.
func (e *evaluator) hiddenProperty(object int32, name string) bool {
	h := e.hiding
	if h == nil {
		return false
	}
	if e.hidden(object) {
		return true
	}
	s := h.member(h.sets[object], []byte(name)).set
	return s.marked || s.inObject || s.inArray || h.all
}

// hiddenMark stands for a name that is not shown, in pointers.
const hiddenMark = "…"

// pointer writes the pointer of a value, as far as its names may be shown.
func (e *evaluator) pointer(v int32) string {
	if cut := e.hiddenPath(v); cut >= 0 {
		return e.t.pointer(e.t.values[cut].parent) + "/" + hiddenMark
	}
	return e.t.pointer(v)
}

// got describes a value for a report.
func (e *evaluator) got(v int32) string {
	kind := typeNames[e.t.values[v].kind]
	switch e.secrecy(v) {
	case secretMarked:
		return kind + ", which the contract marks as sensitive"
	case secretUndeclared:
		return kind + ", not shown as the contract does not know it and has sensitive values"
	}
	return e.t.got(v)
}

// withheld is the violation for a text that is no JSON, without what it quotes
// of the text: nobody knows what that would have been.
func withheld(f *jsontext.Fault) headgate.Violation {
	shown := faultViolation(f)
	return headgate.Violation{
		Code: shown.Code, Offset: f.Offset, Line: f.Line, Column: f.Column, Want: shown.Want,
		Got: "text that is not shown, as the contract has sensitive values",
		Fix: fmt.Sprintf("Correct the payload at line %d, column %d and send it again.", f.Line, f.Column),
	}
}

// fault puts a fault of the text into words.
func (p *program) fault(f *jsontext.Fault) headgate.Violation {
	if p.sensitive {
		return withheld(f)
	}
	return faultViolation(f)
}

// markSecrets finds, for a program that marks anything as sensitive, in which
// schemas it does so.
func (p *program) markSecrets() {
	if !p.sensitive {
		return
	}
	p.rebind()
	above := map[*node][]*node{} // those that apply a schema, to the same value or to a part
	for _, n := range p.nodes {
		for _, c := range append(append(inPlace(n), memberSchemas(n)...), itemSchemas(n)...) {
			above[c] = append(above[c], n)
		}
	}
	var queue []*node
	reach := func(n *node) {
		if !n.secretBelow {
			n.secretBelow = true
			queue = append(queue, n)
		}
	}
	for _, n := range p.nodes {
		if n.sensitive {
			reach(n)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, n := range above[queue[0]] {
			reach(n)
		}
	}
	for _, n := range p.nodes {
		for _, c := range memberSchemas(n) {
			n.secretMembers = n.secretMembers || c.secretBelow
		}
		for _, c := range itemSchemas(n) {
			n.secretItems = n.secretItems || c.secretBelow
		}
	}
}

// rebind notes for references that depend on how they are reached all that they
// may come to.
func (p *program) rebind() {
	seen := map[*resource]bool{}
	var roots []*node
	anchors := map[string][]*node{}
	for _, n := range p.nodes {
		if n.res == nil || seen[n.res] {
			continue
		}
		seen[n.res] = true
		if n.res.recursiveAnchor && n.res.root != nil {
			roots = append(roots, n.res.root)
		}
		for name, target := range n.res.anchors {
			anchors[name] = append(anchors[name], target)
		}
	}
	for _, n := range p.nodes {
		if n.recRef != nil {
			n.mayBe = roots
		} else if n.dynName != "" {
			n.mayBe = anchors[n.dynName]
		}
	}
}

// memberSchemas lists the schemas that a schema has for members of the value.
func memberSchemas(n *node) []*node {
	var out []*node
	if o := n.object; o != nil {
		for _, name := range o.names {
			out = append(out, o.props[name])
		}
		for i := range o.patterns {
			out = append(out, o.patterns[i].node)
		}
		if o.additional != nil {
			out = append(out, o.additional)
		}
	}
	if n.unevalProps != nil {
		out = append(out, n.unevalProps)
	}
	return out
}

// itemSchemas lists the schemas that a schema has for items of the value.
func itemSchemas(n *node) []*node {
	var out []*node
	if a := n.array; a != nil {
		out = append(out, a.prefix...)
		for _, c := range []*node{a.rest, a.contains} {
			if c != nil {
				out = append(out, c)
			}
		}
	}
	if n.unevalItems != nil {
		out = append(out, n.unevalItems)
	}
	return out
}
