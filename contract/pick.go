package contract

// pick tells which of the schemas that stand side by side at one value, the
// branches of anyOf and oneOf or those of allOf, the value cannot match: by its
// type, and for an object by one look at its members. And it tells which hold
// without anything coming of it. What is left is tried.
type pick struct {
	may  [kinds][]bool // by branch: some value of the type may match
	idle [kinds][]bool // by branch: any value of the type matches; of objects, those that it has no say about
	// names, patterns and named say which branches ask something of a member.
	names    map[string]*pickName
	patterns *automaton
	of       []int32 // by pattern: the branch
	named    *nameGroup
	// texts are the patterns that branches have for strings, textOf their
	// branches, and textNeed how many each has.
	texts    *automaton
	textOf   []int32
	textNeed []int32
	need     []int32 // by branch: names that it requires; untouched where it is idle
	// closed branches have no members but those that they name.
	closed []bool
	// speaks has the schemas of the idle branches under its allOf: they speak
	// about an object also where they say nothing. Nil where none has names.
	speaks *node
}

// untouched is beside the faults of an idle branch that no member was found for.
const untouched = -1 << 20

// nameGroup is what branches ask of every name.
type nameGroup struct {
	group *classGroup
	of    []int32 // by schema: the branch
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

// minPickBranches is from how many branches on schemas side by side have a pick.
const minPickBranches = 4

// nameWork is what a name of a branch takes to prepare.
const nameWork = 16

// pickBranches prepares the schemas of many branches.
func (p *program) pickBranches(left *automata) {
	if p.dynamic {
		return // what applies depends on the way
	}
	facts := newKindFacts(p)
	for _, n := range p.nodes {
		for _, u := range []*union{n.anyOf, n.oneOf} {
			if u != nil && len(u.branches) >= minPickBranches {
				u.pick = newPick(facts, u.branches, left)
			}
		}
		if len(n.allOf) >= minPickBranches {
			n.all = newPick(facts, n.allOf, left)
		}
	}
}

// newPick returns nil where there would be too much to do.
func newPick(facts *kindFacts, branches []*node, left *automata) *pick {
	if !facts.g.afford(kinds * len(branches)) {
		return nil
	}
	p := &pick{names: map[string]*pickName{}, need: make([]int32, len(branches)), closed: make([]bool, len(branches))}
	for k := range kind(kinds) {
		for _, b := range branches {
			p.may[k] = append(p.may[k], facts.mayAccept(b, k))
		}
	}
	for i, b := range branches {
		if !p.branch(facts, int32(i), b) {
			return nil
		}
	}
	p.findIdle(facts, branches, left)
	p.findTexts(branches, left)
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
func (p *pick) branch(facts *kindFacts, i int32, b *node) bool {
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

func (p *pick) use(facts *kindFacts, i int32, name string, need *memberNeed) {
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

// findTexts prepares the patterns that branches have for strings.
func (p *pick) findTexts(branches []*node, left *automata) {
	var patterns []*pattern
	p.textNeed = make([]int32, len(branches))
	for i, b := range branches {
		for _, n := range conjuncts(b) {
			if n.strings != nil && n.strings.pattern != nil {
				patterns, p.textOf = append(patterns, n.strings.pattern), append(p.textOf, int32(i))
				p.textNeed[i]++
			}
		}
	}
	if len(patterns) >= minPickBranches {
		p.texts = left.makeAny(patterns)
	}
}

// textFaults is faultsOf for a string: the patterns that it does not match.
func (e *evaluator) textFaults(p *pick, v int32) []int32 {
	mark := len(e.rows)
	e.rows = append(e.rows, p.textNeed...)
	least, end := e.rows[mark:], len(e.rows)
	text := e.t.str(v)
	e.work += automatonWork + len(text) + len(least)/16
	e.rows = p.texts.appendMatches(e.rows, text)
	for _, i := range e.rows[end:] {
		least[p.textOf[i]]--
	}
	e.rows = e.rows[:end]
	return least
}

// faultsOf returns, by branch, how many faults an object has with each at least:
// names that are absent and required, or there and not allowed, and members of
// another type or value. It is below zero for branches that have no say about
// the object. It is nil where nothing is known. The list is valid until e.rows
// is cut. Of a string it counts patterns.
func (e *evaluator) faultsOf(p *pick, v int32) []int32 {
	val := &e.t.values[v]
	switch {
	case p != nil && val.kind == kindString && p.texts != nil:
		return e.textFaults(p, v)
	case p == nil || val.kind != kindObject:
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
		name := e.t.name(child)
		e.touch(p, least, name)
		n := p.names[string(name)]
		if n == nil {
			continue
		}
		e.work += len(n.uses) / 16
		k := e.t.values[child].kind
		for i := range n.uses {
			u := &n.uses[i]
			if least[u.branch] -= u.less; least[u.branch] < 0 {
				least[u.branch] = 0
			}
			if u.kinds&(1<<k) == 0 {
				least[u.branch]++
			}
		}
		if n.group == nil || k >= kindArray {
			continue
		}
		e.work += len(n.of) / 32
		for w, no := range e.masks(n.group, child).no {
			eachBit(w, no, func(i int) { least[n.of[i]]++ })
		}
	}
	return least
}

// pickFor returns the union's pick, where all branches are candidates.
func (u *union) pickFor(candidates []*node) *pick {
	if len(candidates) < len(u.branches) {
		return nil
	}
	return u.pick
}

// rulesOut reports whether a branch certainly does not match, given what
// faultsOf found.
func (p *pick) rulesOut(branch int, k kind, least []int32) bool {
	return p != nil && (!p.may[k][branch] || least != nil && least[branch] > 0)
}

// holds reports whether a branch matches without anything coming of it, given
// what faultsOf found.
func (p *pick) holds(branch int, k kind, least []int32) bool {
	return p != nil && p.idle[k][branch] && (k != kindObject || least != nil && least[branch] < 0)
}

// spares reports whether containers of a class never have a branch tried; of
// objects, but for members that it has a say about, unless parts are asked for.
func (p *pick) spares(branch int, cls class, parts bool) bool {
	switch {
	case p == nil || cls == classScalar:
		return false
	case cls == classArray:
		return !p.may[kindArray][branch] || p.idle[kindArray][branch]
	}
	return !p.may[kindObject][branch] || !parts && p.idle[kindObject][branch]
}
