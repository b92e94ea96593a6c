package relay

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Aside is a session that can keep durably which rows are set aside: rows that
// wait for what only their own role waits for, so that no others wait with them.
// Of such a row the relay keeps the number alone and reads the row again when
// its turn comes. Sessions need not be one: then what waits counts as in flight.
//
// SaveAside is called by one goroutine at a time, ReadAside by one; both while
// Receive, Confirm and Prove may run.
type Aside interface {
	// LoadAside returns what is set aside. It is called once, before Receive. The
	// error is, or wraps, [errors.ErrUnsupported] when the database was not
	// prepared for it.
	LoadAside(ctx context.Context) ([]AsidePage, error)
	// SaveAside keeps pages durably in place of those of the same role, roots and
	// number, all of them or none; a page without numbers is removed. It fails
	// when the session was superseded. Rows whose number is kept stay readable.
	SaveAside(ctx context.Context, pages []AsidePage) error
	// ReadAside reads the rows of these numbers, which rise, in their order: at
	// least one if it can, and no more than about so many bytes. Gone are those
	// of the numbers up to the last row read, or all when none is read, that
	// certainly are in the database no more. What is neither read nor gone cannot
	// be seen yet.
	ReadAside(ctx context.Context, numbers []int64, bytes int) (rows []*Row, gone []int64, err error)
}

// PageRows is how many numbers of rows a page spans.
const PageRows = 4096

// AsidePage is a set of row numbers from Number × PageRows on: those of what one
// role waits for, as roots or as children.
type AsidePage struct {
	Role   string
	Roots  bool
	Number int64
	// Bits has a bit for each number, the first the lowest of the first byte; at
	// most PageRows/8 bytes. None is set in an empty one.
	Bits []byte
}

// Count returns how many numbers a page holds.
func (p *AsidePage) Count() int {
	n := 0
	for _, b := range p.Bits {
		n += bits.OnesCount8(b)
	}
	return n
}

// page is one AsidePage in memory.
type page struct {
	number int64
	set    [PageRows / 64]uint64 // set aside and not done
	out    [PageRows / 64]uint64 // of those, read again
	dirty  bool                  // set is not what was saved
}

func at(number int64) (word int, bit uint64) {
	i := number % PageRows
	return int(i / 64), 1 << (i % 64)
}

func (p *page) encode() []byte {
	b := make([]byte, 0, PageRows/8)
	for _, w := range p.set {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return b[:n]
}

func (p *page) decode(b []byte) {
	var whole [PageRows / 8]byte
	copy(whole[:], b)
	for i := range p.set {
		p.set[i] = binary.LittleEndian.Uint64(whole[8*i:])
	}
}

// group is what is set aside because one class waits: its own rows, and those
// of others behind them of the same keys.
type group struct {
	class class
	index uint16  // of the shelf's groups
	pages []*page // by number
	rows  int     // set aside and not done
	out   int     // of those, read again and on their way
	// old is how many of rows may have been submitted by a session before; their
	// numbers are at most oldTo.
	old   int
	oldTo int64
	// twice counts the rows on their way of numbers that more than one bears.
	twice map[int64]int
}

// waits reports whether rows of the group are still to be read again.
func (g *group) waits() bool { return g != nil && g.rows > g.out }

func (g *group) find(number int64) (i int, ok bool) {
	return slices.BinarySearchFunc(g.pages, number/PageRows, func(p *page, n int64) int { return cmp.Compare(p.number, n) })
}

// has reports whether a number is set aside, and whether it was read again.
func (g *group) has(number int64) (set, out bool) {
	i, ok := g.find(number)
	if !ok {
		return false, false
	}
	w, bit := at(number)
	return g.pages[i].set[w]&bit != 0, g.pages[i].out[w]&bit != 0
}

// add sets a number aside, or puts one back that was read again. It reports
// whether a page was made for it.
func (g *group) add(number int64) (made bool) {
	i, ok := g.find(number)
	if !ok {
		g.pages = slices.Insert(g.pages, i, &page{number: number / PageRows})
	}
	p := g.pages[i]
	w, bit := at(number)
	switch {
	case p.set[w]&bit == 0:
		p.set[w] |= bit
		p.dirty = true
		g.rows++
	case p.out[w]&bit != 0:
		p.out[w] &^= bit
		g.out--
	}
	return !ok
}

// take notes that a number was read again.
func (g *group) take(number int64) {
	i, ok := g.find(number)
	if !ok {
		return
	}
	w, bit := at(number)
	if p := g.pages[i]; p.set[w]&bit != 0 && p.out[w]&bit == 0 {
		p.out[w] |= bit
		g.out++
	}
}

// done removes a number.
func (g *group) done(number int64) {
	i, ok := g.find(number)
	if !ok {
		return
	}
	w, bit := at(number)
	p := g.pages[i]
	if p.set[w]&bit == 0 {
		return
	}
	if p.out[w]&bit != 0 {
		g.out--
	}
	p.set[w] &^= bit
	p.out[w] &^= bit
	p.dirty = true
	g.rows--
	if number <= g.oldTo && g.old > 0 {
		g.old--
	}
}

// next returns the lowest numbers above another that were not read again, at most
// limit, and no more than span from the first.
func (g *group) next(above int64, limit int, span int64) []int64 {
	var all []int64
	first, _ := g.find(above)
	for _, p := range g.pages[first:] {
		for w := range p.set {
			for left := p.set[w] &^ p.out[w]; left != 0; left &= left - 1 {
				n := p.number*PageRows + int64(64*w+bits.TrailingZeros64(left))
				if n <= above {
					continue
				}
				if len(all) == limit || len(all) > 0 && n-all[0] > span {
					return all
				}
				all = append(all, n)
			}
		}
	}
	return all
}

// dirtyPages returns the pages to be saved, and drops the empty ones of them.
func (g *group) dirtyPages() (pages []AsidePage, dropped int) {
	g.pages = slices.DeleteFunc(g.pages, func(p *page) bool {
		if !p.dirty {
			return false
		}
		p.dirty = false
		b := p.encode()
		pages = append(pages, AsidePage{Role: g.class.role, Roots: g.class.root, Number: p.number, Bits: b})
		if len(b) == 0 {
			dropped++
		}
		return len(b) == 0
	})
	return pages, dropped
}
