package natsbroker

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// memory is the dedupe window of one stream: the digests of what was stored
// lately, with their positions, and of what is being stored now.
//
// Digests live in generations, the newest last: open-addressing tables of 24
// bytes a slot, four fifths full at most. A table is in the order of the
// digests, so that looking for one that is absent, as nearly all are, ends after
// about three slots; without order it takes thirteen. A generation is dropped as a whole
// when all in it are too old, or when the newer ones hold enough ids by
// themselves. Three generations make up the bound, so that at most four are
// held: about 40 bytes for each id that is promised.
type memory struct {
	window time.Duration
	bound  int
	epoch  time.Time // times are kept as ticks since then

	mu      sync.Mutex
	gens    []*generation
	pending map[digest]place
}

// place is an event whose outcome is open: event i of a submission.
type place struct {
	sub *submission
	i   int
}

const (
	generations = 3
	tick        = 100 * time.Millisecond
	firstSlots  = 64
)

type generation struct {
	slots  []slot // a digest stands at its home or behind it, before all greater ones
	homes  int    // slots that are the home of some digest; a few more follow
	used   int
	newest uint32 // tick of the newest entry
}

// slot is empty when where is 0. 96 bits of the digest are kept: aiming at
// somebody else's still takes 2^96 tries.
type slot struct {
	lo    uint64
	where uint64 // partition in the upper 8 bits, offset plus one below
	hi    uint32
	tick  uint32
}

func newMemory(window time.Duration, bound int, now time.Time) *memory {
	return &memory{
		window: window, bound: bound,
		epoch:   now.Add(-2*window - time.Minute), // rebuilt entries lie before now
		pending: map[digest]place{},
	}
}

func (m *memory) ticks(t time.Time) uint32 {
	return uint32(max(0, t.Sub(m.epoch)/tick))
}

// get returns the position of a digest that was stored within the window. The
// caller holds the lock.
func (m *memory) get(d digest, now time.Time) (headgate.Position, bool) {
	lo, hi := split(d)
	oldest := m.epoch
	if t := now.Add(-m.window); t.After(oldest) {
		oldest = t
	}
	for i := len(m.gens) - 1; i >= 0; i-- {
		if at, found := m.gens[i].find(lo, hi); found {
			s := &m.gens[i].slots[at]
			if m.epoch.Add(time.Duration(s.tick) * tick).Before(oldest.Add(-tick)) {
				return headgate.Position{}, false
			}
			return unpack(s.where), true
		}
	}
	return headgate.Position{}, false
}

// put adds a digest. The caller holds the lock.
func (m *memory) put(d digest, at headgate.Position, stored time.Time) {
	share := max(1, (m.bound+generations-1)/generations)
	if n := len(m.gens); n == 0 || m.gens[n-1].used >= share {
		m.gens = append(m.gens, newGeneration(firstSlots))
		m.forget(stored)
	}
	lo, hi := split(d)
	m.gens[len(m.gens)-1].put(slot{lo: lo, hi: hi, where: pack(at), tick: m.ticks(stored)}, share)
}

// forget drops the oldest generations that nobody may ask for.
func (m *memory) forget(now time.Time) {
	newer := 0
	for _, g := range m.gens[1:] {
		newer += g.used
	}
	for len(m.gens) > 1 {
		old := m.gens[0]
		aged := m.epoch.Add(time.Duration(old.newest) * tick).Before(now.Add(-m.window - tick))
		if !aged && newer < m.bound {
			return
		}
		m.gens = append([]*generation(nil), m.gens[1:]...)
		newer -= m.gens[0].used
	}
}

// spareSlots are behind the homes, and as many more are added when they are
// used up.
const spareSlots = 32

func newGeneration(homes int) *generation {
	return &generation{slots: make([]slot, homes+spareSlots), homes: homes}
}

func (g *generation) put(s slot, share int) {
	if (g.used+1)*5 > g.homes*4 {
		g.grow(share)
	}
	g.newest = max(g.newest, s.tick)
	at, found := g.find(s.lo, s.hi)
	if found {
		g.slots[at] = s
		return
	}
	g.used++
	end := at
	for end < len(g.slots) && g.slots[end].where != 0 {
		end++
	}
	if end == len(g.slots) {
		g.slots = append(g.slots, make([]slot, spareSlots)...)
	}
	copy(g.slots[at+1:end+1], g.slots[at:end])
	g.slots[at] = s
}

// grow doubles the table, but not beyond what a full generation takes.
func (g *generation) grow(share int) {
	bigger := newGeneration(max(g.homes+1, min(2*g.homes, (share+1)*5/4+1)))
	bigger.newest = g.newest
	for _, s := range g.slots {
		if s.where != 0 {
			bigger.put(s, share)
		}
	}
	*g = *bigger
}

// find returns where the digest is, or where it belongs.
func (g *generation) find(lo uint64, hi uint32) (at int, found bool) {
	home, _ := bits.Mul64(lo, uint64(g.homes))
	for at = int(home); at < len(g.slots); at++ {
		switch s := &g.slots[at]; {
		case s.where == 0 || s.lo > lo:
			return at, false
		case s.lo == lo && s.hi == hi:
			return at, true
		}
	}
	return at, false
}

func split(d digest) (lo uint64, hi uint32) {
	return binary.LittleEndian.Uint64(d[:]), binary.LittleEndian.Uint32(d[8:])
}

func pack(at headgate.Position) uint64 {
	return uint64(at.Partition)<<56 | (at.Offset+1)&(1<<56-1)
}

func unpack(where uint64) headgate.Position {
	return headgate.Position{Partition: uint32(where >> 56), Offset: where&(1<<56-1) - 1}
}
