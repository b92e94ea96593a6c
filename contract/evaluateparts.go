package contract

import (
	"github.com/headgate/headgate"
)

// find returns the member of an object with the name, or -1.
func (e *evaluator) find(v int32, name string) int32 {
	end := e.t.values[v].next
	for child := v + 1; child < end; child = e.t.values[child].next {
		e.work++
		if string(e.t.name(child)) == name {
			return child
		}
	}
	return -1
}

// part applies a schema that stands for undeclared parts to one of them: a
// false schema there means that the part is unknown, not forbidden.
func (e *evaluator) part(sub *node, v, child int32, n *node, keyword string, rep *report) bool {
	isMember := e.t.values[v].kind == kindObject
	if isMember && !sub.trivial() {
		e.declare(child)
	}
	if sub.always < 0 && rep != nil {
		e.work++
		code := headgate.ViolationUnknownProperty
		if !isMember {
			code = headgate.ViolationBadCount
		} else {
			e.declare(child) // reported here, not again by the policy
		}
		rep.add(finding{code: code, val: child, n: n, keyword: keyword})
		return false
	}
	return e.eval(sub, child, nil, rep)
}

// trivial reports whether the schema accepts anything.
func (n *node) trivial() bool {
	return n.always > 0 || n.always == 0 && n.types == 0 && n.konst == nil && n.enum == nil && n.format == nil &&
		n.ref == nil && n.recRef == nil && n.dynRef == nil && n.not == nil && n.ifs == nil && n.allOf == nil &&
		n.anyOf == nil && n.oneOf == nil && n.object == nil && n.array == nil && n.strings == nil &&
		n.numbers == nil && n.unevalProps == nil && n.unevalItems == nil
}

func (e *evaluator) object(n *node, v int32, ev *evals, rep *report) bool {
	o, val := n.object, e.t.values[v]
	if rep != nil && e.applied.on && n.speaks() {
		e.applied.add(v, n)
	}
	count := int(val.count)
	e.work += count/4 + len(o.required)/8
	ok := true
	if o.minProps > count || o.maxProps >= 0 && o.maxProps < count {
		if rep == nil {
			return false
		}
		ok = false
		rep.addCount(v, n, "minProperties", o.minProps, "maxProperties", o.maxProps, count)
	}
	var few uint64
	var many []bool
	if len(o.required) > 64 {
		many = make([]bool, len(o.required))
	}
	for child := v + 1; o.each && child < val.next; child = e.t.values[child].next {
		name := e.t.name(child)
		if o.requiredIndex != nil {
			if i, isRequired := o.requiredIndex[string(name)]; isRequired {
				if many != nil {
					many[i] = true
				} else {
					few |= 1 << i
				}
			}
		}
		if !e.member(n, v, child, name, ev, rep) {
			if rep == nil {
				return false
			}
			ok = false
		}
	}
	for i, name := range o.required {
		have := many != nil && many[i] || many == nil && few&(1<<i) != 0
		if have || o.requiredIndex[name] != i { // listed twice
			continue
		}
		if rep == nil {
			return false
		}
		ok = false
		rep.add(finding{code: headgate.ViolationMissingRequired, val: v, name: name, n: n, keyword: "required"})
	}
	return e.dependencies(n, v, ev, rep) && ok
}

// member applies the schemas that an object's rules hold for one member.
func (e *evaluator) member(n *node, v, child int32, name []byte, ev *evals, rep *report) bool {
	o := n.object
	ok, evaluated := true, false
	if sub, found := o.props[string(name)]; found {
		evaluated = true
		e.declare(child)
		ok = e.eval(sub, child, nil, rep)
	}
	if len(o.patterns) > 0 && (ok || rep != nil) {
		found := false
		if found, ok = e.byPatterns(o, child, name, ok, rep); found {
			evaluated = true
		}
		if e.over() {
			return false
		}
	}
	if !evaluated && o.hasAdditional {
		evaluated = true
		ok = e.part(o.additional, v, child, n, "additionalProperties", rep) && ok
	}
	if evaluated && ev != nil {
		ev.set(e.t.values[child].ordinal)
	}
	if o.propertyNames != nil && (ok || rep != nil) && !e.nameFits(o.propertyNames, child) {
		if rep != nil && !e.over() {
			rep.add(finding{code: headgate.ViolationUnknownProperty, val: child, n: n, keyword: "propertyNames"})
		}
		ok = false
	}
	return ok
}

// byPatterns applies the schemas whose patterns match the name of a member.
func (e *evaluator) byPatterns(o *objectRules, child int32, name []byte, ok bool, rep *report) (found, fits bool) {
	if e.work += o.patternWork(len(name)); e.over() {
		return false, false
	}
	mark := len(e.rows)
	e.rows = o.appendMatching(e.rows, name)
	for _, i := range e.rows[mark:] {
		e.declare(child)
		found = true
		if ok = e.eval(o.patterns[i].node, child, nil, rep) && ok; !ok && rep == nil {
			break
		}
	}
	e.rows = e.rows[:mark]
	return found, ok
}

// nameFits applies a schema to the name of a member. The name becomes a value
// of its own behind the payload's for as long as that takes.
func (e *evaluator) nameFits(sub *node, child int32) bool {
	m := e.t.values[child]
	at := int32(len(e.t.values))
	e.t.values = append(e.t.values, value{
		kind: kindString, escaped: m.nameEscaped, start: m.nameStart, end: m.nameEnd, parent: child, next: at + 1,
	})
	ok := e.eval(sub, at, nil, nil)
	e.t.values = e.t.values[:at]
	return ok
}

// dependents finds which of the names that dependencies speak of an object has,
// by their numbers. It uses seen where that is large enough.
func (e *evaluator) dependents(o *objectRules, v int32, seen []uint64) func(number int) bool {
	if words := len(o.dependent)/64 + 1; words > len(seen) {
		seen = make([]uint64, words)
	}
	end := e.t.values[v].next
	e.work += int(e.t.values[v].count) / 2
	for child := v + 1; child < end; child = e.t.values[child].next {
		if i, ok := o.dependent[string(e.t.name(child))]; ok {
			seen[i>>6] |= 1 << (i & 63)
		}
	}
	return func(i int) bool { return seen[i>>6]&(1<<(i&63)) != 0 }
}

func (e *evaluator) dependencies(n *node, v int32, ev *evals, rep *report) bool {
	ok := true
	o := n.object
	if len(o.dependencies) == 0 {
		return true
	}
	var few [4]uint64
	has := e.dependents(o, v, few[:])
	e.work += len(o.dependencies) / 16
	for i := range o.dependencies {
		d := &o.dependencies[i]
		if !has(d.number) {
			continue
		}
		if d.node != nil {
			ok = e.eval(d.node, v, ev, rep) && ok
		}
		for k, name := range d.required {
			if e.work++; has(d.numbers[k]) {
				continue
			}
			ok = false
			if rep == nil {
				break
			}
			rep.add(finding{code: headgate.ViolationDependency, val: v, name: name, n: n, keyword: d.keyword, words: []string{d.name}})
		}
		if !ok && rep == nil {
			return false
		}
	}
	return ok
}

func (e *evaluator) array(n *node, v int32, ev *evals, rep *report) bool {
	a, val := n.array, e.t.values[v]
	count := int(val.count)
	ok := true
	if a.minItems > count || a.maxItems >= 0 && a.maxItems < count {
		if rep == nil {
			return false
		}
		ok = false
		rep.addCount(v, n, "minItems", a.minItems, "maxItems", a.maxItems, count)
	}
	i := 0
	for child := v + 1; child < val.next && (i < len(a.prefix) || a.rest != nil); child = e.t.values[child].next {
		fits := true
		if i < len(a.prefix) {
			fits = e.eval(a.prefix[i], child, nil, rep)
		} else {
			fits = e.part(a.rest, v, child, n, a.restKeyword, rep)
		}
		if !fits {
			if rep == nil {
				return false
			}
			ok = false
			if i >= len(a.prefix) && a.rest.always < 0 {
				break // one item too many says it for the rest
			}
		}
		if ev != nil {
			ev.set(int32(i))
		}
		i++
	}
	if ev != nil && a.rest != nil {
		ev.all = true
	}
	if a.unique && count > 1 && (ok || rep != nil) {
		ok = e.unique(n, v, rep) && ok
	}
	if a.contains != nil && (ok || rep != nil) {
		ok = e.contains(n, v, ev, rep) && ok
	}
	return ok
}

func (e *evaluator) contains(n *node, v int32, ev *evals, rep *report) bool {
	a, end := n.array, e.t.values[v].next
	least := 1
	if a.minContains >= 0 {
		least = a.minContains
	}
	matched := 0
	if a.group != nil && ev == nil && e.declared == nil {
		if count, ok := e.search(a.group, v, a.member); ok {
			matched, end = count, v
		}
	}
	for child := v + 1; child < end; child = e.t.values[child].next {
		mark := len(e.undo)
		if !e.eval(a.contains, child, nil, nil) {
			e.rollback(mark)
			continue
		}
		matched++
		if ev != nil && n.draft >= 2020 {
			ev.set(e.t.values[child].ordinal)
		}
		if matched >= least && a.maxContains < 0 && ev == nil && e.declared == nil {
			return true
		}
	}
	if matched >= least && (a.maxContains < 0 || matched <= a.maxContains) {
		return true
	}
	if rep != nil && !e.over() {
		keyword := "contains"
		if matched > a.maxContains && a.maxContains >= 0 {
			keyword = "maxContains"
		} else if a.minContains >= 0 {
			keyword = "minContains"
		}
		rep.add(finding{code: headgate.ViolationBadCount, val: v, n: n, keyword: keyword, arg: matched})
	}
	return false
}

// unique looks for two equal items: by hash, so that it stays linear.
func (e *evaluator) unique(n *node, v int32, rep *report) bool {
	val := e.t.values[v]
	e.work += int(val.next-v) + int(val.end-val.start)/16
	seen := make(map[uint64]int32, val.count)
	for child := v + 1; child < val.next; child = e.t.values[child].next {
		if e.over() {
			return false
		}
		sum := e.hashOf(child)
		if other, found := seen[sum]; found {
			if e.t.equalValues(other, child) {
				if rep != nil {
					rep.add(finding{code: headgate.ViolationNotUnique, val: child, n: n, keyword: "uniqueItems", arg: int(e.t.values[other].ordinal)})
				}
				return false
			}
			continue // a true collision of 64 bits; nobody can build one without the seed
		}
		seen[sum] = child
	}
	return true
}

func (e *evaluator) text(n *node, v int32, rep *report) bool {
	s := n.strings
	ok := true
	if s.minLength >= 0 || s.maxLength >= 0 {
		if count := e.runes(v); count < s.minLength || s.maxLength >= 0 && count > s.maxLength {
			if rep == nil {
				return false
			}
			ok = false
			rep.add(finding{code: headgate.ViolationBadLength, val: v, n: n, keyword: lengthKeyword(s, count), arg: count})
		}
	}
	if s.pattern != nil {
		str := e.t.str(v)
		e.work += s.pattern.work(len(str))
		if e.over() {
			return false
		}
		if !s.pattern.Match(str) {
			if rep != nil {
				rep.add(finding{code: headgate.ViolationBadPattern, val: v, n: n, keyword: "pattern"})
			}
			ok = false
		}
	}
	return ok
}

// runes counts the code points of a string, once for all schemas that ask.
func (e *evaluator) runes(v int32) int {
	if at := e.t.values[v].end; e.counted.end != at { // names are values for a while, but none ends where another does
		e.work += int(at-e.t.values[v].start) / 32
		e.counted.end, e.counted.runes = at, e.t.runes(v)
	}
	return e.counted.runes
}

func lengthKeyword(s *stringRules, count int) string {
	if count < s.minLength {
		return "minLength"
	}
	return "maxLength"
}

func (e *evaluator) number(n *node, v int32, rep *report) bool {
	raw, r := e.t.raw(v), n.numbers
	e.work += len(raw) / 4
	keyword := ""
	switch {
	case r.min != nil && r.min.compare(raw) < 0:
		keyword = "minimum"
	case r.exclMin != nil && r.exclMin.compare(raw) <= 0:
		keyword = "exclusiveMinimum"
	case r.max != nil && r.max.compare(raw) > 0:
		keyword = "maximum"
	case r.exclMax != nil && r.exclMax.compare(raw) >= 0:
		keyword = "exclusiveMaximum"
	}
	ok := keyword == ""
	if !ok && rep != nil {
		rep.add(finding{code: headgate.ViolationOutOfRange, val: v, n: n, keyword: keyword})
	}
	if r.multiple != nil && (ok || rep != nil) && !r.multiple.divides(raw) {
		if rep != nil {
			rep.add(finding{code: headgate.ViolationNotMultiple, val: v, n: n, keyword: "multipleOf"})
		}
		ok = false
	}
	return ok
}
