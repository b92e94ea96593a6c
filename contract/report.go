package contract

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate"
)

// finding is one fault before it is put into words.
type finding struct {
	code    headgate.ViolationCode
	val     int32  // the value at fault; the object, when a member is missing
	name    string // of a missing member
	n       *node  // schema that found it
	keyword string
	arg     int // a count or an index, by keyword
	arg2    int
	types   typeSet     // of wrong_type, over several branches
	words   []string    // missing names, over several branches, or the name that asks
	list    *wantedList // what several branches want
}

// A report looks for so many faults, and for so many in the branches of unions
// that it compares. There the look ends: a report lists
// [headgate.MaxViolations], and how long counting the rest takes would be the
// sender's choice.
const (
	maxSought   = 1024
	maxCompared = 2048
)

// report collects the faults of one payload.
type report struct {
	t      *tape
	e      *evaluator // that counts what was found
	branch bool       // of one branch of a union
	list   []finding
	marks  []int32 // values that a failed branch declared
}

func (r *report) add(f finding) {
	if r.e != nil && !r.e.mayFind(r.branch) {
		return
	}
	r.list = append(r.list, f)
}

// mayFind counts a fault, or ends the look where there were enough: what was
// found is told then.
func (e *evaluator) mayFind(branch bool) bool {
	left := &e.sought
	if branch {
		left = &e.compared
	}
	if *left == 0 {
		e.limit = -1
		return false
	}
	*left--
	return true
}

func (r *report) addCount(v int32, n *node, minKeyword string, least int, maxKeyword string, most, count int) {
	if count < least {
		r.add(finding{code: headgate.ViolationBadCount, val: v, n: n, keyword: minKeyword, arg: count})
	}
	if most >= 0 && count > most {
		r.add(finding{code: headgate.ViolationBadCount, val: v, n: n, keyword: maxKeyword, arg: count})
	}
}

// absorb takes over the findings of a branch.
func (r *report) absorb(o *report) {
	for i := range o.list {
		r.add(o.list[i])
	}
}

// offset is where a finding stands in the payload.
func (r *report) offset(f *finding) int32 {
	v := &r.t.values[f.val]
	if f.code == headgate.ViolationUnknownProperty {
		return v.nameStart
	}
	return v.start
}

// compare orders findings by place, then by code; the rest makes the order
// total, so that it never depends on the order of evaluation.
func (r *report) compare(a, b *finding) int {
	if c := cmp.Compare(r.offset(a), r.offset(b)); c != 0 {
		return c // most of the time
	}
	if c := cmp.Compare(a.code, b.code); c != 0 {
		return c
	}
	if c := cmp.Compare(a.val, b.val); c != 0 {
		return c
	}
	if c := cmp.Compare(a.name, b.name); c != 0 {
		return c
	}
	if a.n != b.n {
		if c := cmp.Compare(a.n.at, b.n.at); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(a.keyword, b.keyword), cmp.Compare(a.arg, b.arg))
}

func (r *report) sort() {
	for i := 1; i < len(r.list); i++ {
		if r.compare(&r.list[i-1], &r.list[i]) > 0 { // they often come in order
			slices.SortStableFunc(r.list, func(a, b finding) int { return r.compare(&a, &b) })
			return
		}
	}
}

// same reports whether two findings tell the sender the same, so that only the
// first is worth a line.
func same(a, b finding) bool {
	if a.code != b.code || a.val != b.val || a.name != b.name {
		return false
	}
	switch a.code {
	case headgate.ViolationMissingRequired, headgate.ViolationUnknownProperty, headgate.ViolationNotUnique, headgate.ViolationDependency:
		return true
	}
	return a.n == b.n && a.keyword == b.keyword
}

// finish orders the findings and drops repeated ones.
func (r *report) finish() {
	r.sort()
	r.list = slices.CompactFunc(r.list, same)
}

// explainUnion adds why no branch of a union matched: the faults of the branch
// that the value most likely meant, and of that branch alone.
func (e *evaluator) explainUnion(n *node, u *union, keyword string, v int32, rep *report) {
	if u.disc != nil && e.t.values[v].kind == kindObject {
		e.explainDiscriminated(n, u, keyword, v, rep)
		return
	}
	var likely []*branchReport
	defer func(spared int) { e.spared = spared }(e.spared)
	var types typeSet
	for i, b := range u.branches {
		if t := e.otherType(b, v); t != 0 {
			types |= t
			continue
		}
		br := e.diagnose(b, i, v)
		if e.over() {
			rep.add(finding{code: headgate.ViolationNoBranch, val: v, n: n, keyword: keyword})
			return
		}
		if t := br.typeMismatch(v); t != 0 {
			types |= t
			continue
		}
		likely = append(likely, br)
	}
	switch {
	case len(likely) == 0 && types != 0:
		rep.add(finding{code: headgate.ViolationWrongType, val: v, n: n, keyword: keyword, types: types})
	case len(likely) == 1:
		e.take(rep, &likely[0].report)
	case e.mergeValues(n, u, keyword, likely, rep), e.mergeMissing(n, keyword, v, likely, rep):
	default:
		best := slices.MinFunc(likely, func(a, b *branchReport) int {
			return cmp.Or(cmp.Compare(a.misnamed(e.t, v), b.misnamed(e.t, v)), cmp.Compare(len(a.list), len(b.list)), cmp.Compare(a.index, b.index))
		})
		if len(best.list) == 0 {
			rep.add(finding{code: headgate.ViolationNoBranch, val: v, n: n, keyword: keyword})
			return
		}
		e.take(rep, &best.report)
	}
}

// explainDiscriminated explains a union whose branch a property chooses.
func (e *evaluator) explainDiscriminated(n *node, u *union, keyword string, v int32, rep *report) {
	defer func(spared int) { e.spared = spared }(e.spared)
	if chosen := e.candidates(u, v); chosen != nil {
		br := e.diagnose(chosen[0], 0, v)
		e.take(rep, &br.report)
		return
	}
	child := e.find(v, u.disc.name)
	e.declareBranches(u, v)
	list := u.disc.wantedList()
	if child < 0 {
		rep.add(finding{code: headgate.ViolationMissingRequired, val: v, name: u.disc.name, n: n, keyword: keyword, list: list})
		return
	}
	rep.add(finding{code: headgate.ViolationNotInEnum, val: child, n: n, keyword: keyword, list: list})
}

// maxSpokenBranches bounds the branches that are asked what they declare when
// nobody can say which one was meant.
const maxSpokenBranches = 16

// declareBranches takes as declared what any branch of a union declares; of a
// union of many branches, all that the value holds.
func (e *evaluator) declareBranches(u *union, v int32) {
	switch {
	case e.declared == nil:
	case len(u.branches) > maxSpokenBranches:
		for i := v + 1; i < e.t.values[v].next; i++ {
			e.declare(i)
		}
		e.work += int(e.t.values[v].next-v) / 4
	default:
		for _, b := range u.branches {
			e.restore(e.diagnose(b, 0, v).marks)
		}
	}
}

// branchReport is why one branch of a union does not match.
type branchReport struct {
	report
	index int
}

func (e *evaluator) diagnose(b *node, index int, v int32) *branchReport {
	if e.spared == len(e.spare) {
		e.spare = append(e.spare, &branchReport{})
	}
	br := e.spare[e.spared]
	e.spared++
	*br = branchReport{report: report{t: e.t, e: e, branch: true, list: br.list[:0], marks: br.marks[:0]}, index: index}
	mark := len(e.undo)
	e.eval(b, v, nil, &br.report)
	br.marks = append(br.marks, e.rollback(mark)...)
	br.finish()
	return br
}

// otherType returns the types that a branch wants, when nothing but the type of
// the value itself is what it would say of it.
func (e *evaluator) otherType(b *node, v int32) typeSet {
	e.work++
	for range maxChain {
		if !b.onlyRefers {
			break
		}
		b = b.ref
	}
	if k := e.t.values[v].kind; b.types == 0 || b.types&(1<<k) != 0 || k == kindNumber && b.types&typeInteger != 0 {
		return 0
	}
	return b.types
}

// take makes a branch's findings and declarations those of the payload.
func (e *evaluator) take(rep, branch *report) {
	e.restore(branch.marks)
	rep.absorb(branch)
}

func (e *evaluator) restore(marks []int32) {
	for _, i := range marks {
		e.declare(i)
	}
}

// typeMismatch returns the types that the branch wants, when it failed because
// the value itself has another.
func (b *branchReport) typeMismatch(v int32) typeSet {
	var t typeSet
	for _, f := range b.list {
		if f.val == v && f.code == headgate.ViolationWrongType {
			if f.types != 0 {
				t |= f.types
			} else {
				t |= f.n.types
			}
		}
	}
	return t
}

// misnamed counts the members of the value whose fixed value is another: signs
// that the value was not meant for this branch.
func (b *branchReport) misnamed(t *tape, v int32) int {
	n := 0
	for _, f := range b.list {
		fixed := f.code == headgate.ViolationNotConst || f.code == headgate.ViolationNotInEnum
		if fixed && (f.val == v || t.values[f.val].parent == v) {
			n++
		}
	}
	return n
}

// mergeValues handles branches that all ask for another fixed value at one and
// the same place: what is wanted is any of their values.
func (e *evaluator) mergeValues(n *node, u *union, keyword string, branches []*branchReport, rep *report) bool {
	place := int32(-1)
	from := make([]wantedSource, 0, len(branches))
	for _, b := range branches {
		found := false
		for _, f := range b.list {
			if f.code != headgate.ViolationNotConst && f.code != headgate.ViolationNotInEnum {
				continue
			}
			if place >= 0 && f.val != place {
				continue
			}
			place, found = f.val, true
			from = append(from, wantedSource{f.n, f.keyword, f.list})
			break
		}
		if !found {
			return false
		}
	}
	for _, b := range branches {
		e.restore(b.marks)
	}
	rep.add(finding{code: headgate.ViolationNotInEnum, val: place, n: n, keyword: keyword, list: u.merge(from)})
	return true
}

// mergeMissing handles branches that all ask for members that are not there.
func (e *evaluator) mergeMissing(n *node, keyword string, v int32, branches []*branchReport, rep *report) bool {
	var words []string
	for _, b := range branches {
		if len(b.list) != 1 || b.list[0].code != headgate.ViolationMissingRequired || b.list[0].val != v {
			return false
		}
		words = append(words, b.list[0].name)
	}
	for _, b := range branches {
		e.restore(b.marks)
	}
	rep.add(finding{code: headgate.ViolationNoBranch, val: v, n: n, keyword: keyword, words: words})
	return true
}
