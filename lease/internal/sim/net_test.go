package sim

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
)

// faults are what the network does at the moment.
type faults struct {
	mu           sync.Mutex
	links        map[[2]int]bool // from one host to another: cut
	lose, double float64
	slow         time.Duration
	alone        map[int]bool // hosts that nothing reaches
}

func (f *faults) cut(from, to int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.links[[2]int{from, to}] || f.alone[from] || f.alone[to]
}

func (f *faults) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *faults) heal() {
	f.change(func() { f.links, f.alone, f.lose, f.double, f.slow = map[[2]int]bool{}, map[int]bool{}, 0, 0, 0 })
}

func (f *faults) weather() (lose, double float64, slow time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lose, f.double, f.slow
}

// life is what runs on a host from its start to its crash.
type life struct {
	node   *node
	s      *lease.Service
	dead   bool
	ctx    context.Context
	cancel context.CancelFunc
}

// node is a process of Headgate.
type node struct {
	w     *world
	host  int
	lives int
	life  *life // nil while it is down
}

// start opens the service, trying again while the database is away.
func (n *node) start(a *actor) {
	for {
		n.lives++
		ctx, cancel := context.WithCancel(context.Background())
		l := &life{node: n, ctx: ctx, cancel: cancel}
		s, err := lease.Open(a.in(ctx), lease.Config{
			Store: &session{database: n.w.db, life: l},
			Rand:  &source{rng: rand.New(rand.NewPCG(n.w.seed, uint64(n.host)<<32|uint64(n.lives)))},
			Log:   slog.New(slog.DiscardHandler),
			Seal:  n.w.data.seals(n, l),
		})
		if err == nil {
			l.s, n.life = s, l
			s.Follow(func(string, int64) { n.w.running.Load().some(time.Microsecond, 30*time.Microsecond) })
			a.say("node %d is up", n.host)
			return
		}
		cancel()
		a.say("node %d does not start: %s", n.host, headgate.CodeOf(err))
		a.some(50*time.Millisecond, 200*time.Millisecond)
	}
}

// crash ends the process. Its database goes with it when it is on the host.
func (n *node) crash(a *actor) {
	if n.life == nil {
		return
	}
	a.say("node %d crashes", n.host)
	n.life.dead = true
	if n.w.db.host == n.host {
		n.w.db.crash(a)
	}
	n.life.cancel()
	n.life = nil
}

// source is a stream of random bytes.
type source struct{ rng *rand.Rand }

func (s *source) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.rng.Uint32())
	}
	return len(p), nil
}

// server is where a message goes: the process that is up there.
type server interface {
	at() int
	present() (ctx context.Context, gone func() bool, up bool)
}

func (n *node) at() int { return n.host }

func (n *node) present() (context.Context, func() bool, bool) {
	l := n.life
	if l == nil {
		return nil, nil, false
	}
	return l.ctx, func() bool { return l.dead }, true
}

// reply is the answer to a call.
type reply[T any] struct {
	v   T
	err error
}

var errNoAnswer = &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.Unknown, Detail: "no answer came"}

// call sends a request to a server and waits for its answer at most as long as
// said. The message may be lost, late or delivered twice, and so may the answer.
func call[T any](ctx context.Context, a *actor, from int, to server, most time.Duration, op string, fn func(context.Context, *actor) (T, error)) (T, error) {
	var none T
	a.wait(0)
	w := a.w
	lose, double, slow := w.faults.weather()
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	defer w.beat.Add(1)
	copies := 1
	if a.chance(double) {
		copies = 2
	}
	answers := make(chan reply[T], copies)
	group := &w.all
	if op == "revoke" {
		group = &w.revokes
	}
	var first *delivery
	for range copies {
		d := &delivery{actor: w.actor(op), from: from, to: to, lost: a.chance(lose), mute: a.chance(lose)}
		d.seals = map[string]*actor{"data": w.actor(op + " seal"), "more": w.actor(op + " seal")}
		d.delay = a.between(50*time.Microsecond, 2*time.Millisecond+slow)
		if first == nil && copies == 1 {
			first = d
		}
		w.begin(group, func() { serve(d, answers, slow, fn) })
	}
	timer := time.NewTimer(most.Truncate(span)) // at an instant of the actor's
	defer timer.Stop()
	select {
	case r := <-answers:
		a.wait(0)
		return r.v, r.err
	case <-timer.C:
	case <-ctx.Done():
	}
	a.wait(0)
	// The server may notice that nobody waits any more.
	if first != nil && first.hangUp != nil && !first.inStore.Load() && a.chance(0.5) {
		first.hangUp()
		a.wait(0)
	}
	return none, errNoAnswer
}

// delivery is one copy of a request on its way and at work.
type delivery struct {
	*actor
	from       int
	to         server
	delay      time.Duration
	lost, mute bool
	hangUp     context.CancelFunc
}

func serve[T any](d *delivery, answers chan<- reply[T], slow time.Duration, fn func(context.Context, *actor) (T, error)) {
	d.wait(d.delay)
	ctx, gone, up := d.to.present()
	if !up || d.lost || d.w.faults.cut(d.from, d.to.at()) {
		return
	}
	ctx, cancel := context.WithCancel(d.in(ctx))
	defer cancel()
	d.hangUp = cancel
	v, err := fn(ctx, d.actor)
	d.hangUp = nil
	d.wait(0)
	if gone() {
		return
	}
	d.say("from %d: %s", d.from, headgate.CodeOf(err))
	d.some(50*time.Microsecond, 2*time.Millisecond+slow)
	if d.mute || d.w.faults.cut(d.to.at(), d.from) {
		return
	}
	answers <- reply[T]{v, err}
}
