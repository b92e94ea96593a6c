package contract

import (
	"fmt"
	"slices"
)

// MaxVisits is the ceiling of a contract's cost: how many of its schemas one
// value of a payload may meet. A contract above it is refused.
const MaxVisits = 256

// maxCostSteps bounds the work of finding the cost.
const maxCostSteps = 20_000_000

// patternCost is what matching a name against a pattern counts among the
// steps.
const patternCost = 50

// class groups the kinds of value that the cost tells apart.
type class uint8

const (
	classScalar class = iota
	classArray
	classObject
)

// coster finds the worst number of schemas that one value meets. It follows
// the schemas level by level into the payload: what a value at one level meets
// says what its children meet. Type keywords and discriminators are honoured,
// since they end a visit before it spreads.
type coster struct {
	p     *program
	steps int
	// prices is set where work is summed up rather than schemas, for dear.
	prices *prices
	// worst is the greatest number so far, and of where its schemas meet.
	worst int
	at    *node
	memo  [3][]int // visits, by class and node
	// done holds the steps of one level that were worked out already, of
	// schemas that spread far.
	done map[stepMemo]int
}

type stepMemo struct {
	id  int
	key stepKey
}

// spreadsFar is how many visits make a step worth keeping.
const spreadsFar = 8

const saturated = 1 << 40

func add(a, b int) int { return min(a+b, saturated) }

func newCoster(p *program) *coster {
	c := &coster{p: p, done: map[stepMemo]int{}}
	for i := range c.memo {
		c.memo[i] = make([]int, len(p.nodes))
	}
	return c
}

func (c *coster) note(n *node, visits int) {
	if c.prices != nil {
		return
	}
	if visits > c.worst {
		c.worst, c.at = visits, n
	}
}

// bound refuses a program whose cost is above the ceiling.
func (p *program) bound(depth int, hooks *compileHooks, rsn *reasons) {
	ceiling := MaxVisits
	if hooks.maxCost > 0 {
		ceiling = hooks.maxCost
	}
	c := newCoster(p)
	entries := p.entries()
	level := make([]int, len(p.nodes))
	defer func() { p.cost = c.worst }()
	for _, e := range entries {
		level[e.id] = max(c.visits(e, classScalar), c.visits(e, classArray), c.visits(e, classObject))
		if level[e.id] > ceiling {
			rsn.add(e.at, "one value meets %s schemas here, more than %d: nest less under allOf, anyOf and oneOf", countWords(level[e.id]), ceiling)
			return
		}
		c.note(e, level[e.id])
	}
	c.levels(entries, level, depth, ceiling, rsn)
}

// levels goes down into the payload until nothing changes any more, or a value
// meets too many schemas.
func (c *coster) levels(entries []*node, level []int, depth, ceiling int, rsn *reasons) {
	keys := map[*node][]stepKey{}
	for _, e := range entries {
		if t := e.target(); keys[t] == nil {
			keys[t] = c.stepKeys(t)
		}
	}
	for d := 1; d <= depth; d++ {
		next := make([]int, len(c.p.nodes))
		found := map[*node]int{}
		clear(c.done)
		for _, e := range entries {
			t := e.target()
			worst, ok := found[t]
			for _, k := range keys[t] {
				if ok {
					break
				}
				cls := classObject
				if k.item {
					cls = classArray
				}
				sum := c.step(t, cls, k, level)
				if worst = max(worst, sum); c.prices != nil {
					c.prices.note(e, sum, k.bytes())
				}
			}
			found[t] = worst
			if c.steps > maxCostSteps {
				rsn.add("", "the contract is too complex to bound its cost: nest less under allOf, anyOf and oneOf")
				return
			}
			if worst > ceiling {
				rsn.add(e.at, "one value %d levels below meets %s schemas, more than %d: branches of anyOf and oneOf that lead back here need a property that tells them apart (required, with const)", d, countWords(worst), ceiling)
				return
			}
			next[e.id] = worst
			c.note(e, worst)
		}
		if slices.Equal(next, level) { // it is so at every level below
			return
		}
		level = next
	}
}

// target follows a schema that is a reference and nothing else.
func (n *node) target() *node {
	for range 16 {
		if n.ref == nil || n.draft >= 2019 && !n.onlyRef() {
			return n
		}
		n = n.ref
	}
	return n
}

// onlyRef reports whether a schema is a reference and nothing else.
func (n *node) onlyRef() bool {
	m := *n
	m.ref = nil
	return m.trivial()
}

func countWords(n int) string {
	if n >= 1_000_000 {
		return "over a million"
	}
	return fmt.Sprint(n)
}

// entries returns the root and every schema that is applied to a part of a
// value.
func (p *program) entries() []*node {
	seen := make([]bool, len(p.nodes))
	out := []*node{p.root}
	seen[p.root.id] = true
	for _, n := range p.nodes {
		p.partValue(n, func(c *node) {
			if !seen[c.id] {
				seen[c.id] = true
				out = append(out, c)
			}
		})
	}
	return out
}

// partValue calls fn for every schema that a visit of n applies to a part of
// the value.
func (p *program) partValue(n *node, fn func(*node)) {
	each := func(c *node) {
		if c != nil {
			fn(c)
		}
	}
	if o := n.object; o != nil {
		for _, name := range o.names {
			each(o.props[name])
		}
		for _, r := range o.patterns {
			each(r.node)
		}
		each(o.additional)
		each(o.propertyNames)
	}
	if a := n.array; a != nil {
		for _, c := range a.prefix {
			each(c)
		}
		each(a.rest)
		each(a.contains)
	}
	each(n.unevalProps)
	each(n.unevalItems)
}

func admitsClass(n *node, cls class) bool {
	if n.always != 0 {
		return false
	}
	switch {
	case n.types == 0:
		return true
	case cls == classObject:
		return n.types&typeObject != 0
	case cls == classArray:
		return n.types&typeArray != 0
	}
	return n.types&^(typeObject|typeArray) != 0
}

// spread calls fn for every schema that n applies to the same value, and
// returns the sum of what it returns; of branches told apart by a
// discriminator, the greatest counts. Of schemas that have no say but about
// members, parts says whether those count.
func (c *coster) spread(n *node, cls class, parts bool, fn func(*node) int) int {
	sum := 0
	row := func(p *pick, branches []*node, disc *discriminator) {
		worst := 0
		for i, b := range branches {
			if c.prices != nil && p.spares(i, cls, parts) {
				continue
			}
			v := fn(b)
			if worst = max(worst, v); disc == nil || cls != classObject {
				sum = add(sum, v)
			}
		}
		if disc != nil && cls == classObject {
			sum = add(sum, worst)
		}
	}
	for _, u := range []*union{n.anyOf, n.oneOf} {
		if u != nil {
			row(u.pick, u.branches, u.disc)
		}
	}
	row(n.all, n.allOf, nil)
	for _, targets := range [][]*node{c.p.recursiveTargets(n), c.p.dynamicTargets(n)} {
		worst := 0
		for _, t := range targets { // a dynamic reference goes one way at a time
			worst = max(worst, fn(t))
		}
		sum = add(sum, worst)
	}
	named := 0
	c.p.sameValue(n, func(keyword string, child *node) {
		switch keyword {
		case "anyOf", "oneOf", "allOf", "$recursiveRef", "$dynamicRef":
		case "dependencies", "dependentSchemas":
			if v := fn(child); c.prices == nil {
				sum = add(sum, v)
			} else {
				named = max(named, v) // each other one takes another member
			}
		default:
			sum = add(sum, fn(child))
		}
	})
	return add(sum, named)
}

// visits counts the schemas that n applies to one value, itself included.
func (c *coster) visits(n *node, cls class) int {
	if v := c.memo[cls][n.id]; v > 0 {
		return v
	}
	v := 1
	switch {
	case c.prices != nil && cls == classScalar && n.classes.decide():
	case admitsClass(n, cls):
		if c.prices != nil {
			v = n.price(cls)
		}
		v = add(v, c.spread(n, cls, false, func(child *node) int { return c.visits(child, cls) }))
	}
	c.memo[cls][n.id] = v
	return v
}

// stepKey is a step from a value to one of its parts: to a named property, to
// any other one, to an item at an index or behind all prefixes.
type stepKey struct {
	name  string
	other bool
	item  bool
	index int
}

// stepKeys returns the steps that the schemas at one value tell apart.
func (c *coster) stepKeys(e *node) []stepKey {
	seen := map[*node]bool{}
	names := map[string]bool{}
	prefix, object, array := 0, false, false
	var walk func(n *node)
	walk = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		if o := n.object; o != nil {
			object = true
			c.steps += len(o.names)
			for _, name := range o.names {
				names[name] = true
			}
		}
		if a := n.array; a != nil {
			array = true
			prefix = max(prefix, len(a.prefix))
		}
		object = object || n.unevalProps != nil
		array = array || n.unevalItems != nil
		c.p.sameValue(n, func(_ string, child *node) { walk(child) })
	}
	walk(e)
	var keys []stepKey
	for _, name := range sortedKeys(names) {
		keys = append(keys, stepKey{name: name})
	}
	if object {
		keys = append(keys, stepKey{other: true})
	}
	if array {
		for i := range prefix + 1 {
			keys = append(keys, stepKey{item: true, index: i})
		}
	}
	return keys
}

// step sums what the parts behind one step meet, given what each schema leads
// to one level less deep.
func (c *coster) step(n *node, cls class, k stepKey, level []int) int {
	if c.steps++; c.steps > maxCostSteps || !admitsClass(n, cls) {
		return 0
	}
	if c.visits(n, cls) < spreadsFar {
		return c.stepOnce(n, cls, k, level)
	}
	memo := stepMemo{n.id, k}
	v, ok := c.done[memo]
	if !ok {
		v = c.stepOnce(n, cls, k, level)
		c.done[memo] = v
	}
	return v
}

func (c *coster) stepOnce(n *node, cls class, k stepKey, level []int) int {
	sum := c.spread(n, cls, true, func(child *node) int { return c.step(child, cls, k, level) })
	at := func(child *node) {
		if child != nil {
			sum = add(sum, level[child.id])
		}
	}
	if k.item {
		if a := n.array; a != nil {
			if k.index < len(a.prefix) {
				at(a.prefix[k.index])
			} else {
				at(a.rest)
			}
			at(a.contains)
		}
		at(n.unevalItems)
		return sum
	}
	known := false
	if o := n.object; o != nil {
		if !k.other {
			if child, ok := o.props[k.name]; ok {
				known = true
				at(child)
			}
		}
		for _, r := range o.patterns {
			if c.steps += patternCost; k.other || r.re.MatchString(k.name) {
				known = known || !k.other
				at(r.node)
			}
		}
		if !known {
			at(o.additional)
		}
		at(o.propertyNames)
	}
	if !known {
		at(n.unevalProps)
	}
	return sum
}
