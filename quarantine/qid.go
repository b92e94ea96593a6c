package quarantine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

// minter mints QIDs: UUIDs of version 7 (RFC 9562, section 5.7) that rise
// strictly, also within a millisecond and when the clock is set back. The 12
// bits after the version count within the millisecond (section 6.2, method 1).
type minter struct {
	mu   sync.Mutex
	last uint64 // milliseconds << 12 | counter
}

func (m *minter) next(now time.Time) string {
	v := uint64(max(now.UnixMilli(), 0)) << 12
	m.mu.Lock()
	if v <= m.last {
		v = m.last + 1
	}
	m.last = v
	m.mu.Unlock()

	var id uuid.UUID
	rand.Read(id[8:]) // never fails (crypto/rand)
	binary.BigEndian.PutUint64(id[:8], v>>12<<16|7<<12|v&0xfff)
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// qidOf makes the QID of something that was written at a time and has an
// identity of its own: the same for the same, in the form of all QIDs.
func qidOf(at time.Time, key string) string {
	sum := sha256.Sum256([]byte(key))
	var id uuid.UUID
	copy(id[:], sum[:])
	binary.BigEndian.PutUint64(id[:8], uint64(max(at.UnixMilli(), 0))<<16|7<<12|binary.BigEndian.Uint64(sum[16:])&0xfff)
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// startAfter makes the following QIDs greater than the given one. A QID that
// this minter could not have made is ignored.
func (m *minter) startAfter(qid string) {
	id, err := uuid.Parse(qid)
	if err != nil || id.Version() != 7 {
		return
	}
	hi := binary.BigEndian.Uint64(id[:8])
	m.mu.Lock()
	m.last = max(m.last, hi>>16<<12|hi&0xfff)
	m.mu.Unlock()
}
