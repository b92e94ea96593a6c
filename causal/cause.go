package causal

import (
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// Delivered names one delivery that a token is minted for.
type Delivered struct {
	Event        *headgate.Event
	Stream       string
	Position     headgate.Position
	Subscription string
	Principal    string // who receives it
	Attempt      int
}

// Cause is a verified cause: a delivery that its holder reacts to. It is
// immutable and may serve for many events at the same time.
type Cause struct {
	Delivered // Event is nil for a cause that came by token
	EventID   string
	Root      string
	Origin    headgate.Origin
	TTL, Hop  int
	Expires   time.Time

	lineage lineage // no account: Reserve refuses
}

// CauseOf returns the cause of a delivery that never left the node: what
// [Engine.Verify] would make of its token. A claim that was taken over is the
// caller's to notice.
func (e *Engine) CauseOf(d Delivered) *Cause {
	h := &d.Event.Header
	c := &Cause{
		Delivered: d,
		EventID:   d.Event.ID,
		Root:      h.RootID,
		Origin:    h.Origin,
		TTL:       h.TTL,
		Hop:       h.Hop,
		Expires:   e.cfg.Now().Add(e.cfg.TokenLife),
	}
	// An event that was not stamped here leaves the zero lineage.
	c.lineage, _ = parseLineage(h.Lineage)
	return c
}

// quote returns a name for a message: as it is when it is plain, else clipped
// and quoted with escapes.
func quote(name string) string {
	const limit = 100
	if headgate.ValidType(name) && len(name) <= limit {
		return name
	}
	if len(name) > limit {
		name = name[:limit]
	}
	return strconv.QuoteToASCII(name)
}

// days writes a long duration in days.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}
