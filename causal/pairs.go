package causal

import (
	"slices"
	"strings"
	"sync"
)

// pairsKept bounds the names that a node remembers, per generation.
const pairsKept = 4096

// pairNames remembers which (principal, type) a hash stands for, as far as this
// node has seen it, so that a refused loop can be named in words. It decides
// nothing.
type pairNames struct {
	mu         sync.RWMutex
	young, old map[uint64]pairName
}

type pairName struct{ principal, eventType string }

func newPairNames() *pairNames { return &pairNames{young: make(map[uint64]pairName)} }

func (t *pairNames) see(hash uint64, principal, eventType string) {
	t.mu.RLock()
	_, ok := t.young[hash]
	t.mu.RUnlock()
	if ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.young) >= pairsKept {
		t.old, t.young = t.young, make(map[uint64]pairName)
	}
	// The names may share memory with a whole request.
	t.young[hash] = pairName{strings.Clone(principal), strings.Clone(eventType)}
}

// describe names the pairs in order: "TYPE by PRINCIPAL -> …". A pair that this
// node never saw is "another event".
func (t *pairNames) describe(hashes []uint64) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var words []string
	for _, h := range hashes {
		h &^= 0xff
		name, ok := t.young[h]
		if !ok {
			name, ok = t.old[h]
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
