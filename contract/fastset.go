package contract

import (
	"encoding/binary"
	"slices"
)

// schemaSet is a set of schemas that apply to one value together, with what was
// dealt with already of each.
type schemaSet map[*node]setFlag

type setFlag uint8

const (
	didRefs  setFlag = 1 << iota // references and allOf are in the set
	didAnyOf                     // the branch that must match is in the set
	didOneOf
	didIf // the branch that applies is in the set
	didNot
)

func setOf(nodes ...*node) schemaSet {
	s := schemaSet{}
	for _, n := range nodes {
		s[n] = 0
	}
	return s
}

// nodes returns the members by id.
func (s schemaSet) nodes() []*node {
	out := make([]*node, 0, len(s))
	for n := range s {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *node) int { return a.id - b.id })
	return out
}

// key returns a string that equal sets share.
func (s schemaSet) key() string {
	var b []byte
	for _, n := range s.nodes() {
		b = binary.AppendUvarint(b, uint64(n.id))
		b = append(b, byte(s[n]))
	}
	return string(b)
}

// expand adds to the set every schema that must hold for a value of the type,
// through references, allOf, and unions and conditions of which the type leaves
// one branch. It returns false when no value of the type can satisfy the set.
func (c *fastCompiler) expand(set schemaSet, k kind) (schemaSet, bool) {
	out := schemaSet{}
	type entry struct {
		n    *node
		flag setFlag
	}
	var queue []entry
	for _, n := range set.nodes() {
		queue = append(queue, entry{n, set[n]})
	}
	for len(queue) > 0 {
		c.spend(1)
		n, flag := queue[0].n, queue[0].flag
		queue = queue[1:]
		old, have := out[n]
		if have && old|flag == old {
			continue
		}
		if !c.facts.mayAccept(n, k) {
			return nil, false
		}
		if n.always > 0 {
			continue
		}
		flag |= old
		add := func(m *node) { queue = append(queue, entry{m, 0}) }
		ok := true
		if flag, ok = c.expandNode(n, k, flag, add); !ok {
			return nil, false
		}
		out[n] = flag
	}
	return out, true
}

func (c *fastCompiler) expandNode(n *node, k kind, flag setFlag, add func(*node)) (setFlag, bool) {
	if flag&didRefs == 0 {
		flag |= didRefs
		for _, t := range c.facts.references(n) {
			add(t)
		}
		if !n.refOnly() {
			for _, m := range n.allOf {
				add(m)
			}
		}
	}
	if n.refOnly() {
		return flag | didAnyOf | didOneOf | didIf | didNot, true
	}
	for _, u := range []struct {
		union *union
		did   setFlag
	}{{n.anyOf, didAnyOf}, {n.oneOf, didOneOf}} {
		if flag&u.did != 0 {
			continue
		}
		if u.union == nil {
			flag |= u.did
		} else if b := c.facts.branches(u.union, k); len(b) == 1 {
			flag |= u.did
			add(b[0])
		} else if u.did == didAnyOf && !c.closing && !c.annotated && c.facts.mustAny(u.union, k) {
			flag |= u.did
		}
	}
	if flag&didIf == 0 {
		flag |= c.expandIf(n, k, add)
	}
	if flag&didNot == 0 {
		if n.not == nil || !c.facts.mayAccept(n.not, k) {
			flag |= didNot
		} else if c.facts.mustAccept(n.not, k) {
			return flag, false
		}
	}
	return flag, true
}

func (c *fastCompiler) expandIf(n *node, k kind, add func(*node)) setFlag {
	switch {
	case n.ifs == nil:
	case !c.facts.mayAccept(n.ifs, k):
		if n.otherwise != nil {
			add(n.otherwise)
		}
	case c.facts.mustAccept(n.ifs, k):
		add(n.ifs)
		if n.then != nil {
			add(n.then)
		}
	case n.then == nil && n.otherwise == nil && !c.closing && !c.annotated:
	default:
		return 0
	}
	return didIf
}

// settled reports whether nothing of a schema in an expanded set depends on the
// value.
func settled(n *node, flag setFlag) bool {
	const all = didRefs | didAnyOf | didOneOf | didIf | didNot
	if flag != all {
		return false
	}
	if n.object != nil && !n.refOnly() {
		for i := range n.object.dependencies {
			if n.object.dependencies[i].node != nil {
				return false
			}
		}
	}
	return true
}
