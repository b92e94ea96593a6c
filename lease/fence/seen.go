package fence

import (
	"sync"

	"github.com/headgate/headgate"
)

// maxSeen bounds what Seen remembers; beyond it, it forgets everything.
const maxSeen = 1 << 16

// Seen remembers fences that a storage refused as stale. Since stale is final,
// it can refuse them again without asking. The zero value is ready for use.
type Seen struct {
	mu     sync.RWMutex
	epochs map[string]int64 // highest epoch known to be superseded
}

// Note records that a storage refused the fence as stale: so is every lower
// epoch of its resource.
func (s *Seen) Note(f Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epochs == nil || len(s.epochs) >= maxSeen {
		s.epochs = make(map[string]int64)
	}
	s.epochs[f.Resource] = max(s.epochs[f.Resource], f.Epoch)
}

// Check returns stale_fence for a fence known to be superseded, else nil.
func (s *Seen) Check(f Fence) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if f.Epoch <= s.epochs[f.Resource] {
		return headgate.NewError(headgate.CodeStaleFence, "Epoch %d of %s was refused as superseded before.", f.Epoch, f.Resource)
	}
	return nil
}
