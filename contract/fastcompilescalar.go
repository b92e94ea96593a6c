package contract

import "encoding/json"

func (c *fastCompiler) number(set, all schemaSet) int32 {
	r := fastNumber{after: newAfter(nil)}
	if literals, listed := listedLiterals(all); listed {
		r.listed, r.keys = true, map[string]struct{}{}
		for _, v := range literals {
			num, ok := v.(json.Number)
			if !ok || !c.holds(set, []byte(num)) {
				continue
			}
			d := parseDecimal([]byte(num))
			r.keys[string(d.appendKey([]byte{'n'}))] = struct{}{}
			if n, ok := d.small(); ok {
				r.small = append(r.small, n)
			}
		}
		if len(r.keys) == 0 {
			return never
		}
		return c.addNumber(r)
	}
	asked := false
	for _, n := range all.nodes() {
		if n.types != 0 && n.types&typeNumber == 0 {
			asked, r.integer = true, true
		}
		b := n.numbers
		if b == nil || n.refOnly() {
			continue
		}
		asked = true
		for _, side := range []struct {
			bound     *bound
			exclusive bool
			wrong     int
		}{{b.min, false, -1}, {b.exclMin, true, -1}, {b.max, false, 1}, {b.exclMax, true, 1}} {
			if side.bound != nil {
				r.bounds = append(r.bounds, newFastBound(side.bound, side.exclusive, side.wrong))
			}
		}
		if b.multiple != nil {
			r.multiples = append(r.multiples, *b.multiple.multiple)
		}
	}
	r.after = newAfter(c.tests(all))
	if !asked && !r.after.any {
		return free
	}
	r.classes = c.classes(set, r.after)
	return c.addNumber(r)
}

func (c *fastCompiler) addNumber(r fastNumber) int32 {
	return addShared(c, &c.p.numbers, r, r.after.any)
}

// small returns the number as an int64 if it is one of at most 18 digits.
func (d decimal) small() (int64, bool) {
	if d.exp < 0 || len(d.digits)+d.exp > 18 {
		return 0, false
	}
	var n int64
	for _, c := range d.digits {
		n = n*10 + int64(c-'0')
	}
	for range d.exp {
		n *= 10
	}
	if d.neg {
		n = -n
	}
	return n, true
}
