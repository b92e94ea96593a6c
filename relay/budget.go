package relay

import (
	"context"
	"sync"
)

// budget bounds the rows in flight by count and bytes.
type budget struct {
	maxRows, maxBytes int

	mu          sync.Mutex
	rows, bytes int
	freed       chan struct{}
}

func newBudget(rows, bytes int) *budget {
	return &budget{maxRows: rows, maxBytes: bytes, freed: make(chan struct{})}
}

// take waits until a row of the size fits. A row that is larger than the whole
// budget goes alone.
func (b *budget) take(ctx context.Context, size int) error {
	for {
		b.mu.Lock()
		if b.rows == 0 || b.rows < b.maxRows && b.bytes+size <= b.maxBytes {
			b.rows++
			b.bytes += size
			b.mu.Unlock()
			return nil
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *budget) give(rows, bytes int) {
	b.mu.Lock()
	b.rows -= rows
	b.bytes -= bytes
	close(b.freed)
	b.freed = make(chan struct{})
	b.mu.Unlock()
}

func (b *budget) used() (rows, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rows, b.bytes
}
