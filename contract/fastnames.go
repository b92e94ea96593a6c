package contract

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// nameTable finds a name among those of a schema. Names are told apart by
// their length and their first and last eight bytes; for most sets a seed is
// found under which every name has a slot of its own, so that one probe
// decides.
type nameTable struct {
	slots   []uint16 // index of a name plus one
	keys    []nameKey
	arena   []byte
	seed    uint64
	shift   uint
	perfect bool
}

type nameKey struct {
	first, last uint64
	size        int32
	at          int32 // in the arena
	child       int32 // value of a property; it lies here to be near
}

const (
	nameMix      = 0x9E3779B97F4A7C15
	maxNames     = 1<<16 - 1 // of one table
	nameSeeds    = 256       // tried for one size of the table
	maxNameSlack = 3         // doublings of the table in search of a perfect seed
	maxPerfect   = 512       // names beyond which no seed is searched
)

func newNameTable(names []string) nameTable {
	var t nameTable
	if len(names) == 0 {
		return t
	}
	for _, n := range names {
		first, last := nameEnds([]byte(n))
		t.keys = append(t.keys, nameKey{first: first, last: last, size: int32(len(n)), at: int32(len(t.arena))})
		t.arena = append(t.arena, n...)
	}
	log := uint(bits.Len(uint(2*len(names) - 1)))
	if len(names) <= maxPerfect && t.distinct() {
		for slack := range uint(maxNameSlack + 1) {
			slots := make([]uint16, 1<<(log+slack))
			for i := range uint64(nameSeeds) {
				if t.place(slots, (i+1)*nameMix|1, true) {
					return t
				}
			}
		}
	}
	t.place(make([]uint16, 1<<log), nameMix, false)
	return t
}

// distinct reports whether lengths and ends tell all names apart.
func (t *nameTable) distinct() bool {
	seen := make(map[nameKey]bool, len(t.keys))
	for _, k := range t.keys {
		k.at = 0
		if seen[k] {
			return false
		}
		seen[k] = true
	}
	return true
}

// place fills a table; with perfect it fails at the first collision.
func (t *nameTable) place(slots []uint16, seed uint64, perfect bool) bool {
	clear(slots)
	t.seed, t.shift = seed, uint(64-bits.Len(uint(len(slots)-1)))
	for i := range t.keys {
		k := &t.keys[i]
		h := nameHash(k.first, k.last, int(k.size), seed) >> t.shift
		for slots[h] != 0 {
			if perfect {
				return false
			}
			h = (h + 1) & uint64(len(slots)-1)
		}
		slots[h] = uint16(i + 1)
	}
	t.slots, t.perfect = slots, perfect
	return true
}

func nameHash(first, last uint64, size int, seed uint64) uint64 {
	return (first*nameMix + last + uint64(size)) * seed
}

// nameEnds returns the first and the last eight bytes of a name. Both are the
// name itself, padded with zeros, when it is shorter.
func nameEnds(b []byte) (first, last uint64) {
	n := len(b)
	switch {
	case n >= 8:
		return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])
	case cap(b) >= 8: // what stands behind the name is masked out
		first = binary.LittleEndian.Uint64(b[:8]) & (1<<(8*n) - 1)
	default:
		for i, c := range b {
			first |= uint64(c) << (8 * i)
		}
	}
	return first, first
}

// find returns the index of the name, or -1.
func (t *nameTable) find(name []byte) int {
	if len(t.slots) == 0 {
		return -1
	}
	first, last := nameEnds(name)
	h := nameHash(first, last, len(name), t.seed) >> t.shift
	for {
		i := int(t.slots[h]) - 1
		if i < 0 {
			return -1
		}
		k := &t.keys[i]
		if k.first == first && k.last == last && int(k.size) == len(name) &&
			(len(name) <= 16 || bytes.Equal(t.arena[k.at+8:int(k.at)+len(name)-8], name[8:len(name)-8])) {
			return i
		}
		if t.perfect {
			return -1
		}
		h = (h + 1) & uint64(len(t.slots)-1)
	}
}

// fewNames is how many undeclared names of one object are compared one by one
// before the hash table takes over.
const fewNames = 12

// nameStack holds the undeclared names of all open objects, innermost last, to
// find duplicates. The names of objects with many are also in an
// open-addressing hash table; they leave it in the reverse order of their
// coming, which keeps every other name's probe sequence whole. The seed is
// random, so that nobody can choose names that collide.
type nameStack struct {
	refs   []openName
	slots  []int32 // index into refs plus one
	hashed int
	seed   maphash.Seed
}

// openName is the content of a name: a part of the text, or of the scratch
// buffer when it was written with escapes.
type openName struct {
	start, end int32
	slot       int32 // in the table, from 1; 0 if it is not there
	buffered   bool
}

func (n *nameStack) small() bool {
	return cap(n.refs) <= maxPooledNames && len(n.slots) <= 4*maxPooledNames
}

func (n *nameStack) mark() int { return len(n.refs) }

// unwind forgets the names that came after the mark.
func (n *nameStack) unwind(mark int) {
	if n.hashed > 0 {
		for i := len(n.refs) - 1; i >= mark; i-- {
			if slot := n.refs[i].slot; slot > 0 {
				n.slots[slot-1] = 0
				n.hashed--
			}
		}
	}
	n.refs = n.refs[:mark]
}

func (s *fastState) openContent(r *openName) []byte {
	if r.buffered {
		return s.scratch[r.start:r.end]
	}
	return s.text[r.start:r.end]
}

// addName adds a name to the innermost object, whose names begin at base; false
// means that it was there.
func (s *fastState) addName(base int, ref openName) bool {
	n := &s.names
	name := s.openContent(&ref)
	members := len(n.refs) - base
	n.refs = append(n.refs, ref)
	if members < fewNames {
		for i := base; i < base+members; i++ {
			m := &n.refs[i]
			if m.end-m.start == ref.end-ref.start && bytes.Equal(s.openContent(m), name) {
				return false
			}
		}
		return true
	}
	if members == fewNames {
		for i := base; i < base+members; i++ {
			s.hashName(base, i)
		}
	}
	return s.hashName(base, base+members)
}

// hashName puts a name into the table; false means that an equal name of the
// same object is there.
func (s *fastState) hashName(base, index int) bool {
	n := &s.names
	if 2*(n.hashed+1) > len(n.slots) {
		s.growNames()
	}
	name := s.openContent(&n.refs[index])
	mask := uint64(len(n.slots) - 1)
	for h := maphash.Bytes(n.seed, name); ; h++ {
		slot := h & mask
		other := int(n.slots[slot]) - 1
		if other < 0 {
			n.slots[slot] = int32(index + 1)
			n.refs[index].slot = int32(slot + 1)
			n.hashed++
			return true
		}
		if other >= base && bytes.Equal(s.openContent(&n.refs[other]), name) {
			return false
		}
	}
}

// growNames doubles the table. The names go in again in the order of their
// coming.
func (s *fastState) growNames() {
	n := &s.names
	if n.slots == nil {
		n.seed = maphash.MakeSeed()
	}
	n.slots = make([]int32, max(64, 2*len(n.slots)))
	mask := uint64(len(n.slots) - 1)
	for i := range n.refs {
		ref := &n.refs[i]
		if ref.slot == 0 {
			continue
		}
		h := maphash.Bytes(n.seed, s.openContent(ref))
		for n.slots[h&mask] != 0 {
			h++
		}
		n.slots[h&mask] = int32(i + 1)
		ref.slot = int32(h&mask + 1)
	}
}
