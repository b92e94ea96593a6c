package causal

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

const (
	breadthShards = 32
	// breadthDeliveries bounds the deliveries whose children are counted at
	// the same time. Beyond it the oldest counts are forgotten.
	breadthDeliveries = 1 << 18
)

// breadthTable counts the children of deliveries. A count lives for at least
// one token life after it last rose, so it outlives every token under which it
// was reached.
type breadthTable struct {
	a, b   maphash.Seed
	life   time.Duration
	room   int // deliveries per shard and generation
	shards [breadthShards]breadthShard
}

// breadthShard counts in two generations; the older one is dropped whole.
type breadthShard struct {
	mu         sync.Mutex
	young, old map[deliveryKey]int32
	since      time.Time // when the younger generation began
}

// deliveryKey stands for a delivery whatever its attempt: two hashes with
// seeds of this process, which nobody outside can make collide.
type deliveryKey struct{ a, b uint64 }

// delivery names a delivery across its attempts.
type delivery struct {
	subscription, stream string
	position             headgate.Position
}

func newBreadthTable(life time.Duration) *breadthTable {
	return &breadthTable{
		a: maphash.MakeSeed(), b: maphash.MakeSeed(), life: life,
		room: breadthDeliveries / 2 / breadthShards,
	}
}

func (t *breadthTable) key(d *Delivered) deliveryKey {
	id := delivery{d.Subscription, d.Stream, d.Position}
	return deliveryKey{maphash.Comparable(t.a, id), maphash.Comparable(t.b, id)}
}

// take counts one more child unless the delivery has limit already.
func (t *breadthTable) take(k deliveryKey, limit int, now time.Time) bool {
	s := &t.shards[k.a%breadthShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.young) >= t.room || now.Sub(s.since) >= t.life {
		s.old, s.young, s.since = s.young, nil, now
	}
	n, ok := s.young[k]
	if !ok {
		n = s.old[k]
	}
	if int(n) >= limit {
		return false
	}
	if s.young == nil {
		s.young = make(map[deliveryKey]int32)
	}
	s.young[k] = n + 1
	delete(s.old, k)
	return true
}

// giveBack takes one child back. A count that was forgotten meanwhile stays so.
func (t *breadthTable) giveBack(k deliveryKey) {
	s := &t.shards[k.a%breadthShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range []map[deliveryKey]int32{s.young, s.old} {
		switch n := m[k]; {
		case n > 1:
			m[k] = n - 1
			return
		case n == 1:
			delete(m, k)
			return
		}
	}
}
