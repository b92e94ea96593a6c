package sqlitestore

import (
	"sync"
	"time"
)

// clock is the store's clock. It starts at the host's, or at the latest time
// that the store has recorded if that is later, and goes on by the monotonic
// clock: steps of the host's clock do not move it, and it never goes back.
type clock struct {
	now   func() time.Time
	start time.Time // when it was started, with its monotonic reading

	mu   sync.Mutex
	base time.Time // what it showed at start
	last time.Time
}

func newClock(now func() time.Time) *clock {
	if now == nil {
		now = time.Now
	}
	t := now()
	return &clock{now: now, start: t, base: t.Round(0).UTC()}
}

// restore sets the clock to what the store recorded, should that be later.
func (c *clock) restore(db *conn) error {
	s, _, err := db.db.Prepare("SELECT max(changed) FROM leases")
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Step() {
		if n := s.ColumnInt64(0); n > 0 {
			if t := time.Unix(0, n).UTC(); t.After(c.base) {
				c.base = t
			}
		}
	}
	return s.Err()
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.base.Add(c.now().Sub(c.start)); t.After(c.last) {
		c.last = t
	}
	return c.last
}
