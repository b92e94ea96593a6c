package causal

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
)

// lineageVersion is the first byte of Header.Lineage.
const lineageVersion = 1

// maxPairs bounds the different pairs that a path keeps. It exceeds the default
// TTL, so that a chain of that depth is always exact, and keeps a token below
// 512 bytes.
const maxPairs = 24

// maxGas bounds a root's gas, so that sums never overflow.
const maxGas = math.MaxInt32

// account names the gas account of one root: the boot that admitted it, and
// its number in that boot.
type accountKey struct{ boot, serial uint64 }

// lineage is the causal state that an event hands on to its children.
type lineage struct {
	account accountKey
	total   int   // gas of the root
	granted int   // of total, held by the admitting boot
	born    int64 // when the root was admitted, Unix seconds
	path    path
}

// path counts the (principal, type) pairs from the root to an event.
type path struct {
	// pairs hold a hash of 56 bits and a count of 8, the latest pair last.
	pairs [maxPairs]uint64
	n     int
	// floor is the greatest count that was ever dropped for want of room: a
	// pair that is not in pairs occurred at most so often.
	floor uint8
}

// hashPair returns the hash of a pair in the upper 56 bits.
func hashPair(principal, eventType string) uint64 {
	var buf [256]byte
	b := binary.AppendUvarint(buf[:0], uint64(len(principal)))
	b = append(b, principal...)
	b = append(b, eventType...)
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:8]) &^ 0xff
}

func (p *path) find(hash uint64) int {
	for i := range p.n {
		if p.pairs[i]&^0xff == hash {
			return i
		}
	}
	return -1
}

// count returns how often the pair occurred, never too low.
func (p *path) count(hash uint64) int {
	if i := p.find(hash); i >= 0 {
		return int(p.pairs[i] & 0xff)
	}
	return int(p.floor)
}

// add counts the pair once more and makes it the latest.
func (p *path) add(hash uint64) {
	n := min(p.count(hash)+1, math.MaxUint8)
	if i := p.find(hash); i >= 0 {
		copy(p.pairs[i:p.n-1], p.pairs[i+1:p.n])
		p.n--
	}
	if p.n == maxPairs {
		p.n = p.drop(p.pairs[:], maxPairs-1)
	}
	p.pairs[p.n] = hash | uint64(n)
	p.n++
}

// drop shortens pairs to want by taking out the lowest counts, the earliest
// first, and raises the floor to what it took out. It returns want.
func (p *path) drop(pairs []uint64, want int) int {
	for n := len(pairs); n > want; n-- {
		low := 0
		for i := 1; i < n; i++ {
			if pairs[i]&0xff < pairs[low]&0xff {
				low = i
			}
		}
		p.floor = max(p.floor, uint8(pairs[low]))
		copy(pairs[low:n-1], pairs[low+1:n])
	}
	return min(want, len(pairs))
}

// merge makes p count, for every pair, the greater of p's and q's counts. The
// order of p comes after what only q has.
func (p *path) merge(q *path) {
	var all [2 * maxPairs]uint64
	n := 0
	for _, pair := range q.pairs[:q.n] {
		if p.find(pair&^0xff) < 0 {
			all[n] = pair&^0xff | max(pair&0xff, uint64(p.floor))
			n++
		}
	}
	for _, pair := range p.pairs[:p.n] {
		all[n] = pair&^0xff | max(pair&0xff, uint64(q.count(pair&^0xff)))
		n++
	}
	p.floor = max(p.floor, q.floor)
	p.n = p.drop(all[:n], maxPairs)
	copy(p.pairs[:], all[:p.n])
}

// since returns the pairs that came after the latest occurrence of hash, in
// order: what lies between two turns of a loop.
func (p *path) since(hash uint64) []uint64 {
	i := p.find(hash)
	if i < 0 {
		return nil
	}
	return p.pairs[i+1 : p.n]
}

// append writes the binary form: version, gas, boot, serial, grant, birth,
// floor, count, pairs. At most 221 bytes.
func (l *lineage) append(b []byte) []byte {
	b = append(b, lineageVersion)
	b = binary.AppendUvarint(b, uint64(l.total))
	b = binary.BigEndian.AppendUint64(b, l.account.boot)
	b = binary.AppendUvarint(b, l.account.serial)
	b = append(b, byte(l.granted))
	b = binary.AppendUvarint(b, uint64(l.born))
	b = append(b, l.path.floor, byte(l.path.n))
	for _, pair := range l.path.pairs[:l.path.n] {
		b = binary.BigEndian.AppendUint64(b, pair)
	}
	return b
}

var errLineage = errors.New("causal: malformed lineage")

// parseLineage reads the binary form, which must fill b.
func parseLineage(b []byte) (lineage, error) {
	var l lineage
	r := reader{b: b}
	version := r.byte()
	total := r.uvarint()
	l.account.boot = r.uint64()
	l.account.serial = r.uvarint()
	l.granted = int(r.byte())
	born := r.uvarint()
	l.path.floor = r.byte()
	l.path.n = int(r.byte())
	if r.bad || version != lineageVersion || total < 1 || total > maxGas || born > math.MaxInt32<<8 ||
		l.granted < 1 || l.granted > GrantSize || uint64(l.granted) > total || l.path.n > maxPairs || len(r.b) != 8*l.path.n {
		return lineage{}, errLineage
	}
	l.total, l.born = int(total), int64(born)
	for i := range l.path.n {
		if l.path.pairs[i] = r.uint64(); l.path.pairs[i]&0xff == 0 {
			return lineage{}, errLineage
		}
	}
	return l, nil
}

// reader reads a binary form from the front of b. After the first fault bad is
// set and every read returns zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if v := r.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// uvarint reads one varint in its shortest form.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || (n > 1 && r.b[n-1] == 0) {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}
