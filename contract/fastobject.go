package contract

import "bytes"

func (s *fastState) objectValue(i int32, at int) int {
	if i == never || s.depth >= s.p.limits.Depth {
		return bad
	}
	o := &s.p.objects[i]
	for o.choice != nil {
		if i = s.choose(o.choice, at); i == never {
			return bad
		}
		o = &s.p.objects[i]
	}
	s.depth++
	words, base, scratch := len(s.seen), s.names.mark(), len(s.scratch)
	for range o.words - 1 {
		s.seen = append(s.seen, 0)
	}
	end, first, count := s.members(o, at, words, base)
	ok := end >= 0 && count >= o.minProps && count <= o.maxProps && s.complete(o, first, words) &&
		(o.deps == nil || s.dependent(o, first, words, at))
	if !ok {
		return bad
	}
	s.depth--
	s.names.unwind(base)
	s.scratch = s.scratch[:scratch]
	if o.after.any && !s.objectAfter(o, first, words, at, end) {
		return bad
	}
	s.seen = s.seen[:words]
	return end
}

// members checks the members of an object. It returns the first word of the
// bit set of declared names that were there; further words are in s.seen from
// words on.
func (s *fastState) members(o *fastObject, at, words, base int) (end int, first uint64, count int) {
	text := s.text
	p := skipSpace(text, at+1)
	if p < len(text) && text[p] == '}' {
		return p + 1, 0, 0
	}
	for {
		if p >= len(text) || text[p] != '"' {
			return bad, 0, 0
		}
		nameAt := p
		nameEnd, saw := scanString(text, p)
		if nameEnd < 0 {
			return bad, 0, 0
		}
		p = nameEnd
		if p >= len(text) || text[p] != ':' {
			if p = skipSpace(text, p); p >= len(text) || text[p] != ':' {
				return bad, 0, 0
			}
		}
		ref := openName{start: int32(nameAt + 1), end: int32(nameEnd - 1)}
		name := text[nameAt+1 : nameEnd-1]
		if saw&sawEscape != 0 {
			before := len(s.scratch)
			name = s.unescape(nameAt, nameEnd, saw)
			ref = openName{start: int32(before), end: int32(len(s.scratch)), buffered: true}
		}
		var child int32
		if i := o.names.find(name); i >= 0 {
			word, bit := &first, uint64(1)<<(i&63)
			if i >= 64 {
				word = &s.seen[words+i>>6-1]
			}
			if *word&bit != 0 {
				return bad, 0, 0
			}
			*word |= bit
			child = o.names.keys[i].child
		} else {
			if s.tries == 0 && !s.addName(base, ref) { // else they were found to differ before
				return bad, 0, 0
			}
			child = o.other
			if o.others != nil {
				if child = s.byPatterns(o, name); child < 0 {
					return bad, 0, 0
				}
			}
		}
		for _, r := range o.nameRules {
			if !s.try(r, nameAt) {
				return bad, 0, 0
			}
		}
		if p = s.value(child, p+1); p < 0 {
			return bad, 0, 0
		}
		count++
		if p < len(text) && text[p] <= ' ' {
			p = skipSpace(text, p)
		}
		if p >= len(text) {
			return bad, 0, 0
		}
		switch text[p] {
		case ',':
			if p++; p < len(text) && text[p] <= ' ' {
				p = skipSpace(text, p)
			}
		case '}':
			return p + 1, first, count
		default:
			return bad, 0, 0
		}
	}
}

// byPatterns returns the value of an undeclared name by the patterns that it
// matches.
func (s *fastState) byPatterns(o *fastObject, name []byte) int32 {
	if a := o.auto; a != nil {
		if s.steps += 1 + len(name)/fastMatchShare; s.steps > s.limit {
			return bad
		}
		return o.others[a.match(name)]
	}
	mask := 0
	for i, p := range o.patterns {
		if !s.affords(p, len(name)) {
			return bad
		}
		if p.match(name) {
			mask |= 1 << i
		}
	}
	return o.others[mask]
}

// complete reports whether all required names were seen.
func (s *fastState) complete(o *fastObject, first uint64, words int) bool {
	if len(o.required) == 0 {
		return true
	}
	if first&o.required[0] != o.required[0] {
		return false
	}
	for i, r := range o.required[1:] {
		if s.seen[words+i]&r != r {
			return false
		}
	}
	return true
}

func (s *fastState) has(i int32, first uint64, words int) bool {
	w := first
	if i >= 64 {
		w = s.seen[words+int(i>>6)-1]
	}
	return w&(1<<(i&63)) != 0
}

// dependent checks what one name demands of its object. Schemas are tried with
// the object closed again.
func (s *fastState) dependent(o *fastObject, first uint64, words, at int) bool {
	for i := range o.deps {
		d := &o.deps[i]
		if !s.has(d.name, first, words) {
			continue
		}
		for _, r := range d.required {
			if !s.has(r, first, words) {
				return false
			}
		}
		if d.value >= 0 {
			s.depth--
			ok := s.try(d.value, at)
			s.depth++
			if !ok {
				return false
			}
		}
	}
	return true
}

// choose looks ahead for the property that says what the object at a position
// must satisfy, and returns the entry of objects, or never.
func (s *fastState) choose(c *fastChoice, at int) int32 {
	v := s.findMember(c.name, at)
	if v < 0 {
		return never
	}
	i := never
	mark := len(s.scratch)
	switch b := s.text[v]; b {
	case '"':
		if end, saw := scanString(s.text, v); end >= 0 {
			if k := c.strings.find(s.unescape(v, end, saw)); k >= 0 {
				i = int(c.values[k])
			}
		}
	case '{', '[':
	default:
		s.scratch = append(s.scratch, b) // z is the key of null
		if b == 'n' {
			s.scratch[mark] = 'z'
		} else if b == '-' || isDigit(b) {
			end, _ := scanNumber(s.text, v, &s.p.limits)
			if end < 0 {
				break
			}
			n := viewNumber(s.text[v:end])
			s.scratch = n.appendKey(s.scratch[:mark])
		}
		if k, ok := c.others[string(s.scratch[mark:])]; ok {
			i = int(k)
		}
	}
	s.scratch = s.scratch[:mark]
	if i == never {
		return never
	}
	return s.p.values[i].object
}

// findMember returns the position of the value of a member of the object at a
// position, or bad. The text was not checked yet: what is not JSON may be
// found or not, and is never by the pass in any case.
func (s *fastState) findMember(name []byte, at int) int {
	text := s.text
	p := skipSpace(text, at+1)
	for p < len(text) && text[p] == '"' {
		end, saw := scanString(text, p)
		if end < 0 {
			return bad
		}
		mark := len(s.scratch)
		found := bytes.Equal(s.unescape(p, end, saw), name)
		s.scratch = s.scratch[:mark]
		if p = skipSpace(text, end); p >= len(text) || text[p] != ':' {
			return bad
		}
		if p = skipSpace(text, p+1); p >= len(text) {
			return bad
		}
		if found {
			return p
		}
		start := p
		if p = skipValue(text, p); p < 0 {
			return bad
		}
		if s.steps += 1 + (p-start)>>5; s.steps > s.limit {
			return bad
		}
		if p = skipSpace(text, p); p >= len(text) || text[p] != ',' {
			return bad
		}
		p = skipSpace(text, p+1)
	}
	return bad
}

// skipValue returns the position behind a value, by its brackets and strings
// alone.
func skipValue(text []byte, p int) int {
	depth := 0
	for p < len(text) {
		switch text[p] {
		case '"':
			if p, _ = scanString(text, p); p < 0 {
				return bad
			}
			if depth == 0 {
				return p
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return p // behind a scalar
			}
			if depth == 0 {
				return p + 1
			}
		case ',':
			if depth == 0 {
				return p
			}
		}
		p++
	}
	return bad
}
