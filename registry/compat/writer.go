package compat

import (
	"fmt"
	"slices"
	"strings"
)

// typeSet is a set of JSON types. Whole numbers and others are two types, and
// "number" is both.
type typeSet uint8

const (
	null typeSet = 1 << iota
	boolean
	object
	array
	text
	integer
	fraction
	numbers  = integer | fraction
	allTypes = fraction<<1 - 1
)

var typeNames = [...]string{"null", "boolean", "object", "array", "string", "integer", "number with a fraction"}

func (t typeSet) String() string {
	var names []string
	for i, n := range typeNames {
		if t&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

func typeNamed(name string) typeSet {
	if name == "number" {
		return numbers
	}
	if i := slices.Index(typeNames[:6], name); i >= 0 {
		return 1 << i
	}
	return 0
}

// typesOf reads the value of the keyword type.
func typesOf(v any) typeSet {
	switch v := v.(type) {
	case string:
		return typeNamed(v)
	case []any:
		var t typeSet
		for _, e := range v {
			if s, ok := e.(string); ok {
				t |= typeNamed(s)
			}
		}
		return t
	}
	return allTypes
}

// writer is what a writer may write at some place: the values that pass all of
// its parts. Without parts it may write anything.
type writer struct {
	c     *comparison
	parts []*node // without $ref and allOf, which are followed; ordered by id
	taken []string
	mask  typeSet
	key   string
}

// writer makes the conjunction of schemas.
func (c *comparison) writer(nodes ...*node) *writer { return c.conjunction(nodes, nil, allTypes) }

func (c *comparison) conjunction(nodes []*node, taken []string, mask typeSet) *writer {
	w := &writer{c: c, taken: taken, mask: mask}
	seen := map[int]bool{}
	for _, n := range nodes {
		w.flatten(n, seen)
	}
	c.spend(2 * len(w.parts))
	slices.SortFunc(w.parts, func(a, b *node) int { return a.id - b.id })
	var key strings.Builder
	for _, p := range w.parts {
		fmt.Fprintf(&key, "%d,", p.id)
	}
	slices.Sort(w.taken)
	fmt.Fprintf(&key, "%s,%d", strings.Join(w.taken, ","), mask)
	w.key = key.String()
	return w
}

// flatten follows references and allOf. What cannot be followed is left out:
// the writer is then taken to write more than it does.
func (w *writer) flatten(n *node, seen map[int]bool) {
	w.c.spend(1)
	if n == nil || seen[n.id] || w.c.exhausted() {
		return
	}
	seen[n.id] = true
	if ref, ok := n.keys["$ref"].(string); ok {
		w.flatten(n.doc.resolve(n, ref), seen)
		if n.refAlone {
			return
		}
	}
	if n.no || len(n.keys) > 0 {
		w.parts = append(w.parts, n)
	}
	for _, b := range n.children("allOf") {
		w.flatten(b, seen)
	}
}

// only restricts a writer to some types.
func (w *writer) only(t typeSet) *writer {
	return w.c.conjunction(w.parts, slices.Clone(w.taken), w.mask&t)
}

// alternatives resolves the first union of the writer that was not yet; with
// declaring, the first that declares properties.
func (w *writer) alternatives(declaring bool) []*writer {
	for _, p := range w.parts {
		for _, k := range []string{"anyOf", "oneOf"} {
			id := fmt.Sprintf("%d%s", p.id, k)
			if p.keys[k] == nil || slices.Contains(w.taken, id) || declaring && !w.c.declaring(p.children(k)) {
				continue
			}
			var out []*writer
			for _, b := range p.children(k) {
				out = append(out, w.c.conjunction(append(slices.Clone(w.parts), b), append(slices.Clone(w.taken), id), w.mask))
			}
			return out
		}
	}
	return nil
}

// declaring reports whether one of several schemas declares a property.
func (c *comparison) declaring(branches []*node) bool {
	return slices.ContainsFunc(branches, func(b *node) bool {
		names := map[string]bool{}
		return c.declares(b, names, map[int]bool{}) || len(names) > 0
	})
}

// types returns the types that may be written; none when nothing may.
func (w *writer) types() typeSet {
	t := w.mask
	for _, p := range w.parts {
		w.c.spend(1)
		if p.no {
			return 0
		}
		if v, ok := p.keys["type"]; ok {
			t &= typesOf(v)
		}
		if values, ok := listed(p); ok {
			var listedTypes typeSet
			for _, v := range values {
				listedTypes |= typeOfValue(v)
			}
			t &= listedTypes
		}
	}
	return t
}

// values returns the values that may be written when they are listed.
func (w *writer) values() ([]any, bool) {
	types := w.types()
	for _, p := range w.parts {
		if values, ok := listed(p); ok {
			return slices.DeleteFunc(slices.Clone(values), func(v any) bool { return typeOfValue(v)&types == 0 }), true
		}
	}
	return nil, false
}

// listed returns the values of const or enum.
func listed(n *node) ([]any, bool) {
	if v, ok := n.keys["const"]; ok {
		return []any{v}, true
	}
	values, ok := n.keys["enum"].([]any)
	return values, ok
}

// has reports whether a part has a keyword with that text.
func (w *writer) has(key, value string) bool {
	return slices.ContainsFunc(w.parts, func(p *node) bool { s, ok := p.keys[key].(string); return ok && s == value })
}

// at names the writer's place.
func (w *writer) at() string {
	if len(w.parts) == 0 {
		return ""
	}
	return w.parts[0].at
}
