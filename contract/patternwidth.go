package contract

import (
	"regexp/syntax"
	"slices"
	"unicode"
)

// The price of matching, in units of work. A byte costs RE2 some 4 ns for each
// instruction that it may have to look at there, and a match some 150 ns
// besides; with a budget of 128 units a byte, patterns then take about a
// millisecond for each 10 KB of a payload, whatever they are.
const (
	matchWork     = 96
	matchByteWork = 6
	// A row of classes is matched byte by byte, in a nanosecond or two each.
	rowWork = 8
	// The fast engine's units are larger, and its budget is smaller.
	fastMatchShare = 4
	// The search for a pattern's width looks at each instruction so often on
	// average, and tells so many classes of characters apart.
	maxWidthSearch  = 128
	maxWidthClasses = 128
)

// work returns what matching a text of n bytes costs.
func (p *pattern) work(n int) int {
	if p.row.simple {
		return rowWork + n
	}
	if p.auto != nil {
		return automatonWork + n
	}
	return matchWork + matchByteWork*n*p.width
}

// widthSearch finds how many instructions of a program one character may make
// the matcher look at: the size of the largest state of the automaton without
// choice that stands for it.
type widthSearch struct {
	prog  *syntax.Prog
	left  int // instructions that may still be looked at
	stamp []int
	round int
	stack []uint32
}

// patternWidth returns the width of a program, and the number of its
// instructions where the search takes too long. It is an upper bound: what an
// assertion of an empty text (\b, $) could rule out is counted.
func patternWidth(prog *syntax.Prog) int {
	classes := runeClasses(prog)
	if classes == nil {
		return len(prog.Inst)
	}
	s := &widthSearch{prog: prog, left: maxWidthSearch * len(prog.Inst), stamp: make([]int, len(prog.Inst))}
	start := []uint32{uint32(prog.Start)}
	anchored := prog.StartCond()&syntax.EmptyBeginText != 0
	first, width := s.closure(start)
	seen, queue := map[string]bool{stateKey(first): true}, [][]uint32{first}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		for _, r := range classes {
			var next []uint32
			if !anchored {
				next = append(next, start...)
			}
			for _, pc := range state {
				if prog.Inst[pc].MatchRune(r) {
					next = append(next, prog.Inst[pc].Out)
				}
			}
			if s.left -= len(state); s.left < 0 {
				return len(prog.Inst)
			}
			to, size := s.closure(next)
			width = max(width, size)
			if key := stateKey(to); !seen[key] {
				seen[key] = true
				queue = append(queue, to)
			}
		}
	}
	return max(width, 1)
}

// closure follows what takes no character. It returns the instructions that
// take one, in order, and how many were looked at.
func (s *widthSearch) closure(pcs []uint32) (state []uint32, size int) {
	s.round++
	s.stack = append(s.stack[:0], pcs...)
	for len(s.stack) > 0 {
		pc := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		if s.stamp[pc] == s.round {
			continue
		}
		s.stamp[pc] = s.round
		size++
		s.left--
		switch in := &s.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			s.stack = append(s.stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
			s.stack = append(s.stack, in.Out)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			state = append(state, pc)
		case syntax.InstMatch, syntax.InstFail:
		}
	}
	slices.Sort(state)
	return state, size
}

func stateKey(state []uint32) string {
	key := make([]byte, 0, 2*len(state))
	for _, pc := range state { // programs have fewer than 65,536 instructions
		key = append(key, byte(pc>>8), byte(pc))
	}
	return string(key)
}

// runeClasses returns one character of each class that the instructions of a
// program tell apart, nil if there are too many.
func runeClasses(prog *syntax.Prog) []rune {
	bounds := map[rune]bool{0: true}
	between := func(low, high rune) {
		bounds[low], bounds[high+1] = true, true
	}
	for i := range prog.Inst {
		switch in := &prog.Inst[i]; in.Op {
		case syntax.InstRuneAnyNotNL:
			between('\n', '\n')
		case syntax.InstRune, syntax.InstRune1:
			if len(in.Rune) == 1 {
				r := in.Rune[0]
				between(r, r)
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					between(f, f)
				}
			}
			for j := 0; j+1 < len(in.Rune); j += 2 {
				between(in.Rune[j], in.Rune[j+1])
			}
		default:
		}
		if len(bounds) > maxWidthClasses {
			return nil
		}
	}
	out := make([]rune, 0, len(bounds))
	for r := range bounds {
		out = append(out, r)
	}
	slices.Sort(out)
	return out
}
