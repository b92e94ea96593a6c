package contract

import (
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// bytePattern matches a pattern. What is anchored at its start and a plain row
// of characters, each class repeated and told apart from what follows it, is
// matched byte by byte; anything else by RE2.
type bytePattern struct {
	*pattern
	pieces []patternPiece
	simple bool // pieces stand for the pattern
	toEnd  bool // nothing may follow
}

// patternPiece is a class of ASCII characters and how often it may come.
type patternPiece struct {
	class    [2]uint64
	min, max int // max < 0: any number
}

// maxPieces bounds the row of a byte pattern.
const maxPieces = 64

func newBytePattern(p *pattern) *bytePattern {
	b := &bytePattern{pattern: p}
	parsed, err := syntax.Parse(p.String(), syntax.Perl)
	if err != nil {
		return b
	}
	b.simple = b.compile(parsed)
	return b
}

// compile turns a parsed pattern into pieces, where that is exact.
func (b *bytePattern) compile(re *syntax.Regexp) bool {
	if re.Op == syntax.OpEmptyMatch { // it matches anything
		return true
	}
	subs := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		subs = re.Sub
	}
	if len(subs) == 0 || subs[0].Op != syntax.OpBeginText {
		return false
	}
	subs = subs[1:]
	if n := len(subs); n > 0 && subs[n-1].Op == syntax.OpEndText {
		b.toEnd, subs = true, subs[:n-1]
	}
	for _, sub := range subs {
		if !b.piece(sub) {
			return false
		}
	}
	return b.deterministic()
}

func (b *bytePattern) piece(re *syntax.Regexp) bool {
	if len(b.pieces) >= maxPieces {
		return false
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return true
	case syntax.OpCapture:
		return b.row(re.Sub[0])
	case syntax.OpConcat:
		return b.row(re)
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			class, ok := runeClass(r, re.Flags&syntax.FoldCase != 0)
			if !ok || len(b.pieces) >= maxPieces {
				return false
			}
			b.pieces = append(b.pieces, patternPiece{class, 1, 1})
		}
		return true
	case syntax.OpCharClass:
		class, ok := charClass(re)
		b.pieces = append(b.pieces, patternPiece{class, 1, 1})
		return ok
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		class, ok := charClass(re.Sub[0])
		p := patternPiece{class, 0, -1}
		switch re.Op {
		case syntax.OpPlus:
			p.min = 1
		case syntax.OpQuest:
			p.max = 1
		case syntax.OpRepeat:
			p.min, p.max = re.Min, re.Max
		}
		b.pieces = append(b.pieces, p)
		return ok
	default:
		return false
	}
}

func (b *bytePattern) row(re *syntax.Regexp) bool {
	subs := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		subs = re.Sub
	}
	for _, sub := range subs {
		if !b.piece(sub) {
			return false
		}
	}
	return true
}

// charClass returns the class of an expression that stands for one ASCII
// character.
func charClass(re *syntax.Regexp) (class [2]uint64, ok bool) {
	switch re.Op {
	case syntax.OpCapture:
		return charClass(re.Sub[0])
	case syntax.OpLiteral:
		if len(re.Rune) != 1 {
			return class, false
		}
		return runeClass(re.Rune[0], re.Flags&syntax.FoldCase != 0)
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if re.Rune[i+1] >= utf8.RuneSelf {
				return class, false
			}
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				class[r>>6] |= 1 << (r & 63)
			}
		}
		return class, true
	default:
		return class, false
	}
}

func runeClass(r rune, fold bool) (class [2]uint64, ok bool) {
	if r >= utf8.RuneSelf {
		return class, false
	}
	class[r>>6] |= 1 << (r & 63)
	if !fold {
		return class, true
	}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f >= utf8.RuneSelf {
			return class, false
		}
		class[f>>6] |= 1 << (f & 63)
	}
	return class, true
}

// deterministic joins neighbours of one class and reports whether taking as
// much as possible of each piece is always right: what follows a piece that
// may end early must not begin with a character of its class.
func (b *bytePattern) deterministic() bool {
	var out []patternPiece
	for _, p := range b.pieces {
		if n := len(out); n > 0 && out[n-1].class == p.class {
			q := &out[n-1]
			q.min += p.min
			if q.max < 0 || p.max < 0 {
				q.max = -1
			} else {
				q.max += p.max
			}
			continue
		}
		out = append(out, p)
	}
	b.pieces = out
	for i, p := range out {
		if p.min == p.max {
			continue
		}
		for _, next := range out[i+1:] {
			if p.class[0]&next.class[0]|p.class[1]&next.class[1] != 0 {
				return false
			}
			if next.min > 0 {
				break
			}
		}
	}
	return true
}

func (b *bytePattern) match(s []byte) bool {
	if !b.simple {
		if b.auto != nil {
			return b.auto.matchesAny(s)
		}
		return b.Regexp.Match(s)
	}
	i := 0
	for k := range b.pieces {
		p := &b.pieces[k]
		n := 0
		for i < len(s) && n != p.max && s[i] < utf8.RuneSelf && p.class[s[i]>>6]&(1<<(s[i]&63)) != 0 {
			i++
			n++
		}
		if n < p.min {
			return false
		}
	}
	return !b.toEnd || i == len(s)
}
