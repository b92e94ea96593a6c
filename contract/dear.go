package contract

import "fmt"

// What a contract costs at worst, as far as it can be told: a unit of work
// takes so many nanoseconds, and a value at least so many bytes of a payload,
// what parts it from the next one included.
const (
	unitNanos      = 30
	smallestScalar = 2
	smallestParts  = 3 // an array or an object
	smallestMember = 5 // beside its name
	pricedBytes    = 10_000
	// dearMicros is from which time for 10 KB on a contract is warned of.
	dearMicros = 1000
)

// Prices of what a visit of a schema may have to do, in units.
const (
	priceFormat   = 4
	priceRegex    = 60
	priceMultiple = 2
	priceMatch    = 5 // of a pattern that has no automaton; and so much by its width
	priceWidth    = 4
)

// prices is the greatest work for the bytes that it takes.
type prices struct {
	units, bytes int
	at           *node
}

func (p *prices) note(n *node, units, bytes int) {
	if p.at == nil || units*p.bytes > p.units*bytes {
		*p = prices{units, bytes, n}
	}
}

// micros is what the bytes of 10 KB take.
func (p *prices) micros() int { return p.units * unitNanos * (pricedBytes / p.bytes) / 1000 }

// bytes returns how many bytes the value behind a step takes at least.
func (k stepKey) bytes() int {
	switch {
	case k.item:
		return smallestScalar
	case k.other:
		return 1 + smallestMember
	}
	return len(k.name) + smallestMember
}

// price is what one visit of the schema takes, without the schemas that it
// applies.
func (n *node) price(cls class) int {
	units := 1
	switch cls {
	case classScalar:
		if n.format != nil {
			units += priceFormat
			if n.format.name == "regex" {
				units += priceRegex
			}
		}
		if n.strings != nil && n.strings.pattern != nil {
			units += n.strings.pattern.price()
		}
		if n.numbers != nil && n.numbers.multiple != nil {
			units += priceMultiple
		}
	case classObject:
		if n.object != nil && n.object.auto == nil {
			for i := range n.object.patterns {
				units += n.object.patterns[i].re.price()
			}
		}
	case classArray:
	}
	return units
}

func (p *pattern) price() int {
	if p.row.simple || p.auto != nil {
		return 0
	}
	return priceMatch + p.width/priceWidth
}

// priced finds the dearest small value of a contract.
func (p *program) priced(depth int) *prices {
	c := newCoster(p)
	c.prices = &prices{bytes: 1}
	entries := p.entries()
	level := make([]int, len(p.nodes))
	least := p.leastBytes()
	for _, e := range entries {
		scalar, array, object := c.visits(e, classScalar), c.visits(e, classArray), c.visits(e, classObject)
		level[e.id] = max(scalar, array, object)
		c.prices.note(e, scalar, max(least[e.id], smallestScalar))
		c.prices.note(e, max(array, object), max(least[e.id], smallestParts))
	}
	c.levels(entries, level, depth, saturated, &reasons{})
	return c.prices
}

// dear warns of a contract under which small values cost much time.
func (p *program) dear(depth int) []Warning {
	worst := p.priced(depth)
	micros := worst.micros()
	if micros <= dearMicros {
		return nil
	}
	return []Warning{{
		Code: WarnDear, At: worst.at.at,
		Detail: fmt.Sprintf("10 KB of the smallest values take about %d ms to check at worst: one value takes the work of %d schemas here; "+
			"branches that a required property tells apart (const), or types, cost one each", (micros+500)/1000, worst.units),
	}}
}

// leastBytes returns, by schema, how many bytes of a payload a value that the
// schema is applied to takes at least, by where it stands: the root takes all.
func (p *program) leastBytes() []int {
	least := make([]int, len(p.nodes))
	note := func(n *node, bytes int) {
		if n != nil && (least[n.id] == 0 || bytes < least[n.id]) {
			least[n.id] = bytes
		}
	}
	least[p.root.id] = pricedBytes
	for _, n := range p.nodes {
		if o := n.object; o != nil {
			for _, name := range o.names {
				note(o.props[name], len(name)+smallestMember)
			}
			for i := range o.patterns {
				note(o.patterns[i].node, 1+smallestMember)
			}
			note(o.additional, 1+smallestMember)
			note(o.propertyNames, 1+smallestMember)
		}
		if a := n.array; a != nil {
			for _, x := range a.prefix {
				note(x, smallestParts)
			}
			note(a.rest, smallestScalar)
			note(a.contains, smallestScalar)
		}
		note(n.unevalProps, 1+smallestMember)
		note(n.unevalItems, smallestScalar)
	}
	return least
}
