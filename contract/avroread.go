package contract

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"strconv"

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
	more  int  // faults that were found and are not in rep
	most  int  // bytes that the datum may have
	full  bool // it would have more
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
	// maxAvroFaults bounds what is kept of the faults of one text.
	maxAvroFaults = 1 << 14
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
	t, fault := readTape(text, lim, nil)
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

// note keeps a fault. What is beyond the bound is counted alone.
func (r *avroRead) note(f avroFault) {
	if len(*r.rep) >= maxAvroFaults {
		r.more++
		return
	}
	*r.rep = append(*r.rep, f)
}

// fault notes a fault, where faults are asked for.
func (r *avroRead) fault(code headgate.ViolationCode, n *avroNode, v int32) bool {
	if r.rep != nil {
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
	if r.work--; r.work < 0 || !r.room(0) {
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
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	switch {
	case n.logical == avroTimeOfDay:
		low, high = 0, n.max-1
	case n.op == avroInt:
		low, high = math.MinInt32, math.MaxInt32
	}
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
	if i := slices.Index(n.symbols, string(s)); i >= 0 {
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
		for _, c := range string(r.t.str(v)) {
			if c > 0xff {
				return r.wrongType(n, v)
			}
			b = append(b, byte(c))
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
			if ok = false; r.rep == nil || r.work < 0 {
				return false
			}
		}
	}
	r.long(0)
	return ok
}

func (r *avroRead) record(n *avroNode, v int32) bool {
	val := &r.t.values[v]
	if r.work -= len(n.fields) / 4; r.work < 0 {
		return false
	}
	members := make([]int32, len(n.fields))
	ok := true
	for child := v + 1; child < val.next; child = r.t.values[child].next {
		i := n.field(r.t.name(child))
		if i < 0 {
			if ok = false; r.rep == nil {
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
				if ok = false; r.rep == nil || r.work < 0 {
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
			if ok = false; r.rep == nil {
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
	for i, k := range n.kids {
		if k.op != avroNull && k.name == string(name) {
			return i, v + 1
		}
	}
	return -1, 0
}

// try reads a value as one branch, and takes everything back if it is none.
func (r *avroRead) try(n *avroNode, branch int, v int32) bool {
	mark, rep := len(r.dst), r.rep
	r.rep = nil
	r.long(int64(branch))
	ok := r.value(n.kids[branch], v)
	if r.rep = rep; !ok {
		r.dst = r.dst[:mark]
	}
	return ok
}

// union reads a union: bare, or in Avro's own form. A union of null and one
// type is written bare by us, and so is read bare first; any other is written
// in Avro's form, and so is read in that form first.
func (r *avroRead) union(n *avroNode, v int32) bool {
	wrapped, inner := r.wrapped(n, v)
	optional := n.optional() != nil
	if wrapped >= 0 && !optional && r.try(n, wrapped, inner) {
		return true
	}
	var likely []int
	for i, k := range n.kids {
		if !k.takes(r.t.values[v].kind) || k.op == avroFloat && n.has(avroDouble) {
			continue
		}
		if r.try(n, i, v) {
			return true
		}
		likely = append(likely, i)
	}
	if wrapped >= 0 && optional && r.try(n, wrapped, inner) {
		return true
	}
	switch {
	case r.rep == nil:
	case wrapped >= 0:
		r.value(n.kids[wrapped], inner)
	case len(likely) == 0:
		r.wrongType(n, v)
	default:
		r.explainBranches(n, likely, v)
	}
	return false
}

// explainBranches reports why the branch does not match that is nearest to
// match, and of that branch alone.
func (r *avroRead) explainBranches(n *avroNode, likely []int, v int32) {
	rep, more := r.rep, r.more
	var best []avroFault
	fewest := 0
	for _, i := range likely {
		var list []avroFault
		r.rep, r.more = &list, 0
		r.value(n.kids[i], v)
		if found := len(list) + r.more; found > 0 && (best == nil || found < fewest) {
			best, fewest = list, found
		}
	}
	r.rep, r.more = rep, more+fewest-len(best)
	for _, f := range best {
		r.note(f)
	}
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
