package contract

import "math"

func (c *fastCompiler) array(set, all schemaSet) int32 {
	if after, ok := c.wholeArray(set, all); ok {
		return c.addArray(fastArray{maxItems: math.MaxInt, rest: 0, after: after})
	}
	a := fastArray{maxItems: math.MaxInt}
	prefix, asked := 0, false
	for _, n := range all.nodes() {
		r := n.array
		if n.refOnly() {
			continue
		}
		if n.unevalItems != nil {
			asked = true
		}
		if r == nil {
			continue
		}
		asked = true
		a.minItems = max(a.minItems, r.minItems)
		if r.maxItems >= 0 {
			a.maxItems = min(a.maxItems, r.maxItems)
		}
		a.unique = a.unique || r.unique
		prefix = max(prefix, len(r.prefix))
		if r.contains != nil {
			a.contains = append(a.contains, c.contains(r))
		}
	}
	if !c.grow(prefix) {
		return never
	}
	a.group = c.group(all)
	for i := range prefix {
		a.prefix = append(a.prefix, c.value(c.item(all, i)))
	}
	a.rest = c.value(c.item(all, prefix))
	a.after = newAfter(c.tests(all))
	if !asked && a.rest == 0 && !a.after.any {
		return free
	}
	return c.addArray(a)
}

// group returns the group of the schemas that an array is searched for, in the
// order of its contains.
func (c *fastCompiler) group(all schemaSet) *classGroup {
	var members []*node
	for _, n := range all.nodes() {
		if r := n.array; r != nil && !n.refOnly() && r.contains != nil {
			members = append(members, r.contains)
		}
	}
	if len(members) < minClassVisits || c.plain || c.g.dynamic {
		return nil
	}
	return newClassGroup(c.facts, members)
}

func (c *fastCompiler) contains(r *arrayRules) fastContains {
	f := fastContains{value: c.value(setOf(r.contains)), least: 1, most: math.MaxInt}
	if r.minContains >= 0 {
		f.least = r.minContains
	}
	if r.maxContains >= 0 {
		f.most = r.maxContains
	}
	return f
}

func (c *fastCompiler) addArray(a fastArray) int32 {
	c.p.arrays = append(c.p.arrays, a)
	return int32(len(c.p.arrays) - 1)
}

// wholeArray hands arrays over that the pass cannot decide.
func (c *fastCompiler) wholeArray(set, all schemaSet) (fastAfter, bool) {
	for _, n := range all.nodes() {
		if n.konst != nil || n.enum != nil {
			return c.handOver(set, n, "const or enum of arrays"), true
		}
		if n.refOnly() {
			continue
		}
		if n.unevalItems != nil && !c.evaluatedByAll(n, kindArray) {
			return c.handOver(set, n, "unevaluatedItems over branches"), true
		}
		if c.closing && (!settled(n, all[n]) || n.array != nil && n.array.contains != nil) {
			return c.handOver(set, n, "closed objects over branches"), true
		}
	}
	return fastAfter{}, false
}

// item returns what applies to the item at an index.
func (c *fastCompiler) item(all schemaSet, i int) schemaSet {
	out := schemaSet{}
	for _, n := range all.nodes() {
		if n.refOnly() {
			continue
		}
		if a := n.array; a != nil {
			switch {
			case i < len(a.prefix):
				out[a.prefix[i]] = 0
			case a.rest != nil:
				out[a.rest] = 0
			}
		}
		if n.unevalItems != nil && !c.itemEvaluated(n, i) {
			out[n.unevalItems] = 0
		}
	}
	return out
}

// itemEvaluated reports whether the item at an index is evaluated for the
// unevaluatedItems of n.
func (c *fastCompiler) itemEvaluated(n *node, i int) bool {
	closure, ok := c.expand(setOf(n), kindArray)
	if !ok {
		return true
	}
	for m := range closure {
		if m != n && m.unevalItems != nil {
			return true
		}
		if a := m.array; a != nil && (a.rest != nil || i < len(a.prefix)) {
			return true
		}
	}
	return false
}
