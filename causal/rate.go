package causal

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate/headgate"
)

// ratePrincipals bounds the principals whose rate is remembered, per
// generation. One that is forgotten starts again with a full burst.
const ratePrincipals = 1 << 14

// rateTable limits the roots of each principal.
type rateTable struct {
	def        headgate.RootRight
	mu         sync.Mutex
	young, old map[string]*rootRate
}

// rootRate is one principal's limiter and the right that it was made for.
type rootRate struct {
	right   headgate.RootRight
	limiter *rate.Limiter
}

func newRateTable(def headgate.RootRight) *rateTable { return &rateTable{def: def} }

// take counts one root. When the principal has to wait it counts nothing and
// returns how long.
func (t *rateTable) take(p *headgate.Principal, now time.Time) time.Duration {
	r := t.limiter(p, now).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// giveBack takes back one root that was counted at a time, which is not counted
// then. No principal ever has more than its burst.
func (t *rateTable) giveBack(p *headgate.Principal, at time.Time) {
	t.limiter(p, at).ReserveN(at, -1)
}

func (t *rateTable) limiter(p *headgate.Principal, now time.Time) *rate.Limiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.young[p.Name]
	if r == nil {
		if r = t.old[p.Name]; r == nil {
			r = &rootRate{right: p.Roots, limiter: t.fresh(p.Roots)}
		}
		if len(t.young) >= ratePrincipals {
			t.old, t.young = t.young, nil
		}
		if t.young == nil {
			t.young = make(map[string]*rootRate)
		}
		t.young[p.Name] = r
	}
	if r.right != p.Roots { // an administrator changed it
		next := t.fresh(p.Roots)
		r.right = p.Roots
		r.limiter.SetLimitAt(now, next.Limit())
		r.limiter.SetBurstAt(now, next.Burst())
	}
	return r.limiter
}

// fresh returns a limiter with a full burst. What the right leaves out comes
// from the configured default; nothing is ever without limit.
func (t *rateTable) fresh(right headgate.RootRight) *rate.Limiter {
	if !(right.Rate > 0) { // NaN too
		right.Rate = t.def.Rate
		if right.Burst <= 0 {
			right.Burst = t.def.Burst
		}
	}
	if right.Burst <= 0 {
		right.Burst = burstFor(right.Rate)
	}
	return rate.NewLimiter(rate.Limit(min(right.Rate, math.MaxInt32)), right.Burst)
}

// burstFor is the burst that goes with a rate that names none: two seconds of
// it.
func burstFor(r float64) int { return int(min(math.Ceil(2*r), math.MaxInt32)) }
