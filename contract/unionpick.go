package contract

import "math/bits"

// unionPick tells which branches of anyOf or oneOf a value cannot match: by its
// type, and for an object by one look at its members. What is left is tried.
type unionPick struct {
	may   [kinds][]bool // by branch: some value of the type may match
	names map[string]*pickName
	need  []int32 // by branch: names that it requires
	// closed branches have no members but those that they name.
	closed []bool
}

// pickName is what branches ask of a member.
type pickName struct {
	uses []branchUse
	// group are the schemas that branches have for the member, each of the
	// branch at the same index of of; nil where there would be too many classes.
	group *classGroup
	subs  []*node
	of    []int32
}

// branchUse is a branch that speaks of a name.
type branchUse struct {
	branch int32
	less   int32 // faults that it has less for the member
	kinds  uint8 // that the member may be of
}

// minPickBranches is from how many branches on a union has a unionPick.
const minPickBranches = 4

// nameWork is what a name of a branch takes to prepare.
const nameWork = 16

// pickBranches prepares the unions of many branches.
func (p *program) pickBranches() {
	if p.dynamic {
		return // what applies depends on the way
	}
	facts := newKindFacts(p)
	for _, n := range p.nodes {
		for _, u := range []*union{n.anyOf, n.oneOf} {
			if u != nil && len(u.branches) >= minPickBranches {
				u.pick = newUnionPick(facts, u)
			}
		}
	}
}

// newUnionPick returns nil where there would be too much to do.
func newUnionPick(facts *kindFacts, u *union) *unionPick {
	if !facts.g.afford(kinds * len(u.branches)) {
		return nil
	}
	p := &unionPick{names: map[string]*pickName{}, need: make([]int32, len(u.branches)), closed: make([]bool, len(u.branches))}
	for k := range kind(kinds) {
		for _, b := range u.branches {
			p.may[k] = append(p.may[k], facts.mayAccept(b, k))
		}
	}
	for i, b := range u.branches {
		if !p.branch(facts, int32(i), b) {
			return nil
		}
	}
	for _, name := range sortedKeys(p.names) {
		if n := p.names[name]; len(n.subs) >= minPickBranches {
			n.group = newClassGroup(facts, n.subs)
		}
	}
	return p
}

// memberNeed is what one branch asks of one name.
type memberNeed struct {
	required, declared bool
	subs               []*node
}

// branch is false where that is too much to do: many unions may have branches
// that lead to one large object.
func (p *unionPick) branch(facts *kindFacts, i int32, b *node) bool {
	needs := map[string]*memberNeed{}
	of := func(name string) *memberNeed {
		if needs[name] == nil {
			needs[name] = &memberNeed{}
		}
		return needs[name]
	}
	for _, n := range conjuncts(b) {
		o := n.object
		if o == nil {
			continue
		}
		if !facts.g.afford(1 + nameWork*(len(o.required)+len(o.names))) {
			return false
		}
		facts.g.prepared += len(o.required) + len(o.names)
		for _, name := range o.required {
			of(name).required = true
		}
		for _, name := range o.names {
			of(name).subs = append(of(name).subs, o.props[name])
		}
		if o.hasAdditional && o.additional.always < 0 && len(o.patterns) == 0 && !p.closed[i] {
			p.closed[i] = true
			for _, name := range o.names {
				of(name).declared = true
			}
		}
	}
	for _, name := range sortedKeys(needs) {
		p.use(facts, i, name, needs[name])
	}
	return true
}

func (p *unionPick) use(facts *kindFacts, i int32, name string, need *memberNeed) {
	u := branchUse{branch: i}
	for k := range kind(kinds) {
		may := true
		for _, s := range need.subs {
			may = may && facts.mayAccept(s, k)
		}
		if may {
			u.kinds |= 1 << k
		}
	}
	if need.required {
		p.need[i]++
		u.less++
	}
	if need.declared {
		u.less++
	}
	if u.less == 0 && len(need.subs) == 0 {
		return
	}
	n := p.names[name]
	if n == nil {
		n = &pickName{}
		p.names[name] = n
	}
	n.uses = append(n.uses, u)
	for _, sub := range need.subs {
		n.subs, n.of = append(n.subs, sub), append(n.of, i)
	}
}

// conjuncts returns the schemas that must all hold for a value that matches n,
// n itself among them.
func conjuncts(n *node) []*node {
	var out []*node
	seen := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if n == nil || n.always != 0 || seen[n] || len(seen) >= discSearch {
			return
		}
		seen[n] = true
		walk(n.ref)
		if n.refOnly() {
			return
		}
		out = append(out, n)
		for _, c := range n.allOf {
			walk(c)
		}
	}
	walk(n)
	return out
}

// faultsOf returns, by branch, how many faults an object has with each at least:
// names that are absent and required, or there and not allowed, and members of
// another type or value. It is nil where nothing is known. The list is valid
// until e.rows is cut.
func (e *evaluator) faultsOf(p *unionPick, v int32) []int32 {
	val := &e.t.values[v]
	if p == nil || val.kind != kindObject {
		return nil
	}
	mark := len(e.rows)
	e.rows = append(e.rows, p.need...)
	least := e.rows[mark:]
	e.work += len(least)/16 + int(val.count)/4
	for i, closed := range p.closed {
		if closed {
			least[i] += val.count
		}
	}
	for child := v + 1; child < val.next; child = e.t.values[child].next {
		n := p.names[string(e.t.name(child))]
		if n == nil {
			continue
		}
		e.work += len(n.uses) / 16
		k := e.t.values[child].kind
		for i := range n.uses {
			u := &n.uses[i]
			if least[u.branch] -= u.less; u.kinds&(1<<k) == 0 {
				least[u.branch]++
			}
		}
		if n.group == nil || k >= kindArray {
			continue
		}
		e.work += len(n.of) / 32
		for w, no := range e.masks(n.group, child).no {
			for ; no != 0; no &= no - 1 {
				least[n.of[w<<6+bits.TrailingZeros64(no)]]++
			}
		}
	}
	return least
}

// pickFor returns the union's pick, where all branches are candidates.
func (u *union) pickFor(candidates []*node) *unionPick {
	if len(candidates) < len(u.branches) {
		return nil
	}
	return u.pick
}

// rulesOut reports whether a branch certainly does not match, given what
// faultsOf found.
func (p *unionPick) rulesOut(branch int, k kind, least []int32) bool {
	return p != nil && (!p.may[k][branch] || least != nil && least[branch] > 0)
}

// never reports whether containers of a class never match a branch.
func (p *unionPick) never(branch int, cls class) bool {
	switch {
	case p == nil || cls == classScalar:
		return false
	case cls == classArray:
		return !p.may[kindArray][branch]
	}
	return !p.may[kindObject][branch]
}
