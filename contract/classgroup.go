package contract

import "math/bits"

// classGroup says for each class of scalars what becomes of them under each of
// many schemas: those that branches of a union have for one property, or those
// that one array is searched for.
type classGroup struct {
	c        *classes
	members  []*node
	all      []uint64    // a bit for each
	may      [2][]uint64 // a bit for each that some arrays may match; some objects
	must     [2][]uint64 // a bit for each that all arrays match, without a look into them; all objects
	literals [3]classMasks
	named    []classMasks
	strings  []classMasks
	numbers  []classMasks
}

// classMasks has a bit for each schema that accepts the class, and for each that
// refuses it; the others must be asked.
type classMasks struct{ yes, no []uint64 }

// newClassGroup returns nil where there would be too many classes, or too much
// to do for them.
func newClassGroup(facts *kindFacts, members []*node) *classGroup {
	s := sortClasses(facts.g, members)
	if s == nil {
		return nil
	}
	g := &classGroup{c: s.c, members: members}
	words := (len(members) + 63) / 64
	g.all, g.may = make([]uint64, words), [2][]uint64{make([]uint64, words), make([]uint64, words)}
	g.must = [2][]uint64{make([]uint64, words), make([]uint64, words)}
	for k, n := range members {
		g.all[k>>6] |= 1 << (k & 63)
		for i := range g.may {
			if kind := kindArray + kind(i); facts.mustAccept(n, kind) && !facts.looksInto(n, kind) {
				g.must[i][k>>6] |= 1 << (k & 63)
			} else if facts.mayAccept(n, kind) {
				g.may[i][k>>6] |= 1 << (k & 63)
			}
		}
	}
	s.each(func(at classPlace, i int, ask func(*node) classVerdict) {
		m := classMasks{make([]uint64, words), make([]uint64, words)}
		for k, n := range members {
			switch v := ask(n); {
			case v&classAccepted != 0:
				m.yes[k>>6] |= 1 << (k & 63)
			case v&classRefused != 0:
				m.no[k>>6] |= 1 << (k & 63)
			}
		}
		switch at {
		case classLiteral:
			g.literals[i] = m
		case classNamed:
			g.named = append(g.named, m)
		case classLength:
			g.strings = append(g.strings, m)
		case classNumber:
			g.numbers = append(g.numbers, m)
		}
	})
	if facts.g.spare == 0 {
		return nil
	}
	return g
}

// masks returns those of a scalar.
func (e *evaluator) masks(g *classGroup, v int32) *classMasks {
	switch e.work++; e.t.values[v].kind {
	case kindNumber:
		return &g.numbers[e.numberClass(g.c, v)]
	case kindString:
		i := e.textClass(g.c, v)
		if i < 0 {
			return &g.strings[^i]
		}
		return &g.named[i]
	}
	return &g.literals[e.literalClass(v)]
}

// groupContains has the arrays searched once for all schemas that stand side by
// side under contains.
func (p *program) groupContains() {
	if p.dynamic {
		return
	}
	facts := newKindFacts(p)
	for _, n := range p.nodes {
		if len(n.allOf) < minClassVisits {
			continue
		}
		var members []*node
		var rules []*arrayRules
		for _, m := range conjuncts(n) {
			if m.array != nil && m.array.contains != nil && m.array.group == nil {
				members, rules = append(members, m.array.contains), append(rules, m.array)
			}
		}
		if len(members) < minClassVisits {
			continue
		}
		if g := newClassGroup(facts, members); g != nil {
			for i, r := range rules {
				r.group, r.member = g, i
			}
		}
	}
}

// searched is how many items of an array each schema of a group accepts. Of an
// open one that is not known: an item must be asked.
type searched struct {
	group  *classGroup
	v      int32
	counts []int
	open   []uint64
}

// search counts the items of an array that a schema of a group accepts, once for
// all of them. It is not ok where items must be asked.
func (e *evaluator) search(g *classGroup, v int32, member int) (count int, ok bool) {
	s := &e.searched
	if s.group != g || s.v != v {
		*s = searched{g, v, make([]int, len(g.members)), make([]uint64, len(g.may[0]))}
		end := e.t.values[v].next
		for child := v + 1; child < end; child = e.t.values[child].next {
			e.work += len(g.members) / 32
			if k := e.t.values[child].kind; k >= kindArray {
				for w, may := range g.may[k-kindArray] {
					s.open[w] |= may
					eachBit(w, g.must[k-kindArray][w], func(i int) { s.counts[i]++ })
				}
				continue
			}
			m := e.masks(g, child)
			m.count(s.counts)
			for w := range s.open {
				s.open[w] |= g.all[w] &^ (m.yes[w] | m.no[w])
			}
		}
	}
	return s.counts[member], s.open[member>>6]&(1<<(member&63)) == 0
}

// count adds one for each schema that accepts the class.
func (m *classMasks) count(counts []int) {
	for w, yes := range m.yes {
		eachBit(w, yes, func(i int) { counts[i]++ })
	}
}

// eachBit calls fn for each bit of a word of a set.
func eachBit(word int, set uint64, fn func(i int)) {
	for ; set != 0; set &= set - 1 {
		fn(word<<6 + bits.TrailingZeros64(set))
	}
}
