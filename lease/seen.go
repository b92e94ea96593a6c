package lease

import (
	"sync"
	"sync/atomic"
)

// seen remembers the highest committed epoch of resources that this node came
// across. It may forget; it never claims what was not committed.
type seen struct {
	limit  int64
	epochs sync.Map // resource → *atomic.Int64
	size   atomic.Int64
}

func (s *seen) get(resource string) (int64, bool) {
	v, ok := s.epochs.Load(resource)
	if !ok {
		return 0, false
	}
	return v.(*atomic.Int64).Load(), true
}

// raise notes a committed epoch.
func (s *seen) raise(resource string, epoch int64) {
	v, ok := s.epochs.Load(resource)
	if !ok {
		if s.size.Add(1) > s.limit {
			s.epochs.Clear()
			s.size.Store(1)
		}
		v, _ = s.epochs.LoadOrStore(resource, new(atomic.Int64))
	}
	at := v.(*atomic.Int64)
	for have := at.Load(); have < epoch && !at.CompareAndSwap(have, epoch); have = at.Load() {
	}
}
