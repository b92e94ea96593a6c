package compat

import "slices"

// object compares the keywords of objects.
func (c *comparison) object(w *writer, r *node) []Difference {
	var ds []Difference
	for _, name := range w.names(r) {
		ds = append(ds, c.property(w, r, name)...)
	}
	ds = append(ds, c.patternProperties(w, r)...)
	ds = append(ds, c.additional(w, r)...)
	ds = append(ds, c.required(w, r)...)
	ds = append(ds, c.dependencies(w, r)...)
	closed, names := w.closed()
	most := unbounded
	if closed {
		most = len(names)
	}
	ds = append(ds, c.atMost(c.rules.maxProperties, w, r, "maxProperties", most)...)
	ds = append(ds, c.atLeast(c.rules.minProperties, w, r, "minProperties", len(w.required()))...)
	if n := r.child("propertyNames"); n != nil && !c.named(w, n, closed, names) {
		ds = append(ds, c.differ(c.rules.propertyNames, w, r, "propertyNames", "")...)
	}
	if n := r.child("unevaluatedProperties"); n != nil {
		ds = append(ds, c.unevaluated(w, r, n)...)
	}
	return ds
}

// names returns the names that the writer or the reader declares, in order.
func (w *writer) names(r *node) []string {
	all := map[string]bool{}
	for _, n := range append(slices.Clone(w.parts), r) {
		props, _ := n.keys["properties"].(map[string]any)
		w.c.spend(len(props))
		for k := range props {
			all[k] = true
		}
	}
	return sortedKeys(all)
}

// closed reports whether the writer writes declared names alone, and which.
func (w *writer) closed() (bool, []string) {
	for _, p := range w.parts {
		if a := p.child("additionalProperties"); a == nil || !a.no {
			continue
		}
		if pats, _ := p.keys["patternProperties"].(map[string]any); len(pats) > 0 {
			continue
		}
		props, _ := p.keys["properties"].(map[string]any)
		return true, sortedKeys(props)
	}
	return false, nil
}

// binding says how one schema binds the value of a name.
type binding struct {
	nodes    []*node // all of them
	declared bool    // by properties or patternProperties
	refused  bool    // undeclared, in a closed model
}

// binds returns how a schema binds a name.
func (c *comparison) binds(n *node, name string) binding {
	var b binding
	if p := n.child("properties", name); p != nil {
		b.nodes, b.declared = append(b.nodes, p), true
	}
	pats, _ := n.keys["patternProperties"].(map[string]any)
	unsure := false
	for _, expr := range sortedKeys(pats) {
		match, known := c.matches(expr, name)
		unsure = unsure || !known
		if p := n.child("patternProperties", expr); match && p != nil {
			b.nodes, b.declared = append(b.nodes, p), true
		}
	}
	if a := n.child("additionalProperties"); a != nil && !b.declared && !unsure {
		b.refused = a.no
		b.nodes = append(b.nodes, a)
	}
	return b
}

// property compares what may be written under one name.
func (c *comparison) property(w *writer, r *node, name string) []Difference {
	var have []*node
	declared := false
	for _, p := range w.parts {
		b := c.binds(p, name)
		have = append(have, b.nodes...)
		declared = declared || b.declared
	}
	value := c.writer(have...)
	if value.types() == 0 {
		return nil // it is never written
	}
	want := c.binds(r, name)
	if want.refused {
		if declared {
			return c.differ(c.rules.closedRemoved, w, r, "additionalProperties", "It is about "+clip(name)+".")
		}
		return nil // the rest is compared apart
	}
	if !declared && !want.declared {
		return nil
	}
	var ds []Difference
	for _, n := range want.nodes {
		found := c.covers(value, n)
		if len(found) > 0 && len(value.parts) == 0 && !declared {
			found = c.differ(c.rules.openAdded, w, n, "", "It is about "+clip(name)+".")
		}
		ds = append(ds, found...)
	}
	return ds
}

// rest returns what may be written under names that nothing declares.
func (w *writer) rest() *writer {
	var have []*node
	for _, p := range w.parts {
		if a := p.child("additionalProperties"); a != nil {
			have = append(have, a)
		}
	}
	return w.c.writer(have...)
}

// additional compares what may be written under undeclared names.
func (c *comparison) additional(w *writer, r *node) []Difference {
	n := r.child("additionalProperties")
	rest := w.rest()
	if n == nil || rest.types() == 0 {
		return nil
	}
	if n.no {
		return c.differ(c.rules.additionalRemoved, w, r, "additionalProperties", "")
	}
	ds := c.covers(rest, n)
	if len(ds) > 0 && len(rest.parts) == 0 {
		return c.differ(c.rules.additionalRemoved, w, r, "additionalProperties", "They are bound to a schema.")
	}
	return ds
}

// writerPatterns returns the writer's patterns, in order.
func (w *writer) writerPatterns() []string {
	all := map[string]bool{}
	for _, p := range w.parts {
		pats, _ := p.keys["patternProperties"].(map[string]any)
		for k := range pats {
			all[k] = true
		}
	}
	return sortedKeys(all)
}

func (c *comparison) patternProperties(w *writer, r *node) []Difference {
	var ds []Difference
	pats, _ := r.keys["patternProperties"].(map[string]any)
	own := w.writerPatterns()
	for _, expr := range own {
		c.spend(1)
		var have []*node
		for _, p := range w.parts {
			if n := p.child("patternProperties", expr); n != nil {
				have = append(have, n)
			}
		}
		value := c.writer(have...)
		if value.types() == 0 {
			continue
		}
		if n := r.child("patternProperties", expr); n != nil {
			ds = append(ds, c.covers(value, n)...)
			continue
		}
		switch n := r.child("additionalProperties"); {
		case n == nil:
		case n.no:
			ds = append(ds, c.differ(c.rules.patternPropertyRemoved, w, r, "additionalProperties", "It is about "+clip(expr)+".")...)
		default:
			ds = append(ds, c.covers(value, n)...)
		}
	}
	rest := w.rest()
	for _, expr := range sortedKeys(pats) {
		n := r.child("patternProperties", expr)
		if n == nil || slices.Contains(own, expr) || (rest.types() == 0 && len(own) == 0) {
			continue // names that are declared are compared one by one
		}
		if len(own) > 0 {
			rest = c.writer() // one name may match both patterns
		}
		if len(c.covers(rest, n)) > 0 {
			ds = append(ds, c.differ(c.rules.patternPropertyAdded, w, n, "", "")...)
		}
	}
	return ds
}

// required returns the names that the writer always writes, in order.
func (w *writer) required() []string {
	all := map[string]bool{}
	for _, p := range w.parts {
		list, _ := p.keys["required"].([]any)
		w.c.spend(len(list))
		for _, v := range list {
			if s, ok := v.(string); ok {
				all[s] = true
			}
		}
	}
	return sortedKeys(all)
}

func (c *comparison) required(w *writer, r *node) []Difference {
	list, _ := r.keys["required"].([]any)
	have := w.required()
	var ds []Difference
	for _, v := range list {
		name, ok := v.(string)
		if _, found := slices.BinarySearch(have, name); !ok || found {
			continue
		}
		rule := c.rules.required
		if p := r.child("properties", name); p != nil {
			if _, ok := p.keys["default"]; ok {
				rule = c.rules.requiredDefault
			}
		}
		ds = append(ds, c.differ(rule, w, r, "required", "It is about "+clip(name)+".")...)
	}
	return ds
}

// dependencies compares the three keywords by which one name demands more.
func (c *comparison) dependencies(w *writer, r *node) []Difference {
	var ds []Difference
	for _, key := range []string{"dependencies", "dependentRequired", "dependentSchemas"} {
		deps, _ := r.keys[key].(map[string]any)
		for _, name := range sortedKeys(deps) {
			c.spend(1)
			if !c.mayWrite(w, name) || c.depends(w, r, key, name) {
				continue
			}
			ds = append(ds, c.differ(c.rules.dependency, w, r, key, "It is about "+clip(name)+".")...)
		}
	}
	return ds
}

func (c *comparison) mayWrite(w *writer, name string) bool {
	var have []*node
	for _, p := range w.parts {
		have = append(have, c.binds(p, name).nodes...)
	}
	return c.writer(have...).types() != 0
}

// depends reports whether the writer holds to what one name demands.
func (c *comparison) depends(w *writer, r *node, key, name string) bool {
	deps, _ := r.keys[key].(map[string]any)
	if list, ok := deps[name].([]any); ok {
		have := w.required()
		for _, p := range w.parts {
			for _, k := range []string{"dependencies", "dependentRequired"} {
				own, _ := p.keys[k].(map[string]any)
				names, _ := own[name].([]any)
				for _, v := range names {
					if s, ok := v.(string); ok {
						have = append(have, s)
					}
				}
			}
		}
		return !slices.ContainsFunc(list, func(v any) bool { s, ok := v.(string); return ok && !slices.Contains(have, s) && s != name })
	}
	n := r.child(key, name)
	if n == nil || len(c.covers(w, n)) == 0 {
		return true
	}
	for _, p := range w.parts {
		for _, k := range []string{"dependencies", "dependentSchemas"} {
			if own := p.child(k, name); own != nil && len(c.covers(c.writer(append(slices.Clone(w.parts), own)...), n)) == 0 {
				return true
			}
		}
	}
	return false
}

// named reports whether all names of the writer pass propertyNames.
func (c *comparison) named(w *writer, n *node, closed bool, names []string) bool {
	if closed {
		return !slices.ContainsFunc(names, func(s string) bool { return !c.admits(s, n, 0) })
	}
	var have []*node
	for _, p := range w.parts {
		if own := p.child("propertyNames"); own != nil {
			have = append(have, own)
		}
	}
	return len(c.covers(c.writer(have...).only(text), n)) == 0
}

// unevaluated compares unevaluatedProperties. What the reader evaluates is
// taken to be what it declares anywhere.
func (c *comparison) unevaluated(w *writer, r, n *node) []Difference {
	if n.keys == nil && !n.no {
		return nil
	}
	declared := map[string]bool{}
	open := c.declares(r, declared, map[int]bool{})
	if open {
		return nil
	}
	closed, _ := w.closed()
	if !closed {
		closed = slices.ContainsFunc(w.parts, func(p *node) bool {
			own := p.child("unevaluatedProperties")
			return own != nil && len(c.covers(c.writer(own), n)) == 0
		})
	}
	var ds []Difference
	if !closed {
		ds = c.differ(c.rules.unevaluatedProperties, w, r, "unevaluatedProperties", "")
	}
	for _, name := range w.names(r) {
		if !declared[name] && c.mayWrite(w, name) {
			ds = append(ds, c.differ(c.rules.closedRemoved, w, r, "unevaluatedProperties", "It is about "+clip(name)+".")...)
		}
	}
	return ds
}

// declares collects the names that a schema evaluates, and reports whether it
// evaluates any name.
func (c *comparison) declares(n *node, into map[string]bool, seen map[int]bool) bool {
	c.spend(1)
	if n == nil || seen[n.id] {
		return false
	}
	seen[n.id] = true
	props, _ := n.keys["properties"].(map[string]any)
	for k := range props {
		into[k] = true
	}
	open := n.keys["additionalProperties"] != nil
	if ref, ok := n.keys["$ref"].(string); ok {
		open = c.declares(n.doc.resolve(n, ref), into, seen) || open
	}
	for _, k := range []string{"allOf", "anyOf", "oneOf"} {
		for _, b := range n.children(k) {
			open = c.declares(b, into, seen) || open
		}
	}
	for _, k := range []string{"if", "then", "else"} {
		open = c.declares(n.child(k), into, seen) || open
	}
	return open
}
