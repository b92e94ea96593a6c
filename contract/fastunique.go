package contract

import (
	"bytes"
	"hash/maphash"
	"math/bits"
)

// uniqueItem is one item that was seen, found by the hash of its key.
type uniqueItem struct {
	hash uint64
	at   int32 // position in the text plus one; 0 is an empty slot
}

// unique reports whether the items of an array that lies between at and end
// all differ. Scalars are compared here; with arrays or objects among them the
// general engine compares.
func (s *fastState) unique(at, end, count int) bool {
	s.steps += count + (end-at)>>4
	if s.steps > s.limit {
		return false
	}
	base := len(s.items)
	size := 1 << bits.Len(uint(2*count-1))
	for range size {
		s.items = append(s.items, uniqueItem{})
	}
	if s.names.seed == (maphash.Seed{}) {
		s.names.seed = maphash.MakeSeed()
	}
	table, mark := s.items[base:], len(s.scratch)
	distinct, scalars := true, true
	for p := skipSpace(s.text, at+1); distinct; {
		if s.text[p] == '{' || s.text[p] == '[' {
			scalars = false
			break
		}
		distinct = s.fresh(table, p)
		s.scratch = s.scratch[:mark]
		p = skipSpace(s.text, s.scalarEnd(p))
		if s.text[p] == ']' {
			break
		}
		p = skipSpace(s.text, p+1)
	}
	s.items = s.items[:base]
	if !scalars {
		return s.uniqueByWalk(at, end)
	}
	return distinct
}

// fresh adds the scalar at p to the table; false means that an equal one is
// there.
func (s *fastState) fresh(table []uniqueItem, p int) bool {
	from := len(s.scratch)
	s.appendItemKey(p)
	key := s.scratch[from:]
	sum := maphash.Bytes(s.names.seed, key)
	mask := uint64(len(table) - 1)
	for h := sum & mask; ; h = (h + 1) & mask {
		t := &table[h]
		if t.at == 0 {
			*t = uniqueItem{sum, int32(p + 1)}
			return true
		}
		if t.hash != sum {
			continue
		}
		next := len(s.scratch)
		s.appendItemKey(int(t.at) - 1)
		if bytes.Equal(s.scratch[from:next], s.scratch[next:]) {
			return false
		}
		s.scratch = s.scratch[:next]
	}
}

// appendItemKey appends the scalarKey of the scalar at p.
func (s *fastState) appendItemKey(p int) {
	switch c := s.text[p]; {
	case c == '"':
		end, saw := scanString(s.text, p)
		s.scratch = append(s.scratch, 's')
		if content := s.unescape(p, end, saw); saw&sawEscape == 0 {
			s.scratch = append(s.scratch, content...)
		}
	case c == '-' || isDigit(c):
		v := viewNumber(s.text[p:s.scalarEnd(p)])
		s.scratch = v.appendKey(s.scratch)
	case c == 'n':
		s.scratch = append(s.scratch, 'z')
	default:
		s.scratch = append(s.scratch, c)
	}
}

// scalarEnd returns the position behind a scalar that was accepted.
func (s *fastState) scalarEnd(p int) int {
	if s.text[p] == '"' {
		end, _ := scanString(s.text, p)
		return end
	}
	for {
		switch s.text[p] {
		case ',', ']', ' ', '\t', '\n', '\r':
			return p
		}
		p++
	}
}

func (s *fastState) uniqueByWalk(at, end int) bool {
	if s.steps += (end - at) / 4; s.steps > s.limit {
		return false
	}
	d, fault := s.p.general.read(s.text[at:end], s.p.limits)
	if fault != nil {
		return false
	}
	defer d.release()
	ok := d.eval.unique(nil, 0, nil)
	s.steps += d.eval.work
	return ok
}
