package router

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/store"
)

// TestProgressAgainstSet holds the bitmap against a plain set, through the
// store's form and back.
func TestProgressAgainstSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint64Range(0, 300).Draw(t, "start")
		p := newProgress(start)
		set := map[uint64]bool{}
		for range rapid.IntRange(0, 200).Draw(t, "n") {
			off := start + rapid.Uint64Range(0, 500).Draw(t, "off")
			if rapid.Bool().Draw(t, "dense") {
				off = p.floor
			}
			if rapid.IntRange(0, 3).Draw(t, "stretch") == 0 {
				to, fresh := off+rapid.Uint64Range(0, 200).Draw(t, "len"), uint64(0)
				for o := off; o < to; o++ {
					if !set[o] {
						fresh++
					}
					set[o] = true
				}
				if got := p.fill(off, to); got != fresh {
					t.Fatalf("fill(%d, %d) = %d, but %d were not done", off, to, got, fresh)
				}
			} else {
				if got := p.mark(off); got == set[off] {
					t.Fatalf("mark(%d) = %v, but marked before: %v", off, got, set[off])
				}
				set[off] = true
			}
			if rapid.IntRange(0, 9).Draw(t, "reload") == 0 {
				row := p.row("s", "events", 0)
				if n := len(row.Done); n > 0 && (row.Done[n-1] == 0 || row.Done[0]&1 == 1) {
					t.Fatalf("the bitmap is not canonical: %x", row.Done)
				}
				p = loadProgress(row)
			}
			floor := start
			for set[floor] {
				floor++
			}
			if p.floor != floor {
				t.Fatalf("floor %d, want %d", p.floor, floor)
			}
			if p.doneCount() != uint64(len(set)) {
				t.Fatalf("%d done, want %d", p.doneCount(), len(set))
			}
		}
		for off := start; off < start+900; off++ {
			if p.isDone(off) != set[off] {
				t.Fatalf("isDone(%d) = %v", off, p.isDone(off))
			}
		}
		end := rapid.Uint64Range(0, start+900).Draw(t, "end")
		lost := p.floor > end
		for off := range set {
			lost = lost || off >= end
		}
		if p.cut(end) != lost {
			t.Fatalf("cut(%d) does not tell whether something was lost: %v", end, lost)
		}
		p = loadProgress(p.row("s", "events", 0))
		for off := uint64(0); off < start+900; off++ {
			if want := off < end && (off < start || set[off]); p.isDone(off) != want {
				t.Fatalf("after cut(%d): isDone(%d) = %v", end, off, p.isDone(off))
			}
		}
	})
}

// TestProgressForeignBitmap: a row that another version wrote with the floor's
// own bit set is still read right.
func TestProgressForeignBitmap(t *testing.T) {
	p := loadProgress(store.Progress{Start: 10, Floor: 12, Done: []byte{0b0000_1011}})
	if p.floor != 14 || !p.isDone(15) || p.isDone(14) {
		t.Fatalf("floor %d", p.floor)
	}
}
