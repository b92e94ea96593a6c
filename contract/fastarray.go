package contract

import "unicode/utf8"

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
		if len(counts) > 0 {
			s.search(a, counts, start, p)
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

// search counts the item between at and end for the schemas that the array is
// searched for.
func (s *fastState) search(a *fastArray, counts []containsCount, at, end int) {
	var known *classMasks
	if a.group != nil {
		known = s.masks(a.group, at, end)
	}
	for k := range counts {
		if known != nil {
			bit := uint64(1) << (k & 63)
			if known.yes[k>>6]&bit != 0 {
				counts[k]++
			}
			if (known.yes[k>>6]|known.no[k>>6])&bit != 0 {
				continue
			}
		}
		if s.try(a.contains[k].value, at) {
			counts[k]++
		}
	}
}

// masks returns those of the scalar between at and end; nil for what is none.
func (s *fastState) masks(g *classGroup, at, end int) *classMasks {
	s.steps += 1 + (end-at)>>4 + len(g.members)/16
	switch s.text[at] {
	case '{', '[':
		return nil
	case 'n':
		return &g.literals[0]
	case 'f':
		return &g.literals[1]
	case 't':
		return &g.literals[2]
	case '"':
		_, saw := scanString(s.text, at)
		mark := len(s.scratch)
		content := s.unescape(at, end, saw)
		i := g.c.text(content, func() int { return utf8.RuneCount(content) })
		s.scratch = s.scratch[:mark]
		if i < 0 {
			return &g.strings[^i]
		}
		return &g.named[i]
	}
	return &g.numbers[g.c.number(s.text[at:end])]
}

type containsCount int
