package relay

import "sync"

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

// try takes a row of the size if it fits. A row that is larger than the whole
// budget goes alone.
func (b *budget) try(size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows > 0 && (b.rows >= b.maxRows || b.bytes+size > b.maxBytes) {
		return false
	}
	b.rows++
	b.bytes += size
	return true
}

// change is closed when something is given back.
func (b *budget) change() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.freed
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
