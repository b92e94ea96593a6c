package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// Bounds of what a patch holds. Nothing in it can be clipped, so what is longer
// is not proposed.
const (
	maxPathToken  = 128  // bytes of one name
	maxPath       = 1024 // bytes of one pointer
	maxPatchValue = 1024 // bytes of one value
)

// edit is one change of a text, and the same as operations of a patch.
type edit struct {
	val        int32 // the value that is changed; the object that gets a member
	rank       uint8 // order of edits of one value: its content first
	start, end int32 // bytes that are replaced
	text       []byte
	step       headgate.RepairStep
	at         string
	confidence float64
	ops        []headgate.PatchOp
}

const (
	rankValue uint8 = iota
	rankName
)

// inserts reports whether the edit adds a member.
func (x *edit) inserts() bool { return x.start == x.end }

// apply makes the edits, which are those of one round. Those that touch what
// another one changes are left for the next round.
func (r *repairer) apply(d *draft, t *tape, edits []edit) {
	slices.SortStableFunc(edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	taken := edits[:0:0]
	end := int32(-1)
	dropped := map[int32]int32{} // members that an object loses
	for _, x := range edits {
		if x.start < end {
			continue
		}
		if x.inserts() {
			if n := t.values[x.val].count; n > 0 && dropped[x.val] == n {
				continue // its comma has nothing before it
			}
			if len(taken) > 0 && taken[len(taken)-1].inserts() && taken[len(taken)-1].val == x.val && x.text[0] != ',' {
				x.text = append([]byte{','}, x.text...)
			}
		} else if x.ops[0].Op == "remove" {
			dropped[t.values[x.val].parent]++
		}
		taken = append(taken, x)
		end = x.end
	}
	size := len(t.text)
	for i := range taken {
		size += len(taken[i].text)
	}
	out := r.buffer(size)
	at := int32(0)
	for i := range taken {
		out = append(append(out, t.text[at:taken[i].start]...), taken[i].text...)
		at = taken[i].end
	}
	d.text = append(out, t.text[at:]...)
	// Operations are applied one after the other, with pointers into the
	// original: what is inside comes before what it is in.
	slices.SortStableFunc(taken, func(a, b edit) int {
		return cmp.Or(cmp.Compare(b.val, a.val), cmp.Compare(a.rank, b.rank))
	})
	for i := range taken {
		d.add(taken[i].step, taken[i].at, taken[i].confidence, taken[i].ops...)
	}
}

// path writes the exact pointer of a value; false when it is too long to be
// proposed.
func (t *tape) path(i int32) (string, bool) {
	var toks []string
	size := 0
	for v := &t.values[i]; v.parent >= 0; v = &t.values[i] {
		tok := ""
		if t.values[v.parent].kind == kindArray {
			tok = strconv.Itoa(int(v.ordinal))
		} else {
			if v.nameEnd-v.nameStart > maxPathToken+2 {
				return "", false
			}
			tok = escapeToken(string(t.name(i)))
		}
		toks = append(toks, tok)
		if size += len(tok) + 1; size > maxPath {
			return "", false
		}
		i = v.parent
	}
	slices.Reverse(toks)
	if len(toks) == 0 {
		return "", true
	}
	return "/" + strings.Join(toks, "/"), true
}

// replace sets a value.
func (t *tape) replace(i int32, step headgate.RepairStep, confidence float64, text []byte) (edit, bool) {
	at, ok := t.path(i)
	if !ok || len(text) > maxPatchValue {
		return edit{}, false
	}
	v := &t.values[i]
	return edit{
		val: i, start: v.start, end: v.end, text: text, step: step, at: at, confidence: confidence,
		ops: []headgate.PatchOp{{Op: "replace", Path: at, Value: compact(text)}},
	}, true
}

// rename gives a member another name.
func (t *tape) rename(i int32, step headgate.RepairStep, confidence float64, name string) (edit, bool) {
	at, ok := t.path(i)
	if !ok || len(name) > maxPathToken {
		return edit{}, false
	}
	v := &t.values[i]
	to := at[:strings.LastIndexByte(at, '/')+1] + escapeToken(name)
	return edit{
		val: i, rank: rankName, start: v.nameStart, end: v.nameEnd, text: jsontext.AppendString(nil, name), step: step, at: at, confidence: confidence,
		ops: []headgate.PatchOp{{Op: "move", From: at, Path: to}},
	}, true
}

// drop takes a member away, with the comma that belongs to it.
func (t *tape) drop(i int32, step headgate.RepairStep, confidence float64) (edit, bool) {
	at, ok := t.path(i)
	v := &t.values[i]
	if !ok || v.nameEnd == 0 {
		return edit{}, false
	}
	start, end := v.nameStart, v.end
	if last := t.values[v.parent].next; v.next < last {
		end = t.values[v.next].nameStart
	} else if v.ordinal > 0 {
		start = t.values[t.before(i)].end
	}
	return edit{
		val: i, rank: rankName, start: start, end: end, step: step, at: at, confidence: confidence,
		ops: []headgate.PatchOp{{Op: "remove", Path: at}},
	}, true
}

// before returns the child before child i of the same container.
func (t *tape) before(i int32) int32 {
	c := t.values[i].parent + 1
	for t.values[c].next != i {
		c = t.values[c].next
	}
	return c
}

// insert adds a member to the end of an object.
func (t *tape) insert(object int32, name string, value []byte, step headgate.RepairStep, confidence float64) (edit, bool) {
	at, ok := t.path(object)
	if !ok || len(name) > maxPathToken || len(value) > maxPatchValue {
		return edit{}, false
	}
	v := &t.values[object]
	var text []byte
	if v.count > 0 {
		text = append(text, ',')
	}
	text = append(append(jsontext.AppendString(text, name), ':'), value...)
	path := at + "/" + escapeToken(name)
	return edit{
		val: object, start: v.end - 1, end: v.end - 1, text: text, step: step, at: path, confidence: confidence,
		ops: []headgate.PatchOp{{Op: "add", Path: path, Value: compact(value)}},
	}, true
}

// compact writes a value of a patch without white space, and with every
// invisible character escaped: whoever reads the report may be a model.
func compact(text []byte) json.RawMessage {
	var buf bytes.Buffer
	if json.Compact(&buf, text) != nil { // no text that passed the tokenizer does this
		return bytes.Clone(text)
	}
	if bytes.IndexFunc(buf.Bytes(), invisible) < 0 {
		return buf.Bytes()
	}
	out := make([]byte, 0, buf.Len()+16)
	for _, r := range buf.String() {
		if !invisible(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, "\\u%04x", u)
		}
	}
	return out
}

func invisible(r rune) bool { return r >= 0x7F && !unicode.IsPrint(r) }
