package contract

import (
	"fmt"
	"math"
	"slices"

	"github.com/headgate/headgate/internal/jsontext"
)

// Bounds of a compiled program. Beyond them the general engine has the
// contract, whose form does not grow.
const (
	maxFastValues   = 1 << 13
	maxFastChildren = maxNames // names of objects, elements of prefixes
	maxFastPatterns = 6        // of one object, where they have no automaton
	maxFastSets     = 256      // of patterns that one name may match
	maxFastWork     = 1 << 18  // schemas looked at while merging
)

// fastCompiler merges the schemas of a program by the values that they apply
// to.
type fastCompiler struct {
	g       *program
	facts   *kindFacts
	closing bool
	// annotated is set when some schema has an unevaluated keyword, so that
	// branches count even when they do not decide.
	annotated bool
	p         *fastProgram
	memo      map[string]int32
	queue     []fastPending
	shared    map[string]int32 // entries of strings and numbers
	sorted    map[string]*classes
	plain     bool // without them
	autos     map[string]*automaton
	left      *automata
	children  int
	work      int
	failed    string
}

type fastPending struct {
	set   schemaSet
	index int32
}

// compileFast returns the program for the fast engine, or the reason why there
// is none.
func compileFast(g *program, pol Policy, plain bool) (*fastProgram, string) {
	for _, n := range g.nodes {
		if n.recRef != nil && len(g.recursiveTargets(n)) != 1 {
			return nil, placeWords(n.at) + ": $recursiveRef has several targets"
		}
		if n.dynRef != nil && len(g.dynamicTargets(n)) != 1 {
			return nil, placeWords(n.at) + ": $dynamicRef has several targets"
		}
	}
	c := &fastCompiler{
		g: g, facts: newKindFacts(g), closing: g.closing, memo: map[string]int32{}, shared: map[string]int32{}, sorted: map[string]*classes{}, plain: plain,
		autos: map[string]*automaton{}, left: newAutomata(),
		p: &fastProgram{general: g, limits: pol.limits()},
	}
	for _, n := range g.nodes {
		c.annotated = c.annotated || n.unevalProps != nil || n.unevalItems != nil
	}
	none := fastAfter{hybrid: -1}
	c.p.objects = []fastObject{{words: 1, maxProps: math.MaxInt, other: 0, after: none}}
	c.p.arrays = []fastArray{{maxItems: math.MaxInt, rest: 0, after: none}}
	c.p.strings = []fastString{{}}
	c.p.numbers = []fastNumber{{}}
	// values[0] is the value of which nothing is asked, values[1] the one that
	// is never legal.
	c.p.values = []fastValue{{literals: literalNull | literalTrue | literalFalse}, {never, never, never, never, 0}}
	c.p.root = c.value(setOf(g.root))
	for len(c.queue) > 0 && c.failed == "" {
		next := c.queue[0]
		c.queue = c.queue[1:]
		v := c.compile(next.set)
		c.p.values[next.index] = v
	}
	if c.failed != "" {
		return nil, c.failed
	}
	c.p.share()
	return c.p, ""
}

// valueNever is the index of the value that is never legal.
const valueNever = 1

// value returns the index of the value that must satisfy the set. It is
// compiled later.
func (c *fastCompiler) value(set schemaSet) int32 {
	for n := range set {
		if n.always < 0 {
			return valueNever
		}
		if n.always > 0 {
			delete(set, n)
		}
	}
	if len(set) == 0 && !c.closing {
		return 0
	}
	key := set.key()
	if i, ok := c.memo[key]; ok {
		return i
	}
	i := int32(len(c.p.values))
	if i >= maxFastValues {
		c.failed = fmt.Sprintf("the schemas combine in more than %d ways", maxFastValues)
		return valueNever
	}
	c.p.values = append(c.p.values, fastValue{})
	c.memo[key] = i
	c.queue = append(c.queue, fastPending{set, i})
	return i
}

func (c *fastCompiler) compile(set schemaSet) fastValue {
	v := fastValue{object: never, array: never, str: never, number: never}
	for _, lit := range []struct {
		text string
		bit  uint8
	}{{"null", literalNull}, {"true", literalTrue}, {"false", literalFalse}} {
		if c.holds(set, []byte(lit.text)) {
			v.literals |= lit.bit
		}
	}
	if all, ok := c.expand(set, kindString); ok {
		v.str = c.str(set, all)
	}
	if all, ok := c.expand(set, kindNumber); ok {
		v.number = c.number(set, all)
	}
	if all, ok := c.expand(set, kindArray); ok {
		v.array = c.array(set, all)
	}
	if all, ok := c.expand(set, kindObject); ok {
		v.object = c.object(set, all)
	}
	return v
}

// holds has the general engine decide one scalar.
func (c *fastCompiler) holds(set schemaSet, scalar []byte) bool {
	t, fault := readTape(scalar, jsontext.Limits{NumberLength: MaxSchemaBytes, Exponent: math.MaxInt32}, nil)
	if fault != nil {
		return false
	}
	e := newEvaluator(c.g, &t)
	for _, n := range set.nodes() {
		if !e.eval(n, 0, nil, nil) {
			return false
		}
	}
	return true
}

// tests returns the keywords of an expanded set whose branches depend on the
// value. Under a policy that closes objects, or with unevaluated keywords about,
// containers have none: the caller sees to that.
func (c *fastCompiler) tests(all schemaSet) []fastTest {
	var out []fastTest
	one := func(n *node) int32 {
		if n == nil {
			return -1
		}
		return c.value(setOf(n))
	}
	list := func(nodes []*node) (out []int32) {
		for _, n := range nodes {
			out = append(out, one(n))
		}
		return out
	}
	for _, n := range all.nodes() {
		flag := all[n]
		if flag&didAnyOf == 0 {
			out = append(out, fastTest{testAny, list(n.anyOf.branches)})
		}
		if flag&didOneOf == 0 {
			out = append(out, fastTest{testOne, list(n.oneOf.branches)})
		}
		if flag&didNot == 0 {
			out = append(out, fastTest{testNot, []int32{one(n.not)}})
		}
		if flag&didIf == 0 {
			out = append(out, fastTest{testIf, []int32{one(n.ifs), one(n.then), one(n.otherwise)}})
		}
	}
	return out
}

func newAfter(tests []fastTest) fastAfter {
	return fastAfter{tests: tests, hybrid: -1, any: len(tests) > 0}
}

// handOver makes the general engine decide a set of schemas.
func (c *fastCompiler) handOver(set schemaSet, at *node, why string) fastAfter {
	c.p.hybrids = append(c.p.hybrids, fastHybrid{nodes: set.nodes(), at: at.at, why: why})
	return fastAfter{hybrid: int32(len(c.p.hybrids) - 1), any: true}
}

// spend counts work, and gives up when it is too much.
func (c *fastCompiler) spend(work int) {
	if c.work += work; c.work > maxFastWork {
		c.failed = "the schemas combine in too many ways"
	}
}

func (c *fastCompiler) grow(children int) bool {
	if c.children += children; c.children > maxFastChildren {
		c.failed = fmt.Sprintf("the merged schemas have more than %d properties", maxFastChildren)
	}
	return c.failed == ""
}

func (c *fastCompiler) str(set, all schemaSet) int32 {
	s := fastString{maxLength: math.MaxInt, after: newAfter(nil)}
	if literals, listed := listedLiterals(all); listed {
		var legal []string
		for _, v := range literals {
			if text, ok := v.(string); ok && !slices.Contains(legal, text) && c.holds(set, jsontext.AppendString(nil, text)) {
				legal = append(legal, text)
			}
		}
		if len(legal) == 0 {
			return never
		}
		s.listed, s.enum = true, newNameTable(legal)
		return c.addString(s)
	}
	asked := false
	for _, n := range all.nodes() {
		if n.format != nil && !slices.Contains(s.formats, n.format) {
			asked, s.formats = true, append(s.formats, n.format)
		}
		r := n.strings
		if r == nil || n.refOnly() {
			continue
		}
		asked = true
		s.minLength = max(s.minLength, r.minLength)
		if r.maxLength >= 0 {
			s.maxLength = min(s.maxLength, r.maxLength)
		}
		if r.pattern != nil {
			if p := r.pattern.row; !slices.Contains(s.patterns, p) {
				s.patterns = append(s.patterns, p)
			}
		}
	}
	s.after = newAfter(c.tests(all))
	if !asked && !s.after.any {
		return free
	}
	s.classes = c.classes(set, s.after)
	return c.addString(s)
}

// classes returns the classes of the scalars under a set, where many branches
// are left to try.
func (c *fastCompiler) classes(set schemaSet, after fastAfter) *classes {
	asked := 0
	for i := range after.tests {
		asked += len(after.tests[i].branches)
	}
	if asked < minClassVisits || c.plain {
		return nil
	}
	key := set.key()
	found, have := c.sorted[key]
	if !have {
		nodes := set.nodes()
		if len(nodes) == 1 && nodes[0].classes != nil {
			found = nodes[0].classes
		} else if !c.g.dynamic {
			found = newClasses(c.g, &node{allOf: nodes})
		}
		c.sorted[key] = found
	}
	return found
}

func (c *fastCompiler) addString(s fastString) int32 {
	return addShared(c, &c.p.strings, s, s.after.any)
}

// addShared appends an entry to a table, or returns the equal one that is there:
// most strings of a contract are asked the same, and few entries stay in the
// processor's cache.
func addShared[T any](c *fastCompiler, table *[]T, entry T, unique bool) int32 {
	key := ""
	if !unique {
		key = fmt.Sprintf("%T %+v", entry, entry)
		c.spend(len(key) / 64)
		if i, ok := c.shared[key]; ok {
			return i
		}
	}
	i := int32(len(*table))
	*table = append(*table, entry)
	if !unique {
		c.shared[key] = i
	}
	return i
}

// listedLiterals returns the values of the shortest const or enum of a set.
func listedLiterals(all schemaSet) (out []any, listed bool) {
	for _, n := range all.nodes() {
		var values []any
		switch {
		case n.konst != nil:
			values = []any{n.konst.value}
		case n.enum != nil:
			for _, l := range n.enum.values {
				values = append(values, l.value)
			}
		default:
			continue
		}
		if !listed || len(values) < len(out) {
			out, listed = values, true
		}
	}
	return out, listed
}
