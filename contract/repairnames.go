package contract

import "slices"

// wantsObject reports whether a schema says by type that a value is an object.
func (n *node) wantsObject(steps int) bool {
	for ; n != nil && steps > 0; n, steps = n.ref, steps-1 {
		if n.types == typeObject || slices.ContainsFunc(n.allOf, func(c *node) bool { return c.types == typeObject }) {
			return true
		}
	}
	return false
}

// hasName reports whether one of the schemas of a value knows a property of this
// name: by itself, as an alias, by a pattern, or by what it says about any
// property.
func hasName(schemas []*node, name string) bool {
	for _, n := range schemas {
		o := n.object
		switch {
		case n.unevalProps != nil && n.unevalProps.always == 0 && !n.unevalProps.trivial():
			return true
		case o == nil:
			continue
		case o.declares(name), o.aliased(name) != "":
			return true
		case o.hasAdditional && o.additional.always == 0 && !o.additional.trivial():
			return true
		}
	}
	return false
}

// declares reports whether the object has a property of this name, or a pattern
// for it.
func (o *objectRules) declares(name string) bool {
	_, declared := o.props[name]
	return declared || o.fitsPattern([]byte(name))
}

// aliased returns the property that a name is an alias of, or "".
func (o *objectRules) aliased(alias string) string {
	for _, name := range o.names {
		if o.props[name].hasAlias(alias) {
			return name
		}
	}
	return ""
}

func (n *node) hasAlias(name string) bool { return slices.Contains(n.aliases, name) }

// fitsPattern reports whether a pattern of the object matches a name.
func (o *objectRules) fitsPattern(name []byte) bool { return len(o.appendMatching(nil, name)) > 0 }

// appendMatching adds the patterns of the object that match a name.
func (o *objectRules) appendMatching(out []int32, name []byte) []int32 {
	if o.auto != nil {
		return o.auto.appendMatches(out, name)
	}
	for i := range o.patterns {
		if o.patterns[i].re.Match(name) {
			out = append(out, int32(i))
		}
	}
	return out
}

// patternWork is what matching a name of n bytes costs in units of work.
func (o *objectRules) patternWork(n int) int {
	if o.auto != nil {
		return automatonWork + n
	}
	sum := 0
	for i := range o.patterns {
		sum += o.patterns[i].re.work(n)
	}
	return sum
}

// spread adds to the schemas of a value all those that they apply, or may
// apply, to the same value, whatever holds and whatever fails.
func spread(schemas []*node) []*node {
	seen := make(map[*node]bool, len(schemas))
	var out []*node
	add := func(list ...*node) {
		for _, n := range list {
			if n != nil && !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	add(schemas...)
	for i := 0; i < len(out); i++ {
		add(inPlace(out[i])...)
	}
	return out
}

// inPlace lists the schemas that a schema applies, or may apply, to the same
// value.
func inPlace(n *node) []*node {
	var out []*node
	for _, c := range [...]*node{n.ref, n.recRef, n.dynRef, n.not, n.ifs, n.then, n.otherwise} {
		if c != nil {
			out = append(out, c)
		}
	}
	out = append(append(out, n.mayBe...), n.allOf...)
	for _, u := range [...]*union{n.anyOf, n.oneOf} {
		if u != nil {
			out = append(out, u.branches...)
		}
	}
	if n.object != nil {
		for k := range n.object.dependencies {
			if d := n.object.dependencies[k].node; d != nil {
				out = append(out, d)
			}
		}
	}
	return out
}
