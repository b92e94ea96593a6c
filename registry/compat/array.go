package compat

import "strconv"

// array compares the keywords of arrays.
func (c *comparison) array(w *writer, r *node) []Difference {
	most := w.most("maxItems", w.tupleLength())
	ds := c.atMost(c.rules.maxItems, w, r, "maxItems", most)
	ds = append(ds, c.atLeast(c.rules.minItems, w, r, "minItems", 0)...)
	if r.keys["uniqueItems"] == true && most > 1 && !w.unique() {
		ds = append(ds, c.differ(c.rules.uniqueItems, w, r, "uniqueItems", "")...)
	}
	ds = append(ds, c.items(w, r, most)...)
	if n := r.child("contains"); n != nil && !c.contained(w, r, n) {
		ds = append(ds, c.differ(c.rules.contains, w, r, "contains", "")...)
	}
	if n := r.child("unevaluatedItems"); n != nil && !c.unevaluatedItems(w, r, n) {
		ds = append(ds, c.differ(c.rules.unevaluatedItems, w, r, "unevaluatedItems", "")...)
	}
	return ds
}

func (w *writer) unique() bool {
	for _, p := range w.parts {
		if p.keys["uniqueItems"] == true {
			return true
		}
	}
	return false
}

// tuple returns the schemas of the first items, and that of the rest (nil:
// anything).
func tuple(n *node) (first []*node, rest *node) {
	if list, ok := n.keys["items"].([]any); ok { // before 2020-12
		for i := range list {
			first = append(first, n.child("items", strconv.Itoa(i)))
		}
		return first, n.child("additionalItems")
	}
	return n.children("prefixItems"), n.child("items")
}

// tupleLength is how many items a writer can write whose further items are
// refused.
func (w *writer) tupleLength() int {
	most := unbounded
	for _, p := range w.parts {
		if first, rest := tuple(p); rest != nil && rest.no {
			most = min(most, len(first))
		}
	}
	return most
}

// items compares place by place, and the rest.
func (c *comparison) items(w *writer, r *node, most int) []Difference {
	first, rest := tuple(r)
	places := len(first)
	for _, p := range w.parts {
		own, _ := tuple(p)
		places = max(places, len(own))
	}
	var ds []Difference
	for i := 0; i <= places && i < most; i++ { // the last one stands for the rest
		c.spend(1)
		want := rest
		if i < len(first) {
			want = first[i]
		}
		if want == nil {
			continue
		}
		var have []*node
		for _, p := range w.parts {
			own, further := tuple(p)
			if i < len(own) {
				further = own[i]
			}
			if further != nil {
				have = append(have, further)
			}
		}
		item := c.writer(have...)
		if want.no && item.types() != 0 {
			ds = append(ds, c.differ(c.rules.itemsRemoved, w, want, "", "")...)
			continue
		}
		ds = append(ds, c.covers(item, want)...)
	}
	return ds
}

// contained reports whether the writer holds to the reader's contains.
func (c *comparison) contained(w *writer, r, n *node) bool {
	least, ok := whole(r.keys["minContains"])
	if !ok {
		least = 1
	}
	most, bounded := whole(r.keys["maxContains"])
	if least == 0 && !bounded {
		return true
	}
	for _, p := range w.parts {
		own := p.child("contains")
		if own == nil {
			continue
		}
		ownLeast, ok := whole(p.keys["minContains"])
		if !ok {
			ownLeast = 1
		}
		ownMost, ownBounded := whole(p.keys["maxContains"])
		fewest := least == 0 || (ownLeast >= least && len(c.covers(c.writer(own), n)) == 0)
		highest := !bounded || (ownBounded && ownMost <= most && len(c.covers(c.writer(n), own)) == 0)
		if fewest && highest {
			return true
		}
	}
	return false
}

// unevaluatedItems reports whether the writer has the same keyword beside the
// same items.
func (c *comparison) unevaluatedItems(w *writer, r, n *node) bool {
	if n.keys == nil && !n.no {
		return true
	}
	_, rest := tuple(r)
	if rest != nil {
		return true // everything is evaluated
	}
	first, _ := tuple(r)
	if n.no && w.most("maxItems", w.tupleLength()) <= len(first) {
		return true
	}
	for _, p := range w.parts {
		own := p.child("unevaluatedItems")
		if own == nil || len(c.covers(c.writer(own), n)) > 0 {
			continue
		}
		if ownFirst, _ := tuple(p); len(ownFirst) <= len(first) {
			return true
		}
	}
	return false
}
