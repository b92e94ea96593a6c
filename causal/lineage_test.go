package causal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPathCounts checks paths against the counts along every path of a random
// graph: exact as long as all pairs fit, never too low beyond.
func TestPathCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pairs := rapid.IntRange(1, 2*maxPairs).Draw(t, "pairs")
		nodes := rapid.IntRange(1, 40).Draw(t, "nodes")
		hash := func(i int) uint64 { return hashPair("p", fmt.Sprint(i)) }
		got := make([]path, nodes)
		want := make([]map[int]int, nodes) // greatest count on any path to the node
		for n := range nodes {
			want[n] = map[int]int{}
			if n > 0 {
				parents := rapid.SliceOfNDistinct(rapid.IntRange(max(0, n-6), n-1), 1, min(n, 4), rapid.ID).Draw(t, "parents")
				got[n] = got[parents[0]]
				for _, p := range parents {
					got[n].merge(&got[p])
					for pair, count := range want[p] {
						want[n][pair] = max(want[n][pair], count)
					}
				}
			}
			pair := rapid.IntRange(0, pairs-1).Draw(t, "pair")
			got[n].add(hash(pair))
			want[n][pair]++
			for i := range pairs {
				have := got[n].count(hash(i))
				if have < want[n][i] {
					t.Fatalf("node %d: count %d of pair %d, true count %d", n, have, i, want[n][i])
				}
				if len(want[n]) <= maxPairs && have != want[n][i] {
					t.Fatalf("node %d: count %d of pair %d, want exactly %d", n, have, i, want[n][i])
				}
			}
			if got[n].n > maxPairs {
				t.Fatalf("%d pairs kept", got[n].n)
			}
			if since := got[n].since(hash(pair)); len(since) != 0 {
				t.Fatalf("the pair just added is not the latest: %x", since)
			}
		}
	})
}

// TestPairNames: hashes do not depend on what is remembered, memory is bounded,
// and a cycle of strangers is told as well.
func TestPairNames(t *testing.T) {
	t.Parallel()
	names := newPairNames()
	var hashes []uint64
	for i := range 3 * pairsKept {
		eventType := fmt.Sprint("t", i)
		for range 2 {
			if got := names.hash("p", eventType); got != hashPair("p", eventType) {
				t.Fatalf("hash %x of %s", got, eventType)
			}
		}
		hashes = append(hashes, names.hash("p", eventType)|7)
	}
	if n := len(names.young.names) + len(names.old.names); n > 2*pairsKept || n < pairsKept {
		t.Errorf("%d names kept", n)
	}
	last := len(hashes) - 1
	if got, want := names.describe([]uint64{hashes[0], hashes[last]}), fmt.Sprintf("another event -> t%d by p", last); got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
	if got := names.describe(hashes); strings.Count(got, "->") != 8 {
		t.Errorf("long cycle: %q", got)
	}
	if hashPair("ab", "c") == hashPair("a", "bc") {
		t.Error("the border between principal and type does not count")
	}
}

func FuzzParseLineage(f *testing.F) {
	l := lineage{account: accountKey{1 << 63, 7}, total: 1000, granted: 16, born: 1767323045}
	for i := range 3 {
		l.path.add(hashPair("p", fmt.Sprint(i)))
	}
	f.Add(l.append(nil))
	f.Add([]byte{})
	f.Add([]byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLineage(b)
		if err != nil {
			return
		}
		if again := l.append(nil); !bytes.Equal(again, b) {
			t.Fatalf("two forms of one lineage: %x and %x", b, again)
		}
	})
}
