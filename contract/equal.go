package contract

import (
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"
)

// literal is a value written in a schema: of const, or one of enum.
type literal struct {
	value any // as decoded: nil, bool, string, json.Number, []any, map[string]any
	size  int // values in it
}

func newLiteral(v any) literal { return literal{value: v, size: sizeOf(v)} }

func sizeOf(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += sizeOf(e)
		}
	case map[string]any:
		for _, e := range v {
			n += sizeOf(e)
		}
	}
	return n
}

// enumSet finds a payload's value among the values of an enum without
// comparing it with each.
type enumSet struct {
	values  []literal
	keys    map[string]int // literalKey → index into values
	scalars map[string]int // the part of keys that are scalars
	// composite is set when an array or object is among the values.
	composite bool
	lazy      lazyWanted
}

func newEnumSet(values []any) *enumSet {
	e := &enumSet{keys: make(map[string]int, len(values)), scalars: map[string]int{}}
	for i, v := range values {
		e.values = append(e.values, newLiteral(v))
		key := string(appendLiteralKey(nil, v))
		if _, dup := e.keys[key]; dup {
			continue
		}
		e.keys[key] = i
		if _, ok := scalarKey(v); ok {
			e.scalars[key] = i
		} else {
			e.composite = true
		}
	}
	return e
}

// appendLiteralKey appends a string that equal values share, and no others:
// the scalarKey of a scalar, or the delimited keys of the parts.
func appendLiteralKey(dst []byte, v any) []byte {
	switch v := v.(type) {
	case []any:
		dst = append(dst, '[')
		for _, e := range v {
			dst = appendPart(dst, appendLiteralKey(nil, e))
		}
		return dst
	case map[string]any:
		dst = append(dst, '{')
		for _, name := range sortedKeys(v) {
			dst = appendPart(dst, []byte(name))
			dst = appendPart(dst, appendLiteralKey(nil, v[name]))
		}
		return dst
	default:
		key, _ := scalarKey(v)
		return append(dst, key...)
	}
}

// appendPart appends one part with its length before it.
func appendPart(dst, part []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(part)))
	return append(dst, part...)
}

// appendKey appends the literalKey of a payload's value.
func (t *tape) appendKey(dst []byte, i int32) []byte {
	v := &t.values[i]
	switch v.kind {
	case kindArray:
		dst = append(dst, '[')
		for child := i + 1; child < v.next; child = t.values[child].next {
			dst = appendPart(dst, t.appendKey(nil, child))
		}
		return dst
	case kindObject:
		dst = append(dst, '{')
		for _, m := range t.sortedMembers(i) {
			dst = appendPart(dst, m.name)
			dst = appendPart(dst, t.appendKey(nil, m.at))
		}
		return dst
	default:
		return t.appendScalarKey(dst, i)
	}
}

// scalarKey returns a string that equal scalars share, and false for arrays
// and objects.
func scalarKey(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "z", true
	case bool:
		if v {
			return "t", true
		}
		return "f", true
	case string:
		return "s" + v, true
	case json.Number:
		return string(parseDecimal([]byte(v)).appendKey([]byte{'n'})), true
	default:
		return "", false
	}
}

// appendScalarKey appends the scalarKey of a payload's scalar.
func (t *tape) appendScalarKey(dst []byte, i int32) []byte {
	switch t.values[i].kind {
	case kindNull:
		return append(dst, 'z')
	case kindBoolean:
		return append(dst, t.text[t.values[i].start])
	case kindString:
		return append(append(dst, 's'), t.str(i)...)
	default:
		v := viewNumber(t.raw(i))
		return v.appendKey(dst)
	}
}

// equalsLiteral compares a payload's value with one of the schema. Numbers are
// equal when their exact values are, objects whatever the order of members.
func (t *tape) equalsLiteral(i int32, lit any) bool {
	v := &t.values[i]
	switch lit := lit.(type) {
	case nil:
		return v.kind == kindNull
	case bool:
		return v.kind == kindBoolean && t.truth(i) == lit
	case string:
		return v.kind == kindString && string(t.str(i)) == lit
	case json.Number:
		return v.kind == kindNumber && equalNumbers(t.raw(i), []byte(lit))
	case []any:
		if v.kind != kindArray || int(v.count) != len(lit) {
			return false
		}
		child := i + 1
		for _, want := range lit {
			if !t.equalsLiteral(child, want) {
				return false
			}
			child = t.values[child].next
		}
		return true
	case map[string]any:
		if v.kind != kindObject || int(v.count) != len(lit) {
			return false
		}
		for child := i + 1; child < v.next; child = t.values[child].next {
			want, ok := lit[string(t.name(child))]
			if !ok || !t.equalsLiteral(child, want) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

func equalNumbers(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	if x, ok := smallInt(a); ok {
		if y, ok := smallInt(b); ok {
			return x == y
		}
	}
	va, d := viewNumber(a), parseDecimal(b)
	return va.compare(&d) == 0
}

// member is one member of an object, found by its name.
type member struct {
	name []byte
	at   int32
}

// sortedMembers returns an object's members ordered by name.
func (t *tape) sortedMembers(i int32) []member {
	v := &t.values[i]
	out := make([]member, 0, v.count)
	for child := i + 1; child < v.next; child = t.values[child].next {
		out = append(out, member{t.name(child), child})
	}
	slices.SortFunc(out, func(a, b member) int { return strings.Compare(string(a.name), string(b.name)) })
	return out
}

// equalValues compares two values of the payload.
func (t *tape) equalValues(a, b int32) bool {
	va, vb := &t.values[a], &t.values[b]
	if va.kind != vb.kind || va.count != vb.count {
		return false
	}
	switch va.kind {
	case kindNull:
		return true
	case kindBoolean:
		return t.truth(a) == t.truth(b)
	case kindNumber:
		return equalNumbers(t.raw(a), t.raw(b))
	case kindString:
		return string(t.str(a)) == string(t.str(b))
	case kindArray:
		ca, cb := a+1, b+1
		for ca < va.next {
			if !t.equalValues(ca, cb) {
				return false
			}
			ca, cb = t.values[ca].next, t.values[cb].next
		}
		return true
	default:
		ma, mb := t.sortedMembers(a), t.sortedMembers(b)
		for i := range ma {
			if string(ma[i].name) != string(mb[i].name) || !t.equalValues(ma[i].at, mb[i].at) {
				return false
			}
		}
		return true
	}
}

// hashOf hashes a value so that equal values hash alike, once for all arrays
// around it. Every part is delimited: a hash that is not lets a sender build
// thousands of different values with one hash, and uniqueItems quadratic.
func (e *evaluator) hashOf(i int32) uint64 {
	if n := len(e.t.values); len(e.hashes) < n {
		e.hashes = slices.Grow(e.hashes[:0], n)[:n]
		clear(e.hashes)
	}
	if e.hashes[i] != 0 {
		return e.hashes[i]
	}
	v, h, seed := &e.t.values[i], uint64(0), e.hash.Seed()
	switch v.kind {
	case kindArray:
		for child := i + 1; child < v.next; child = e.t.values[child].next {
			h = hashPair(seed, 'a', h, e.hashOf(child))
		}
		h = hashPair(seed, '[', h, 0)
	case kindObject: // whatever the order of its members
		for child := i + 1; child < v.next; child = e.t.values[child].next {
			h += hashPair(seed, 'm', maphash.Bytes(seed, e.t.name(child)), e.hashOf(child))
		}
		h = hashPair(seed, '{', h, 0)
	default:
		e.key = e.t.appendScalarKey(e.key[:0], i)
		h = maphash.Bytes(seed, e.key)
	}
	e.hashes[i] = max(h, 1)
	return e.hashes[i]
}

// hashPair hashes two hashes.
func hashPair(seed maphash.Seed, tag byte, a, b uint64) uint64 {
	var buf [17]byte
	buf[0] = tag
	binary.LittleEndian.PutUint64(buf[1:], a)
	binary.LittleEndian.PutUint64(buf[9:], b)
	return maphash.Bytes(seed, buf[:])
}
