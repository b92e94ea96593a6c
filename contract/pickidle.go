package contract

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// findIdle finds the branches that values of a type always match, without
// anything coming of it. Of objects they are those that only have a say about
// members of some names.
func (p *pick) findIdle(facts *kindFacts, branches []*node, left *automata) {
	says := make([]*say, len(branches))
	for k := range kind(kinds) {
		p.idle[k] = make([]bool, len(branches))
		for i, b := range branches {
			s := &say{facts: facts}
			if p.idle[k][i] = s.silent(b, k); p.idle[k][i] && k == kindObject {
				says[i] = s
			}
		}
	}
	if !p.matchNames(facts, says) || !p.matchPatterns(says, left) {
		for i := range says {
			if says[i] != nil && len(says[i].patterns)+len(says[i].naming) > 0 {
				says[i] = nil
			}
		}
		p.named, p.patterns, p.of = nil, nil, nil
	}
	var speak []*node
	for i, s := range says {
		if s == nil {
			p.idle[kindObject][i] = false
			continue
		}
		p.need[i] = untouched
		for _, name := range s.names {
			p.asks(int32(i), name)
		}
		speak = append(speak, s.speak...)
	}
	if len(speak) > 0 {
		p.speaks = &node{allOf: speak}
	}
}

// asks has a branch asked about the members of a name.
func (p *pick) asks(branch int32, name string) {
	n := p.names[name]
	if n == nil {
		n = &pickName{}
		p.names[name] = n
	}
	at, have := slices.BinarySearchFunc(n.uses, branch, func(u branchUse, branch int32) int { return cmp.Compare(u.branch, branch) })
	if !have {
		n.uses = slices.Insert(n.uses, at, branchUse{branch: branch, kinds: 1<<kinds - 1})
	}
}

// matchNames prepares what branches ask of every name. It is false where that
// is too much.
func (p *pick) matchNames(facts *kindFacts, says []*say) bool {
	var nodes []*node
	g := &nameGroup{}
	for i, s := range says {
		if s != nil {
			for _, n := range s.naming {
				nodes, g.of = append(nodes, n), append(g.of, int32(i))
			}
		}
	}
	if len(nodes) == 0 {
		return true
	}
	if g.group = newClassGroup(facts, nodes); g.group != nil {
		p.named = g
	}
	return p.named != nil
}

// matchPatterns prepares what branches ask of names that match patterns. It is
// false where that is too much.
func (p *pick) matchPatterns(says []*say, left *automata) bool {
	var patterns []*pattern
	for i, s := range says {
		if s != nil {
			for _, re := range s.patterns {
				patterns, p.of = append(patterns, re), append(p.of, int32(i))
			}
		}
	}
	if len(patterns) == 0 {
		return true
	}
	p.patterns = left.makeAny(patterns)
	return p.patterns != nil
}

// say is what schemas at one object have a say about: members of these names,
// those that match patterns, and those whose names are not values of naming.
type say struct {
	facts    *kindFacts
	names    []string
	patterns []*pattern
	naming   []*node
	speak    []*node // the schemas that have names
}

// silent reports whether every value of the type matches n, but for objects
// with members that it has a say about, and nothing comes of that. True is
// certain.
func (s *say) silent(n *node, k kind) bool {
	if !s.facts.g.afford(1) {
		return false
	}
	switch {
	case n.always != 0:
		return n.always > 0
	case n.types != 0 && n.types&(1<<k) == 0, n.reads != nil, n.konst != nil, n.enum != nil, n.format != nil && k == kindString:
		return false
	case n.recRef != nil, n.dynRef != nil, n.not != nil, n.ifs != nil, n.anyOf != nil, n.oneOf != nil:
		return false
	case n.ref != nil && !s.silent(n.ref, k):
		return false
	case n.refOnly():
		return true
	}
	for _, c := range n.allOf {
		if !s.silent(c, k) {
			return false
		}
	}
	if k == kindObject && n.object != nil && n.unevalProps == nil {
		return s.object(n)
	}
	return s.facts.mustParts(n, k)
}

func (s *say) object(n *node) bool {
	o := n.object
	if o.minProps > 0 || o.maxProps >= 0 || len(o.required) > 0 || o.hasAdditional {
		return false
	}
	if !s.facts.g.afford(nameWork * (len(o.names) + len(o.dependencies) + len(o.patterns))) {
		return false
	}
	s.names = append(s.names, o.names...)
	for i := range o.dependencies {
		s.names = append(s.names, o.dependencies[i].name)
	}
	for i := range o.patterns {
		s.patterns = append(s.patterns, o.patterns[i].re)
	}
	if o.propertyNames != nil {
		s.naming = append(s.naming, o.propertyNames)
	}
	if len(o.names) > 0 {
		s.speak = append(s.speak, n)
	}
	return true
}

// touch takes note of a member for the branches that have a say about its name
// by patterns, or by what names may be; where that is refused, it is a fault.
func (e *evaluator) touch(p *pick, least []int32, name []byte) {
	if p.patterns != nil {
		e.work += automatonWork + len(name)
		mark := len(e.rows)
		e.rows = p.patterns.appendMatches(e.rows, name)
		for _, i := range e.rows[mark:] {
			touchBranch(least, p.of[i])
		}
		e.rows = e.rows[:mark]
	}
	if p.named != nil {
		m := p.named.group.ofName(name)
		e.work += 1 + len(name)/32 + len(p.named.of)/32
		for w, all := range p.named.group.all {
			eachBit(w, all&^m.yes[w], func(i int) { touchBranch(least, p.named.of[i]) })
			eachBit(w, m.no[w], func(i int) { least[p.named.of[i]]++ })
		}
	}
}

func touchBranch(least []int32, branch int32) { least[branch] = max(least[branch], 0) }

// ofName returns the masks of the name of a member.
func (g *classGroup) ofName(name []byte) *classMasks {
	i := g.c.text(name, func() int { return utf8.RuneCount(name) })
	if i < 0 {
		return &g.strings[^i]
	}
	return &g.named[i]
}
