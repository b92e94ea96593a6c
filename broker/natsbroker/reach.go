package natsbroker

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

const (
	// awayAfter is how long an outside server may be out of reach before the
	// driver says so: most restarts and elections of a cluster are shorter, and
	// what is published meanwhile is stored afterwards.
	awayAfter = 3 * time.Second
	// pingEvery is how often an outside server has to answer. After the third
	// question without an answer the connection counts as broken: a server that
	// hangs keeps its connections.
	pingEvery    = 5 * time.Second
	pingsWithout = 2
)

// reach remembers since when an outside server is out of reach.
type reach struct{ lost atomic.Pointer[time.Time] }

// end notes that the connection broke.
func (r *reach) end() {
	now := time.Now()
	r.lost.CompareAndSwap(nil, &now)
}

// back notes that there is a connection again.
func (r *reach) back() { r.lost.Store(nil) }

// away reports whether there has been none for longer than d.
func (r *reach) away(d time.Duration) bool {
	since := r.lost.Load()
	return since != nil && time.Since(*since) > d
}

// outsideHealth returns why nothing can be stored on an outside server.
func (b *Broker) outsideHealth() error {
	if !b.reach.away(b.cfg.awayAfter) {
		return nil
	}
	return &headgate.Error{
		Code: headgate.CodeUnavailable, Detail: "the NATS server cannot be reached", RetryAfter: awayAfter,
		Fix: "Look after the NATS server; the node goes on by itself once it answers, and nothing that was acknowledged is lost.",
	}
}
