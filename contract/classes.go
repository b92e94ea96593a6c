package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"sort"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// classes sorts the scalars that a schema may meet into classes whose values it
// treats alike, and says what becomes of each: so that a value under dozens of
// schemas costs one search. Numbers are told apart by the bounds and the fixed
// values of all schemas that apply to the same value, strings by their fixed
// values and the bounds of their lengths. Where more must be looked at, such as
// a pattern, the class is open and the schemas decide.
type classes struct {
	literals [3]classVerdict // of null, false and true
	points   []decimal       // ordered
	small    []int64         // the points, where each is one of at most 18 digits
	numbers  []classVerdict  // by numberClass
	fixed    map[string]int32
	named    []classVerdict // by fixed
	lengths  []int          // ordered: each begins a class
	strings  []classVerdict // by the number of lengths that are reached
}

// classVerdict says what becomes of the values of a class. One that is neither
// accepted nor refused is open.
type classVerdict uint8

const (
	classAccepted classVerdict = 1 << iota
	classRefused
	// classPure: all of them have the same faults, too.
	classPure
)

// Bounds of classes.
const (
	minScalarVisits = 3       // of schemas, from which on they are worth it for a scalar
	minClassVisits  = 6       // and elsewhere
	maxClasses      = 1 << 13 // of one schema
)

// What finding the classes of one contract, and what else is prepared to spare
// values their schemas, may take: so much, and more for every byte of the
// schema. A unit is a schema asked about a class, some 40 ns. What is left over
// is not prepared, and the schemas decide: values that meet many take longer.
const (
	baseSpareWork    = 1 << 16
	perByteSpareWork = 16
	maxSpareWork     = 1 << 20
	pointWork        = 8  // of a number that tells values apart
	textWork         = 16 // of a fixed string; and so much less by 16 bytes
	textWorkBytes    = 16
	exactWork        = 8 // of an evaluation, beside what it counts itself
)

func spareWork(schemaBytes int) int {
	return min(maxSpareWork, baseSpareWork+perByteSpareWork*schemaBytes)
}

// afford takes work from what is left for preparing, and reports whether there
// was as much. Once there was not, nothing is afforded any more.
func (p *program) afford(work int) bool {
	if work > p.spare {
		p.spare = 0
	}
	p.spare = max(p.spare-work, 0)
	return p.spare > 0
}

// classKey names a class of an evaluator's schema.
type classKey struct {
	id    int
	kind  kind
	class int32
}

// sortScalars finds the classes of all schemas that scalars meet many of.
func (p *program) sortScalars() {
	if p.dynamic {
		return // what applies depends on the way
	}
	c := newCoster(p)
	for _, n := range p.entries() {
		if c.visits(n, classScalar) >= minScalarVisits {
			n.classes = newClasses(p, n)
		}
	}
}

// classContainers finds the schemas that accept every array or object without a
// look into it, and those that accept none.
func (p *program) classContainers() {
	if p.dynamic {
		return
	}
	facts := newKindFacts(p)
	for _, n := range p.nodes {
		if n.always != 0 || !p.afford(1) {
			continue
		}
		for i := range n.containers {
			switch k := kindArray + kind(i); {
			case !facts.mayAccept(n, k):
				n.containers[i] = classRefused
				if !facts.looksInto(n, k) {
					n.containers[i] |= classPure
				}
			case facts.mustAccept(n, k) && !facts.looksInto(n, k):
				n.containers[i] = classAccepted
			}
		}
	}
}

// newClasses returns nil where there would be too many classes, or too much to
// do for them.
func newClasses(p *program, n *node) *classes {
	s := sortClasses(p, []*node{n})
	if s == nil {
		return nil
	}
	c := s.c
	s.each(func(at classPlace, i int, ask func(*node) classVerdict) {
		switch v := ask(n); at {
		case classLiteral:
			c.literals[i] = v
		case classNamed:
			c.named = append(c.named, v)
		case classLength:
			c.strings = append(c.strings, v)
		case classNumber:
			c.numbers = append(c.numbers, v)
		}
	})
	if p.spare == 0 {
		return nil
	}
	return c
}

// sortClasses finds what tells the values apart that schemas may meet. It
// returns nil where that is too much.
func sortClasses(p *program, nodes []*node) *classSorter {
	c := &classes{fixed: map[string]int32{}}
	s := &classSorter{p: p, c: c, seen: map[*node]int{}, at: map[*bound]int{}, texts: map[string]bool{}}
	for _, n := range nodes {
		s.collect(n)
	}
	if p.spare == 0 {
		return nil
	}
	slices.SortFunc(c.points, func(a, b decimal) int { return a.order(&b) })
	c.points = slices.CompactFunc(c.points, func(a, b decimal) bool { return a.order(&b) == 0 })
	slices.Sort(c.lengths)
	c.lengths = slices.Compact(c.lengths)
	total := 4*len(c.points) + len(s.texts) + len(c.lengths) + 8
	if total > maxClasses || !p.afford(total*(len(nodes)+s.asks)) {
		return nil
	}
	s.sorted = sortedKeys(s.texts)
	for i, text := range s.sorted {
		c.fixed[text] = int32(i)
	}
	for i := range c.points {
		x, ok := c.points[i].small()
		if !ok {
			c.small = nil
			break
		}
		c.small = append(c.small, x)
	}
	s.resolve()
	return s
}

// resolve finds the points that are the schemas' numbers.
func (s *classSorter) resolve() {
	for b := range s.at {
		s.at[b] = s.place(&b.dec)
	}
	s.zero = s.place(&decimal{})
	for i := range s.parts {
		part := &s.parts[i]
		part.points = make(map[int]int, len(part.numbers))
		for k := range part.numbers {
			part.points[s.place(&part.numbers[k])] |= part.of[k]
		}
		part.numbers, part.of = nil, nil
	}
}

// place returns the index of a number among the points, or of the next greater
// one.
func (s *classSorter) place(d *decimal) int {
	i, _ := slices.BinarySearchFunc(s.c.points, d, func(a decimal, b *decimal) int { return a.order(b) })
	return i
}

// decide reports whether no class is open.
func (c *classes) decide() bool {
	if c == nil {
		return false
	}
	open := func(v classVerdict) bool { return v&(classAccepted|classRefused) == 0 }
	for i, v := range c.numbers { // some numbers are none, such as a point that is whole and not
		equal, whole := i&2 != 0, i&1 != 0
		if open(v) && (!equal || i/4 < len(c.points) && whole == (c.points[i/4].exp >= 0)) {
			return false
		}
	}
	return !slices.ContainsFunc(c.literals[:], open) && !slices.ContainsFunc(c.named, open) && !slices.ContainsFunc(c.strings, open)
}

// number returns the class of a number.
func (c *classes) number(raw []byte) int32 {
	x, plain := smallInt(raw)
	at, equal, whole := 0, false, true
	if plain && len(c.small) == len(c.points) {
		at, equal = slices.BinarySearch(c.small, x)
	} else {
		v := viewNumber(raw)
		at, equal = sort.Find(len(c.points), func(i int) int { return v.compare(&c.points[i]) })
		whole = v.isInteger()
	}
	return numberClass(at, equal, whole)
}

// numberClass numbers the classes of numbers: those below a point, or above
// all, and those that equal one; whole and not.
func numberClass(at int, equal, whole bool) int32 {
	i := int32(4 * at)
	if equal {
		i += 2
	}
	if whole {
		i++
	}
	return i
}

// text returns the class of a string, whose code points are counted when they
// are needed: the place among fixed strings, or, below zero, that among lengths
// by its complement.
func (c *classes) text(s []byte, runes func() int) int32 {
	if i, ok := c.fixed[string(s)]; ok {
		return i
	}
	i := 0
	if len(c.lengths) > 0 {
		n := runes()
		i = sort.Search(len(c.lengths), func(i int) bool { return c.lengths[i] > n })
	}
	return ^int32(i)
}

// ofText returns what becomes of a class of strings.
func (c *classes) ofText(class int32) classVerdict {
	if class < 0 {
		return c.strings[^class]
	}
	return c.named[class]
}

// order compares two numbers: -1, 0 or 1.
func (d *decimal) order(o *decimal) int {
	sign := func(d *decimal) int {
		switch {
		case len(d.digits) == 0:
			return 0
		case d.neg:
			return -1
		}
		return 1
	}
	by := sign(d)
	if other := sign(o); by != other || by == 0 {
		return cmp.Compare(by, other)
	}
	// Digits end in none that is zero, so that they compare as text.
	return by * cmp.Or(cmp.Compare(d.exp+len(d.digits), o.exp+len(o.digits)), bytes.Compare(d.digits, o.digits))
}

// classSorter finds the classes of one schema.
type classSorter struct {
	p      *program
	c      *classes
	seen   map[*node]int  // its part
	parts  []classPart    // of each schema that applies to the scalar
	asks   int            // at most, of one class
	at     map[*bound]int // its place among the points
	zero   int            // that of zero
	texts  map[string]bool
	sorted []string
	// The class that is asked about.
	asked  int // which one it is, for the answers
	kind   kind
	point  int  // of the number: below this point
	equal  bool // or equal to it
	whole  bool
	length int  // of the string, at least
	open   bool // something was asked that the class does not say
}

// classPart is what is known of a schema.
type classPart struct {
	numbers []decimal // of const and enum
	of      []int     // which of the two
	points  map[int]int
	// The answer for a class, since many may ask.
	asked  int
	answer tri
	open   bool
}

const (
	ofConst = 1 << iota
	ofEnum
)

// collect gathers what tells values apart, from every schema that applies to
// the same scalar.
func (s *classSorter) collect(n *node) {
	if n == nil || n.always != 0 {
		return
	}
	if _, have := s.seen[n]; have || !s.p.afford(1) {
		return
	}
	s.seen[n] = len(s.parts)
	var part classPart
	if n.konst != nil {
		s.literal(&part, n.konst.value, ofConst)
	}
	if n.enum != nil {
		for i := range n.enum.values {
			s.literal(&part, n.enum.values[i].value, ofEnum)
		}
	}
	s.parts = append(s.parts, part)
	if r := n.numbers; r != nil {
		for _, b := range []*bound{r.min, r.max, r.exclMin, r.exclMax} {
			if b != nil {
				s.at[b] = 0
				s.number(b.dec)
			}
		}
		if b := r.multiple; b != nil {
			s.at[b] = 0
			less := b.dec
			less.neg = true
			s.number(b.dec, less, decimal{})
		}
	}
	if r := n.strings; r != nil {
		if r.minLength > 0 {
			s.c.lengths = append(s.c.lengths, r.minLength)
		}
		if r.maxLength >= 0 {
			s.c.lengths = append(s.c.lengths, r.maxLength+1)
		}
	}
	parts := sameScalar(n)
	s.asks += 1 + len(parts)
	for _, m := range parts {
		s.collect(m)
	}
}

// sameScalar returns the schemas that n applies to the same scalar.
func sameScalar(n *node) []*node {
	var out []*node
	for _, m := range []*node{n.ref, n.recRef, n.dynRef, n.not, n.ifs, n.then, n.otherwise} {
		if m != nil {
			out = append(out, m)
		}
	}
	out = append(out, n.allOf...)
	for _, u := range []*union{n.anyOf, n.oneOf} {
		if u != nil {
			out = append(out, u.branches...)
		}
	}
	return out
}

func (s *classSorter) number(points ...decimal) {
	if s.p.afford(pointWork * len(points)) {
		s.c.points = append(s.c.points, points...)
	}
}

func (s *classSorter) literal(part *classPart, v any, of int) {
	switch v := v.(type) {
	case json.Number:
		if d := parseDecimal([]byte(v)); s.p.spare > 0 {
			s.number(d)
			part.numbers, part.of = append(part.numbers, d), append(part.of, of)
		}
	case string:
		if s.p.afford(textWork + len(v)/textWorkBytes) {
			s.texts[v] = true
		}
	}
}

// classPlace says which of the lists of classes a class is in.
type classPlace uint8

const (
	classLiteral classPlace = iota
	classNamed
	classLength
	classNumber
)

// each calls fn for every class, list by list and in their order, with what
// becomes of its values under a schema that was collected. Where that turns out
// to be too much, nothing is left to afford.
func (s *classSorter) each(fn func(at classPlace, i int, ask func(*node) classVerdict)) {
	for i, word := range []string{"null", "false", "true"} {
		fn(classLiteral, i, s.exactly([]byte(word)))
	}
	for i, text := range s.sorted {
		fn(classNamed, i, s.exactly(jsontext.AppendString(nil, text)))
	}
	s.kind = kindString
	for i := range len(s.c.lengths) + 1 {
		s.length = 0
		if i > 0 {
			s.length = s.c.lengths[i-1]
		}
		s.asked++
		fn(classLength, i, s.class)
	}
	s.kind = kindNumber
	for i := range len(s.c.points) + 1 {
		for _, equal := range []bool{false, true} {
			for _, whole := range []bool{false, true} {
				s.point, s.equal, s.whole = i, equal, whole
				ask := s.class
				if equal && (i == len(s.c.points) || whole != (s.c.points[i].exp >= 0)) {
					ask = func(*node) classVerdict { return 0 } // no number is there
				}
				s.asked++
				fn(classNumber, int(numberClass(i, equal, whole)), ask)
			}
		}
	}
}

// exactly decides one value, which is a class of its own.
func (s *classSorter) exactly(text []byte) func(*node) classVerdict {
	if s.p.spare == 0 {
		return func(*node) classVerdict { return 0 }
	}
	t, fault := readTape(text, jsontext.Limits{Depth: 1, NumberLength: MaxSchemaBytes, Exponent: maxExponent}, nil)
	if fault != nil {
		return func(*node) classVerdict { return 0 }
	}
	e := newEvaluator(s.p, &t)
	return func(n *node) classVerdict {
		if !s.p.afford(exactWork) {
			return 0
		}
		e.work, e.limit = 0, s.p.spare
		ok := e.eval(n, 0, nil, nil)
		s.p.prepared += e.work
		switch {
		case !s.p.afford(e.work):
			return 0
		case ok:
			return classAccepted | classPure
		}
		return classRefused | classPure
	}
}

// tri is an answer that may be open.
type tri int8

const (
	triNo tri = iota - 1
	triOpen
	triYes
)

func triOf(yes bool) tri {
	if yes {
		return triYes
	}
	return triNo
}

func (s *classSorter) class(n *node) classVerdict {
	s.open = false
	var v classVerdict
	switch s.ask(n) {
	case triYes:
		v = classAccepted
	case triNo:
		v = classRefused
	}
	if !s.open {
		v |= classPure
	}
	return v
}

// unsure is the answer to what the class does not say.
func (s *classSorter) unsure() tri {
	s.open = true
	return triOpen
}

// ask finds out what a schema says of all values of the class. It asks every
// part, also where the answer is known, to find what is open; and each once.
func (s *classSorter) ask(n *node) tri {
	if n.always != 0 {
		return triOf(n.always > 0)
	}
	part := &s.parts[s.seen[n]]
	if part.asked != s.asked {
		outer := s.open
		s.open = false
		answer := s.answer(n, part)
		part.asked, part.answer, part.open = s.asked, answer, s.open
		s.open = outer
	}
	s.open = s.open || part.open
	return part.answer
}

func (s *classSorter) answer(n *node, part *classPart) tri {
	s.p.prepared++
	out := min(s.head(n, part), s.rules(n))
	all := func(m *node) {
		if m != nil {
			out = min(out, s.ask(m))
		}
	}
	all(n.ref)
	if n.refOnly() {
		return out
	}
	all(n.recRef)
	all(n.dynRef)
	for _, m := range n.allOf {
		all(m)
	}
	if n.not != nil {
		out = min(out, -s.ask(n.not))
	}
	if n.anyOf != nil {
		any := triNo
		for _, b := range n.anyOf.branches {
			any = max(any, s.ask(b))
		}
		out = min(out, any)
	}
	if n.oneOf != nil {
		out = min(out, s.one(n.oneOf.branches))
	}
	if n.ifs != nil {
		out = min(out, s.conditional(n))
	}
	return out
}

func (s *classSorter) one(branches []*node) tri {
	sure, perhaps := 0, 0
	for _, b := range branches {
		switch s.ask(b) {
		case triYes:
			sure++
		case triOpen:
			perhaps++
		}
	}
	switch {
	case sure > 1 || sure+perhaps == 0:
		return triNo
	case perhaps == 0:
		return triYes
	}
	return triOpen
}

func (s *classSorter) conditional(n *node) tri {
	then, otherwise := triYes, triYes
	if n.then != nil {
		then = s.ask(n.then)
	}
	if n.otherwise != nil {
		otherwise = s.ask(n.otherwise)
	}
	switch s.ask(n.ifs) {
	case triYes:
		return then
	case triNo:
		return otherwise
	}
	if then == otherwise {
		return then
	}
	return triOpen
}

// head is evaluator.head for a class.
func (s *classSorter) head(n *node, part *classPart) tri {
	out := triYes
	if n.types != 0 && n.types&(1<<s.kind) == 0 && (s.kind != kindNumber || n.types&typeInteger == 0 || !s.whole) {
		out = triNo
	}
	if n.konst != nil {
		out = min(out, triOf(s.is(part, ofConst)))
	}
	if n.enum != nil {
		out = min(out, triOf(s.is(part, ofEnum)))
	}
	if n.format != nil && s.kind == kindString {
		out = min(out, s.unsure())
	}
	return out
}

// is reports whether the values of the class equal a value of const or of enum:
// only a number that is a point can.
func (s *classSorter) is(part *classPart, of int) bool {
	return s.kind == kindNumber && s.equal && part.points[s.point]&of != 0
}

func (s *classSorter) rules(n *node) tri {
	out := triYes
	if r := n.strings; r != nil && s.kind == kindString {
		out = triOf(s.length >= r.minLength && (r.maxLength < 0 || s.length <= r.maxLength))
		if r.pattern != nil {
			out = min(out, s.unsure())
		}
	}
	if r := n.numbers; r != nil && s.kind == kindNumber {
		out = triOf((r.min == nil || s.against(r.min) >= 0) && (r.exclMin == nil || s.against(r.exclMin) > 0) &&
			(r.max == nil || s.against(r.max) <= 0) && (r.exclMax == nil || s.against(r.exclMax) < 0))
		if r.multiple != nil {
			out = min(out, s.multiple(r.multiple))
		}
	}
	return out
}

// against orders the numbers of the class against a bound, which is a point.
func (s *classSorter) against(b *bound) int {
	at := s.at[b]
	switch {
	case s.equal && s.point == at:
		return 0
	case s.point <= at:
		return -1
	}
	return 1
}

func (s *classSorter) multiple(b *bound) tri {
	if s.equal {
		return triOf(b.divides(s.c.points[s.point].appendKey(nil)))
	}
	zero, at := s.zero, s.at[b]
	switch {
	case s.point > zero && s.point <= at, s.point <= zero && s.within(b):
		return triNo // nearer to zero than the first multiple
	case !s.whole && b.dec.exp >= 0:
		return triNo
	}
	return s.unsure()
}

// within reports whether the numbers of the class, which are negative, are
// nearer to zero than the bound.
func (s *classSorter) within(b *bound) bool {
	if s.point == 0 {
		return false
	}
	less := b.dec
	less.neg = true
	return s.c.points[s.point-1].order(&less) >= 0
}

// byClass decides a scalar by its class, if that can be; faults are those of
// the first value of the class.
func (e *evaluator) byClass(n *node, v int32, rep *report) (done, ok bool) {
	val := &e.t.values[v]
	var class int32
	var verdict classVerdict
	switch val.kind {
	case kindNumber:
		class = e.numberClass(n.classes, v)
		verdict = n.classes.numbers[class]
	case kindString:
		class = e.textClass(n.classes, v)
		verdict = n.classes.ofText(class)
	default:
		class = e.literalClass(v)
		verdict = n.classes.literals[class]
	}
	switch {
	case verdict&classAccepted != 0:
		return true, true
	case verdict&classRefused == 0:
		return false, false
	case rep == nil:
		return true, false
	case verdict&classPure == 0:
		return false, false
	}
	return true, e.repeat(n, v, classKey{n.id, val.kind, class}, rep)
}

func (e *evaluator) numberClass(c *classes, v int32) int32 {
	raw := e.t.raw(v)
	e.work += len(raw) / 16
	return c.number(raw)
}

func (e *evaluator) textClass(c *classes, v int32) int32 {
	val := &e.t.values[v]
	e.work += int(val.end-val.start) / 32
	return c.text(e.t.str(v), func() int { return e.runes(v) })
}

// literalClass returns the class of null, false or true.
func (e *evaluator) literalClass(v int32) int32 {
	switch {
	case e.t.values[v].kind == kindNull:
		return 0
	case e.t.truth(v):
		return 2
	}
	return 1
}

// repeat adds the faults of a refused value to the report: those that another
// value of its class had.
func (e *evaluator) repeat(n *node, v int32, key classKey, rep *report) bool {
	list, have := e.faults[key]
	if !have {
		br := report{t: e.t, e: e, branch: true}
		e.apply(n, v, nil, &br)
		if e.over() {
			rep.absorb(&br)
			return false
		}
		if e.faults == nil {
			e.faults = map[classKey][]finding{}
		}
		list = br.list
		e.faults[key] = list
	}
	for i := range list {
		f := list[i]
		f.val = v
		if f.code == headgate.ViolationBadLength {
			f.arg = e.runes(v)
		}
		rep.add(f)
	}
	return false
}
