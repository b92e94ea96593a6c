package contract

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// automaton matches a text against one or more patterns in one pass, whatever
// they are: the automaton without choice that stands for all of them, worked
// out when the contract is compiled. It is exact, or it is not made: what would
// have too many states has none.
type automaton struct {
	ascii [utf8.RuneSelf]uint8 // class by character
	low   []rune               // lowest character of each class
	next  []uint16             // state × class → state
	ends  []uint16             // state → which of sets it matches, if the text ends there
	stays []bool               // states that no character leads out of
	// sets are the combinations of patterns that some text matches, or that
	// match at one place of it.
	sets [][]int32
	// found says of each state, in an automaton that forgets, which of sets
	// matches where it is reached; masks are the sets. States of others know what
	// matched before.
	found []uint16
	masks []patternMask
}

// patternMask has a bit for each pattern.
type patternMask [4]uint64

func (m *patternMask) add(o *patternMask) {
	for w := range m {
		m[w] |= o[w]
	}
}

// Bounds of one automaton and of the work of making it; and of all automata of
// one contract together, in entries of their tables.
const (
	maxAutomatonStates = 512
	maxAutomatonCells  = 1 << 14
	maxAutomatonWork   = 1 << 14 // for each pattern
	maxAutomataCells   = 1 << 20
	maxAutomataWork    = 1 << 21
)

// automata is what may still be spent on the automata of one contract.
type automata struct{ cells, work int }

func newAutomata() *automata { return &automata{maxAutomataCells, maxAutomataWork} }

// automatonWork is what matching costs in units of work, beside one for each
// byte.
const automatonWork = 4

// match returns which of the sets a text matches, in an automaton that does not
// forget.
func (a *automaton) match(text []byte) int {
	state, classes := 0, len(a.low)
	for i := 0; i < len(text) && !a.stays[state]; {
		c := text[i]
		if c < utf8.RuneSelf {
			state = int(a.next[state*classes+int(a.ascii[c])])
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		state = int(a.next[state*classes+a.class(r)])
		i += size
	}
	return int(a.ends[state])
}

// appendMatches adds the patterns that a text matches, in order.
func (a *automaton) appendMatches(out []int32, text []byte) []int32 {
	if a.found == nil {
		return append(out, a.sets[a.match(text)]...)
	}
	state, classes := 0, len(a.low)
	mask := a.masks[a.found[0]]
	for i := 0; i < len(text) && !a.stays[state]; {
		class, size := 0, 1
		if c := text[i]; c < utf8.RuneSelf {
			class = int(a.ascii[c])
		} else {
			var r rune
			r, size = utf8.DecodeRune(text[i:])
			class = a.class(r)
		}
		state = int(a.next[state*classes+class])
		i += size
		if set := a.found[state]; len(a.sets[set]) > 0 {
			mask.add(&a.masks[set])
		}
	}
	mask.add(&a.masks[a.ends[state]])
	for w := range mask {
		eachBit(w, mask[w], func(i int) { out = append(out, int32(i)) })
	}
	return out
}

// matchesAny reports whether a text matches a pattern, in an automaton that
// does not forget.
func (a *automaton) matchesAny(text []byte) bool { return len(a.sets[a.match(text)]) > 0 }

func (a *automaton) class(r rune) int {
	i, found := slices.BinarySearch(a.low, r)
	if !found {
		i--
	}
	return i
}

// makeAny makes the automaton of patterns, which forgets if it would be too
// large otherwise, or returns nil. Patterns that may match anywhere have many
// states together: one for each way to have matched some of them.
func (left *automata) makeAny(patterns []*pattern) *automaton {
	a := left.make(patterns, false)
	if a == nil && len(patterns) > 1 {
		a = left.make(patterns, true)
	}
	return a
}

// make makes the automaton of patterns, or returns nil. If it forgets, its
// states do not know what matched before.
func (left *automata) make(patterns []*pattern, forgets bool) *automaton {
	if forgets && len(patterns) > 64*len(patternMask{}) {
		return nil
	}
	b := &automatonBuilder{a: &automaton{}, forgets: forgets, states: map[string]uint16{}, sets: map[string]uint16{}}
	bounds := map[rune]bool{}
	for i, p := range patterns {
		if !b.add(p, int32(i), bounds) {
			return nil
		}
	}
	if b.borders {
		for _, r := range "\n\v0:A[_`a{" { // where words and lines begin and end
			bounds[r] = true
		}
	}
	for r := range bounds {
		b.a.low = append(b.a.low, r)
	}
	if len(b.a.low) > maxWidthClasses {
		return nil
	}
	slices.Sort(b.a.low)
	for c := range b.a.ascii {
		b.a.ascii[c] = uint8(b.a.class(rune(c)))
	}
	ok := b.build(min(maxAutomatonCells, left.cells), min(maxAutomatonWork*len(patterns), left.work))
	left.work -= b.work
	if !ok {
		return nil
	}
	left.cells -= len(b.a.next)
	if forgets {
		b.a.masks = make([]patternMask, len(b.a.sets))
		for i, set := range b.a.sets {
			for _, p := range set {
				b.a.masks[i][p>>6] |= 1 << (p & 63)
			}
		}
	}
	return b.a
}

// makeAutomata gives patterns that are matched by themselves an automaton, and
// the patterns of one object one for all of them.
func (p *program) makeAutomata(left *automata) {
	single := func(re *pattern) {
		if !re.row.simple && re.auto == nil {
			re.auto = left.make([]*pattern{re}, false)
		}
	}
	for _, n := range p.nodes {
		if n.strings != nil && n.strings.pattern != nil {
			single(n.strings.pattern)
		}
		if o := n.object; o != nil && len(o.patterns) > 0 {
			all := make([]*pattern, len(o.patterns))
			for i := range o.patterns {
				all[i] = o.patterns[i].re
				single(all[i])
			}
			if o.auto = all[0].auto; o.auto == nil || len(all) > 1 {
				o.auto = left.makeAny(all)
			}
		}
	}
}

// automatonBuilder makes an automaton. Instructions of all programs stand in
// one list.
type automatonBuilder struct {
	a        *automaton
	forgets  bool
	insts    []syntax.Inst // with their targets in this list
	owner    []int32
	starts   []uint32
	anchored []bool
	stamp    []int
	round    int
	work     int
	states   map[string]uint16
	sets     map[string]uint16
	queue    []automatonState
	borders  bool // some pattern looks at those of words or lines
	anywhere anywhere
}

// anywhere is what patterns that may begin anywhere begin with: where each class
// of characters leads from there, and what waits for an assertion.
type anywhere struct {
	to         [][]uint32
	assertions []uint32
	matched    []int32
}

func (b *automatonBuilder) beginAnywhere() {
	var from []uint32
	for i, start := range b.starts {
		if !b.anchored[i] {
			from = append(from, start)
		}
	}
	w := &b.anywhere
	pcs, matched := b.closure(from, nil, nil)
	w.matched, w.to = matched, make([][]uint32, len(b.a.low))
	for _, pc := range pcs {
		in := &b.insts[pc]
		if in.Op == syntax.InstEmptyWidth {
			w.assertions = append(w.assertions, pc)
			continue
		}
		for class, r := range b.a.low {
			if in.MatchRune(r) {
				w.to[class] = append(w.to[class], in.Out)
			}
		}
	}
}

// automatonState is a set of instructions that wait for what comes next, with
// the patterns that matched already, or here where it forgets, and what came before: one of the characters
// that assertions tell apart, or nothing. What waits in every state but the
// first, as patterns may begin anywhere, is not listed: see anywhere.
type automatonState struct {
	pcs     []uint32
	matched []int32
	last    rune
}

// nothing stands for what is before a text, and behind it.
const nothing = -1

// lastOf returns what assertions need to know of a character.
func (b *automatonBuilder) lastOf(r rune) rune {
	switch {
	case !b.borders:
	case r == '\n':
		return '\n'
	case syntax.IsWordChar(r):
		return 'a'
	}
	return ' '
}

func (b *automatonBuilder) add(p *pattern, index int32, bounds map[rune]bool) bool {
	_, prog, err := parsePattern(p.String())
	if err != nil {
		return false
	}
	classes := runeClasses(prog)
	if classes == nil {
		return false
	}
	for _, r := range classes {
		bounds[r] = true
	}
	shift := uint32(len(b.insts))
	for _, in := range prog.Inst {
		switch in.Op {
		case syntax.InstEmptyWidth:
			b.borders = b.borders || syntax.EmptyOp(in.Arg)&^(syntax.EmptyBeginText|syntax.EmptyEndText) != 0
			in.Out += shift
		case syntax.InstAlt, syntax.InstAltMatch:
			in.Out, in.Arg = in.Out+shift, in.Arg+shift
		case syntax.InstMatch, syntax.InstFail:
		default:
			in.Out += shift
		}
		b.insts, b.owner = append(b.insts, in), append(b.owner, index)
	}
	b.starts = append(b.starts, uint32(prog.Start)+shift)
	b.anchored = append(b.anchored, prog.StartCond()&syntax.EmptyBeginText != 0)
	return true
}

func (b *automatonBuilder) build(cells, work int) bool {
	b.stamp = make([]int, len(b.insts))
	b.beginAnywhere()
	b.state(b.starts, nil, nothing)
	classes := len(b.a.low)
	for at := 0; at < len(b.queue); at++ {
		s := b.queue[at]
		if len(b.queue) > maxAutomatonStates || len(b.queue)*classes > cells {
			return false
		}
		stays := true
		for class, r := range b.a.low {
			to := b.step(&s, class, r)
			b.a.next = append(b.a.next, to)
			stays = stays && int(to) == at
			if b.work > work {
				return false
			}
		}
		b.a.stays = append(b.a.stays, stays)
		b.a.ends = append(b.a.ends, b.end(&s))
		if b.forgets {
			b.a.found = append(b.a.found, b.set(s.matched))
		}
	}
	return true
}

// step returns the state that a character leads to.
func (b *automatonBuilder) step(s *automatonState, class int, r rune) uint16 {
	pcs, matched := b.pass(s, r)
	out := slices.Clone(b.anywhere.assertions)
	for _, pc := range pcs {
		if in := &b.insts[pc]; in.Op != syntax.InstEmptyWidth && in.MatchRune(r) {
			out = append(out, in.Out)
		}
	}
	if s.last != nothing {
		out = append(out, b.anywhere.to[class]...)
		matched = joined(matched, b.anywhere.matched)
	}
	return b.state(out, matched, b.lastOf(r))
}

func joined(a, b []int32) []int32 {
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// pass follows the assertions of a state, given what comes next.
func (b *automatonBuilder) pass(s *automatonState, next rune) (pcs []uint32, matched []int32) {
	if !b.forgets {
		matched = s.matched
	}
	if !slices.ContainsFunc(s.pcs, func(pc uint32) bool { return b.insts[pc].Op == syntax.InstEmptyWidth }) {
		return s.pcs, matched
	}
	holds := syntax.EmptyOpContext(s.last, next)
	return b.closure(s.pcs, matched, &holds)
}

// state returns the state that instructions lead to, which is made if it is
// new.
func (b *automatonBuilder) state(from []uint32, matched []int32, last rune) uint16 {
	s := automatonState{last: last}
	s.pcs, s.matched = b.closure(from, matched, nil)
	key := make([]byte, 0, 4*(len(s.pcs)+len(s.matched))+8)
	key = binary.AppendUvarint(key, uint64(len(s.matched)))
	for _, p := range s.matched {
		key = binary.AppendUvarint(key, uint64(p))
	}
	for _, pc := range s.pcs {
		key = binary.AppendUvarint(key, uint64(pc))
	}
	key = binary.AppendVarint(key, int64(last))
	i, have := b.states[string(key)]
	if !have {
		i = uint16(len(b.queue))
		b.states[string(key)] = i
		b.queue = append(b.queue, s)
	}
	return i
}

// closure follows what takes no character. It returns what does, without the
// instructions of patterns that match and are past. Assertions are kept, or followed where
// it is known which hold.
func (b *automatonBuilder) closure(from []uint32, matched []int32, holds *syntax.EmptyOp) (pcs []uint32, all []int32) {
	all = slices.Clone(matched)
	b.round++
	stack := slices.Clone(from)
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		b.work++
		if b.stamp[pc] == b.round || b.past(pc, all) {
			continue
		}
		b.stamp[pc] = b.round
		switch in := &b.insts[pc]; in.Op {
		case syntax.InstMatch:
			if !slices.Contains(all, b.owner[pc]) {
				all = append(all, b.owner[pc])
			}
		case syntax.InstFail:
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, in.Out)
		case syntax.InstEmptyWidth:
			if holds == nil {
				pcs = append(pcs, pc)
			} else if syntax.EmptyOp(in.Arg)&^*holds == 0 {
				stack = append(stack, in.Out)
			}
		default:
			pcs = append(pcs, pc)
		}
	}
	pcs = slices.DeleteFunc(pcs, func(pc uint32) bool { return b.past(pc, all) })
	slices.Sort(pcs)
	slices.Sort(all)
	return pcs, all
}

// past reports whether an instruction is of a pattern that matched, and need
// not be followed. Where that is forgotten, states would tell it apart.
func (b *automatonBuilder) past(pc uint32, matched []int32) bool {
	return !b.forgets && slices.Contains(matched, b.owner[pc])
}

// end returns the set that a state matches where the text ends.
func (b *automatonBuilder) end(s *automatonState) uint16 {
	_, all := b.pass(s, nothing)
	return b.set(all)
}

// set returns the number of a combination of patterns.
func (b *automatonBuilder) set(all []int32) uint16 {
	var key []byte
	for _, p := range all {
		key = binary.AppendUvarint(key, uint64(p))
	}
	i, have := b.sets[string(key)]
	if !have {
		i = uint16(len(b.a.sets))
		b.sets[string(key)] = i
		b.a.sets = append(b.a.sets, all)
	}
	return i
}
