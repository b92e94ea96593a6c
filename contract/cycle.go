package contract

// sameValue calls fn for every schema that a visit of n applies to the same
// value, with the keyword that leads there. Where a dynamic reference may be
// rebound, every schema that it could reach is named.
func (p *program) sameValue(n *node, fn func(keyword string, child *node)) {
	each := func(keyword string, child *node) {
		if child != nil {
			fn(keyword, child)
		}
	}
	each("$ref", n.ref)
	for _, t := range p.recursiveTargets(n) {
		each("$recursiveRef", t)
	}
	for _, t := range p.dynamicTargets(n) {
		each("$dynamicRef", t)
	}
	for _, c := range n.allOf {
		each("allOf", c)
	}
	for _, u := range []struct {
		keyword string
		union   *union
	}{{"anyOf", n.anyOf}, {"oneOf", n.oneOf}} {
		if u.union != nil {
			for _, c := range u.union.branches {
				each(u.keyword, c)
			}
		}
	}
	each("not", n.not)
	each("if", n.ifs)
	each("then", n.then)
	each("else", n.otherwise)
	if n.object != nil {
		for _, d := range n.object.dependencies {
			each(d.keyword, d.node)
		}
	}
}

// anchors returns the schemas that a dynamic reference by name can reach.
func (p *program) anchors(name string) []*node {
	var out []*node
	seen := map[*resource]bool{}
	for _, n := range p.nodes {
		if n.res != nil && !seen[n.res] {
			seen[n.res] = true
			if t := n.res.anchors[name]; t != nil {
				out = append(out, t)
			}
		}
	}
	return out
}

func (p *program) dynamicTargets(n *node) []*node {
	if n.dynRef == nil {
		return nil
	}
	if n.dynName == "" {
		return []*node{n.dynRef}
	}
	if p.byAnchor == nil {
		p.byAnchor = map[string][]*node{}
	}
	targets, ok := p.byAnchor[n.dynName]
	if !ok {
		targets = p.anchors(n.dynName)
		p.byAnchor[n.dynName] = targets
	}
	return targets
}

func (p *program) recursiveTargets(n *node) []*node {
	if n.recRef == nil {
		return nil
	}
	if n.recRef.res == nil || !n.recRef.res.recursiveAnchor {
		return []*node{n.recRef}
	}
	if p.recursive == nil {
		seen := map[*resource]bool{}
		for _, m := range p.nodes {
			if m.res != nil && m.res.recursiveAnchor && !seen[m.res] {
				seen[m.res] = true
				p.recursive = append(p.recursive, m.res.root)
			}
		}
	}
	return p.recursive
}

// maxChain bounds how many schemas may apply to one value one inside the
// other, since every one of them takes a piece of the stack.
const maxChain = 256

// findCycles refuses schemas that apply themselves to the same value again
// without a step into the value: no payload could ever be decided.
func (p *program) findCycles(rsn *reasons) {
	const (
		fresh = iota
		open
		done
	)
	state := make([]uint8, len(p.nodes))
	height := make([]int, len(p.nodes))
	type frame struct {
		n        *node
		children []*node
	}
	for _, start := range p.nodes {
		if state[start.id] != fresh {
			continue
		}
		stack := []frame{{start, p.children(start)}}
		state[start.id] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.children) == 0 {
				state[top.n.id] = done
				n := top.n
				stack = stack[:len(stack)-1]
				if len(stack) > 0 {
					up := stack[len(stack)-1].n.id
					height[up] = max(height[up], height[n.id]+1)
				}
				continue
			}
			c := top.children[0]
			top.children = top.children[1:]
			switch state[c.id] {
			case open:
				rsn.add(c.at, "the schema applies itself to the same value again, over %s: no payload could be decided; refer to it from properties or items", placeWords(top.n.at))
				return
			case done:
				height[top.n.id] = max(height[top.n.id], height[c.id]+1)
			default:
				state[c.id] = open
				stack = append(stack, frame{c, p.children(c)})
			}
		}
		if height[start.id] > maxChain {
			rsn.add(start.at, "%d schemas apply one inside the other to one value, more than %d", height[start.id], maxChain)
			return
		}
	}
}

func (p *program) children(n *node) []*node {
	var out []*node
	p.sameValue(n, func(_ string, c *node) { out = append(out, c) })
	return out
}

func placeWords(ptr string) string {
	if ptr == "" {
		return "the root"
	}
	return clip(ptr, 200)
}
