package contract

import (
	"unicode/utf8"
	"unsafe"

	"github.com/headgate/headgate/internal/jsontext"
)

// unescape returns the content of the string token between at and end. What
// was written with escapes is put at the end of the scratch buffer, which the
// caller cuts back.
func (s *fastState) unescape(at, end int, saw uint8) []byte {
	if saw&sawEscape == 0 {
		return s.text[at+1 : end-1]
	}
	before := len(s.scratch)
	s.scratch = jsontext.Unquote(s.scratch, s.text[at:end])
	return s.scratch[before:]
}

func (s *fastState) stringValue(i int32, at int) int {
	if i == never {
		return bad
	}
	if s.last.at != at { // else it was scanned for another schema
		s.last.at, s.last.runes = at, -1
		s.last.end, s.last.saw = scanString(s.text, at)
		s.steps += (s.last.end - at) >> 5
	}
	end, saw := s.last.end, s.last.saw
	if end < 0 || i == free {
		return end
	}
	r := &s.p.strings[i]
	mark := len(s.scratch)
	ok := s.stringFits(r, s.unescape(at, end, saw), saw)
	s.scratch = s.scratch[:mark]
	if !ok || r.after.any && !s.textAfter(r, at, end, saw) {
		return bad
	}
	return end
}

func (s *fastState) stringFits(r *fastString, content []byte, saw uint8) bool {
	if r.listed {
		return r.enum.find(content) >= 0
	}
	for _, f := range r.formats {
		s.steps += len(content) / 16
		if f.name == "regex" {
			s.steps += len(content) * 16 // it is compiled
		}
		if !f.check(viewString(content)) {
			return false
		}
	}
	if len(content) < r.minLength || len(content) > r.maxLength || r.minLength > 0 && saw&(sawWide|sawEscape) != 0 {
		n := len(content)
		if saw != 0 {
			n = s.runes(content)
		}
		if n < r.minLength || n > r.maxLength {
			return false
		}
	}
	for _, p := range r.patterns {
		if !s.affords(p, len(content)) || !p.match(content) {
			return false
		}
	}
	return true
}

// runes counts the code points of the string that was scanned last.
func (s *fastState) runes(content []byte) int {
	if s.last.runes < 0 {
		s.last.runes = utf8.RuneCount(content)
		s.steps += len(content) >> 5
	}
	return s.last.runes
}

// textAfter is after for the string that was scanned last: its class decides,
// where it is not open.
func (s *fastState) textAfter(r *fastString, at, end int, saw uint8) bool {
	if r.classes != nil {
		s.steps++
		mark := len(s.scratch)
		content := s.unescape(at, end, saw)
		verdict := r.classes.ofText(r.classes.text(content, func() int {
			if saw == 0 {
				return len(content)
			}
			return s.runes(content)
		}))
		s.scratch = s.scratch[:mark]
		if verdict&(classAccepted|classRefused) != 0 {
			return verdict&classAccepted != 0
		}
	}
	return s.after(&r.after, at, end)
}

// numberAfter is textAfter for the number between at and end.
func (s *fastState) numberAfter(r *fastNumber, at, end int) bool {
	if r.classes != nil {
		s.steps += 1 + (end-at)>>4
		if verdict := r.classes.numbers[r.classes.number(s.text[at:end])]; verdict&(classAccepted|classRefused) != 0 {
			return verdict&classAccepted != 0
		}
	}
	return s.after(&r.after, at, end)
}

// affords pays for a match of a text of n bytes before it is done. What costs
// more than is left is not done, and ends the pass.
func (s *fastState) affords(p *bytePattern, n int) bool {
	s.steps = min(s.steps+1+p.work(n)/fastMatchShare, s.limit+1)
	return s.steps <= s.limit
}

// viewString returns the bytes as a string without copying them. It is for
// checkers that keep nothing of it; the payload does not change during a
// check.
func viewString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (s *fastState) numberValue(i int32, at int) int {
	if i == never {
		return bad
	}
	end, plain := scanNumber(s.text, at, &s.p.limits)
	if end < 0 || i == free {
		return end
	}
	r := &s.p.numbers[i]
	if !s.numberFits(r, s.text[at:end], plain) || r.after.any && !s.numberAfter(r, at, end) {
		return bad
	}
	return end
}

func (s *fastState) numberFits(r *fastNumber, raw []byte, plain bool) bool {
	var n int64
	small := false
	if plain {
		n, small = smallInt(raw)
	}
	if r.listed {
		return s.numberListed(r, raw, n, small)
	}
	var v numberView
	if !small {
		v = viewNumber(raw)
		s.steps += len(raw) / 4
	}
	if r.integer && !plain && !v.isInteger() {
		return false
	}
	for i := range r.bounds {
		b := &r.bounds[i]
		var c int
		if small && b.fits {
			c = compareInts(n, b.small)
		} else {
			if small && v.raw == nil {
				v = viewNumber(raw)
			}
			c = v.compare(&b.decimal)
		}
		if c == 0 && b.exclusive || c == b.wrong {
			return false
		}
	}
	for i := range r.multiples {
		m := &r.multiples[i]
		if small && m.small != 0 {
			if n%m.small != 0 {
				return false
			}
			continue
		}
		if v.raw == nil {
			v = viewNumber(raw)
		}
		if !m.divides(&v) {
			return false
		}
	}
	return true
}

// maxLinear is up to how many numbers are compared one by one.
const maxLinear = 16

func (s *fastState) numberListed(r *fastNumber, raw []byte, n int64, small bool) bool {
	if small && len(r.small) <= maxLinear {
		for _, m := range r.small {
			if m == n {
				return true
			}
		}
		return false
	}
	v := viewNumber(raw)
	mark := len(s.scratch)
	s.scratch = v.appendKey(s.scratch)
	_, ok := r.keys[string(s.scratch[mark:])]
	s.scratch = s.scratch[:mark]
	return ok
}

func compareInts(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
