package contract

import (
	"maps"
	"math"
	"slices"
	"strings"
)

func (c *fastCompiler) object(set, all schemaSet) int32 {
	if after, ok := c.wholeObject(set, all); ok {
		return c.addObject(fastObject{words: 1, maxProps: math.MaxInt, other: 0, after: after})
	}
	if choice := c.choice(all); choice != nil {
		return c.addObject(fastObject{choice: choice})
	}
	o := fastObject{words: 1, maxProps: math.MaxInt}
	for _, n := range all.nodes() {
		if r := n.object; r != nil && !n.refOnly() {
			o.minProps = max(o.minProps, r.minProps)
			if r.maxProps >= 0 {
				o.maxProps = min(o.maxProps, r.maxProps)
			}
			if r.propertyNames != nil {
				if v := c.value(setOf(r.propertyNames)); v != 0 {
					o.nameRules = append(o.nameRules, v)
				}
			}
		}
	}
	places := c.places(all)
	names := places.names()
	if !c.grow(len(names)) {
		return never
	}
	o.names = newNameTable(names)
	o.words = max(1, (len(names)+63)/64)
	for i, name := range names {
		o.names.keys[i].child = c.value(places.child(name))
	}
	index := make(map[string]int32, len(names))
	for i, name := range names {
		index[name] = int32(i)
	}
	places.requirements(&o, index)
	c.undeclared(&o, places)
	o.after = newAfter(c.tests(all))
	c.needs(&o, all, index)
	if o.plain() {
		return free
	}
	return c.addObject(o)
}

// undeclared compiles what members must satisfy whose names no schema mentions.
func (c *fastCompiler) undeclared(o *fastObject, places *objectPlaces) {
	if len(places.patterns) == 0 {
		o.other = c.value(places.undeclared(nil))
		return
	}
	if o.auto = c.automaton(places.patterns); o.auto != nil {
		for _, set := range o.auto.sets {
			o.others = append(o.others, c.value(places.undeclared(set)))
		}
		o.other = o.others[0]
		return
	}
	for _, p := range places.patterns {
		o.patterns = append(o.patterns, p.row)
	}
	for mask := range 1 << len(places.patterns) {
		var set []int32
		for i := range places.patterns {
			if mask&(1<<i) != 0 {
				set = append(set, int32(i))
			}
		}
		o.others = append(o.others, c.value(places.undeclared(set)))
	}
	o.other = o.others[0]
}

// automaton returns the automaton of the patterns of one object, nil if there
// is none or if names could match them in too many ways.
func (c *fastCompiler) automaton(patterns []*pattern) *automaton {
	var key strings.Builder
	for _, p := range patterns {
		key.WriteString(p.String())
		key.WriteByte(0)
	}
	a, have := c.autos[key.String()]
	if !have {
		if a = c.left.make(patterns, false); a != nil && len(a.sets) > maxFastSets {
			a = nil
		}
		c.autos[key.String()] = a
	}
	return a
}

// plain reports whether an object demands nothing.
func (o *fastObject) plain() bool {
	return len(o.names.keys) == 0 && o.other == 0 && o.others == nil && o.minProps <= 0 && o.maxProps == math.MaxInt &&
		o.nameRules == nil && o.deps == nil && !o.after.any
}

func (c *fastCompiler) addObject(o fastObject) int32 {
	c.p.objects = append(c.p.objects, o)
	return int32(len(c.p.objects) - 1)
}

// wholeObject hands objects over that the pass cannot decide.
func (c *fastCompiler) wholeObject(set, all schemaSet) (fastAfter, bool) {
	for _, n := range all.nodes() {
		if n.konst != nil || n.enum != nil {
			return c.handOver(set, n, "const or enum of objects"), true
		}
		if n.unevalProps != nil && !n.refOnly() && !c.evaluatedByAll(n, kindObject) {
			return c.handOver(set, n, "unevaluatedProperties over branches"), true
		}
		if c.closing && !settledButDiscriminated(n, all[n]) {
			return c.handOver(set, n, "closed objects over branches"), true
		}
	}
	if patterns := patternsOf(all.nodes()); len(patterns) > maxFastPatterns && c.automaton(patterns) == nil {
		for _, n := range all.nodes() {
			if n.object != nil && len(n.object.patterns) > 0 && !n.refOnly() {
				return c.handOver(set, n, "many patternProperties"), true
			}
		}
	}
	return fastAfter{}, false
}

// settledButDiscriminated is settled, where a union with a discriminator counts
// as settled too: its branch is chosen before the pass. A not declares nothing,
// but its schema would have to be compiled open.
func settledButDiscriminated(n *node, flag setFlag) bool {
	if n.anyOf != nil && n.anyOf.disc != nil {
		flag |= didAnyOf
	}
	if n.oneOf != nil && n.oneOf.disc != nil {
		flag |= didOneOf
	}
	return settled(n, flag)
}

// evaluatedByAll reports whether what n leaves unevaluated of a value does not
// depend on the value: no branch has a say.
func (c *fastCompiler) evaluatedByAll(n *node, k kind) bool {
	all, ok := c.expand(setOf(n), k)
	if !ok {
		return true
	}
	for m, flag := range all {
		if !settled(m, flag|didNot) || m.refOnly() {
			return false
		}
		if k == kindArray && m.array != nil && m.array.contains != nil && m.draft >= 2020 {
			return false
		}
	}
	return true
}

// choice returns the choice by the first union with a discriminator.
func (c *fastCompiler) choice(all schemaSet) *fastChoice {
	for _, n := range all.nodes() {
		for _, u := range []struct {
			union *union
			did   setFlag
		}{{n.anyOf, didAnyOf}, {n.oneOf, didOneOf}} {
			if all[n]&u.did != 0 || u.union.disc == nil {
				continue
			}
			return c.choiceOf(all, n, u.did, u.union)
		}
	}
	return nil
}

func (c *fastCompiler) choiceOf(all schemaSet, n *node, did setFlag, u *union) *fastChoice {
	branches := make([]int32, len(u.branches))
	for i, b := range u.branches {
		next := maps.Clone(all)
		next[n] |= did
		if _, have := next[b]; !have {
			next[b] = 0
		}
		branches[i] = c.value(next)
	}
	ch := &fastChoice{name: []byte(u.disc.name), others: map[string]int32{}}
	var names []string
	for _, key := range sortedKeys(u.disc.byKey) {
		v := branches[u.disc.byKey[key]]
		if key[0] == 's' {
			names = append(names, key[1:])
			ch.values = append(ch.values, v)
		} else {
			ch.others[key] = v
		}
	}
	ch.strings = newNameTable(names)
	return ch
}

// objectPlaces says which schemas apply to which members of an object.
type objectPlaces struct {
	c        *fastCompiler
	all      schemaSet
	nodes    []*node
	patterns []*pattern
	// closures lists, for a schema with unevaluatedProperties, the schemas
	// whose evaluation it sees.
	closures map[*node][]*node
}

func (c *fastCompiler) places(all schemaSet) *objectPlaces {
	p := &objectPlaces{c: c, all: all, nodes: all.nodes(), closures: map[*node][]*node{}}
	p.patterns = patternsOf(p.nodes)
	for _, n := range p.nodes {
		if n.refOnly() {
			continue
		}
		if n.unevalProps != nil {
			if closure, ok := c.expand(setOf(n), kindObject); ok {
				p.closures[n] = closure.nodes()
			}
		}
	}
	return p
}

// patternsOf lists the patterns that schemas have for names, each once.
func patternsOf(nodes []*node) []*pattern {
	var out []*pattern
	seen := map[string]bool{}
	for _, n := range nodes {
		if n.object == nil || n.refOnly() {
			continue
		}
		for _, r := range n.object.patterns {
			if !seen[r.re.String()] {
				seen[r.re.String()] = true
				out = append(out, r.re)
			}
		}
	}
	return out
}

// names returns every name that some schema mentions.
func (p *objectPlaces) names() []string {
	set := map[string]bool{}
	for _, n := range p.nodes {
		if n.object == nil || n.refOnly() {
			continue
		}
		for _, name := range n.object.names {
			set[name] = true
		}
		for _, name := range n.object.required {
			set[name] = true
		}
		for i := range n.object.dependencies {
			d := &n.object.dependencies[i]
			set[d.name] = true
			for _, name := range d.required {
				set[name] = true
			}
		}
	}
	for _, branches := range testNodes(p.all) {
		for _, b := range branches {
			names, _ := p.c.branchNeeds(b)
			for _, name := range names {
				set[name] = true
			}
		}
	}
	return sortedKeys(set)
}

// child returns what applies to the member with a name.
func (p *objectPlaces) child(name string) schemaSet {
	return p.member(name, true, func(re *pattern) bool { return re.MatchString(name) })
}

// undeclared returns what applies to a member with a name that no schema
// mentions, given the patterns that it matches.
func (p *objectPlaces) undeclared(set []int32) schemaSet {
	p.c.spend(len(p.patterns) / 8)
	matched := make(map[string]bool, len(set))
	for _, i := range set {
		matched[p.patterns[i].String()] = true
	}
	return p.member("", false, func(re *pattern) bool { return matched[re.String()] })
}

func (p *objectPlaces) member(name string, named bool, matches func(*pattern) bool) schemaSet {
	out, declared := schemaSet{}, false
	p.c.spend(len(p.nodes))
	for _, n := range p.nodes {
		if n.refOnly() {
			continue
		}
		if n.object != nil {
			for _, s := range n.object.applied(name, named, matches) {
				out[s.node] = 0
				declared = declared || s.declares
			}
		}
		if n.unevalProps == nil {
			continue
		}
		seen := slices.ContainsFunc(p.closures[n], func(m *node) bool {
			return m != n && m.unevalProps != nil || m.object != nil && len(m.object.applied(name, named, matches)) > 0
		})
		if !seen {
			out[n.unevalProps] = 0
			declared = declared || !n.unevalProps.trivial()
		}
	}
	if p.c.closing && !declared {
		return setOf(p.c.never())
	}
	return out
}

// never returns a schema that nothing satisfies.
func (c *fastCompiler) never() *node { return &node{always: -1} }

type appliedSchema struct {
	node     *node
	declares bool
}

// applied returns what the rules of an object apply to one member.
func (o *objectRules) applied(name string, named bool, matches func(*pattern) bool) []appliedSchema {
	var out []appliedSchema
	if named {
		if sub, ok := o.props[name]; ok {
			out = append(out, appliedSchema{sub, true})
		}
	}
	for _, r := range o.patterns {
		if matches(r.re) {
			out = append(out, appliedSchema{r.node, true})
		}
	}
	if len(out) == 0 && o.hasAdditional {
		out = append(out, appliedSchema{o.additional, !o.additional.trivial()})
	}
	return out
}

// requirements fills in which names an object must have.
func (p *objectPlaces) requirements(o *fastObject, index map[string]int32) {
	for _, n := range p.nodes {
		if n.object == nil || n.refOnly() {
			continue
		}
		for _, name := range n.object.required {
			if o.required == nil {
				o.required = make([]uint64, o.words)
			}
			i := index[name]
			o.required[i>>6] |= 1 << (i & 63)
		}
		for i := range n.object.dependencies {
			d := &n.object.dependencies[i]
			dep := fastDependency{name: index[d.name], value: -1}
			for _, name := range d.required {
				dep.required = append(dep.required, index[name])
			}
			if d.node != nil {
				dep.value = p.c.value(setOf(d.node))
			}
			o.deps = append(o.deps, dep)
		}
	}
}
