package contract

// discriminator chooses the one branch of a union that an object can match,
// by a property that every branch requires with values of its own.
type discriminator struct {
	name  string
	byKey map[string]int // scalarKey → branch
	lazy  lazyWanted
}

// discSearch bounds the schemas looked at for one branch.
const discSearch = 64

// detectDiscriminators finds the discriminators of all unions.
func (p *program) detectDiscriminators() {
	for _, n := range p.nodes {
		for _, u := range []*union{n.anyOf, n.oneOf} {
			if u != nil && len(u.branches) > 1 {
				u.disc = findDiscriminator(u.branches)
			}
		}
	}
}

func findDiscriminator(branches []*node) *discriminator {
	facts := make([]branchFacts, len(branches))
	for i, b := range branches {
		facts[i] = branchFacts{required: map[string]bool{}, values: map[string][]string{}}
		facts[i].collect(b, new(int))
	}
	for _, name := range sortedKeys(facts[0].values) {
		d := &discriminator{name: name, byKey: map[string]int{}}
		if d.fill(facts) {
			return d
		}
	}
	return nil
}

func (d *discriminator) fill(facts []branchFacts) bool {
	for i, f := range facts {
		values, ok := f.values[d.name]
		if !ok || !f.required[d.name] {
			return false
		}
		for _, v := range values {
			if other, taken := d.byKey[v]; taken && other != i {
				return false
			}
			d.byKey[v] = i
		}
	}
	return true
}

// branchFacts is what every object that passes a branch must have.
type branchFacts struct {
	required map[string]bool
	values   map[string][]string // scalarKeys that a property may have
}

func (f *branchFacts) collect(n *node, steps *int) {
	if *steps++; *steps > discSearch || n == nil || n.always != 0 {
		return
	}
	f.collect(n.ref, steps)
	for _, c := range n.allOf {
		f.collect(c, steps)
	}
	if n.object == nil {
		return
	}
	for _, name := range n.object.required {
		f.required[name] = true
	}
	for _, name := range n.object.names {
		if keys := fixedValues(n.object.props[name], 8); keys != nil {
			if _, have := f.values[name]; !have {
				f.values[name] = keys
			}
		}
	}
}

// fixedValues returns the scalarKeys that a schema allows, or nil when it does
// not list scalars alone.
func fixedValues(n *node, steps int) []string {
	for ; n != nil && steps > 0; n, steps = n.ref, steps-1 {
		if n.konst != nil {
			if key, ok := scalarKey(n.konst.value); ok {
				return []string{key}
			}
			return nil
		}
		if n.enum != nil {
			if n.enum.composite {
				return nil
			}
			return sortedKeys(n.enum.scalars)
		}
	}
	return nil
}
