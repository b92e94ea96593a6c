package membroker

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Faults is a plan of misbehaviour, drawn from a seed. Each field but Seed and
// the durations is a probability from 0 to 1, taken for each event, delivery
// or call. The zero value never misbehaves.
type Faults struct {
	Seed uint64

	// Throttle refuses an event with Throttled: it is not stored.
	Throttle float64
	// UnknownStored stores an event and answers Unknown; UnknownLost answers
	// Unknown without having stored it.
	UnknownStored, UnknownLost float64
	// Delay holds a Publish call for up to MaxDelay before anything happens;
	// default 10 ms.
	Delay    float64
	MaxDelay time.Duration

	// Reorder delays what a partition hands out, so that partitions overtake
	// each other; within a partition order stays.
	Reorder float64
	// LoseSettle forgets a whole Settle call and answers an error.
	LoseSettle float64
	// Crash calls [Broker.Crash] before a Receive is answered.
	Crash float64
}

var (
	errInjected = errors.New("membroker: fault injected")
	errCrashed  = errors.New("membroker: crashed")
)

type publishFault uint8

const (
	faultNone publishFault = iota
	faultThrottle
	faultUnknownStored
	faultUnknownLost
	faultHeldBack // no fault: what follows from one before
)

type publishPlan struct {
	delay time.Duration
	each  []publishFault
}

// dice draws faults. A nil plan draws none.
type dice struct {
	plan Faults
	off  bool
	mu   sync.Mutex
	rng  *rand.Rand
}

func newDice(plan *Faults) *dice {
	if plan == nil {
		return &dice{off: true}
	}
	d := &dice{plan: *plan, rng: rand.New(rand.NewPCG(plan.Seed, 0x6865616467617465))}
	if d.plan.MaxDelay <= 0 {
		d.plan.MaxDelay = 10 * time.Millisecond
	}
	return d
}

func (d *dice) publish(n int) publishPlan {
	p := publishPlan{each: make([]publishFault, n)}
	if d.off {
		return p
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.delay = d.delay(d.plan.Delay)
	for i := range p.each {
		switch x := d.rng.Float64(); {
		case x < d.plan.Throttle:
			p.each[i] = faultThrottle
		case x < d.plan.Throttle+d.plan.UnknownStored:
			p.each[i] = faultUnknownStored
		case x < d.plan.Throttle+d.plan.UnknownStored+d.plan.UnknownLost:
			p.each[i] = faultUnknownLost
		}
	}
	return p
}

func (d *dice) reorder() time.Duration {
	if d.off {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.delay(d.plan.Reorder)
}

func (d *dice) hits(probability func(Faults) float64) bool {
	if d.off {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64() < probability(d.plan)
}

// delay draws a delay with the probability. The caller holds the lock.
func (d *dice) delay(probability float64) time.Duration {
	if d.rng.Float64() >= probability {
		return 0
	}
	return time.Duration(d.rng.Int64N(int64(d.plan.MaxDelay))) + 1
}
