package contract

import (
	"strings"

	"github.com/headgate/headgate"
)

// stepper finds steps for the faults of one text.
type stepper struct {
	e       *evaluator
	level   repairLevel
	renamed map[int32]bool
	out     []edit
}

// edits returns the steps of one round, none when some fault has no step:
// mending the others would not make the payload valid. A fault of the second
// round may be one that a step of the first uncovers, so what there is goes
// first.
func (s *stepper) edits(faults []finding) []edit {
	s.renamed = map[int32]bool{}
	open := 0
	for pass := range 2 { // names that are missing first: they use up unknown ones
		for i := range faults {
			f := &faults[i]
			missing := f.code == headgate.ViolationMissingRequired || f.code == headgate.ViolationDependency
			if missing == (pass == 0) && !s.step(f) {
				open++
			}
		}
	}
	if open > 0 {
		return nil
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
	s.renamed[v] = true
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
	for _, kind := range s.nameKinds() {
		var found []int32
		for _, v := range s.strangers(f.val, f.n) {
			if !s.renamed[v] && kind.matches(s, f.val, f.n, string(s.e.t.name(v)), f.name) {
				found = append(found, v)
			}
		}
		if len(found) > 1 {
			return false // who could say which one
		}
		if len(found) == 1 && s.unambiguous(kind, found[0], f.n, f.name) {
			return s.rename(found[0], kind, f.name)
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
	step       headgate.RepairStep
	confidence float64
	matches    func(s *stepper, object int32, n *node, name, declared string) bool
}

// nameKinds lists the ways that the level allows, the surest first.
func (s *stepper) nameKinds() []nameKind {
	kinds := []nameKind{
		{headgate.StepAlias, 1, func(s *stepper, object int32, n *node, name, declared string) bool {
			return s.e.isAlias(object, n, name, declared)
		}},
		{headgate.StepSpelling, 1, func(_ *stepper, _ int32, _ *node, name, declared string) bool {
			return foldName(name) == foldName(declared)
		}},
	}
	if s.level == levelHints {
		kinds = append(kinds,
			nameKind{headgate.StepRename, sureTokens, func(_ *stepper, _ int32, _ *node, name, declared string) bool {
				set := tokenSet(name)
				return set != "" && set == tokenSet(declared)
			}},
			nameKind{headgate.StepRename, sureNear, func(_ *stepper, _ int32, _ *node, name, declared string) bool {
				return len(nearest(name, []string{declared})) == 1
			}})
	}
	return kinds
}

// foldName leaves case and the signs between words out of a name. A name of
// signs alone is like no other.
func foldName(name string) string {
	folded := strings.Map(func(r rune) rune {
		switch {
		case r == '_' || r == '-' || r == ' ' || r == '.':
			return -1
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return r
	}, name)
	if folded == "" {
		return name
	}
	return folded
}

// absent lists the declared names that the object does not have.
func (s *stepper) absent(object int32, n *node) []string {
	known := map[string]bool{}
	n.declaredNames(known, 4)
	for _, a := range s.e.applied[object] {
		a.declaredNames(known, 4)
	}
	end := s.e.t.values[object].next
	for child := object + 1; child < end; child = s.e.t.values[child].next {
		delete(known, string(s.e.t.name(child)))
	}
	return sortedKeys(known)
}

// strangers lists the members of an object that no schema that applied to it
// declares, by a pattern neither.
func (s *stepper) strangers(object int32, n *node) []int32 {
	known := map[string]bool{}
	n.declaredNames(known, 4)
	for _, a := range s.e.applied[object] {
		a.declaredNames(known, 4)
	}
	var out []int32
	end := s.e.t.values[object].next
	for child := object + 1; child < end && len(out) < nearCandidates; child = s.e.t.values[child].next {
		if v := &s.e.t.values[child]; v.nameEnd-v.nameStart <= maxPathToken+2 && !known[string(s.e.t.name(child))] && !s.fitsPattern(child, object, n) {
			out = append(out, child)
		}
	}
	return out
}

// fitsPattern reports whether a schema that applied to the object has a pattern
// that the member's name matches: it is meant to have that name.
func (s *stepper) fitsPattern(member, object int32, n *node) bool {
	name := s.e.t.name(member)
	for _, a := range append([]*node{n}, s.e.applied[object]...) {
		if a.object != nil && a.object.fitsPattern(name) {
			return true
		}
	}
	return false
}

// unambiguous reports whether a member stands, in this way, for one declared
// name alone.
func (s *stepper) unambiguous(kind nameKind, member int32, n *node, want string) bool {
	object, name := s.e.t.values[member].parent, string(s.e.t.name(member))
	for _, declared := range s.absent(object, n) {
		if declared != want && kind.matches(s, object, n, name, declared) {
			return false
		}
	}
	return true
}

// unknown renames a member that stands for a declared one, or drops it.
func (s *stepper) unknown(f *finding) bool {
	if s.renamed[f.val] {
		return true
	}
	object, name := s.e.t.values[f.val].parent, string(s.e.t.name(f.val))
	if f.keyword == "propertyNames" {
		return s.level > levelLossless && s.dropMember(f.val)
	}
	absent := s.absent(object, f.n)
	for _, kind := range s.nameKinds() {
		var found []string
		for _, declared := range absent {
			if kind.matches(s, object, f.n, name, declared) {
				found = append(found, declared)
			}
		}
		if len(found) > 1 {
			break // a tie is refused
		}
		if len(found) == 1 && s.onlyOne(kind, f, found[0]) {
			return s.rename(f.val, kind, found[0])
		}
	}
	return s.level > levelLossless && s.dropMember(f.val)
}

// onlyOne reports whether no other member stands for the declared name too.
func (s *stepper) onlyOne(kind nameKind, f *finding, declared string) bool {
	object := s.e.t.values[f.val].parent
	for _, v := range s.strangers(object, f.n) {
		if v != f.val && kind.matches(s, object, f.n, string(s.e.t.name(v)), declared) {
			return false
		}
	}
	return true
}
