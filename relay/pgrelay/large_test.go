package pgrelay_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

// shutCount is a gate in front of what admits everything and keeps nothing.
type shutCount struct {
	countOnly
	open chan struct{}
}

func (s shutCount) Admit(ctx context.Context, sub perimeter.Submission) []perimeter.Result {
	select {
	case <-s.open:
	case <-ctx.Done():
	}
	return s.countOnly.Admit(ctx, sub)
}

// Rows as large as they may be are read in bounded memory, from the table and
// from the log, also while the broker takes none.
func TestLargeRowsInFlatMemory(t *testing.T) {
	const rows, size, bound = 20, 6_000_000, 110 << 20
	for name, state := range map[string]string{
		"from the table": `UPDATE headgate.relay_state SET repair = 'a test'`,
		"from the log":   `SELECT 1`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			r.exec(`SELECT headgate.emit_event(NULL, 'order.placed', NULL, NULL, 'k' || i, NULL, convert_to(repeat('x', $2), 'UTF8')) FROM generate_series(1, $1::int) i`, rows, size)
			r.exec(state)
			var done, worst atomic.Int64
			measure := func() {
				var m runtime.MemStats
				runtime.GC() // what is retained counts, not how busy the machine is
				runtime.ReadMemStats(&m)
				worst.Store(max(worst.Load(), int64(m.HeapAlloc)))
			}
			door := shutCount{open: make(chan struct{})}
			var wrong atomic.Int64
			src := r.sourceOf(pgrelay.Config{Beat: 5 * time.Second})
			x := r.run(func(c *relay.Config) {
				c.Admit, c.Source = door, src
				c.Done = func(d relay.Done) {
					if len(d.Row.Event.Data) != size {
						wrong.Add(1)
					}
					measure()
					done.Add(1)
				}
			})
			r.until("no more may be in flight", func() bool { measure(); return x.Status().InFlightBytes > 24<<20 })
			for range 10 {
				measure() // what is read ahead
			}
			close(door.open)
			r.until("all rows are done", func() bool { return done.Load() == rows })
			t.Logf("%d rows of %d bytes; the heap had at most %d MiB", rows, size, worst.Load()>>20)
			if w := worst.Load(); w > bound {
				t.Errorf("the heap grew to %d MiB", w>>20)
			}
			if n := wrong.Load(); n > 0 {
				t.Errorf("%d rows are not whole", n)
			}
			if s := x.Status(); s.Sessions != 1 {
				t.Errorf("%d sessions were needed", s.Sessions)
			}
			x.Stop()
		})
	}
}
