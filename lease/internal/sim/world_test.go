package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// span is how many instants of one nanosecond the actors share: each acts only
// at those that are its number modulo span. All durations of the service and
// of the clocks are multiples of it. The upper half is for the ends of leases
// that are held (see client.work).
const span = 10_000

// world is one run.
type world struct {
	t      *testing.T
	seed   uint64
	broken broken

	db      *database
	nodes   []*node
	data    *users
	clients []*client
	judge   *judge
	faults  faults
	// rotations are how many keys were asked for.
	rotations int

	all     sync.WaitGroup // calls at work, but for
	revokes sync.WaitGroup // these
	stopped atomic.Bool    // the workload ends
	running atomic.Pointer[actor]
	beat    atomic.Int64 // orders what actors do for the race detector

	mu     sync.Mutex
	actors int
	hash   uint64
	lines  []string // of the trace, when kept
	keep   bool
}

// outcome is what a run left.
type outcome struct {
	hash   uint64
	lines  []string
	faults []string
	counts map[string]int
	actors int
}

// run is one run of a seed.
func run(t *testing.T, seed uint64, b broken, keep bool) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, seed: seed, broken: b, keep: keep}
		w.judge = newJudge(w)
		w.play()
		o = outcome{w.hash, w.lines, w.judge.faults, w.judge.counts, w.actors}
	})
	return o
}

// actor is whatever acts by itself.
type actor struct {
	w       *world
	id      int
	rng     *rand.Rand
	op      string
	inStore atomic.Bool
	seals   map[string]*actor // who seals for it
}

func (w *world) actor(op string) *actor {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.actors++; w.actors >= span/2 {
		panic("sim: more actors than instants")
	}
	return &actor{w: w, id: w.actors, op: op, rng: rand.New(rand.NewPCG(w.seed, uint64(w.actors)))}
}

// begin starts a goroutine.
func (w *world) begin(group *sync.WaitGroup, fn func()) {
	group.Go(func() {
		defer w.beat.Add(1)
		fn()
	})
}

// wait lets time pass, until an instant of the actor's.
func (a *actor) wait(d time.Duration) {
	now := time.Now().UnixNano()
	at := now + int64(d)
	at += (int64(a.id) - at%span + span) % span
	if at <= now {
		at += span
	}
	a.w.beat.Add(1)
	time.Sleep(time.Duration(at - now)) // virtual
	a.w.beat.Add(1)
	a.w.running.Store(a)
}

// between draws a duration.
func (a *actor) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.rng.Int64N(int64(most-least)+1))
}

// some waits for a while.
func (a *actor) some(least, most time.Duration) { a.wait(a.between(least, most)) }

// chance is true so often.
func (a *actor) chance(p float64) bool { return a.rng.Float64() < p }

func pick[T any](a *actor, from ...T) T { return from[a.rng.IntN(len(from))] }

// say adds a line to the trace. It is called at instants of the actor's only.
func (a *actor) say(format string, args ...any) {
	line := fmt.Sprintf("%d %d %s: ", time.Now().UnixNano()-epochOfBubbles, a.id, a.op) + fmt.Sprintf(format, args...)
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x %s", w.hash, line) // a hash takes everything
	w.hash = h.Sum64()
	if w.keep {
		w.lines = append(w.lines, line)
	}
}

// epochOfBubbles is when time begins in a bubble: 2000-01-01.
const epochOfBubbles = 946684800_000_000_000

type actorKey struct{}

func (a *actor) in(ctx context.Context) context.Context { return context.WithValue(ctx, actorKey{}, a) }

func actorOf(ctx context.Context) *actor {
	a, _ := ctx.Value(actorKey{}).(*actor)
	if a == nil {
		panic("sim: nobody's context")
	}
	return a
}

// clock is one whose rate changes and that jumps.
type clock struct {
	from  time.Time // true time
	shows time.Time // at from
	rate  float64
	last  time.Time
	// level keeps it from going back and from jumping, as the driver of SQLite
	// does: the host's clock tells only when the process starts.
	level  bool
	jumped time.Duration // of the host's, since
}

func newClock() *clock {
	now := time.Now().UTC().Round(0).Truncate(span)
	return &clock{from: now, shows: now, rate: 1}
}

func (c *clock) now() time.Time {
	t := c.shows.Add(time.Duration(float64(time.Since(c.from)) * c.rate)).Truncate(span)
	if c.level && t.Before(c.last) {
		return c.last
	}
	c.last = t
	return t
}

// set jumps and changes the rate.
func (c *clock) set(jump time.Duration, rate float64) {
	now := time.Now().UTC().Round(0)
	shows := c.shows.Add(time.Duration(float64(now.Sub(c.from)) * c.rate))
	if c.level {
		c.jumped += jump
		jump = 0
	}
	c.from, c.shows, c.rate = now, shows.Add(jump), rate
}

// restart starts a level clock at the host's time, or at what is recorded if
// that is later.
func (c *clock) restart(recorded time.Time) {
	jump := c.jumped
	c.jumped, c.level = 0, false
	c.set(jump, c.rate)
	c.level, c.last = true, recorded
	if c.shows.Before(recorded) {
		c.shows = recorded
	}
}
