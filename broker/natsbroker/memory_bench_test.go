package natsbroker

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// BenchmarkMemory looks up ids that the window does not hold, as nearly all
// are, in windows of different sizes.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{100_000, 250_000, 330_000, 800_000} {
		b.Run(fmt.Sprint("ids=", n), func(b *testing.B) {
			now := time.Now()
			m := newMemory(10*time.Minute, 1_000_000, now)
			for i := range n {
				m.put(digestOf("/s", fmt.Sprint("put-", i)), headgate.Position{Offset: uint64(i)}, now)
			}
			fresh := make([]digest, 1<<16)
			for i := range fresh {
				fresh[i] = digestOf("/s", fmt.Sprint("fresh-", i))
			}
			b.ResetTimer()
			for i := range b.N {
				if _, ok := m.get(fresh[i&(1<<16-1)], now); ok {
					b.Fatal("known")
				}
			}
		})
	}
}
