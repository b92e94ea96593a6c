package lease

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// askedFor is how long a request id is remembered at least, unless more
	// than askedLimit others come.
	askedFor   = time.Hour
	askedLimit = 1 << 16
)

// asked remembers which request was made under the request ids that were
// granted, also after others took the resources: rows know only their last
// one. It keeps two halves, of which the older is dropped when the younger is
// full or old enough. It may forget; it never claims what was not granted.
type asked struct {
	mu     sync.Mutex
	young  map[askedID]askedDigest
	old    map[askedID]askedDigest
	turned time.Time
	now    func() time.Time // nil: time.Now
	limit  int              // of each half; 0: askedLimit
}

type (
	askedID     [16]byte // of the principal and the request id
	askedDigest [digestSize]byte
)

// splitKey parts the key of a request into its two sides; false for what is
// no principal's.
func splitKey(key string) (id askedID, digest askedDigest, ok bool) {
	if len(key) <= digestSize || key[0] == ' ' {
		return id, digest, false
	}
	sum := sha256.Sum256([]byte(key[:len(key)-digestSize]))
	copy(id[:], sum[:])
	copy(digest[:], key[len(key)-digestSize:])
	return id, digest, true
}

// note remembers a request that was granted.
func (a *asked) note(key string) {
	id, digest, ok := splitKey(key)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.now != nil {
		now = a.now()
	}
	limit := a.limit
	if limit == 0 {
		limit = askedLimit
	}
	if a.young == nil || len(a.young) >= limit || now.Sub(a.turned) >= askedFor {
		a.old, a.young, a.turned = a.young, map[askedID]askedDigest{}, now
	}
	a.young[id] = digest
}

// get tells whether the key's request id was granted something, and whether to
// this very request.
func (a *asked) get(key string) (known, same bool) {
	id, digest, ok := splitKey(key)
	if !ok {
		return false, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	have, known := a.young[id]
	if !known {
		have, known = a.old[id]
	}
	return known, known && have == digest
}
