package contract

import (
	"cmp"
	"slices"
)

// appliedTo notes that a schema spoke about an object.
type appliedTo struct {
	object int32
	n      *node
}

// appliedList holds which schemas spoke about which object.
type appliedList struct {
	on      bool
	ordered bool
	list    []appliedTo
}

func (a *appliedList) add(object int32, n *node) {
	a.list, a.ordered = append(a.list, appliedTo{object, n}), false
}

// of returns the schemas that spoke about an object, in the order in which they
// did.
func (a *appliedList) of(object int32) []appliedTo {
	if !a.ordered {
		slices.SortStableFunc(a.list, func(x, y appliedTo) int { return cmp.Compare(x.object, y.object) })
		a.ordered = true
	}
	i, _ := slices.BinarySearchFunc(a.list, object, func(x appliedTo, object int32) int { return cmp.Compare(x.object, object) })
	end := i
	for end < len(a.list) && a.list[end].object == object {
		end++
	}
	return a.list[i:end]
}

// maxVocabularies bounds those that are kept for one payload; kept for the next
// payload are those with few names.
const (
	maxVocabularies     = 4
	maxPooledVocabulary = 2048
)

// vocabulary is what the schemas that spoke about one object declare, and what
// the object has.
type vocabulary struct {
	object int32
	n      *node
	from   []*node // the schemas that declare
	// declared are the names, in no order that counts; known has their places,
	// and has says which of them the object has.
	declared []*nearName
	known    map[string]int32
	has      []bool
	sums     sumSet // of declared
	// strangers are the members that no schema declares by name, at most
	// nearCandidates.
	strangers    []stranger
	strangerSums sumSet
}

// sumSet says for sums of names whether a name may have them. False is certain.
type sumSet [16]uint64

func (s *sumSet) add(sum uint32) { s[sum>>6&15] |= 1 << (sum & 63) }

func (s *sumSet) mayHave(sum uint32) bool { return s[sum>>6&15]&(1<<(sum&63)) != 0 }

// stranger is a member that no schema declares by name.
type stranger struct {
	val     int32
	near    nearName
	pattern int8 // 0: not known, 1: no pattern matches its name, 2: one does
	// aliases are the names that its own is an alias of, once asked for.
	aliases []string
	asked   bool
}

// vocabulary returns the vocabulary of an object, n beside the schemas that
// spoke about it.
func (e *evaluator) vocabulary(object int32, n *node) *vocabulary {
	for i := range e.vocabularies {
		if v := &e.vocabularies[i]; v.object == object && v.n == n {
			return v
		}
	}
	if len(e.vocabularies) < maxVocabularies {
		if len(e.vocabularies) < cap(e.vocabularies) {
			e.vocabularies = e.vocabularies[:len(e.vocabularies)+1]
		} else {
			e.vocabularies = make([]vocabulary, 1, maxVocabularies)
		}
		e.nextVocabulary = len(e.vocabularies) - 1
	} else {
		e.nextVocabulary = (e.nextVocabulary + 1) % maxVocabularies
	}
	v := &e.vocabularies[e.nextVocabulary]
	v.fill(e, object, n)
	return v
}

func (v *vocabulary) fill(e *evaluator, object int32, n *node) {
	v.object, v.n, v.strangers, v.strangerSums = object, n, v.strangers[:0], sumSet{}
	clear(v.has)
	v.declareAll(n, e.applied.of(object))
	end := e.t.values[object].next
	for child := object + 1; child < end; child = e.t.values[child].next {
		name := e.t.name(child)
		if i, ok := v.known[string(name)]; ok {
			v.has[i] = true
		} else if m := &e.t.values[child]; len(v.strangers) < nearCandidates && m.nameEnd-m.nameStart <= maxPathToken+2 {
			v.strangers = append(v.strangers, stranger{val: child, near: newNearName(viewString(name))})
			v.strangerSums.add(v.strangers[len(v.strangers)-1].near.sum)
		}
	}
	e.looked += len(v.declared) + int(e.t.values[object].count)
}

// declareAll collects what the schemas of an object declare, unless it is what
// those of another object did.
func (v *vocabulary) declareAll(n *node, applied []appliedTo) {
	same := len(v.from) == len(applied)+1 && v.from[0] == n
	for i := 0; same && i < len(applied); i++ {
		same = v.from[i+1] == applied[i].n
	}
	if same {
		return
	}
	if v.known == nil {
		v.known = map[string]int32{}
	}
	clear(v.known)
	v.sums = sumSet{}
	v.declared, v.has, v.from = v.declared[:0], v.has[:0], append(v.from[:0], n)
	v.declare(n, 4)
	for _, a := range applied {
		v.declare(a.n, 4)
		v.from = append(v.from, a.n)
	}
}

// declare adds the names that a schema declares, also through references and
// unions.
func (v *vocabulary) declare(n *node, steps int) {
	if n == nil || steps == 0 || len(v.declared) > nearCandidates {
		return
	}
	if o := n.object; o != nil {
		for i := range o.near {
			if _, have := v.known[o.near[i].text]; !have {
				v.known[o.near[i].text] = int32(len(v.declared))
				v.declared, v.has = append(v.declared, &o.near[i]), append(v.has, false)
				v.sums.add(o.near[i].sum)
			}
		}
	}
	v.declare(n.ref, steps-1)
	for _, c := range n.allOf {
		v.declare(c, steps-1)
	}
	for _, u := range [...]*union{n.anyOf, n.oneOf} {
		if u != nil {
			for _, c := range u.branches {
				v.declare(c, steps-1)
			}
		}
	}
	v.declare(n.then, steps-1)
	v.declare(n.otherwise, steps-1)
}

// speaks reports whether the schema of an object, or one that it applies to it,
// may have names or patterns for members.
func (n *node) speaks() bool {
	return len(n.object.names) > 0 || len(n.object.patterns) > 0 || n.ref != nil || len(n.allOf) > 0 ||
		n.anyOf != nil || n.oneOf != nil || n.then != nil || n.otherwise != nil
}

// absent reports whether a name is declared, and the object does not have it.
func (v *vocabulary) absent(name string) bool {
	i, declared := v.known[name]
	return declared && !v.has[i]
}

// stray reports whether a stranger may be there under a wrong name: no schema
// that spoke about the object has a pattern that its name matches.
func (e *evaluator) stray(v *vocabulary, s *stranger) bool {
	if s.pattern == 0 {
		s.pattern = 1
		if e.fitsPattern(v, s.near.text) {
			s.pattern = 2
		}
	}
	return s.pattern == 1
}

func (e *evaluator) fitsPattern(v *vocabulary, name string) bool {
	fits := func(n *node) bool {
		if n.object == nil {
			return false
		}
		e.looked += n.object.patternWork(len(name))
		return n.object.fitsPattern([]byte(name))
	}
	if fits(v.n) {
		return true
	}
	for _, a := range e.applied.of(v.object) {
		if fits(a.n) {
			return true
		}
	}
	return false
}

// aliases lists the declared names that a stranger's is an alias of, by the
// schemas that spoke about the object.
func (e *evaluator) aliases(v *vocabulary, s *stranger) []string {
	if e.p.aliased && !s.asked {
		s.asked, s.aliases = true, e.aliased(v, s.near.text)
	}
	return s.aliases
}

func (e *evaluator) aliased(v *vocabulary, name string) []string {
	if !e.p.aliased {
		return nil
	}
	out := v.n.aliasOf(name, 8, nil)
	for _, a := range e.applied.of(v.object) {
		out = a.n.aliasOf(name, 8, out)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// aliasOf adds the properties that a name is an alias of, also through
// references and allOf.
func (n *node) aliasOf(name string, steps int, out []string) []string {
	if n == nil || steps == 0 {
		return out
	}
	if n.object != nil {
		out = append(out, n.object.aliases[name]...)
	}
	out = n.ref.aliasOf(name, steps-1, out)
	for _, c := range n.allOf {
		out = c.aliasOf(name, steps-1, out)
	}
	return out
}

// indexNames prepares the names of all objects for the search of near ones.
func (p *program) indexNames() {
	for _, n := range p.nodes {
		o := n.object
		if o == nil || len(o.names) == 0 {
			continue
		}
		o.near = make([]nearName, len(o.names))
		for i, name := range o.names {
			o.near[i] = newNearName(name)
			for _, alias := range o.props[name].aliases {
				if o.aliases == nil {
					o.aliases = map[string][]string{}
				}
				o.aliases[alias] = append(o.aliases[alias], name)
				p.aliased = true
			}
		}
	}
}
