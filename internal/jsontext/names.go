package jsontext

import (
	"bytes"
	"hash/maphash"
)

// linearNames is how many members of one object are compared one by one before
// the hash table takes over.
const linearNames = 16

// manyNames holds the names of all open objects, innermost last. What most
// payloads need lies in the struct itself, which stays on its user's stack.
//
// The names of objects with many members are also in an open-addressing hash
// table. Names leave it in the reverse order of their coming, so that clearing
// a slot never breaks another name's probe sequence. The seed is random, so
// that nobody can choose names that collide.
type manyNames struct {
	text   []byte
	buf    []byte // unescaped names
	base   int    // index of the innermost object's marker, or -1
	count  int
	hashed int // names in the table
	seed   maphash.Seed
	refs   [384]nameRef
	spill  []nameRef // names beyond refs
	slots  [1024]int32
	grown  []int32 // replaces slots once they are half full
}

func (n *manyNames) at(i int) *nameRef {
	if i < len(n.refs) {
		return &n.refs[i]
	}
	return &n.spill[i-len(n.refs)]
}

func (n *manyNames) push(r nameRef) {
	if n.count < len(n.refs) {
		n.refs[n.count] = r
	} else {
		n.spill = append(n.spill[:n.count-len(n.refs)], r)
	}
	n.count++
}

func (n *manyNames) open() {
	n.push(nameRef{start: int32(n.base)})
	n.base = n.count - 1
}

func (n *manyNames) close() {
	table := n.table()
	for i := n.count - 1; i > n.base; i-- {
		if slot := n.at(i).slot; slot > 0 {
			table[slot-1] = 0
			n.hashed--
		}
	}
	n.count = n.base
	n.base = int(n.at(n.base).start)
}

func (n *manyNames) content(r *nameRef) []byte {
	if r.buffered {
		return n.buf[r.start:r.end]
	}
	return n.text[r.start:r.end]
}

// add adds the name to the innermost object; false means it was there.
func (n *manyNames) add(t Token) bool {
	ref := refOf(n.text, &n.buf, t)
	members := n.count - 1 - n.base
	n.push(ref)
	if members == linearNames {
		for i := n.base + 1; i < n.count-1; i++ {
			n.insert(i)
		}
	}
	if members >= linearNames {
		return n.insert(n.count - 1)
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

func (n *manyNames) table() []int32 {
	if n.grown != nil {
		return n.grown
	}
	return n.slots[:]
}

// insert puts a name of the innermost object into the table; false means that
// an equal name of the same object is there. A slot holds a name's index plus
// one.
func (n *manyNames) insert(index int) bool {
	if 2*(n.hashed+1) > len(n.table()) {
		n.grow()
	}
	if n.hashed == 0 && n.seed == (maphash.Seed{}) {
		n.seed = maphash.MakeSeed()
	}
	ref := n.at(index)
	name := n.content(ref)
	table := n.table()
	mask := uint64(len(table) - 1)
	for h := maphash.Bytes(n.seed, name); ; h++ {
		slot := h & mask
		other := int(table[slot]) - 1
		if other < 0 {
			table[slot] = int32(index + 1)
			ref.slot = int32(slot + 1)
			n.hashed++
			return true
		}
		if other > n.base && bytes.Equal(n.content(n.at(other)), name) {
			return false
		}
	}
}

// grow doubles the table. The names go in again in the order of their coming.
func (n *manyNames) grow() {
	n.grown = make([]int32, 2*len(n.table()))
	mask := uint64(len(n.grown) - 1)
	for i := range n.count {
		ref := n.at(i)
		if ref.slot == 0 {
			continue
		}
		h := maphash.Bytes(n.seed, n.content(ref))
		for n.grown[h&mask] != 0 {
			h++
		}
		n.grown[h&mask] = int32(i + 1)
		ref.slot = int32(h&mask + 1)
	}
}
