package contract

import (
	"sync"

	"github.com/headgate/headgate"
)

// fast is the compiled engine: one pass over the raw bytes that checks grammar,
// policy and schema together and keeps nothing. It only ever accepts by
// itself, and leaves to the general engine what takes more than its budget. What
// is not accepted is decided, and reported on, by that engine's walk over all
// values, so that a report never depends on the engine.
type fast struct {
	p      *fastProgram
	states *sync.Pool // of *fastState
	engine headgate.Engine
	why    string
}

// newFast compiles a program for the fast engine, plain for one without classes
// of scalars. Where that is not possible
// it returns nil and the reason.
func newFast(prog *program, pol Policy, plain bool) (*fast, string) {
	p, why := compileFast(prog, pol, plain)
	if p == nil {
		return nil, why
	}
	f := &fast{p: p, engine: headgate.EngineFast, states: &sync.Pool{New: func() any { return &fastState{} }}}
	if len(p.hybrids) > 0 {
		f.engine, f.why = headgate.EngineHybrid, p.hybridWords()
	}
	return f, ""
}

func (f *fast) name() (headgate.Engine, string) { return f.engine, f.why }

func (f *fast) accept(payload []byte) bool {
	s := f.states.Get().(*fastState)
	ok := s.check(f.p, payload)
	spent := s.steps > s.limit
	s.text = nil
	if s.small() {
		f.states.Put(s)
	}
	return ok || spent && f.p.general.accept(payload, f.p.limits)
}

// steps returns the work that one check took, for tests of its bounds.
func (f *fast) steps(payload []byte) (ok bool, steps int) {
	s := &fastState{}
	ok = s.check(f.p, payload)
	return ok, s.steps
}

// The budget of the fast engine. It is far below that of a check, since what
// takes more is decided by the general engine.
const (
	fastBudgetBase    = 1 << 12
	fastBudgetPerByte = 2
)

// fastState is one check under way. It is reused between checks.
type fastState struct {
	p     *fastProgram
	text  []byte
	depth int
	tries int // under way; what they look at was accepted before
	// steps counts schemas met by values and their like; beyond limit the
	// check ends, and the walk decides.
	steps, limit int
	scratch      []byte   // unescaped strings and names
	seen         []uint64 // of objects with more than 64 declared names
	items        []uniqueItem
	names        nameStack
	// last is the string that was scanned last; runes is -1 until they are
	// counted.
	last struct {
		at, end, runes int
		saw            uint8
	}
}

// Bounds of what is kept between checks.
const (
	maxPooledScratch = 1 << 16
	maxPooledNames   = 1 << 12
)

func (s *fastState) small() bool {
	return cap(s.scratch) <= maxPooledScratch && cap(s.seen) <= maxPooledNames && cap(s.items) <= maxPooledNames && s.names.small()
}

func (s *fastState) check(p *fastProgram, text []byte) bool {
	s.p, s.text = p, text[:len(text):len(text)]
	s.depth, s.tries, s.steps, s.limit = 0, 0, 0, fastBudgetBase+fastBudgetPerByte*len(text)
	s.scratch, s.seen, s.items = s.scratch[:0], s.seen[:0], s.items[:0]
	s.names.unwind(0)
	s.last.at = -1
	end := s.value(p.root, 0)
	if end < 0 {
		return false
	}
	return skipSpace(s.text, end) == len(text) && s.steps <= s.limit
}

// bad is the position after a value that was not accepted.
const bad = -1

// value checks the value behind at, white space before it included, and
// returns the position behind it, or bad.
func (s *fastState) value(i int32, at int) int {
	text := s.text
	if at < len(text) && text[at] <= ' ' {
		at = skipSpace(text, at)
	}
	if at >= len(text) {
		return bad
	}
	if s.steps++; s.steps > s.limit {
		return bad
	}
	v := &s.p.values[i]
	c := text[at]
	if i == 0 && s.tries > 0 && (c == '{' || c == '[') { // it was checked before
		end := skipValue(text, at)
		s.steps += (end - at) >> 3
		return end
	}
	switch c {
	case '"':
		return s.stringValue(v.str, at)
	case '{':
		return s.objectValue(v.object, at)
	case '[':
		return s.arrayValue(v.array, at)
	case 't':
		return s.literal(v.literals&literalTrue, at, "true")
	case 'f':
		return s.literal(v.literals&literalFalse, at, "false")
	case 'n':
		return s.literal(v.literals&literalNull, at, "null")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return s.numberValue(v.number, at)
		}
		return bad
	}
}

func (s *fastState) literal(allowed uint8, at int, word string) int {
	end := at + len(word)
	if allowed == 0 || end > len(s.text) || string(s.text[at:end]) != word {
		return bad
	}
	return end
}

// try checks a value that was accepted once against one more schema, without
// consequences for the rest of the check when it does not fit.
func (s *fastState) try(i int32, at int) bool {
	depth, scratch, seen, names := s.depth, len(s.scratch), len(s.seen), s.names.mark()
	s.tries++
	end := s.value(i, at)
	s.tries--
	if end >= 0 {
		return true
	}
	s.depth, s.scratch, s.seen = depth, s.scratch[:scratch], s.seen[:seen]
	s.names.unwind(names)
	return false
}

// after checks what a pass alone cannot decide of the value that lies between
// at and end.
func (s *fastState) after(a *fastAfter, at, end int) bool {
	for i := range a.tests {
		if !s.test(&a.tests[i], at) {
			return false
		}
	}
	return a.hybrid < 0 || s.hybrid(&s.p.hybrids[a.hybrid], at, end)
}

func (s *fastState) test(t *fastTest, at int) bool {
	switch t.op {
	case testAny:
		for _, b := range t.branches {
			if s.try(b, at) {
				return true
			}
		}
		return false
	case testOne:
		matched := 0
		for _, b := range t.branches {
			if s.try(b, at) {
				if matched++; matched > 1 {
					return false
				}
			}
		}
		return matched == 1
	case testNot:
		return !s.try(t.branches[0], at)
	default: // testIf: condition, then, else
		next := t.branches[2]
		if s.try(t.branches[0], at) {
			next = t.branches[1]
		}
		return next < 0 || s.try(next, at)
	}
}

// hybrid has the general engine decide a part of the payload.
func (s *fastState) hybrid(h *fastHybrid, at, end int) bool {
	d, fault := s.p.general.read(s.text[at:end], s.p.limits)
	if fault != nil {
		return false
	}
	defer d.release()
	ok := d.eval.decideAll(h.nodes)
	s.steps += d.eval.work
	return ok
}

// decideAll decides whether the whole tape satisfies every one of the schemas,
// with nothing undeclared where the policy closes objects.
func (e *evaluator) decideAll(nodes []*node) bool {
	for _, n := range nodes {
		if !e.eval(n, 0, nil, nil) {
			return false
		}
	}
	return !e.over() && (!e.p.closing || e.closed(nil))
}

// skipSpace returns the position of the first byte that is no white space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && text[i] <= ' ' {
		switch text[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}
