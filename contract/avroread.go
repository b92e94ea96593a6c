package contract

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// avroRead reads a JSON text as a value of an Avro schema and encodes it on the
// way. With a report it goes on after faults.
type avroRead struct {
	t     *tape
	dst   []byte
	work  int
	depth int
	rep   *[]avroFault
	// enough faults were found: the look ends.
	enough bool
	// counting is set while faults are counted in more alone.
	counting bool
	more     int
	tries    int // of branches, under way
	memo     map[avroKey]int32
	rows     []int32 // of faults by branch and of members by field, of what is under way
	most     int     // bytes that the datum may have
	full     bool    // it would have more
}

// avroFault is one fault before it is put into words.
type avroFault struct {
	code  headgate.ViolationCode
	n     *avroNode
	v     int32 // the value at fault; the object, when a member is missing
	field int32 // the member that is missing
}

const (
	// avroReadBase is the work that a check of JSON may take besides what its
	// length allows.
	avroReadBase = 1 << 14
	// Names and defaults stand in the schema once, and in values without end:
	// what one form becomes in the other is bounded by its own length.
	avroGrowthBase    = 1 << 20
	avroGrowthPerByte = 16
)

// avroMost returns the bytes that so many bytes of one form, JSON or Avro, may
// become in the other.
func avroMost(n int) int { return min(avroGrowthBase+avroGrowthPerByte*n, MaxPayloadBytes) }

// readJSON encodes a JSON text as a datum. It returns the datum, or else the
// faults; with want false it stops at the first fault, and tells none.
func (p *avroProgram) readJSON(text []byte, pol Policy, want bool) (datum []byte, faults []headgate.Violation, truncated int, ok bool) {
	lim := pol.limits()
	lim.Depth = 2*pol.Depth + 2 // unions are objects in JSON, and no value of their own
	if fault := jsontext.Check(text, lim); fault != nil {
		return nil, []headgate.Violation{p.fault(fault)}, 0, false
	}
	buf, _ := p.values.Get().(*[]value)
	if buf == nil {
		buf = new([]value)
	}
	t, fault := readTape(text, lim, *buf)
	if *buf = t.values; cap(*buf) <= maxPooledValues {
		defer p.values.Put(buf)
	}
	if fault != nil {
		return nil, []headgate.Violation{p.fault(fault)}, 0, false
	}
	r := newAvroRead(&t, pol.Depth, avroMost(len(text)))
	if r.value(p.root, 0) {
		return r.dst, nil, 0, true
	}
	if !want || r.work < 0 {
		return nil, []headgate.Violation{r.spent()}, 0, false
	}
	r = newAvroRead(&t, pol.Depth, avroMost(len(text)))
	r.rep = new([]avroFault)
	r.value(p.root, 0)
	if r.work < 0 || len(*r.rep) == 0 {
		return nil, []headgate.Violation{r.spent()}, 0, false
	}
	faults, truncated = r.report(p.hider(&t))
	return nil, faults, truncated, false
}

func newAvroRead(t *tape, depth, most int) *avroRead {
	return &avroRead{t: t, work: avroReadBase + budgetPerByte*len(t.text), depth: depth, most: most}
}

// spent says which bound ended the check.
func (r *avroRead) spent() headgate.Violation {
	v := tooComplex()
	if r.full {
		v.Got = "a payload that becomes more than " + plural(r.most, "byte", "bytes") + " in Avro, with the defaults of what it leaves out"
		v.Want = "a payload that becomes at most " + plural(r.most, "byte", "bytes") + " in Avro"
	}
	return v
}

// encodeDefault encodes the default of a field into at most so many bytes. Not
// ok with full means that it would take more.
func (p *avroProgram) encodeDefault(n *avroNode, text []byte, most int) (enc []byte, full, ok bool) {
	t, fault := readTape(text, jsontext.Limits{Depth: maxDepth, NumberLength: maxNumberLength, Exponent: maxExponent}, nil)
	if fault != nil {
		return nil, false, false
	}
	r := newAvroRead(&t, maxDepth, most)
	ok = r.value(n, 0)
	return r.dst, r.full, ok
}

// room reports whether the datum may have n more bytes; what it says no to
// ends the check.
func (r *avroRead) room(n int) bool {
	if n > r.most-len(r.dst) {
		r.full, r.work = true, -1
		return false
	}
	return true
}

// note keeps a fault, or ends the look where there are enough.
func (r *avroRead) note(f avroFault) {
	switch {
	case r.counting:
		r.more++
	case len(*r.rep) == maxSought:
		r.enough = true
	default:
		*r.rep = append(*r.rep, f)
	}
}

// goesOn reports whether the pass goes on after a fault.
func (r *avroRead) goesOn() bool { return r.rep != nil || r.counting }

// fault notes a fault, where faults are asked for.
func (r *avroRead) fault(code headgate.ViolationCode, n *avroNode, v int32) bool {
	if r.goesOn() {
		r.note(avroFault{code: code, n: n, v: v})
	}
	return false
}

func (r *avroRead) wrongType(n *avroNode, v int32) bool {
	return r.fault(headgate.ViolationWrongType, n, v)
}

func (r *avroRead) long(v int64) { r.dst = binary.AppendVarint(r.dst, v) }

func (r *avroRead) chunk(b []byte) { r.long(int64(len(b))); r.dst = append(r.dst, b...) }

// value reads one value; it is the twin of avroWalk.value.
func (r *avroRead) value(n *avroNode, v int32) bool {
	if r.work--; r.enough || r.work < 0 || !r.room(0) {
		return false
	}
	val := &r.t.values[v]
	switch n.op {
	case avroNull:
		return val.kind == kindNull || r.wrongType(n, v)
	case avroBoolean:
		if val.kind != kindBoolean {
			return r.wrongType(n, v)
		}
		b := byte(0)
		if r.t.truth(v) {
			b = 1
		}
		r.dst = append(r.dst, b)
		return true
	case avroInt, avroLong:
		return r.integer(n, v)
	case avroFloat, avroDouble:
		return r.float(n, v)
	case avroString, avroEnum:
		return r.text(n, v)
	case avroBytes, avroFixed:
		return r.binary(n, v)
	case avroUnion:
		return r.union(n, v)
	}
	if n.op == avroArray && val.kind != kindArray || n.op != avroArray && val.kind != kindObject {
		return r.wrongType(n, v)
	}
	if r.depth--; r.depth < 0 {
		r.depth++
		return r.fault(headgate.ViolationTooDeep, n, v)
	}
	ok := false
	if n.op == avroRecord {
		ok = r.record(n, v)
	} else {
		ok = r.list(n, v)
	}
	r.depth++
	return ok
}

func (r *avroRead) integer(n *avroNode, v int32) bool {
	if r.t.values[v].kind != kindNumber || !isInteger(r.t.raw(v)) {
		return r.wrongType(n, v)
	}
	low, high := n.integers()
	x, ok := exactInt(r.t.raw(v))
	if !ok || x < low || x > high {
		return r.fault(headgate.ViolationOutOfRange, n, v)
	}
	r.long(x)
	return true
}

// exactInt reads an integer in any spelling, such as 1e3, if it has 64 bits.
func exactInt(raw []byte) (int64, bool) {
	if x, ok := smallInt(raw); ok {
		return x, true
	}
	d := parseDecimal(raw)
	if d.exp < 0 || len(d.digits)+d.exp > 19 {
		return 0, false
	}
	text := make([]byte, 0, 20)
	if d.neg {
		text = append(text, '-')
	}
	text = append(text, d.digits...)
	for range d.exp {
		text = append(text, '0')
	}
	if len(d.digits) == 0 {
		return 0, true
	}
	x, err := strconv.ParseInt(string(text), 10, 64)
	return x, err == nil
}

func (r *avroRead) float(n *avroNode, v int32) bool {
	var f float64
	bits := 64
	if n.op == avroFloat {
		bits = 32
	}
	switch r.t.values[v].kind {
	case kindNumber:
		var err error
		if f, err = strconv.ParseFloat(string(r.t.raw(v)), bits); err != nil {
			return r.fault(headgate.ViolationOutOfRange, n, v)
		}
	case kindString:
		switch string(r.t.str(v)) {
		case "NaN":
			f = math.NaN()
		case "Infinity":
			f = math.Inf(1)
		case "-Infinity":
			f = math.Inf(-1)
		default:
			return r.wrongType(n, v)
		}
	default:
		return r.wrongType(n, v)
	}
	if bits == 32 {
		r.dst = binary.LittleEndian.AppendUint32(r.dst, math.Float32bits(float32(f)))
	} else {
		r.dst = binary.LittleEndian.AppendUint64(r.dst, math.Float64bits(f))
	}
	return true
}

func (r *avroRead) text(n *avroNode, v int32) bool {
	if r.t.values[v].kind != kindString {
		return r.wrongType(n, v)
	}
	s := r.t.str(v)
	if n.op == avroString {
		if n.logical == avroUUID && !isUUID(viewString(s)) {
			return r.fault(headgate.ViolationBadFormat, n, v)
		}
		r.chunk(s)
		return true
	}
	if i := n.symbol(s); i >= 0 {
		r.long(int64(i))
		return true
	}
	return r.fault(headgate.ViolationNotInEnum, n, v)
}

// binary reads bytes from a string of code points up to 255, and a decimal
// also from a number.
func (r *avroRead) binary(n *avroNode, v int32) bool {
	var b []byte
	switch k := r.t.values[v].kind; {
	case k == kindString:
		if n.op == avroFixed && !r.goesOn() && utf8.RuneCount(r.t.str(v)) != n.size {
			return false
		}
		var ok bool
		if b, ok = avroBytesOf(r.t.str(v)); !ok {
			return r.wrongType(n, v)
		}
	case k == kindNumber && n.decimal != nil:
		d := parseDecimal(r.t.raw(v))
		if len(d.digits) > 0 && (d.exp < -n.decimal.scale || len(d.digits)+d.exp+n.decimal.scale > n.decimal.precision) {
			return r.fault(headgate.ViolationOutOfRange, n, v)
		}
		b = d.unscaled(n.decimal.scale)
		if n.op == avroFixed {
			if !r.room(n.size) {
				return false
			}
			b = signExtend(b, n.size)
		}
	default:
		return r.wrongType(n, v)
	}
	if n.op == avroFixed && len(b) != n.size {
		return r.fault(headgate.ViolationBadLength, n, v)
	}
	if n.decimal != nil && !n.decimal.fits(b) {
		return r.fault(headgate.ViolationOutOfRange, n, v)
	}
	if n.op == avroFixed {
		r.dst = append(r.dst, b...)
	} else {
		r.chunk(b)
	}
	return true
}

// unscaled returns the number times ten to the scale in two's complement, most
// significant byte first.
func (d decimal) unscaled(scale int) []byte {
	x, _ := new(big.Int).SetString("0"+string(d.digits), 10)
	if len(d.digits) > 0 {
		x.Mul(x, powerOfTen(d.exp+scale))
	}
	if !d.neg || x.Sign() == 0 {
		b := x.Bytes()
		if len(b) == 0 || b[0] >= 0x80 {
			b = append([]byte{0}, b...)
		}
		return b
	}
	b := x.Sub(x, bigOne).Bytes()
	for i := range b {
		b[i] = ^b[i]
	}
	if len(b) == 0 || b[0] < 0x80 {
		b = append([]byte{0xff}, b...)
	}
	return b
}

// signExtend puts a two's complement number into at least so many bytes.
func signExtend(b []byte, size int) []byte {
	if len(b) >= size {
		return b
	}
	out := make([]byte, size)
	head := out[:size-len(b)]
	if b[0] >= 0x80 {
		for i := range head {
			head[i] = 0xff
		}
	}
	copy(out[len(head):], b)
	return out
}

func (r *avroRead) list(n *avroNode, v int32) bool {
	val := &r.t.values[v]
	if val.count == 0 {
		r.long(0)
		return true
	}
	if n.op == avroArray && n.item.minBytes == 0 && val.count > maxAvroEmptyItems {
		return r.fault(headgate.ViolationBadCount, n, v)
	}
	r.long(int64(val.count))
	ok := true
	for child := v + 1; child < val.next; child = r.t.values[child].next {
		if n.op == avroMap {
			r.chunk(r.t.name(child))
		}
		if !r.value(n.item, child) {
			if ok = false; !r.goesOn() || r.work < 0 {
				return false
			}
		}
	}
	r.long(0)
	return ok
}

func (r *avroRead) record(n *avroNode, v int32) bool {
	if r.work -= len(n.fields) / 4; r.work < 0 {
		return false
	}
	row := len(r.rows)
	for range n.fields {
		r.rows = append(r.rows, 0)
	}
	ok := r.fields(n, v, row)
	r.rows = r.rows[:row]
	return ok
}

// fields reads the members of a record, whose places are put behind row.
func (r *avroRead) fields(n *avroNode, v int32, row int) bool {
	val, members := &r.t.values[v], r.rows[row:]
	ok := true
	for child := v + 1; child < val.next; child = r.t.values[child].next {
		i := n.field(r.t.name(child))
		if i < 0 {
			if ok = false; !r.goesOn() {
				return false
			}
			r.fault(headgate.ViolationUnknownProperty, n, child)
			continue
		}
		members[i] = child
	}
	for i := range n.fields {
		f := &n.fields[i]
		switch {
		case members[i] != 0:
			if !r.value(n.kids[i], members[i]) {
				if ok = false; !r.goesOn() || r.work < 0 {
					return false
				}
			}
		case f.hasDefault:
			if !f.ready { // while defaults are encoded: it may rest on this one
				return false
			}
			if r.work -= 1 + len(f.encoded)/64; r.work < 0 || !r.room(len(f.encoded)) {
				return false
			}
			r.dst = append(r.dst, f.encoded...)
		default:
			if ok = false; !r.goesOn() {
				return false
			}
			r.note(avroFault{code: headgate.ViolationMissingRequired, n: n, v: v, field: int32(i)})
		}
	}
	return ok
}

// field returns the place of a field by its name, or -1.
func (n *avroNode) field(name []byte) int {
	if i, ok := n.index[string(name)]; ok {
		return i
	}
	return -1
}

// wrapped returns the branch and the value of a union in Avro's own form: an
// object with one member, which has the name of a branch.
func (r *avroRead) wrapped(n *avroNode, v int32) (branch int, child int32) {
	val := &r.t.values[v]
	if val.kind != kindObject || val.count != 1 {
		return -1, 0
	}
	name := r.t.name(v + 1)
	if n.pick != nil {
		if i, ok := n.pick.byName[string(name)]; ok {
			return i, v + 1
		}
		return -1, 0
	}
	for i, k := range n.kids {
		if k.op != avroNull && k.name == string(name) {
			return i, v + 1
		}
	}
	return -1, 0
}

// try reads a value as one branch, and takes everything back if it is none.
func (r *avroRead) try(n *avroNode, branch int, v int32) bool {
	kid := n.kids[branch]
	key, keep := r.key(kid, v)
	if keep {
		if what, known := r.memo[key]; known && what >= avroFails {
			r.work--
			return false
		}
	}
	mark, rep, counting := len(r.dst), r.rep, r.counting
	r.rep, r.counting = nil, false
	r.tries++
	r.long(int64(branch))
	ok := r.value(kid, v)
	r.tries--
	if r.rep, r.counting = rep, counting; !ok {
		r.dst = r.dst[:mark]
		if keep && kid.op != avroUnion {
			r.remember(key, avroFails)
		}
	}
	return ok
}

// union reads a union: bare, or in Avro's own form. A union of null and one
// type is written bare by us, and so is read bare first; any other is written
// in Avro's form, and so is read in that form first.
func (r *avroRead) union(n *avroNode, v int32) bool {
	key, keep := r.key(n, v)
	what, known := int32(avroFails), false
	if keep {
		what, known = r.memo[key]
	}
	wrapped, inner := r.wrapped(n, v)
	if known && what < avroFails {
		branch, at := int(-what-1)/2, v
		if (-what-1)%2 == 1 {
			at = inner
		}
		r.long(int64(branch))
		return r.value(n.kids[branch], at)
	}
	rows := len(r.rows)
	defer func() { r.rows = r.rows[:rows] }()
	var least []int32
	if !known {
		var ok bool
		if least, ok = r.branches(n, v, wrapped, inner, key, keep); ok {
			return true
		}
		if keep {
			r.remember(key, avroFails)
		}
	} else if r.goesOn() {
		least = r.faults(n, v)
	}
	switch before := r.more; {
	case !r.goesOn():
	case r.counting && known && what > avroFails:
		r.more += int(what)
	default:
		r.explain(n, v, wrapped, inner, least)
		if found := r.more - before; r.counting && keep && found > 0 {
			r.remember(key, int32(min(found, 1<<30)))
		}
	}
	return false
}

// branches tries the branches of a union in their order.
func (r *avroRead) branches(n *avroNode, v int32, wrapped int, inner int32, key avroKey, keep bool) (least []int32, ok bool) {
	optional := n.optional() != nil
	taken := func(branch, form int) {
		if keep && r.tries > 0 {
			r.remember(key, -int32(1+2*branch+form))
		}
	}
	if wrapped >= 0 && !optional && r.try(n, wrapped, inner) {
		taken(wrapped, 1)
		return nil, true
	}
	least = r.faults(n, v)
	s := r.scalar(n, v)
	for _, i := range n.likely(r.t.values[v].kind) {
		if least != nil && least[i] > 0 || n.pick.repeats(i) || s.asked && s.rulesOut(n.kids[i], int(i)) {
			continue
		}
		if r.try(n, int(i), v) {
			taken(int(i), 0)
			return nil, true
		}
	}
	if wrapped >= 0 && optional && r.try(n, wrapped, inner) {
		taken(wrapped, 1)
		return nil, true
	}
	return least, false
}

// avroScalar is what is known of a string before branches are tried.
type avroScalar struct {
	asked bool
	enum  int // the first enum that has the symbol, or -1
	runes int
}

func (r *avroRead) scalar(n *avroNode, v int32) (s avroScalar) {
	if n.pick == nil || r.t.values[v].kind != kindString {
		return s
	}
	text := r.t.str(v)
	s.asked, s.enum, s.runes = true, -1, utf8.RuneCount(text)
	if i, ok := n.pick.symbols[string(text)]; ok {
		s.enum = i
	}
	return s
}

// rulesOut reports whether the string cannot be of the branch.
func (s *avroScalar) rulesOut(kid *avroNode, branch int) bool {
	return kid.op == avroEnum && s.enum != branch || kid.op == avroFixed && s.runes != kid.size
}

// explain reports why no branch of a union matches.
func (r *avroRead) explain(n *avroNode, v int32, wrapped int, inner int32, least []int32) {
	likely := n.likely(r.t.values[v].kind)
	switch {
	case wrapped >= 0:
		r.value(n.kids[wrapped], inner)
		return
	case len(likely) == 0:
		r.wrongType(n, v)
		return
	}
	switch best, fewest := r.best(n, v, likely, least); {
	case best < 0:
	case r.counting:
		r.more += fewest
	default:
		r.value(n.kids[best], v)
	}
}

// best returns the branch that has the fewest faults, the first of several. A
// branch that was not tried in full has as many as its names have, at least.
func (r *avroRead) best(n *avroNode, v int32, likely, least []int32) (best, fewest int) {
	floor := func(i int32) int {
		if least != nil && least[i] > 1 {
			return int(least[i])
		}
		return 1
	}
	nearest := likely[0]
	if least != nil {
		for _, i := range likely[1:] {
			if floor(i) < floor(nearest) {
				nearest = i
			}
		}
	}
	best = int(nearest)
	if fewest = r.count(n.kids[nearest], v); fewest == floor(nearest) {
		return best, fewest
	}
	if fewest == 0 {
		best = -1
	}
	for _, i := range likely {
		if low := floor(i); i == nearest || n.pick.repeats(i) || best >= 0 && (low > fewest || low == fewest && int(i) > best) {
			continue
		}
		if found := r.count(n.kids[i], v); found > 0 && (best < 0 || found < fewest || found == fewest && int(i) < best) {
			best, fewest = int(i), found
		}
	}
	return best, fewest
}

// count returns how many faults a value has as one branch.
func (r *avroRead) count(kid *avroNode, v int32) int {
	if r.work < 0 {
		return 0
	}
	if r.t.values[v].kind < kindArray && kid.op != avroUnion {
		r.work-- // it failed, and a scalar has one fault
		return 1
	}
	key, keep := r.key(kid, v)
	if what := r.memo[key]; keep && what > avroFails {
		r.work--
		return int(what)
	}
	mark, rep, counting, more := len(r.dst), r.rep, r.counting, r.more
	r.rep, r.counting, r.more = nil, true, 0
	r.value(kid, v)
	found := r.more
	r.dst, r.rep, r.counting, r.more = r.dst[:mark], rep, counting, more
	if keep && found > 0 {
		r.remember(key, int32(min(found, 1<<30)))
	}
	return found
}

func (n *avroNode) has(op avroOp) bool {
	return slices.ContainsFunc(n.kids, func(k *avroNode) bool { return k.op == op })
}

// takes reports whether values of the type may be written as the JSON type.
func (n *avroNode) takes(k kind) bool {
	switch n.op {
	case avroNull:
		return k == kindNull
	case avroBoolean:
		return k == kindBoolean
	case avroInt, avroLong:
		return k == kindNumber
	case avroFloat, avroDouble:
		return k == kindNumber || k == kindString
	case avroString, avroEnum:
		return k == kindString
	case avroBytes, avroFixed:
		return k == kindString || k == kindNumber && n.decimal != nil
	case avroArray:
		return k == kindArray
	case avroUnion:
		return true
	}
	return k == kindObject
}
