package contract

import (
	"slices"

	"github.com/headgate/headgate"
)

// stepper finds steps for the faults of one text.
type stepper struct {
	e       *evaluator
	level   repairLevel
	search  nearSearch
	renamed []int32
	out     []edit
}

// edits returns the steps of one round, none when some fault has no step:
// mending the others would not make the payload valid. A fault of the second
// round may be one that a step of the first uncovers, so what there is goes
// first.
func (s *stepper) edits(faults []finding) []edit {
	s.renamed, s.out = s.renamed[:0], s.out[:0]
	for pass := range 2 { // names that are missing first: they use up unknown ones
		for i := range faults {
			f := &faults[i]
			missing := f.code == headgate.ViolationMissingRequired || f.code == headgate.ViolationDependency
			if missing == (pass == 0) && !s.step(f) {
				return nil
			}
		}
	}
	return s.out
}

// take keeps an edit that could be made.
func (s *stepper) take(x edit, ok bool) bool {
	if ok {
		s.out = append(s.out, x)
	}
	return ok
}

func (s *stepper) step(f *finding) bool {
	switch f.code {
	case headgate.ViolationMissingRequired, headgate.ViolationDependency:
		return s.missing(f)
	case headgate.ViolationUnknownProperty:
		return s.unknown(f)
	case headgate.ViolationWrongType:
		return s.wrongType(f)
	case headgate.ViolationNotConst, headgate.ViolationNotInEnum:
		return s.notInEnum(f)
	case headgate.ViolationBadFormat:
		return s.badFormat(f)
	case headgate.ViolationBadPattern, headgate.ViolationBadLength:
		return s.trimmed(f.val)
	case headgate.ViolationForbidden:
		return s.level > levelLossless && s.dropMember(f.val)
	}
	return false
}

func (s *stepper) dropMember(v int32) bool {
	return s.drop(v, headgate.StepDrop, 0.3)
}

// drop takes a member away, unless its place may not be shown.
func (s *stepper) drop(v int32, step headgate.RepairStep, confidence float64) bool {
	return s.e.hiddenPath(v) < 0 && s.take(s.e.t.drop(v, step, confidence))
}

// rename gives a member another name, unless its own may not be shown.
func (s *stepper) rename(v int32, kind nameKind, name string) bool {
	s.renamed = append(s.renamed, v)
	return s.e.hiddenPath(v) < 0 && s.take(s.e.t.rename(v, kind.step, kind.confidence, name))
}

// How sure a rename is, by how the name was found.
const (
	sureTokens = 0.9
	sureNear   = 0.7
)

// missing renames a member that is likely the missing one, or adds the only
// value that there is for it.
func (s *stepper) missing(f *finding) bool {
	v := s.e.vocabulary(f.val, f.n)
	want := newNearName(f.name)
	for _, kind := range s.kinds() {
		if kind.bySum() && !v.strangerSums.mayHave(want.sum) || kind.like == likeAlias && !s.e.p.aliased || s.spent(kind) {
			continue
		}
		s.e.looked += len(v.strangers)
		var found *stranger
		for i := range v.strangers {
			x := &v.strangers[i]
			if slices.Contains(s.renamed, x.val) || !s.standsFor(kind, v, x, &want, false) || !s.e.stray(v, x) {
				continue
			}
			if found != nil {
				return false // who could say which one
			}
			found = x
		}
		if found != nil && s.unambiguous(kind, v, found, f.name) && s.e.distances > 0 {
			return s.rename(found.val, kind, f.name)
		}
	}
	if s.level == levelLossless || s.e.hiddenProperty(f.val, f.name) || s.e.hiddenPath(f.val) >= 0 {
		return false
	}
	value := onlyValue(f.n.property(f.name, 8))
	return value != nil && s.take(s.e.t.insert(f.val, f.name, value, headgate.StepDefault, 0.5))
}

// onlyValue returns the value that a schema names for a property that is
// absent, or the only one that it allows.
func onlyValue(n *node) []byte {
	for range 8 {
		switch {
		case n == nil:
			return nil
		case n.fallback != nil:
			return n.fallback
		case n.konst != nil:
			return fallbackOf(n.konst.value)
		case n.enum != nil && len(n.enum.values) == 1:
			return fallbackOf(n.enum.values[0].value)
		}
		n = n.ref
	}
	return nil
}

// nameKind is one way in which a name may stand for a declared one.
type nameKind struct {
	like       likeness
	step       headgate.RepairStep
	confidence float64
}

type likeness uint8

const (
	likeAlias likeness = iota
	likeFolded
	likeWords
	likeNear
)

// nameKinds lists the ways, the surest first. Those from guessKinds on are
// guesses.
var nameKinds = [...]nameKind{
	{likeAlias, headgate.StepAlias, 1},
	{likeFolded, headgate.StepSpelling, 1},
	{likeWords, headgate.StepRename, sureTokens},
	{likeNear, headgate.StepRename, sureNear},
}

const guessKinds = 2

// spent reports whether no more names may be compared in a way.
func (s *stepper) spent(kind nameKind) bool {
	return s.e.distances <= 0 && (kind.like == likeWords || kind.like == likeNear)
}

// bySum reports whether names that stand for one another in this way have the
// same sum.
func (k nameKind) bySum() bool { return k.like == likeFolded || k.like == likeWords }

// kinds lists the ways that the level allows.
func (s *stepper) kinds() []nameKind {
	if s.level == levelHints {
		return nameKinds[:]
	}
	return nameKinds[:guessKinds]
}

// standsFor reports whether the name of a member stands, in one way, for a
// declared one. The caller goes through declared names for one member, or
// through members for one declared name.
func (s *stepper) standsFor(kind nameKind, v *vocabulary, x *stranger, declared *nearName, oneMember bool) bool {
	name := &x.near
	switch kind.like {
	case likeAlias:
		return slices.Contains(s.e.aliases(v, x), declared.text)
	case likeFolded:
		return sameFolded(name, declared)
	case likeWords:
		if name.sum != declared.sum || s.e.distances <= 0 {
			return false
		}
		s.e.distances--
		set := tokenSet(name.text)
		return set != "" && set == tokenSet(declared.text)
	}
	if name.runes < 0 || declared.runes < 0 {
		return false
	}
	limit := nearLimit(len(name.text))
	if name.sum != declared.sum && !mayBeWithin(name, declared, limit) {
		return false
	}
	fixed, other := declared, name
	if oneMember {
		fixed, other = name, declared
	}
	if s.search.name.text != fixed.text {
		s.search.begin(*fixed, &s.e.distances)
	}
	s.search.limit = limit
	_, ok := s.search.like(other)
	return ok
}

// unambiguous reports whether a member stands, in this way, for one declared
// name alone.
func (s *stepper) unambiguous(kind nameKind, v *vocabulary, x *stranger, want string) bool {
	s.e.looked += len(v.declared)
	for _, d := range v.declared {
		if d.text != want && s.standsFor(kind, v, x, d, true) && v.absent(d.text) {
			return false
		}
	}
	return true
}

// unknown renames a member that stands for a declared one, or drops it.
func (s *stepper) unknown(f *finding) bool {
	if slices.Contains(s.renamed, f.val) {
		return true
	}
	if f.keyword == "propertyNames" {
		return s.level > levelLossless && s.dropMember(f.val)
	}
	v := s.e.vocabulary(s.e.t.values[f.val].parent, f.n)
	x := &stranger{val: f.val, near: newNearName(string(s.e.t.name(f.val)))}
	for _, kind := range s.kinds() {
		if kind.bySum() && !v.sums.mayHave(x.near.sum) || kind.like == likeAlias && len(s.e.aliases(v, x)) == 0 || s.spent(kind) {
			continue
		}
		s.e.looked += len(v.declared)
		var found *nearName
		tie := false
		for _, d := range v.declared {
			if s.standsFor(kind, v, x, d, true) && v.absent(d.text) {
				tie = tie || found != nil
				found = d
			}
		}
		if tie {
			break // it is refused
		}
		if found != nil && s.onlyOne(kind, v, f.val, found) && s.e.distances > 0 {
			return s.rename(f.val, kind, found.text)
		}
	}
	return s.level > levelLossless && s.dropMember(f.val)
}

// onlyOne reports whether no other member stands for the declared name too.
func (s *stepper) onlyOne(kind nameKind, v *vocabulary, val int32, declared *nearName) bool {
	s.e.looked += len(v.strangers)
	for i := range v.strangers {
		x := &v.strangers[i]
		if x.val != val && s.standsFor(kind, v, x, declared, false) && s.e.stray(v, x) {
			return false
		}
	}
	return true
}
