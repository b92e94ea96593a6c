package contract

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// avroWalk is one pass over a datum. It only says yes or no; diagnoseAvro finds
// the words.
type avroWalk struct {
	data  []byte
	pos   int
	work  int // places that may still be visited
	depth int // containers that may still be entered
}

func newAvroWalk(data []byte, depth int) avroWalk {
	return avroWalk{data: data, work: avroBudgetBase + avroBudgetPerByte*len(data), depth: depth}
}

// accept reports whether the bytes are one datum of the schema and nothing
// more. It allocates nothing, but for maps with more than 32 keys.
func (p *avroProgram) accept(data []byte, depth int) bool {
	w := newAvroWalk(data, depth)
	return w.value(p.root) && w.pos == len(w.data)
}

// long reads a zig-zag varint of at most 10 bytes and 64 bits.
func (w *avroWalk) long() (int64, bool) {
	if w.pos < len(w.data) {
		if b := w.data[w.pos]; b < 0x80 {
			w.pos++
			return int64(b>>1) ^ -int64(b&1), true
		}
	}
	u, n := binary.Uvarint(w.data[w.pos:])
	if n <= 0 {
		return 0, false
	}
	w.pos += n
	return int64(u>>1) ^ -int64(u&1), true
}

// int reads a zig-zag varint of at most 5 bytes and 32 bits.
func (w *avroWalk) int() (int32, bool) {
	if w.pos < len(w.data) {
		if b := w.data[w.pos]; b < 0x80 {
			w.pos++
			return int32(b>>1) ^ -int32(b&1), true
		}
	}
	var u uint64
	for i := range min(5, len(w.data)-w.pos) {
		b := w.data[w.pos+i]
		u |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if u > 1<<32-1 {
				return 0, false
			}
			w.pos += i + 1
			return int32(u>>1) ^ -int32(u&1), true
		}
	}
	return 0, false
}

// bytes reads a length and so many bytes.
func (w *avroWalk) bytes() ([]byte, bool) {
	n, ok := w.long()
	if !ok || n < 0 || n > int64(len(w.data)-w.pos) {
		return nil, false
	}
	b := w.data[w.pos : w.pos+int(n)]
	w.pos += int(n)
	return b, true
}

func (w *avroWalk) fixed(n int) ([]byte, bool) {
	if n > len(w.data)-w.pos {
		return nil, false
	}
	b := w.data[w.pos : w.pos+n]
	w.pos += n
	return b, true
}

func (w *avroWalk) value(n *avroNode) bool {
	if w.work--; w.work < 0 {
		return false
	}
	switch n.op {
	case avroNull:
		return true
	case avroBoolean:
		b, ok := w.fixed(1)
		return ok && b[0] <= 1
	case avroInt:
		v, ok := w.int()
		return ok && (n.logical == avroPlain || v >= 0 && int64(v) < n.max)
	case avroLong:
		v, ok := w.long()
		return ok && (n.logical == avroPlain || v >= 0 && v < n.max)
	case avroFloat:
		_, ok := w.fixed(4)
		return ok
	case avroDouble:
		_, ok := w.fixed(8)
		return ok
	case avroString:
		b, ok := w.bytes()
		if !ok {
			return false
		}
		if n.logical == avroUUID {
			return isUUID(viewString(b))
		}
		return utf8.Valid(b)
	case avroBytes:
		b, ok := w.bytes()
		return ok && (n.decimal == nil || n.decimal.fits(b))
	case avroFixed:
		b, ok := w.fixed(n.size)
		return ok && (n.decimal == nil || n.decimal.fits(b))
	case avroEnum:
		i, ok := w.int()
		return ok && i >= 0 && int(i) < n.size
	case avroUnion:
		i, ok := w.int()
		return ok && i >= 0 && int(i) < n.size && w.value(n.kids[i])
	}
	return w.container(n)
}

func (w *avroWalk) container(n *avroNode) bool {
	if w.depth <= n.inner { // what is laid out flat counts as what it is
		return false
	}
	w.depth--
	ok := true
	switch n.op {
	case avroRecord:
		w.work -= n.inner + len(n.steps)
		if !w.steps(n.steps) {
			return false
		}
	case avroArray:
		ok = w.items(n.item)
	default:
		ok = w.entries(n.item)
	}
	w.depth++
	return ok
}

// steps reads values one after the other. What is most of any event, short
// strings and numbers, is read right here; their visits were counted.
func (w *avroWalk) steps(steps []avroStep) bool {
	data, pos := w.data, w.pos
next:
	for i := range steps {
		n := steps[i].n
		for pos < len(data) { // twice at most: a union leads to its branch
			b := data[pos]
			switch n.op {
			case avroInt, avroLong:
				if n.logical != avroPlain {
					break
				}
				if b < 0x80 {
					pos++
					continue next
				}
				if end := longEnd(data, pos); end > 0 && n.op == avroLong {
					pos = end
					continue next
				}
			case avroString:
				size := int(b >> 1)
				if b&0x81 != 0 || size >= len(data)-pos {
					break
				}
				s := data[pos+1 : pos+1+size]
				if n.logical == avroUUID {
					if !isUUID(viewString(s)) {
						return false
					}
				} else if !isASCII(s, data[pos+1:]) && !utf8.Valid(s) {
					return false
				}
				pos += 1 + size
				continue next
			case avroEnum:
				if b&0x81 == 0 && int(b>>1) < n.size {
					pos++
					continue next
				}
			case avroBoolean:
				if b <= 1 {
					pos++
					continue next
				}
			case avroFloat, avroDouble, avroFixed:
				if n.size <= len(data)-pos && n.decimal == nil {
					pos += n.size
					continue next
				}
			case avroBytes:
				if size := int(b >> 1); b&0x81 == 0 && size < len(data)-pos && n.decimal == nil {
					pos += 1 + size
					continue next
				}
			case avroUnion:
				if b&0x81 != 0 || int(b>>1) >= n.size {
					break
				}
				pos++
				if n = n.kids[b>>1]; n.op == avroNull {
					continue next
				}
				if w.work--; w.work < 0 {
					return false
				}
				continue
			}
			break
		}
		w.pos, w.work, w.depth = pos, w.work+1, w.depth-steps[i].below
		if !w.value(n) {
			return false
		}
		pos, w.depth = w.pos, w.depth+steps[i].below
	}
	w.pos = pos
	return true
}

// longEnd returns where a varint of at most 10 bytes and 64 bits ends, whose
// first byte is not its last; 0 when there is none.
func longEnd(data []byte, pos int) int {
	rest := data[pos:min(len(data), pos+binary.MaxVarintLen64)]
	for i := 1; i < len(rest); i++ {
		if rest[i] < 0x80 {
			if i == binary.MaxVarintLen64-1 && rest[i] > 1 {
				return 0
			}
			return pos + i + 1
		}
	}
	return 0
}

// isASCII reports whether a string is ASCII. The second argument begins with the
// string, and what is behind it in the payload lets short ones be read at once.
func isASCII(s, rest []byte) bool {
	const high = 0x8080808080808080
	for len(s) > 8 {
		if binary.LittleEndian.Uint64(s)&high != 0 {
			return false
		}
		s, rest = s[8:], rest[8:]
	}
	if len(rest) >= 8 {
		return binary.LittleEndian.Uint64(rest)&high<<(64-8*len(s)) == 0
	}
	for _, c := range s {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// block reads the head of a block: how many items it has, and where it ends if
// it says so, else -1. A count of 0 ends the array or map. least is the
// fewest bytes of an item.
func (w *avroWalk) block(least int) (count, end int, ok bool) {
	c, ok := w.long()
	if !ok {
		return 0, 0, false
	}
	end = -1
	if c < 0 {
		size, ok := w.long()
		if !ok || size < 0 || size > int64(len(w.data)-w.pos) {
			return 0, 0, false
		}
		if c = -c; c < 0 { // the smallest long has no positive
			return 0, 0, false
		}
		end = w.pos + int(size)
	}
	// Counts beyond what the rest could hold are refused before they cost work.
	room := len(w.data) - w.pos
	if least > 0 {
		if c > int64(room/least) {
			return 0, 0, false
		}
	} else if c > maxAvroEmptyItems {
		return 0, 0, false
	}
	return int(c), end, true
}

func (w *avroWalk) items(item *avroNode) bool {
	empty := 0
	for {
		count, end, ok := w.block(item.minBytes)
		if !ok || count == 0 {
			return ok && (end < 0 || end == w.pos)
		}
		if item.minBytes == 0 {
			if empty += count; empty > maxAvroEmptyItems {
				return false
			}
		}
		if !w.many(item, count) || end >= 0 && end != w.pos {
			return false
		}
	}
}

// many reads so many values of one type. Records need no call for each but that
// of their steps.
func (w *avroWalk) many(item *avroNode, count int) bool {
	if item.op != avroRecord {
		for range count {
			if !w.value(item) {
				return false
			}
		}
		return true
	}
	if w.depth <= item.inner {
		return false
	}
	w.depth--
	for range count {
		if w.work--; w.work < 0 {
			return false
		}
		w.work -= item.inner + len(item.steps)
		if !w.steps(item.steps) {
			return false
		}
	}
	w.depth++
	return true
}

// seenKeys are the keys of a map so far.
type seenKeys struct {
	list [32][]byte
	n    int
	more map[string]struct{}
}

// add reports whether a key is new.
func (s *seenKeys) add(key []byte) bool {
	if s.more == nil && s.n < len(s.list) {
		for _, k := range s.list[:s.n] {
			if bytes.Equal(k, key) {
				return false
			}
		}
		s.list[s.n] = key
		s.n++
		return true
	}
	if s.more == nil {
		s.more = make(map[string]struct{}, 2*len(s.list))
		for _, k := range s.list {
			s.more[string(k)] = struct{}{}
		}
	}
	if _, ok := s.more[string(key)]; ok {
		return false
	}
	s.more[string(key)] = struct{}{}
	return true
}

func (w *avroWalk) entries(item *avroNode) bool {
	var seen seenKeys
	for {
		count, end, ok := w.block(1 + item.minBytes)
		if !ok || count == 0 {
			return ok && (end < 0 || end == w.pos)
		}
		for range count {
			key, ok := w.bytes()
			if !ok || !utf8.Valid(key) || !seen.add(key) || !w.value(item) {
				return false
			}
		}
		if end >= 0 && end != w.pos {
			return false
		}
	}
}

// avroDecimalRule bounds the unscaled value of a decimal by its precision.
type avroDecimalRule struct {
	precision, scale int
	most, mostLess1  []byte // 10^precision - 1, and that less 1, without leading zeros
}

func newAvroDecimalRule(precision, scale int) *avroDecimalRule {
	most := powerOfTen(precision)
	r := &avroDecimalRule{precision: precision, scale: scale}
	r.most = most.Sub(most, bigOne).Bytes()
	r.mostLess1 = most.Sub(most, bigOne).Bytes()
	return r
}

// fits reports whether a two's complement number, most significant byte first,
// has no more digits than the precision. No bytes at all are no number.
func (r *avroDecimalRule) fits(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	if b[0] < 0x80 {
		for len(b) > 0 && b[0] == 0 {
			b = b[1:]
		}
		return len(b) < len(r.most) || len(b) == len(r.most) && bytes.Compare(b, r.most) <= 0
	}
	// The magnitude is the complement and one.
	for len(b) > 0 && b[0] == 0xff {
		b = b[1:]
	}
	if len(b) != len(r.mostLess1) {
		return len(b) < len(r.mostLess1)
	}
	for i, c := range b {
		if c = ^c; c != r.mostLess1[i] {
			return c < r.mostLess1[i]
		}
	}
	return true
}
