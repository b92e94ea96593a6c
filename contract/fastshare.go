package contract

// share makes equal values one: those that ask the same of every type.
func (p *fastProgram) share() {
	first := make(map[fastValue]int32, len(p.values))
	to := make([]int32, len(p.values))
	var kept []fastValue
	for i, v := range p.values {
		j, ok := first[v]
		if !ok {
			j = int32(len(kept))
			first[v] = j
			kept = append(kept, v)
		}
		to[i] = j
	}
	p.values, p.root = kept, to[p.root]
	list := func(in []int32) {
		for i, v := range in {
			if v >= 0 {
				in[i] = to[v]
			}
		}
	}
	after := func(a *fastAfter) {
		for i := range a.tests {
			list(a.tests[i].branches)
		}
	}
	for i := range p.objects {
		o := &p.objects[i]
		for k := range o.names.keys {
			o.names.keys[k].child = to[o.names.keys[k].child]
		}
		o.other = to[o.other]
		list(o.others)
		list(o.nameRules)
		for k := range o.deps {
			if v := &o.deps[k].value; *v >= 0 {
				*v = to[*v]
			}
		}
		if ch := o.choice; ch != nil {
			list(ch.values)
			for key, v := range ch.others {
				ch.others[key] = to[v]
			}
		}
		after(&o.after)
	}
	for i := range p.arrays {
		a := &p.arrays[i]
		list(a.prefix)
		a.rest = to[a.rest]
		for k := range a.contains {
			a.contains[k].value = to[a.contains[k].value]
		}
		after(&a.after)
	}
	for i := range p.strings {
		after(&p.strings[i].after)
	}
	for i := range p.numbers {
		after(&p.numbers[i].after)
	}
}
