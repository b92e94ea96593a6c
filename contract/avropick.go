package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// avroPick tells, for a value in JSON, which branches of a union cannot be
// meant and how far they are from it, by one look at the value's names.
type avroPick struct {
	byName  map[string]int       // type's name → branch, for Avro's own form
	fields  map[string][]pickUse // of all records, by name
	need    []int32              // by branch: required fields of a record, or noRecord
	symbols map[string]int       // symbol → first enum that has it
	alike   []int32              // by branch: the first record that takes the same, or itself
}

// pickUse is one record that has a field of some name.
type pickUse struct {
	branch int32
	less   int32     // faults that the record has less for the member
	kinds  uint8     // that the field takes
	enum   *avroNode // the field's type, where that is an enum
}

// noRecord is the need of a branch that is no record: less than any count makes
// up for.
const noRecord = -1 << 30

// minPick is from how many named types on a union has an avroPick.
const minPick = 2

// identify numbers the types so that equal ones share a number, and prepares
// unions. Types that are named are equal to themselves alone. It comes behind
// the defaults, which say what is required.
func (l *avroLowering) identify() {
	byKey := map[string]int{}
	for i := len(l.all) - 1; i >= 0; i-- { // what stands within a type comes behind it
		l.all[i].identify(byKey)
	}
	for _, n := range l.all {
		if n.op == avroUnion {
			for k := range kind(kinds) {
				n.meant[k] = n.meantBy(k)
			}
			n.pick = newAvroPick(n)
		}
	}
}

func (n *avroNode) identify(byKey map[string]int) int {
	if n.id > 0 {
		return n.id
	}
	key := strconv.Itoa(int(n.op)) + " "
	switch n.op {
	case avroRecord, avroEnum, avroFixed:
		key += "n " + n.name
	case avroArray, avroMap:
		key += strconv.Itoa(n.item.identify(byKey))
	case avroUnion:
		var sb strings.Builder
		for _, k := range n.kids {
			sb.WriteString(strconv.Itoa(k.identify(byKey)) + " ")
		}
		key += sb.String()
	default:
		key += strconv.Itoa(int(n.logical)) + " " + strconv.FormatInt(n.max, 10)
		if n.decimal != nil {
			key += " " + strconv.Itoa(n.decimal.precision) + " " + strconv.Itoa(n.decimal.scale)
		}
	}
	id, have := byKey[key]
	if !have {
		id = len(byKey) + 1
		byKey[key] = id
	}
	n.id = id
	return id
}

func newAvroPick(n *avroNode) *avroPick {
	named := 0
	for _, k := range n.kids {
		switch k.op {
		case avroRecord, avroEnum, avroFixed:
			named++
		}
	}
	if named < minPick {
		return nil
	}
	p := &avroPick{byName: map[string]int{}, fields: map[string][]pickUse{}, symbols: map[string]int{}, need: make([]int32, len(n.kids))}
	shapes := map[string]int32{}
	for i, k := range n.kids {
		p.need[i] = noRecord
		p.alike = append(p.alike, int32(i))
		if _, have := p.byName[k.name]; !have && k.op != avroNull {
			p.byName[k.name] = i
		}
		for _, s := range k.symbols {
			if _, have := p.symbols[s]; !have {
				p.symbols[s] = i
			}
		}
		if k.op != avroRecord {
			continue
		}
		p.need[i] = 0
		shape := k.shape()
		if first, have := shapes[shape]; have {
			p.alike[i] = first
		} else {
			shapes[shape] = int32(i)
		}
		for f := range k.fields {
			use := pickUse{branch: int32(i), less: 1}
			for kind := range kind(kinds) {
				if k.kids[f].takes(kind) {
					use.kinds |= 1 << kind
				}
			}
			if k.kids[f].op == avroEnum {
				use.enum = k.kids[f]
			}
			if !k.fields[f].hasDefault {
				use.less++
				p.need[i]++
			}
			p.fields[k.fields[f].name] = append(p.fields[k.fields[f].name], use)
		}
	}
	return p
}

// shape is the same of records that take the same values, and have as many
// faults with any other.
func (n *avroNode) shape() string {
	var b strings.Builder
	for i, f := range n.fields {
		fmt.Fprintf(&b, "%d %v %s ", n.kids[i].id, f.hasDefault, f.name)
	}
	return b.String()
}

// repeats reports whether an earlier branch takes the same values.
func (p *avroPick) repeats(branch int32) bool { return p != nil && p.alike[branch] < branch }

// meantBy lists the branches that a value of a JSON type may mean.
func (n *avroNode) meantBy(k kind) []int32 {
	out := []int32{}
	for i, kid := range n.kids {
		if kid.takes(k) && (kid.op != avroFloat || !n.has(avroDouble)) {
			out = append(out, int32(i))
		}
	}
	return out
}

// likely returns the branches of a union that a value of a type may mean.
func (n *avroNode) likely(k kind) []int32 {
	if n.id > 0 {
		return n.meant[k]
	}
	return n.meantBy(k)
}

// faults returns, by branch, how many faults each record has at least with the
// object: members that it does not have, required fields that are absent, and
// members that are of another type or no symbol of theirs. A record with none
// may fail by what the members hold. The list is to be given back by cutting
// r.rows.
func (r *avroRead) faults(n *avroNode, v int32) []int32 {
	p, val := n.pick, &r.t.values[v]
	if p == nil || val.kind != kindObject || r.depth <= 0 {
		return nil
	}
	mark := len(r.rows)
	r.rows = append(r.rows, p.need...)
	least := r.rows[mark:]
	r.work -= len(least)/16 + int(val.count)/4
	for i := range least {
		least[i] += val.count
	}
	for child := v + 1; child < val.next; child = r.t.values[child].next {
		uses := p.fields[string(r.t.name(child))]
		r.work -= len(uses) / 8
		kind := r.t.values[child].kind
		for i := range uses {
			u := &uses[i]
			least[u.branch] -= u.less
			if u.kinds&(1<<kind) == 0 || u.enum != nil && kind == kindString && u.enum.symbol(r.t.str(child)) < 0 {
				least[u.branch]++
			}
		}
	}
	return least
}

// avroKey names a value under a type at a depth, whose outcome is remembered
// while branches of unions are tried.
type avroKey struct {
	id, depth, v int32
}

// What is remembered of them: that the value fails, with how many faults if
// that is known, or by which branch of a union it is read.
const (
	avroFails = 0
	// maxAvroMemo bounds what is remembered of one text.
	maxAvroMemo = 1 << 16
)

// key returns the name of a value under a type, or false where a look is as
// cheap as the memory of one.
func (r *avroRead) key(n *avroNode, v int32) (avroKey, bool) {
	val := &r.t.values[v]
	return avroKey{int32(n.id), int32(r.depth), v}, n.id > 0 && val.kind >= kindArray && val.next-v > 2
}

func (r *avroRead) remember(k avroKey, what int32) {
	if r.memo == nil {
		r.memo = map[avroKey]int32{}
	}
	if len(r.memo) < maxAvroMemo && r.work >= 0 {
		r.memo[k] = what
	}
}

// fewSymbols are looked through rather than hashed.
const fewSymbols = 4

// symbol returns the index of an enum's symbol, or -1.
func (n *avroNode) symbol(s []byte) int {
	if n.index == nil {
		return slices.Index(n.symbols, string(s))
	}
	if i, ok := n.index[string(s)]; ok {
		return i
	}
	return -1
}
