package contract

func (s *fastState) arrayValue(i int32, at int) int {
	if i == never || s.depth >= s.p.limits.Depth {
		return bad
	}
	a := &s.p.arrays[i]
	text := s.text
	s.depth++
	count, end := 0, 0
	var few [4]containsCount
	counts := few[:0]
	for range a.contains {
		counts = append(counts, 0)
	}
	p := skipSpace(text, at+1)
	if p < len(text) && text[p] == ']' {
		end = p + 1
	}
	for end == 0 {
		child := a.rest
		if count < len(a.prefix) {
			child = a.prefix[count]
		}
		start := p
		if p = s.value(child, p); p < 0 {
			return bad
		}
		count++
		for k := range counts {
			if s.try(a.contains[k].value, start) {
				counts[k]++
			}
		}
		if p < len(text) && text[p] <= ' ' {
			p = skipSpace(text, p)
		}
		if p >= len(text) {
			return bad
		}
		switch text[p] {
		case ',':
			p++
			if p < len(text) && text[p] <= ' ' {
				p = skipSpace(text, p)
			}
		case ']':
			end = p + 1
		default:
			return bad
		}
	}
	s.depth--
	if count < a.minItems || count > a.maxItems {
		return bad
	}
	for k := range counts {
		if c := &a.contains[k]; int(counts[k]) < c.least || int(counts[k]) > c.most {
			return bad
		}
	}
	if a.unique && count > 1 && !s.unique(at, end, count) {
		return bad
	}
	if a.after.any && !s.after(&a.after, at, end) {
		return bad
	}
	return end
}

type containsCount int
