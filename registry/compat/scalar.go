package compat

import (
	"fmt"
	"math/big"
	"strings"
)

// enum compares const and enum.
func (c *comparison) enum(w *writer, r *node) []Difference {
	var ds []Difference
	for _, k := range []string{"const", "enum"} {
		if _, ok := r.keys[k]; ok {
			ds = append(ds, c.listedValues(w, r, k)...)
		}
	}
	return ds
}

func (c *comparison) listedValues(w *writer, r *node, k string) []Difference {
	written, finite := w.values()
	if !finite && w.types()&^(null|boolean) == 0 {
		finite = true
		if w.types()&null != 0 {
			written = append(written, nil)
		}
		if w.types()&boolean != 0 {
			written = append(written, false, true)
		}
	}
	if !finite {
		return c.differ(c.rules.enumAdded, w, r, k, "")
	}
	var missing []string
	for _, v := range written {
		if !c.listedIn(v, r, k) {
			missing = append(missing, clip(canonical(v)))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	rule := c.rules.enumNarrowed
	if k == "const" {
		rule = c.rules.constChanged
	}
	if n := len(missing) - 5; n > 0 {
		missing = append(missing[:5], fmt.Sprintf("and %d more", n))
	}
	return c.differ(rule, w, r, k, "It is about "+strings.Join(missing, ", ")+".")
}

// bound is one end of a range of numbers; a nil value means there is none.
type bound struct {
	value     *big.Rat
	exclusive bool
}

// boundOf reads an end of the range of one schema. The sign is 1 for the
// upper end, whose smaller values are the tighter ones, and -1 for the lower.
func boundOf(n *node, sign int, wholeOnly bool) bound {
	plain, exclusive := "maximum", "exclusiveMaximum"
	if sign < 0 {
		plain, exclusive = "minimum", "exclusiveMinimum"
	}
	b := bound{value: number(n.keys[plain])}
	if flag, ok := n.keys[exclusive].(bool); ok {
		b.exclusive = flag
	} else if v := number(n.keys[exclusive]); v != nil {
		b = tighter(b, bound{v, true}, sign)
	}
	if wholeOnly && b.value != nil {
		b = wholeBound(b, sign)
	}
	return b
}

// wholeBound moves an end to the nearest whole number within the range.
func wholeBound(b bound, sign int) bound {
	q := new(big.Int).Div(b.value.Num(), b.value.Denom()) // rounds down, as the denominator is positive
	if sign < 0 && !b.value.IsInt() {
		q.Add(q, big.NewInt(1))
	}
	if b.exclusive && b.value.IsInt() {
		q.Sub(q, big.NewInt(int64(sign)))
	}
	return bound{value: new(big.Rat).SetInt(q)}
}

func tighter(a, b bound, sign int) bound {
	switch {
	case a.value == nil:
		return b
	case b.value == nil:
		return a
	}
	d := a.value.Cmp(b.value) * sign
	if d < 0 || (d == 0 && a.exclusive) {
		return a
	}
	return b
}

// number compares the ranges and divisors of numbers.
func (c *comparison) number(w *writer, r *node, wholeOnly bool) []Difference {
	var ds []Difference
	for _, sign := range []int{1, -1} {
		want := boundOf(r, sign, wholeOnly)
		if want.value == nil {
			continue
		}
		var have bound
		for _, p := range w.parts {
			have = tighter(have, boundOf(p, sign, wholeOnly), sign)
		}
		if have.value != nil && tighter(have, want, sign) == have {
			continue
		}
		if have.value != nil && have.value.Cmp(want.value) == 0 && have.exclusive == want.exclusive {
			continue
		}
		if sign > 0 {
			ds = append(ds, c.differ(c.rules.maximum, w, r, boundKey(r, "maximum", "exclusiveMaximum"), "")...)
		} else {
			ds = append(ds, c.differ(c.rules.minimum, w, r, boundKey(r, "minimum", "exclusiveMinimum"), "")...)
		}
	}
	if m := number(r.keys["multipleOf"]); m != nil && m.Sign() > 0 && !multiples(w, m, wholeOnly) {
		ds = append(ds, c.differ(c.rules.multipleOf, w, r, "multipleOf", "")...)
	}
	return ds
}

func boundKey(r *node, plain, exclusive string) string {
	if _, ok := r.keys[plain]; ok {
		return plain
	}
	return exclusive
}

// multiples reports whether all numbers of the writer are multiples of m.
func multiples(w *writer, m *big.Rat, wholeOnly bool) bool {
	divides := func(k *big.Rat) bool { return new(big.Rat).Quo(k, m).IsInt() }
	if wholeOnly && divides(big.NewRat(1, 1)) {
		return true
	}
	for _, p := range w.parts {
		if k := number(p.keys["multipleOf"]); k != nil && divides(k) {
			return true
		}
	}
	return false
}

// atMost compares an upper count, atLeast a lower one. The writer's own may be
// known better than its keywords say.
func (c *comparison) atMost(rule Rule, w *writer, r *node, key string, have int) []Difference {
	want, ok := whole(r.keys[key])
	if !ok || w.most(key, have) <= want {
		return nil
	}
	return c.differ(rule, w, r, key, "")
}

func (c *comparison) atLeast(rule Rule, w *writer, r *node, key string, have int) []Difference {
	want, ok := whole(r.keys[key])
	if !ok || w.least(key, have) >= want {
		return nil
	}
	return c.differ(rule, w, r, key, "")
}

// unbounded is the count of what has no bound.
const unbounded = 1<<31 - 1

func (w *writer) most(key string, have int) int {
	for _, p := range w.parts {
		if n, ok := whole(p.keys[key]); ok {
			have = min(have, n)
		}
	}
	return have
}

func (w *writer) least(key string, have int) int {
	for _, p := range w.parts {
		if n, ok := whole(p.keys[key]); ok {
			have = max(have, n)
		}
	}
	return have
}

// text compares the keywords of strings.
func (c *comparison) text(w *writer, r *node) []Difference {
	ds := c.atMost(c.rules.maxLength, w, r, "maxLength", unbounded)
	ds = append(ds, c.atLeast(c.rules.minLength, w, r, "minLength", 0)...)
	if p, ok := r.keys["pattern"].(string); ok && !w.has("pattern", p) {
		ds = append(ds, c.differ(c.rules.pattern, w, r, "pattern", "")...)
	}
	if f, ok := r.keys["format"].(string); ok && !w.has("format", f) {
		ds = append(ds, c.differ(c.rules.format, w, r, "format", "It is "+clip(f)+".")...)
	}
	return ds
}
