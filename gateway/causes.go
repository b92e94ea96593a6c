package gateway

import (
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// causeEvery is how often the cause of one code is logged at most: while a
// server is away every request meets the same.
const causeEvery = time.Second

// causes logs what clients are not told: why a server that the node depends on
// does not answer, and where it is.
type causes struct {
	mu   sync.Mutex
	last map[headgate.Code]caused // of the closed table of codes
}

// caused is what was logged of a code.
type caused struct {
	at   time.Time
	left int // not logged since
}

// due reports whether to log now, and how many were left out before.
func (c *causes) due(code headgate.Code, now time.Time) (left int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.last[code]
	if known && now.Sub(last.at) < causeEvery {
		last.left++
		c.last[code] = last
		return 0, false
	}
	if c.last == nil {
		c.last = map[headgate.Code]caused{}
	}
	c.last[code] = caused{at: now}
	return last.left, true
}

// logCause writes down what an answer leaves out: faults of the node always,
// those of what it depends on once a second.
func (c *Call) logCause(e *headgate.Error) {
	switch {
	case e == nil:
	case e.Code == headgate.CodeInternal:
		c.g.cfg.Log.Error("request failed", "request", c.RequestID, "error", e)
	case e.Err != nil && e.Info().Status >= http.StatusInternalServerError:
		if left, due := c.g.causes.due(e.Code, c.g.cfg.Now()); due {
			c.g.cfg.Log.Warn("request failed for what the node depends on", "request", c.RequestID, "error", e, "left_out", left)
		}
	}
}
