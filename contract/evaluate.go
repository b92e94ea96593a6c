package contract

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/headgate/headgate"
)

// The budget of one check: work units, of which a visited schema takes one.
const (
	budgetBase    = 1 << 18
	budgetPerByte = 128
)

// evaluator decides one payload. With a report it goes on after a fault and
// notes each; without, it stops at the first.
type evaluator struct {
	p     *program
	t     *tape
	work  int
	limit int
	// scope is the row of resources that evaluation came through.
	scope []*resource
	// declared has a bit for every value that some schema declared, where the
	// policy closes objects; undo lists them in the order in which they were
	// set, so that a branch that failed can take its own back.
	declared []uint64
	undo     []int32
	// applied lists the schemas that spoke about an object, for near names.
	applied appliedList
	// Of reports: what objects declare and have, the distances between names that
	// may still be worked out, and what was looked at in the search for names.
	vocabularies   []vocabulary
	nextVocabulary int
	distances      int
	looked         int
	// sought and compared are how many faults may still be found, of the payload
	// and of branches; spare are reports on branches, of which so many are in
	// use.
	sought, compared int
	spare            []*branchReport
	spared           int
	rows             []int32 // of faults by branch, of unions under way
	// failed are unions of which no branch matches, where that is asked again:
	// for reports.
	reports bool
	failed  failedUnions
	// searched is what was counted last for schemas under contains.
	searched searched
	// faults are those of classes of scalars.
	faults map[classKey][]finding
	// hiding says what reports may not show; nil: nothing.
	hiding *hiding
	key    []byte
	hash   maphash.Hash
	hashes []uint64 // of values, for uniqueItems; 0: not known
	// formatted is the string that was asked for its format last, and of which.
	formatted struct {
		end        int32
		has, lacks []*format
	}
	// counted is the string whose code points were counted last.
	counted struct {
		end   int32
		runes int
	}
}

func newEvaluator(p *program, t *tape) *evaluator {
	e := &evaluator{}
	e.begin(p, t)
	return e
}

// over reports whether the budget is spent. Everything fails from then on.
func (e *evaluator) over() bool { return e.work > e.limit }

// evals is the set of children of one value that were evaluated, for the
// unevaluated keywords.
type evals struct {
	all  bool
	bits []uint64
}

func (s *evals) set(i int32) {
	w := int(i >> 6)
	for len(s.bits) <= w {
		s.bits = append(s.bits, 0)
	}
	s.bits[w] |= 1 << (i & 63)
}

func (s *evals) has(i int32) bool {
	w := int(i >> 6)
	return s.all || w < len(s.bits) && s.bits[w]&(1<<(i&63)) != 0
}

func (s *evals) merge(o *evals) {
	s.all = s.all || o.all
	for w, b := range o.bits {
		for b != 0 {
			s.set(int32(w*64 + bits.TrailingZeros64(b)))
			b &= b - 1
		}
	}
}

// fresh returns an empty set where one is needed at all.
func fresh(need *evals) *evals {
	if need == nil {
		return nil
	}
	return &evals{}
}

func (e *evaluator) declare(i int32) {
	if e.declared == nil {
		return
	}
	w, b := int(i>>6), uint64(1)<<(i&63)
	if w < len(e.declared) && e.declared[w]&b == 0 {
		e.declared[w] |= b
		e.undo = append(e.undo, i)
	}
}

func (e *evaluator) isDeclared(i int32) bool { return e.declared[i>>6]&(1<<(i&63)) != 0 }

// rollback takes back what was declared since the mark, and returns it.
func (e *evaluator) rollback(mark int) []int32 {
	taken := e.undo[mark:]
	for _, i := range taken {
		e.declared[i>>6] &^= 1 << (i & 63)
	}
	e.undo = e.undo[:mark]
	return taken
}

// eval decides whether value v satisfies n. Evaluated children are added to ev
// unless it is nil; faults are added to rep unless it is nil.
func (e *evaluator) eval(n *node, v int32, ev *evals, rep *report) bool {
	if e.work++; e.over() {
		return false
	}
	if n.always != 0 {
		if n.always < 0 && rep != nil {
			rep.add(finding{code: headgate.ViolationForbidden, val: v, n: n})
		}
		return n.always > 0
	}
	if k := e.t.values[v].kind; k >= kindArray {
		switch verdict := n.containers[k-kindArray]; {
		case verdict&classAccepted != 0:
			return true
		case verdict&classRefused != 0 && rep == nil:
			return false
		case verdict == classRefused|classPure:
			return e.repeat(n, v, classKey{n.id, k, 0}, rep)
		}
	} else if n.classes != nil {
		if done, ok := e.byClass(n, v, rep); done {
			return ok && !e.over()
		}
	}
	if !e.p.dynamic || len(e.scope) > 0 && e.scope[len(e.scope)-1] == n.res {
		return e.apply(n, v, ev, rep)
	}
	e.scope = append(e.scope, n.res)
	ok := e.apply(n, v, ev, rep)
	e.scope = e.scope[:len(e.scope)-1]
	return ok
}

func (e *evaluator) apply(n *node, v int32, ev *evals, rep *report) bool {
	if code, keyword := e.head(n, v); code != "" {
		if rep != nil && !e.over() {
			rep.add(finding{code: code, val: v, n: n, keyword: keyword})
		}
		return false
	}
	if n.ref != nil && n.draft < 2019 {
		return e.eval(n.ref, v, nil, rep)
	}
	k := e.t.values[v].kind
	own := ev
	if n.unevalProps != nil && k == kindObject || n.unevalItems != nil && k == kindArray {
		own = &evals{}
	}
	ok := e.refs(n, v, own, rep)
	if !ok && rep == nil {
		return false
	}
	switch k {
	case kindObject:
		if n.object != nil {
			ok = e.object(n, v, own, rep) && ok
		}
	case kindArray:
		if n.array != nil {
			ok = e.array(n, v, own, rep) && ok
		}
	case kindString:
		if n.strings != nil {
			ok = e.text(n, v, rep) && ok
		}
	case kindNumber:
		if n.numbers != nil {
			ok = e.number(n, v, rep) && ok
		}
	}
	if !ok && rep == nil {
		return false
	}
	ok = e.combine(n, v, own, rep) && ok
	if !ok && rep == nil {
		return false
	}
	if own != ev {
		ok = e.unevaluated(n, v, own, rep) && ok
		if ev != nil {
			ev.all = true
		}
	}
	return ok && !e.over()
}

// head checks the keywords that say what the value is. After a fault there,
// nothing more is worth saying about the value.
func (e *evaluator) head(n *node, v int32) (code headgate.ViolationCode, keyword string) {
	k := e.t.values[v].kind
	switch {
	case n.reads != nil && k == kindString:
		s := e.t.str(v)
		e.work += len(s) / 16
		if !n.reads(s) {
			return headgate.ViolationWrongType, "type"
		}
	case n.types != 0 && n.types&(1<<k) == 0:
		if k != kindNumber || n.types&typeInteger == 0 || !isInteger(e.t.raw(v)) {
			return headgate.ViolationWrongType, "type"
		}
	}
	if n.konst != nil {
		e.work += n.konst.size
		if !e.t.equalsLiteral(v, n.konst.value) {
			return headgate.ViolationNotConst, "const"
		}
	}
	if n.enum != nil && !e.inEnum(n.enum, v) {
		return headgate.ViolationNotInEnum, "enum"
	}
	if n.format != nil && k == kindString && !e.hasFormat(n.format, v) {
		return headgate.ViolationBadFormat, "format"
	}
	return "", ""
}

// hasFormat checks the format of a string, once for all schemas that ask.
func (e *evaluator) hasFormat(f *format, v int32) bool {
	asked := &e.formatted
	if at := e.t.values[v].end; asked.end != at {
		asked.end, asked.has, asked.lacks = at, asked.has[:0], asked.lacks[:0]
	}
	switch {
	case slices.Contains(asked.has, f):
		return true
	case slices.Contains(asked.lacks, f):
		return false
	}
	s := e.t.str(v)
	e.work += len(s) / 16
	if f.name == "regex" {
		e.work += len(s) * 16 // it is compiled
	}
	if f.check(viewString(s)) {
		asked.has = append(asked.has, f)
		return true
	}
	asked.lacks = append(asked.lacks, f)
	return false
}

func (e *evaluator) inEnum(set *enumSet, v int32) bool {
	val := &e.t.values[v]
	e.work += int(val.end-val.start) / 32
	if val.kind >= kindArray {
		if !set.composite {
			return false
		}
		e.work += int(val.next - v)
	}
	e.key = e.t.appendKey(e.key[:0], v)
	_, ok := set.keys[string(e.key)]
	return ok
}

// refs follows the references of 2019-09 and later.
func (e *evaluator) refs(n *node, v int32, ev *evals, rep *report) bool {
	ok := true
	if n.ref != nil {
		ok = e.eval(n.ref, v, ev, rep)
	}
	if n.recRef != nil && (ok || rep != nil) {
		target := n.recRef
		if target.res.recursiveAnchor {
			for _, res := range e.scope {
				if res.recursiveAnchor {
					target = res.root
					break
				}
			}
		}
		ok = e.eval(target, v, ev, rep) && ok
	}
	if n.dynRef != nil && (ok || rep != nil) {
		target := n.dynRef
		if n.dynName != "" {
			for _, res := range e.scope {
				if t := res.anchors[n.dynName]; t != nil {
					target = t
					break
				}
			}
		}
		ok = e.eval(target, v, ev, rep) && ok
	}
	return ok
}

// combine applies the keywords that combine schemas at one value.
func (e *evaluator) combine(n *node, v int32, ev *evals, rep *report) bool {
	ok := true
	if n.not != nil {
		mark := len(e.undo)
		matched := e.eval(n.not, v, nil, nil)
		e.rollback(mark)
		if matched {
			if rep == nil {
				return false
			}
			rep.add(finding{code: headgate.ViolationForbidden, val: v, n: n, keyword: "not"})
			ok = false
		}
	}
	if len(n.allOf) > 0 && !e.allOf(n, v, ev, rep) {
		if rep == nil {
			return false
		}
		ok = false
	}
	if n.anyOf != nil && !e.anyOf(n, v, ev, rep) {
		if rep == nil {
			return false
		}
		ok = false
	}
	if n.oneOf != nil && !e.oneOf(n, v, ev, rep) {
		if rep == nil {
			return false
		}
		ok = false
	}
	if n.ifs != nil {
		ok = e.conditional(n, v, ev, rep) && ok
	}
	return ok
}

func (e *evaluator) allOf(n *node, v int32, ev *evals, rep *report) bool {
	rows, k := len(e.rows), e.t.values[v].kind
	least := e.faultsOf(n.all, v)
	ok := true
	for i := 0; i < len(n.allOf) && ok && rep == nil; i++ {
		ok = !n.all.rulesOut(i, k, least)
	}
	if rep != nil && least != nil && e.applied.on && n.all.speaks != nil {
		e.applied.add(v, n.all.speaks)
	}
	for i, c := range n.allOf {
		if !ok && rep == nil {
			break
		}
		if !n.all.holds(i, k, least) {
			ok = e.eval(c, v, ev, rep) && ok
		}
	}
	e.rows = e.rows[:rows]
	return ok
}

func (e *evaluator) conditional(n *node, v int32, ev *evals, rep *report) bool {
	mark, tmp := len(e.undo), fresh(ev)
	next := n.otherwise
	if e.eval(n.ifs, v, tmp, nil) {
		next = n.then
		if ev != nil {
			ev.merge(tmp)
		}
	} else {
		e.rollback(mark)
	}
	return next == nil || e.eval(next, v, ev, rep)
}

// candidates returns the branches of a union that the value may match: all,
// or the one that the discriminator chose, or none.
func (e *evaluator) candidates(u *union, v int32) []*node {
	if u.disc == nil || e.t.values[v].kind != kindObject {
		return u.branches
	}
	child := e.find(v, u.disc.name)
	if child < 0 || e.t.values[child].kind >= kindArray {
		return nil
	}
	e.key = e.t.appendScalarKey(e.key[:0], child)
	if i, ok := u.disc.byKey[string(e.key)]; ok {
		return u.branches[i : i+1]
	}
	return nil
}

func (e *evaluator) anyOf(n *node, v int32, ev *evals, rep *report) bool {
	if e.failedBefore(n.anyOf, v) {
		if rep != nil {
			e.explainAny(n, v, rep)
		}
		return false
	}
	matched := false
	rows, k := len(e.rows), e.t.values[v].kind
	list := e.candidates(n.anyOf, v)
	pick := n.anyOf.pickFor(list)
	least := e.faultsOf(pick, v)
	for i, b := range list {
		if pick.rulesOut(i, k, least) {
			continue
		}
		mark, tmp := len(e.undo), (*evals)(nil)
		if !pick.holds(i, k, least) {
			if tmp = fresh(ev); !e.eval(b, v, tmp, nil) {
				e.rollback(mark)
				continue
			}
		}
		matched = true
		if tmp != nil {
			ev.merge(tmp)
		}
		if ev == nil && e.declared == nil {
			break
		}
	}
	e.rows = e.rows[:rows]
	if !matched && !e.over() {
		e.noteFailed(n.anyOf, v)
		if rep != nil {
			e.explainAny(n, v, rep)
		}
	}
	return matched
}

// explainAny adds why no branch of an anyOf matched.
func (e *evaluator) explainAny(n *node, v int32, rep *report) {
	if b := e.wrapped(n.anyOf, v); b != nil {
		e.eval(b, v, nil, rep)
		return
	}
	e.explainUnion(n, n.anyOf, "anyOf", v, rep)
}

func (e *evaluator) oneOf(n *node, v int32, ev *evals, rep *report) bool {
	if e.failedBefore(n.oneOf, v) {
		if rep != nil {
			e.explainUnion(n, n.oneOf, "oneOf", v, rep)
		}
		return false
	}
	first, second := -1, -1
	rows, k := len(e.rows), e.t.values[v].kind
	list := e.candidates(n.oneOf, v)
	pick := n.oneOf.pickFor(list)
	least := e.faultsOf(pick, v)
	for i, b := range list {
		if pick.rulesOut(i, k, least) {
			continue
		}
		mark, tmp := len(e.undo), (*evals)(nil)
		if !pick.holds(i, k, least) {
			if tmp = fresh(ev); !e.eval(b, v, tmp, nil) {
				e.rollback(mark)
				continue
			}
		}
		if first >= 0 {
			second = i
			break
		}
		first = i
		if tmp != nil {
			ev.merge(tmp)
		}
	}
	e.rows = e.rows[:rows]
	switch {
	case e.over():
		return false
	case first >= 0 && second < 0:
		return true
	case first < 0:
		e.noteFailed(n.oneOf, v)
		if rep != nil {
			e.explainUnion(n, n.oneOf, "oneOf", v, rep)
		}
	case rep != nil:
		rep.add(finding{code: headgate.ViolationManyBranches, val: v, n: n, keyword: "oneOf", arg: first, arg2: second})
	}
	return false
}

// unevaluated applies the unevaluated keywords to what no other keyword
// evaluated.
func (e *evaluator) unevaluated(n *node, v int32, own *evals, rep *report) bool {
	sub := n.unevalProps
	if e.t.values[v].kind == kindArray {
		sub = n.unevalItems
	}
	ok := true
	end := e.t.values[v].next
	for child := v + 1; child < end; child = e.t.values[child].next {
		if own.has(e.t.values[child].ordinal) {
			continue
		}
		if e.part(sub, v, child, n, "unevaluated", rep) {
			continue
		}
		if rep == nil {
			return false
		}
		ok = false
	}
	return ok
}
