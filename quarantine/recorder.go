package quarantine

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// Bounds of the recorder: of what waits, and of one transaction.
const (
	maxQueued      = 2048
	maxQueuedBytes = 32 << 20
	maxBatch       = 256
	maxBatchBytes  = 4 << 20
	// writeLimit is how long one transaction may wait for its turn. It is
	// longer than any caller waits, and ends a write that a stuck store would
	// otherwise hold for ever.
	writeLimit = 5 * time.Second
)

// ticket is one record on its way to the store.
type ticket struct {
	rec  store.QuarantineRecord
	done chan struct{} // closed when it is known
	ok   bool          // durable; read after done
}

func (t *ticket) size() int { return len(t.rec.Body) + len(t.rec.Detail) + 512 }

// recorder writes records in groups, one transaction for whatever waits.
type recorder struct {
	store    store.Store
	recorded func(*ticket) // called for each ticket before done is closed

	mu     sync.Mutex
	queue  []*ticket
	bytes  int
	room   chan struct{} // closed and replaced when the queue gets shorter
	busy   bool          // a goroutine is writing
	closed bool
	wg     sync.WaitGroup
}

func newRecorder(s store.Store, recorded func(*ticket)) *recorder {
	return &recorder{store: s, recorded: recorded, room: make(chan struct{})}
}

// enqueue hands a ticket over, waiting for room until ctx ends. False means
// that it was not taken.
func (r *recorder) enqueue(ctx context.Context, t *ticket) bool {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return false
		}
		if len(r.queue) == 0 || len(r.queue) < maxQueued && r.bytes+t.size() <= maxQueuedBytes {
			r.queue = append(r.queue, t)
			r.bytes += t.size()
			if !r.busy {
				r.busy = true
				r.wg.Add(1)
				go r.run()
			}
			r.mu.Unlock()
			return true
		}
		room := r.room
		r.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// run writes until nothing waits.
func (r *recorder) run() {
	defer r.wg.Done()
	for {
		batch := r.next()
		if batch == nil {
			return
		}
		r.write(batch)
	}
}

// next takes the next group off the queue; nil when there is none, after which
// another goroutine may start.
func (r *recorder) next() []*ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, size := 0, 0
	for n < len(r.queue) && n < maxBatch && (n == 0 || size+r.queue[n].size() <= maxBatchBytes) {
		size += r.queue[n].size()
		n++
	}
	if n == 0 {
		r.busy, r.queue = false, nil
		return nil
	}
	batch := r.queue[:n:n]
	r.queue = r.queue[n:]
	r.bytes -= size
	close(r.room)
	r.room = make(chan struct{})
	return batch
}

// write stores a group. When that fails, its members are tried one by one, so
// that one record that the store does not take cannot cost its neighbours.
func (r *recorder) write(batch []*ticket) {
	err := r.put(batch)
	for i, t := range batch {
		if err != nil && len(batch) > 1 {
			t.ok = r.put(batch[i:i+1]) == nil
		} else {
			t.ok = err == nil
		}
		r.recorded(t)
		close(t.done)
	}
}

func (r *recorder) put(batch []*ticket) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	defer cancel()
	return r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		for _, t := range batch {
			if _, err := tx.Quarantine.Put(ctx, t.rec); err != nil {
				return err
			}
		}
		return nil
	})
}

// close refuses further tickets and waits for those taken.
func (r *recorder) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
}
