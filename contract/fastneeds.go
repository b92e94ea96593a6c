package contract

import "slices"

// fastNeed is what a branch asks of an object before anything else: names that
// it must have. The pass over the object saw which it has, so that a branch
// that asks for others fails, and one that asks for nothing else matches,
// without another pass.
type fastNeed struct {
	names []int32 // indexes of declared names
	only  bool    // nothing else is asked
}

// objectAfter checks what a pass alone cannot decide of an object.
func (s *fastState) objectAfter(o *fastObject, first uint64, words, at, end int) bool {
	for i := range o.after.tests {
		if !s.objectTest(&o.after.tests[i], o.needs[i], first, words, at) {
			return false
		}
	}
	return o.after.hybrid < 0 || s.hybrid(&s.p.hybrids[o.after.hybrid], at, end)
}

// objectTest is test for an object whose names were seen.
func (s *fastState) objectTest(t *fastTest, needs []fastNeed, first uint64, words, at int) bool {
	matches := func(i int) bool {
		s.steps++
		for _, n := range needs[i].names {
			if !s.has(n, first, words) {
				return false
			}
		}
		return needs[i].only || s.try(t.branches[i], at)
	}
	switch t.op {
	case testAny:
		for i := range t.branches {
			if matches(i) {
				return true
			}
		}
		return false
	case testOne:
		matched := 0
		for i := range t.branches {
			if matches(i) {
				if matched++; matched > 1 {
					return false
				}
			}
		}
		return matched == 1
	case testNot:
		return !matches(0)
	default: // testIf
		next := 2
		if matches(0) {
			next = 1
		}
		return t.branches[next] < 0 || matches(next)
	}
}

// branchNeeds says what the branch asks of an object, by name.
func (c *fastCompiler) branchNeeds(n *node) (names []string, only bool) {
	if n == nil {
		return nil, false
	}
	all, ok := c.expand(setOf(n), kindObject)
	if !ok {
		return nil, false
	}
	only = true
	for _, m := range all.nodes() {
		only = only && settled(m, all[m]) && m.konst == nil && m.enum == nil && m.unevalProps == nil
		o := m.object
		if o == nil || m.refOnly() {
			continue
		}
		for _, name := range o.required {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		only = only && o.minProps <= 0 && o.maxProps < 0 && len(o.props) == 0 && len(o.patterns) == 0 && !o.hasAdditional &&
			o.propertyNames == nil && len(o.dependencies) == 0
	}
	return names, only
}

// testNodes returns the branches of each keyword in the order of tests.
func testNodes(all schemaSet) [][]*node {
	var out [][]*node
	for _, n := range all.nodes() {
		flag := all[n]
		if flag&didAnyOf == 0 {
			out = append(out, n.anyOf.branches)
		}
		if flag&didOneOf == 0 {
			out = append(out, n.oneOf.branches)
		}
		if flag&didNot == 0 {
			out = append(out, []*node{n.not})
		}
		if flag&didIf == 0 {
			out = append(out, []*node{n.ifs, n.then, n.otherwise})
		}
	}
	return out
}

// needs fills in what the branches ask of an object whose declared names are
// known.
func (c *fastCompiler) needs(o *fastObject, all schemaSet, index map[string]int32) {
	for _, branches := range testNodes(all) {
		row := make([]fastNeed, len(branches))
		for i, b := range branches {
			names, only := c.branchNeeds(b)
			row[i].only = only
			for _, name := range names {
				row[i].names = append(row[i].names, index[name])
			}
		}
		o.needs = append(o.needs, row)
	}
}
