package contract

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/jsontext"
)

var bigOne = big.NewInt(1)

func powerOfTen(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// optional returns the other branch of a union of null and one type.
func (n *avroNode) optional() *avroNode {
	if n.op != avroUnion || n.size != 2 {
		return nil
	}
	switch {
	case n.kids[0].op == avroNull && n.kids[1].op != avroNull:
		return n.kids[1]
	case n.kids[1].op == avroNull && n.kids[0].op != avroNull:
		return n.kids[0]
	}
	return nil
}

// avroToJSON writes a datum that accept has passed as JSON; see the package
// documentation for the form.
type avroToJSON struct {
	avroWalk
	dst  []byte
	most int // bytes that dst may have, up to one string more
}

// full reports whether the text has as many bytes as it may.
func (w *avroToJSON) full() bool { return len(w.dst) > w.most }

// toJSON returns the JSON form of a datum that accept has passed. False means
// that it would have more than most bytes.
func (p *avroProgram) toJSON(data []byte, depth, most int) ([]byte, bool) {
	w := avroToJSON{avroWalk: newAvroWalk(data, depth), dst: make([]byte, 0, 2*len(data)+16), most: most}
	w.write(p.root)
	return w.dst, !w.full()
}

// write appends one value. Nothing can fail: the datum was accepted. Once the
// text is full the rest is left out.
func (w *avroToJSON) write(n *avroNode) {
	if w.full() {
		return
	}
	switch n.op {
	case avroNull:
		w.dst = append(w.dst, "null"...)
	case avroBoolean:
		b, _ := w.fixed(1)
		w.dst = strconv.AppendBool(w.dst, b[0] == 1)
	case avroInt:
		v, _ := w.int()
		w.dst = strconv.AppendInt(w.dst, int64(v), 10)
	case avroLong:
		v, _ := w.long()
		w.dst = strconv.AppendInt(w.dst, v, 10)
	case avroFloat:
		b, _ := w.fixed(4)
		w.dst = appendAvroFloat(w.dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
	case avroDouble:
		b, _ := w.fixed(8)
		w.dst = appendAvroFloat(w.dst, math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
	case avroString:
		b, _ := w.bytes()
		w.dst = jsontext.AppendString(w.dst, b)
	case avroBytes:
		b, _ := w.bytes()
		w.dst = appendAvroBytes(w.dst, b)
	case avroFixed:
		b, _ := w.fixed(n.size)
		w.dst = appendAvroBytes(w.dst, b)
	case avroEnum:
		i, _ := w.int()
		w.dst = jsontext.AppendString(w.dst, n.symbols[i])
	case avroUnion:
		i, _ := w.int()
		kid := n.kids[i]
		if kid.op == avroNull || n.optional() != nil {
			w.write(kid)
			return
		}
		w.dst = append(jsontext.AppendString(append(w.dst, '{'), kid.name), ':')
		w.write(kid)
		w.dst = append(w.dst, '}')
	case avroRecord:
		w.dst = append(w.dst, '{')
		for i, k := range n.kids {
			if w.full() {
				return
			}
			if i > 0 {
				w.dst = append(w.dst, ',')
			}
			w.dst = append(jsontext.AppendString(w.dst, n.fields[i].name), ':')
			w.write(k)
		}
		w.dst = append(w.dst, '}')
	case avroArray:
		w.writeBlocks(n, '[', ']')
	case avroMap:
		w.writeBlocks(n, '{', '}')
	}
}

func (w *avroToJSON) writeBlocks(n *avroNode, begin, end byte) {
	w.dst = append(w.dst, begin)
	w.work = avroInfinite // it was counted when the datum was accepted
	least := n.item.minBytes
	if n.op == avroMap {
		least++ // the length of the key
	}
	for first := true; !w.full(); {
		count, _, _ := w.block(least)
		if count == 0 {
			break
		}
		for range count {
			if w.full() {
				return
			}
			if !first {
				w.dst = append(w.dst, ',')
			}
			first = false
			if n.op == avroMap {
				key, _ := w.bytes()
				w.dst = append(jsontext.AppendString(w.dst, key), ':')
			}
			w.write(n.item)
		}
	}
	w.dst = append(w.dst, end)
}

// appendAvroFloat writes the shortest number that reads back as the very same;
// what JSON has no number for is a string, as in Avro's own JSON encoding.
func appendAvroFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	form := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		form = 'e'
	}
	return strconv.AppendFloat(dst, f, form, -1, bits)
}

// appendAvroBytes writes bytes as a string whose code points are the bytes.
func appendAvroBytes(dst, b []byte) []byte {
	text := make([]byte, 0, 2*len(b))
	for _, c := range b {
		text = utf8.AppendRune(text, rune(c))
	}
	return jsontext.AppendString(dst, text)
}

// avroDefaultText writes the default of a field as the library has it.
func avroDefaultText(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case int32:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case float32:
		return appendAvroFloat(dst, float64(v), 32)
	case float64:
		return appendAvroFloat(dst, v, 64)
	case string:
		return jsontext.AppendString(dst, v)
	case []byte:
		return appendAvroBytes(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = avroDefaultText(dst, e)
		}
		return append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		for i, name := range sortedKeys(v) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsontext.AppendString(dst, name), ':')
			dst = avroDefaultText(dst, v[name])
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}
