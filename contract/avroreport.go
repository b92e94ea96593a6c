package contract

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// avroDiagnosis is the pass that finds the words for what avroWalk refuses. It
// takes the same steps, but one value at a time and with its way into the
// datum. What only makes one value wrong is noted and passed over; what makes
// the place of everything behind it unsure ends the pass.
type avroDiagnosis struct {
	avroWalk
	hide bool     // the contract has sensitive values: any byte may be of one
	path []string // tokens of the pointer
	out  []headgate.Violation
	more int
}

// diagnose makes the report on a datum that accept refuses.
func (p *avroProgram) diagnose(data []byte, depth int) ([]headgate.Violation, int) {
	d := &avroDiagnosis{avroWalk: newAvroWalk(data, depth), hide: p.sensitive}
	if d.explain(p.root) && d.pos < len(data) {
		d.note(headgate.ViolationSyntax, p.root, d.pos, plural(len(data)-d.pos, "byte", "bytes")+" behind the end of the value",
			"the end of the payload", "Send one value and nothing behind it; if the value was written with another schema, use the contract's.")
	}
	return d.out, d.more
}

func (d *avroDiagnosis) at() string {
	var sb strings.Builder
	for _, tok := range d.path {
		if sb.Len() > clipAt {
			sb.WriteString("/…")
			break
		}
		sb.WriteByte('/')
		sb.WriteString(clipPointerToken(tok))
	}
	return sb.String()
}

// note adds a violation. The report of a payload is bounded; the rest is
// counted.
func (d *avroDiagnosis) note(code headgate.ViolationCode, n *avroNode, offset int, got, want, fix string) {
	if len(d.out) >= headgate.MaxViolations {
		d.more++
		return
	}
	if d.hide {
		got = "bytes that are not shown, as the contract has sensitive values"
	}
	d.out = append(d.out, headgate.Violation{
		Code: code, At: d.at(), SchemaAt: clip(n.at, 400), Offset: offset, Line: 1, Column: offset + 1,
		Got: got, Want: want, Fix: fix,
	})
}

// broken notes a fault behind which nothing can be read.
func (d *avroDiagnosis) broken(n *avroNode, offset int, got, want string) bool {
	d.note(headgate.ViolationSyntax, n, offset, got, want,
		fmt.Sprintf("Encode %s as Avro binary with the contract's schema, and send the bytes unchanged.", pointerWords(d.at())))
	return false
}

// number reads a varint with words for what is wrong with it.
func (d *avroDiagnosis) number(n *avroNode, what string, int32Only bool) (int64, bool) {
	at := d.pos
	if int32Only {
		if v, ok := d.int(); ok {
			return int64(v), true
		}
	} else if v, ok := d.long(); ok {
		return v, true
	}
	d.pos = at
	bits, most := 64, 10
	if int32Only {
		bits, most = 32, 5
	}
	got := fmt.Sprintf("a varint that goes on beyond %d bits", bits)
	if ended := !strings.ContainsFunc(string(d.data[at:min(at+most, len(d.data))]), func(r rune) bool { return r < 0x80 }); ended && len(d.data)-at < most {
		got = d.endOf()
	}
	return 0, d.broken(n, at, got, fmt.Sprintf("%s: a varint of at most %s", what, plural(most, "byte", "bytes")))
}

func (d *avroDiagnosis) endOf() string { return "the end of the payload" }

// chunk reads a length and so many bytes.
func (d *avroDiagnosis) chunk(n *avroNode, what string) ([]byte, bool) {
	at := d.pos
	size, ok := d.number(n, "the length of "+what, false)
	if !ok {
		return nil, false
	}
	if left := len(d.data) - d.pos; size < 0 || size > int64(left) {
		return nil, d.broken(n, at, fmt.Sprintf("a length of %d, with %s left", size, plural(left, "byte", "bytes")), "a length from 0 to what is left")
	}
	b := d.data[d.pos : d.pos+int(size)]
	d.pos += int(size)
	return b, true
}

// explain reads one value; false means that nothing behind it can be read.
func (d *avroDiagnosis) explain(n *avroNode) bool {
	if d.work--; d.work < 0 {
		return d.tooMuch(n)
	}
	at := d.pos
	switch n.op {
	case avroNull:
		return true
	case avroBoolean, avroFloat, avroDouble, avroFixed:
		return d.sized(n)
	case avroInt, avroLong:
		v, ok := d.number(n, "a number", n.op == avroInt)
		if ok && n.logical == avroTimeOfDay && (v < 0 || v >= n.max) {
			want := fmt.Sprintf("a time of day, from 0 to %d", n.max-1)
			d.note(headgate.ViolationOutOfRange, n, at, fmt.Sprintf("%s %d", n.name, v), want,
				fmt.Sprintf("Set %s to %s.", pointerWords(d.at()), want))
		}
		return ok
	case avroString:
		return d.text(n)
	case avroBytes:
		b, ok := d.chunk(n, "bytes")
		if ok {
			d.checkDecimal(n, at, b)
		}
		return ok
	case avroEnum:
		i, ok := d.number(n, "the index of a symbol", true)
		if ok && (i < 0 || int(i) >= n.size) {
			d.note(headgate.ViolationNotInEnum, n, at, fmt.Sprintf("symbol number %d", i), fmt.Sprintf("0 to %d: %s", n.size-1, n.describe()),
				fmt.Sprintf("Set %s to %s.", pointerWords(d.at()), n.describe()))
		}
		return ok
	case avroUnion:
		i, ok := d.number(n, "the index of a union's branch", true)
		if !ok {
			return false
		}
		if i < 0 || int(i) >= n.size {
			d.note(headgate.ViolationNoBranch, n, at, fmt.Sprintf("branch number %d", i), fmt.Sprintf("0 to %d: %s", n.size-1, n.describe()),
				fmt.Sprintf("Encode %s with a branch of the contract's schema.", pointerWords(d.at())))
			return false
		}
		return d.explain(n.kids[i])
	}
	if d.depth == 0 {
		d.note(headgate.ViolationTooDeep, n, at, "a value nested too deep", "records, arrays and maps nested less deeply",
			fmt.Sprintf("Nest records, arrays and maps less deeply at %s.", pointerWords(d.at())))
		return false
	}
	d.depth--
	ok := true
	switch n.op {
	case avroRecord:
		for i, k := range n.kids {
			if ok = d.below(n.fields[i].name, k); !ok {
				break
			}
		}
	default:
		ok = d.blocks(n)
	}
	d.depth++
	return ok
}

func (d *avroDiagnosis) tooMuch(n *avroNode) bool {
	v := tooComplex()
	d.note(v.Code, n, d.pos, v.Got, v.Want, v.Fix)
	return false
}

func (d *avroDiagnosis) below(token string, n *avroNode) bool {
	d.path = append(d.path, token)
	ok := d.explain(n)
	d.path = d.path[:len(d.path)-1]
	return ok
}

// sized reads values of a fixed size.
func (d *avroDiagnosis) sized(n *avroNode) bool {
	at, size := d.pos, n.size
	switch n.op {
	case avroBoolean:
		size = 1
	case avroFloat:
		size = 4
	case avroDouble:
		size = 8
	}
	b, ok := d.fixed(size)
	if !ok {
		return d.broken(n, at, d.endOf(), plural(size, "byte", "bytes")+" of "+n.describe())
	}
	if n.op == avroBoolean && b[0] > 1 {
		d.note(headgate.ViolationWrongType, n, at, fmt.Sprintf("byte 0x%02x", b[0]), "byte 0x00 (false) or 0x01 (true)",
			fmt.Sprintf("Set %s to true or false.", pointerWords(d.at())))
	}
	d.checkDecimal(n, at, b)
	return true
}

func (d *avroDiagnosis) checkDecimal(n *avroNode, at int, b []byte) {
	if n.decimal == nil || n.decimal.fits(b) {
		return
	}
	want := "a decimal of at most " + plural(n.decimal.precision, "digit", "digits")
	d.note(headgate.ViolationOutOfRange, n, at, "a decimal in "+plural(len(b), "byte", "bytes"), want,
		fmt.Sprintf("Set %s to %s, %d of them behind the point.", pointerWords(d.at()), want, n.decimal.scale))
}

func (d *avroDiagnosis) text(n *avroNode) bool {
	at := d.pos
	b, ok := d.chunk(n, "a string")
	if !ok {
		return false
	}
	switch {
	case !utf8.Valid(b):
		d.note(headgate.ViolationBadUTF8, n, at, "a string of "+plural(len(b), "byte", "bytes")+" that is not UTF-8", "UTF-8",
			fmt.Sprintf("Encode the string at %s as UTF-8.", pointerWords(d.at())))
	case n.logical == avroUUID && !isUUID(string(b)):
		f := lookupFormat("uuid")
		d.note(headgate.ViolationBadFormat, n, at, "string "+clipQuote(string(b)), f.want,
			fmt.Sprintf("Set %s to the id that its owner issued, %s; do not make one up.", pointerWords(d.at()), f.want))
	}
	return true
}

// blocks reads the blocks of an array or a map.
func (d *avroDiagnosis) blocks(n *avroNode) bool {
	index := 0
	var seen seenKeys
	for {
		at := d.pos
		least := n.item.minBytes
		if n.op == avroMap {
			least++
		}
		count, end, ok := d.block(least)
		if !ok {
			d.pos = at
			return d.badBlock(n, least)
		}
		if least == 0 && index+count > maxAvroEmptyItems {
			return d.tooMuch(n)
		}
		for range count {
			token := strconv.Itoa(index)
			if index++; n.op == avroMap {
				keyAt := d.pos
				key, ok := d.chunk(n, "a key")
				if !ok {
					return false
				}
				if token = hiddenMark; !d.hide {
					token = strings.ToValidUTF8(string(key), "\uFFFD")
				}
				d.checkKey(n, keyAt, key, token, &seen)
			}
			if !d.below(token, n.item) {
				return false
			}
		}
		if end >= 0 && end != d.pos {
			return d.broken(n, d.pos, fmt.Sprintf("a block that ends at byte %d and says that it ends at byte %d", d.pos, end), "a block of the size that it says")
		}
		if count == 0 {
			return true
		}
	}
}

func (d *avroDiagnosis) checkKey(n *avroNode, at int, key []byte, token string, seen *seenKeys) {
	d.path = append(d.path, token)
	defer func() { d.path = d.path[:len(d.path)-1] }()
	switch {
	case !utf8.Valid(key):
		d.note(headgate.ViolationBadUTF8, n, at, "a key of "+plural(len(key), "byte", "bytes")+" that is not UTF-8", "UTF-8",
			fmt.Sprintf("Encode the key at %s as UTF-8.", pointerWords(d.at())))
	case !seen.add(key):
		d.note(headgate.ViolationDuplicateKey, n, at, "the key "+clipQuote(token)+" again", "every key once in its map",
			fmt.Sprintf("Remove one of the two entries at %s.", pointerWords(d.at())))
	}
}

// badBlock says what is wrong with the head of a block.
func (d *avroDiagnosis) badBlock(n *avroNode, least int) bool {
	at := d.pos
	count, ok := d.number(n, "the count of a block", false)
	if !ok {
		return false
	}
	if count < 0 {
		sizeAt := d.pos
		size, ok := d.number(n, "the size of a block", false)
		if !ok {
			return false
		}
		if left := len(d.data) - d.pos; size < 0 || size > int64(left) {
			return d.broken(n, sizeAt, fmt.Sprintf("a block of %d bytes, with %s left", size, plural(left, "byte", "bytes")), "a size from 0 to what is left")
		}
	}
	if least == 0 && count > 0 {
		return d.tooMuch(n)
	}
	return d.broken(n, at, fmt.Sprintf("a block of %d items, with %s left", count, plural(len(d.data)-d.pos, "byte", "bytes")), "as many items as there are bytes for")
}
