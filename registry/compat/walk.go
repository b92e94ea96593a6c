package compat

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of the steps of one comparison, and of all comparisons of one answer.
// A step is about two microseconds; two versions of a schema with 200
// properties take some thousands, and the largest of real schemas 30,000.
const (
	maxWork      = 200_000
	maxTotalWork = 20 * maxWork
)

// comparison is the state of one comparison of a writer and a reader.
type comparison struct {
	rules  *ruleSet
	policy Policy
	all    []*node
	work   int
	// assumed holds the pairs that are compared at present, or were and held,
	// in this pass; used those of them that others relied on. failed holds the
	// pairs that did not hold, with the reasons.
	assumed, used map[string]bool
	failed        map[string][]Difference
	again         bool
	canons        map[*node]string
	patterns      map[string]*pattern
	listings      map[listing]map[string]bool
	depth         int
}

// listing is const or enum of a schema, whose values are listed once.
type listing struct {
	n *node
	k string
}

// maxNesting bounds the recursion of the comparison itself.
const maxNesting = 512

func (c *comparison) spend(n int) { c.work += n }

func (c *comparison) exhausted() bool { return c.work > maxWork || c.depth > maxNesting }

// compareJSON compares two JSON Schemas, and returns the steps that it took.
func compareJSON(rules *ruleSet, policy Policy, writer, reader Schema) ([]Difference, int) {
	c := newComparison(rules, policy)
	ds := c.run(writer, reader)
	return ds, c.work
}

func newComparison(rules *ruleSet, policy Policy) *comparison {
	return &comparison{rules: rules, policy: policy, failed: map[string][]Difference{}, canons: map[*node]string{}, patterns: map[string]*pattern{}, listings: map[listing]map[string]bool{}}
}

// run finds the greatest set of pairs that can hold together: a pair within a
// cycle is taken to hold until it is shown that it does not. When others
// relied on such a pair the comparison is run again without it.
func (c *comparison) run(writer, reader Schema) []Difference {
	rules := c.rules
	unreadable := func(err error) []Difference {
		return []Difference{{Rule: rules.unreadable, At: "#", Writer: "#", Detail: clip(err.Error())}}
	}
	w, err := c.load(writer)
	if err != nil {
		return unreadable(err)
	}
	r, err := c.load(reader)
	if err != nil {
		return unreadable(err)
	}
	if w.nodes["#"] == nil || r.nodes["#"] == nil {
		return unreadable(fmt.Errorf("neither an object nor true or false"))
	}
	if sameText(writer, reader) {
		return nil
	}
	for {
		c.assumed, c.used, c.again, c.depth = map[string]bool{}, map[string]bool{}, false, 0
		ds := c.covers(c.writer(w.nodes["#"]), r.nodes["#"])
		if c.exhausted() {
			return []Difference{{Rule: rules.tooComplex, At: "#", Writer: "#"}}
		}
		if !c.again {
			return ds
		}
	}
}

func sameText(a, b Schema) bool {
	return string(a.Text) == string(b.Text) && slices.EqualFunc(a.References, b.References, func(x, y Document) bool {
		return x.Name == y.Name && string(x.Text) == string(y.Text)
	})
}

// covers returns why the reader does not take all that the writer may write.
func (c *comparison) covers(w *writer, r *node) []Difference {
	c.spend(1)
	if c.exhausted() || w.types() == 0 {
		return nil
	}
	key := fmt.Sprintf("%s>%d", w.key, r.id)
	if ds, known := c.failed[key]; known {
		return ds
	}
	if c.assumed[key] {
		c.used[key] = true
		return nil
	}
	c.assumed[key] = true
	c.depth++
	ds := c.split(w, r)
	if c.exhausted() {
		return nil // not again below the bound: depth stays
	}
	c.depth--
	if len(ds) > 0 {
		ds = ds[:min(len(ds), maxReasons)]
		delete(c.assumed, key)
		c.failed[key] = ds
		c.again = c.again || c.used[key]
	}
	return ds
}

// split compares, and where that fails takes the writer's alternatives one by
// one: each may be covered although no single branch covers all. Under Lenient
// they are taken one by one from the start: what is forgiven for a name that
// the writer does not declare must not be forgiven because the name is declared
// in a branch.
func (c *comparison) split(w *writer, r *node) []Difference {
	if c.policy == Lenient && !c.same(w, r) && !c.admitsAll(w, r) {
		if alternatives := w.alternatives(true); alternatives != nil {
			return c.each(alternatives, r)
		}
	}
	ds := c.check(w, r)
	if len(ds) == 0 || c.exhausted() {
		return ds
	}
	if alternatives := w.alternatives(false); alternatives != nil {
		return c.each(alternatives, r)
	}
	if types := w.types(); hasUnion(r) && types&(types-1) != 0 {
		var single []*writer
		for t := typeSet(1); t <= allTypes; t <<= 1 {
			if types&t != 0 {
				single = append(single, w.only(t))
			}
		}
		return c.each(single, r)
	}
	return ds
}

// each returns why the reader does not take what one of several writers may
// write.
func (c *comparison) each(writers []*writer, r *node) []Difference {
	var all []Difference
	for _, w := range writers {
		all = append(all, c.covers(w, r)...)
	}
	return all
}

func hasUnion(r *node) bool { return r.keys["anyOf"] != nil || r.keys["oneOf"] != nil }

// check compares keyword by keyword.
func (c *comparison) check(w *writer, r *node) []Difference {
	if r.no {
		return c.differ(c.rules.refuses, w, r, "", "")
	}
	if r.keys == nil {
		return nil
	}
	var ds []Difference
	if ref, ok := r.keys["$ref"].(string); ok {
		t := r.doc.resolve(r, ref)
		if t == nil {
			return c.differ(c.rules.reference, w, r, "$ref", "It is "+clip(ref)+".")
		}
		ds = c.covers(w, t)
		if r.refAlone {
			return ds
		}
	}
	if c.same(w, r) || c.admitsAll(w, r) {
		return ds
	}
	for _, k := range []string{"$dynamicRef", "$recursiveRef"} {
		if v, ok := r.keys[k].(string); ok && !w.has(k, v) {
			ds = append(ds, c.differ(c.rules.dynamicRef, w, r, k, "")...)
		}
	}
	types := w.types()
	if v, ok := r.keys["type"]; ok {
		allowed := typesOf(v)
		if missing := types &^ allowed; missing != 0 {
			ds = append(ds, c.differ(c.rules.typeNarrowed, w, r, "type", "It is about "+missing.String()+".")...)
		}
		types &= allowed
	}
	ds = append(ds, c.enum(w, r)...)
	if types&numbers != 0 {
		ds = append(ds, c.number(w, r, types&fraction == 0)...)
	}
	if types&text != 0 {
		ds = append(ds, c.text(w, r)...)
	}
	if types&array != 0 {
		ds = append(ds, c.array(w, r)...)
	}
	if types&object != 0 {
		ds = append(ds, c.object(w, r)...)
	}
	return append(ds, c.combined(w, r)...)
}

// combined compares the keywords that combine schemas.
func (c *comparison) combined(w *writer, r *node) []Difference {
	var ds []Difference
	for _, b := range r.children("allOf") {
		ds = append(ds, c.covers(w, b)...)
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		if r.keys[k] != nil {
			ds = append(ds, c.branch(w, r, k)...)
		}
	}
	if n := r.child("not"); n != nil && !c.excluded(w, n) {
		ds = append(ds, c.differ(c.rules.not, w, r, "not", "")...)
	}
	if n := r.child("if"); n != nil && (r.child("then") != nil || r.child("else") != nil) && !c.conditioned(w, r) {
		ds = append(ds, c.differ(c.rules.condition, w, r, "if", "")...)
	}
	return ds
}

// branch looks for a branch that covers the writer.
func (c *comparison) branch(w *writer, r *node, key string) []Difference {
	var best []Difference
	for i, b := range r.children(key) {
		ds := c.covers(w, b)
		if len(ds) == 0 {
			return nil
		}
		if i == 0 || len(ds) < len(best) {
			best = ds
		}
	}
	detail := ""
	if len(best) > 0 {
		detail = fmt.Sprintf("The nearest branch fails at %s by %s.", best[0].At, best[0].Rule.ID)
	}
	return c.differ(c.rules.union, w, r, key, detail)
}

// excluded reports whether the writer writes nothing of what the reader's not
// excludes.
func (c *comparison) excluded(w *writer, not *node) bool {
	if v, ok := not.keys["type"]; ok && typesOf(v)&w.types() == 0 {
		return true
	}
	for _, p := range w.parts {
		if n := p.child("not"); n != nil && len(c.covers(c.writer(not), n)) == 0 {
			return true
		}
	}
	return false
}

// conditioned reports whether the writer holds to the reader's condition:
// either by having the same, or by holding to both of its sides.
func (c *comparison) conditioned(w *writer, r *node) bool {
	holds := func(w *writer, side string) bool {
		s := r.child(side)
		return s == nil || len(c.covers(w, s)) == 0
	}
	if holds(w, "then") && holds(w, "else") {
		return true
	}
	cond := r.child("if")
	for _, p := range w.parts {
		own := p.child("if")
		if own == nil || len(c.covers(c.writer(own), cond)) > 0 || len(c.covers(c.writer(cond), own)) > 0 {
			continue
		}
		side := func(name string) *writer {
			if s := p.child(name); s != nil {
				return c.writer(append(slices.Clone(w.parts), s)...)
			}
			return w
		}
		if holds(side("then"), "then") && holds(side("else"), "else") {
			return true
		}
	}
	return false
}

// differ makes a difference, unless the policy forgives the rule.
func (c *comparison) differ(rule Rule, w *writer, r *node, key, detail string) []Difference {
	if rule.Forgiven(c.policy) {
		return nil
	}
	at := r.at
	if key != "" {
		at += "/" + escape(cmp.Or(r.renamed[key], key))
	}
	return []Difference{{Rule: rule, At: at, Writer: w.at(), Detail: detail}}
}

// same reports whether a part of the writer says exactly what the reader says,
// without references that could lead elsewhere.
func (c *comparison) same(w *writer, r *node) bool {
	rc := c.canon(r)
	if strings.Contains(rc, `Ref":`) || strings.Contains(rc, `$ref":`) {
		return false
	}
	return slices.ContainsFunc(w.parts, func(p *node) bool { return c.canon(p) == rc })
}

func (c *comparison) canon(n *node) string {
	if s, ok := c.canons[n]; ok {
		return s
	}
	var s string
	if n.keys == nil {
		s = fmt.Sprint(!n.no)
	} else {
		s = canonical(n.keys)
	}
	c.spend(len(s) / 64)
	c.canons[n] = s
	return s
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
