package natsbroker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
)

// The window answers like a list of everything that was put, as far as it
// promises: the last ids within the time, and nothing older than the time.
func TestMemoryAgainstList(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		start := time.Unix(1_000_000, 0)
		bound := 1 + rng.IntN(200)
		share := (bound + generations - 1) / generations
		m := newMemory(time.Minute, bound, start)
		type entry struct {
			at     headgate.Position
			stored time.Time
			order  int
		}
		last := map[digest]entry{}
		now := start
		puts := 1 + rng.IntN(1500)
		for i := range puts {
			now = now.Add(time.Duration(rng.IntN(400)) * time.Millisecond)
			d := digestOf("s", fmt.Sprint(rng.IntN(2000)))
			at := headgate.Position{Partition: uint32(i % 256), Offset: uint64(i) << 20}
			m.put(d, at, now)
			last[d] = entry{at, now, i}
		}
		count := 0
		for d, e := range last {
			got, ok := m.get(d, now)
			if ok {
				count++
			}
			age := now.Sub(e.stored)
			switch {
			case ok && got != e.at:
				t.Fatalf("seed %d: position %s, want %s", seed, got, e.at)
			case ok && age > time.Minute+2*tick:
				t.Fatalf("seed %d: known after %v", seed, age)
			case !ok && age <= time.Minute && e.order >= puts-bound:
				t.Fatalf("seed %d: put %d of %d is forgotten after %v, bound %d", seed, e.order, puts, age, bound)
			}
		}
		if count > bound+2*share {
			t.Fatalf("seed %d: %d ids known with a bound of %d", seed, count, bound)
		}
	}
}

func TestMemoryKeepsItsBound(t *testing.T) {
	const bound = 9_000
	now := time.Unix(1_000_000, 0)
	m := newMemory(time.Minute, bound, now)
	for i := range 6 * bound {
		m.put(digestOf("s", fmt.Sprint(i)), headgate.Position{Offset: uint64(i)}, now)
		if old := i - bound + 1; old >= 0 && i%997 == 0 {
			if at, ok := m.get(digestOf("s", fmt.Sprint(old)), now); !ok || at.Offset != uint64(old) {
				t.Fatalf("of %d ids, number %d is known: %v", i+1, old, ok)
			}
		}
	}
	slots := 0
	for _, g := range m.gens {
		slots += len(g.slots)
	}
	if perID := slots * int(unsafe.Sizeof(slot{})) / bound; perID > 44 {
		t.Errorf("%d bytes for each promised id", perID)
	}
}
