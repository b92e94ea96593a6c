package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate"
)

// The pause before rows are repeated, unless the refusal names a longer one.
const (
	shortestHold = 5 * time.Millisecond
	longestHold  = 2 * time.Second
	// askAgain is when a refusal is asked for again at the latest, whatever it
	// names: rates are raised, and quarantines emptied.
	askAgain = 5 * time.Second
	// tellEvery is how often the log says of a class what it waits for.
	tellEvery = 10 * time.Second
)

// class is what waits together: a role's roots share a rate, and what one role
// waits for is no matter of another's.
type class struct {
	role string
	root bool
}

func classOf(r *Row) class { return class{r.Role, r.Cause == ""} }

// hold keeps the rows of a class back in one lane.
type hold struct {
	until time.Time
	next  time.Duration // pause of the next hold
	most  int           // rows of the next submission
	why   headgate.Code
}

// hold keeps the class of a group back when something is left of it, and ends
// the hold when nothing is.
func (l *lane) hold(group, left []item, wait time.Duration, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := classOf(group[0].row)
	rest := make([]item, 0, len(left)) // what the class waits with
	for i := range left {
		if left[i].until.IsZero() {
			rest = append(rest, left[i])
		}
	}
	left = rest
	h, was := l.holds[c]
	if was && personal(h.why) {
		l.loads.add(c, 0, 0, -1)
	}
	if len(left) == 0 {
		delete(l.holds, c)
		return
	}
	h.most = min(2*(len(group)-len(left))+1, groupRows)
	if why == nil && len(left) < len(group) {
		// They stood behind what was refused for good, and go at once.
		h.until, h.next, h.why = time.Time{}, shortestHold, ""
		l.keep(c, h)
		return
	}
	if len(left) < len(group) || h.next == 0 {
		h.next = shortestHold // it goes on, if slowly
	}
	h.until = time.Now().Add(max(min(wait, askAgain), h.next/2+rand.N(h.next)))
	h.next = min(h.next*2, longestHold)
	h.why = codeOf(why)
	l.keep(c, h)
	if personal(h.why) {
		l.loads.add(c, 0, 0, 1)
	}
}

func (l *lane) keep(c class, h hold) {
	if l.holds == nil {
		l.holds = map[class]hold{}
	}
	l.holds[c] = h
}

// release ends all holds. The caller holds the lock.
func (l *lane) release() {
	for c, h := range l.holds {
		if personal(h.why) {
			l.loads.add(c, 0, 0, -1)
		}
	}
	l.holds = nil
}

// codeOf names what rows wait for. What has no code is a failure of the
// quarantine or of the broker.
func codeOf(err error) headgate.Code {
	if e := headgate.AsError(err); e != nil {
		return e.Code
	}
	return headgate.CodeUnavailable
}

// pause waits until a hold ends or a row comes that none keeps back; false when
// ctx ended first.
func (l *lane) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.woken:
	case <-ctx.Done():
		return false
	}
	return true
}

// waiting adds the rows of the lane that are held, by what they wait for.
func (l *lane) waiting(rows map[headgate.Code]int) {
	for i := range l.queue {
		if !l.queue[i].until.IsZero() {
			rows[headgate.CodeTooLarge]++
			continue
		}
		if h := l.holds[classOf(l.queue[i].row)]; h.why != "" {
			rows[h.why]++
		}
	}
}

// wait is something that the log tells of.
type wait struct {
	class
	why headgate.Code
}

// tellWait says in the log what a class waits for, not too often.
func (n *run) tellWait(ctx context.Context, row *Row, why error) {
	if ctx.Err() != nil || errors.Is(why, context.Canceled) {
		return
	}
	w := wait{classOf(row), codeOf(why)}
	now := time.Now()
	n.mu.Lock()
	recent := now.Sub(n.told[w]) < tellEvery
	if !recent {
		if len(n.told) >= 1000 { // roles are the database's to name
			clear(n.told)
		}
		n.told[w] = now
	}
	n.mu.Unlock()
	if recent {
		return
	}
	rows, bytes := n.budget.used()
	n.r.cfg.Log.WarnContext(ctx, "outbox rows wait", "outbox", n.r.cfg.Name, "role", row.Role, "roots", w.root, "code", string(w.why), "error", why,
		"in_flight", rows, "of", n.r.cfg.InFlight, "in_flight_bytes", bytes)
}
