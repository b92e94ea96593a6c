package jsontext

import (
	"bytes"
	"hash/maphash"
	"math"
)

// linearNames is how many members of one object are compared one by one before
// a hash table takes over.
const linearNames = 16

// Check walks the whole text and also refuses duplicate names, however they
// are spelt. It is linear in the length of the text. Nil means valid.
func Check(text []byte, lim Limits) *Fault {
	if len(text) > math.MaxInt32 {
		return &Fault{Code: CodeSyntax, Line: 1, Column: 1, First: -1, Detail: "The text is longer than 2 GiB."}
	}
	s := NewScanner(text, lim)
	seen := names{text: text, base: -1}
	for {
		t, f := s.Next()
		if f != nil {
			return f
		}
		switch t.Kind {
		case EOF:
			return nil
		case BeginObject:
			seen.open()
		case EndObject:
			seen.close()
		case Name:
			if !seen.add(t) {
				return duplicateFault(text, lim, t)
			}
		}
	}
}

// NameSet finds duplicate names among the members of one object whose tokens a
// caller walks itself. The zero value is an empty set.
type NameSet struct{ names names }

// Add adds a Name token of the text and reports whether the name is new. All
// tokens must be of one object of one text.
func (n *NameSet) Add(text []byte, t Token) bool {
	if n.names.count == 0 {
		n.names.open()
	}
	n.names.text = text
	return n.names.add(t)
}

// DuplicateFault describes the Name token t of the text as a duplicate.
func DuplicateFault(text []byte, lim Limits, t Token) *Fault { return duplicateFault(text, lim, t) }

// nameRef is the content of one name: a part of the text, or of the buffer
// when the name was written with escapes. The first entry of each object is a
// marker whose start is the base of the object around it.
type nameRef struct {
	start, end int32
	buffered   bool
}

// names holds the names of all open objects, innermost last. The first ones
// lie in the struct itself, which therefore stays on its user's stack.
type names struct {
	text   []byte
	buf    []byte // unescaped names
	base   int    // index of the innermost object's marker, or -1
	count  int
	room   [24]nameRef
	spill  []nameRef
	tables []nameTable
	seed   maphash.Seed
}

// nameTable is an open-addressing table over the names of one large object.
// The seed is random, so that nobody can choose names that collide.
type nameTable struct {
	base  int
	slots []int32 // index of a name, 0 for empty: index 0 is always a marker
}

func (n *names) at(i int) *nameRef {
	if i < len(n.room) {
		return &n.room[i]
	}
	return &n.spill[i-len(n.room)]
}

func (n *names) push(r nameRef) {
	if n.count < len(n.room) {
		n.room[n.count] = r
	} else {
		n.spill = append(n.spill[:n.count-len(n.room)], r)
	}
	n.count++
}

func (n *names) open() {
	n.push(nameRef{start: int32(n.base)})
	n.base = n.count - 1
}

func (n *names) close() {
	if k := len(n.tables); k > 0 && n.tables[k-1].base == n.base {
		n.tables = n.tables[:k-1]
	}
	n.count = n.base
	n.base = int(n.at(n.base).start)
}

func (n *names) content(r *nameRef) []byte {
	if r.buffered {
		return n.buf[r.start:r.end]
	}
	return n.text[r.start:r.end]
}

// add adds the name to the innermost object; false means it was there.
func (n *names) add(t Token) bool {
	ref := nameRef{start: int32(t.Start + 1), end: int32(t.End - 1)}
	if t.Escaped {
		before := len(n.buf)
		n.buf = Unquote(n.buf, n.text[t.Start:t.End])
		ref = nameRef{start: int32(before), end: int32(len(n.buf)), buffered: true}
	}
	members := n.count - 1 - n.base
	n.push(ref)
	if members >= linearNames {
		return n.table().insert(n, int32(n.count-1))
	}
	name := n.content(&ref)
	for i := n.base + 1; i < n.count-1; i++ {
		m := n.at(i)
		if m.end-m.start == ref.end-ref.start && bytes.Equal(n.content(m), name) {
			return false
		}
	}
	return true
}

// table returns the innermost object's table with room for one more name.
func (n *names) table() *nameTable {
	if k := len(n.tables); k == 0 || n.tables[k-1].base != n.base {
		if n.seed == (maphash.Seed{}) {
			n.seed = maphash.MakeSeed()
		}
		n.tables = append(n.tables, nameTable{base: n.base})
	}
	t := &n.tables[len(n.tables)-1]
	members := n.count - 1 - n.base
	if 2*members >= len(t.slots) {
		t.slots = make([]int32, max(64, 2*len(t.slots)))
		for i := n.base + 1; i < n.count-1; i++ {
			t.insert(n, int32(i))
		}
	}
	return t
}

func (t *nameTable) insert(n *names, index int32) bool {
	name := n.content(n.at(int(index)))
	mask := uint64(len(t.slots) - 1)
	for h := maphash.Bytes(n.seed, name); ; h++ {
		slot := &t.slots[h&mask]
		if *slot == 0 {
			*slot = index
			return true
		}
		if bytes.Equal(n.content(n.at(int(*slot))), name) {
			return false
		}
	}
}
