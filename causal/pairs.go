package causal

import (
	"slices"
	"strings"
	"sync"
)

// pairsKept bounds the names that a node remembers, per generation.
const pairsKept = 4096

// pairNames remembers the (principal, type) pairs that this node has seen: by
// name, so that a hash is computed once, and by hash, so that a refused loop
// can be named in words. It decides nothing: what is forgotten is computed
// again, or called "another event".
type pairNames struct {
	mu         sync.RWMutex
	young, old pairGeneration
}

type pairName struct{ principal, eventType string }

type pairGeneration struct {
	hashes map[pairName]uint64
	names  map[uint64]pairName
}

func newPairNames() *pairNames {
	t := new(pairNames)
	t.turn()
	return t
}

// turn begins a generation.
func (t *pairNames) turn() {
	t.old = t.young
	t.young = pairGeneration{hashes: make(map[pairName]uint64), names: make(map[uint64]pairName)}
}

// hash returns the hash of a pair and remembers both.
func (t *pairNames) hash(principal, eventType string) uint64 {
	t.mu.RLock()
	h, ok := t.young.hashes[pairName{principal, eventType}]
	t.mu.RUnlock()
	if ok {
		return h
	}
	h = hashPair(principal, eventType)
	// The names may share memory with a whole request.
	name := pairName{strings.Clone(principal), strings.Clone(eventType)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.young.hashes) >= pairsKept {
		t.turn()
	}
	t.young.hashes[name], t.young.names[h] = h, name
	return h
}

// describe names the pairs in order: "TYPE by PRINCIPAL -> …". A pair that this
// node never saw is "another event".
func (t *pairNames) describe(hashes []uint64) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var words []string
	for _, h := range hashes {
		h &^= 0xff
		name, ok := t.young.names[h]
		if !ok {
			name, ok = t.old.names[h]
		}
		if !ok {
			words = append(words, "another event")
			continue
		}
		words = append(words, quote(name.eventType)+" by "+quote(name.principal))
	}
	// A long cycle is clipped in the middle.
	const most = 8
	if len(words) > most {
		words = slices.Concat(words[:most/2], []string{"…"}, words[len(words)-most/2:])
	}
	return strings.Join(words, " -> ")
}
