package sim

import (
	"time"
)

// trouble brings one fault after the other until the workload ends, and then
// puts everything right.
func (w *world) trouble(a *actor, clients []*client) {
	for !w.stopped.Load() {
		a.some(20*time.Millisecond, 500*time.Millisecond)
		switch a.rng.IntN(12) {
		case 0, 1:
			from, to := a.rng.IntN(w.hosts()), a.rng.IntN(w.hosts())
			a.say("nothing passes from %d to %d", from, to)
			w.faults.change(func() { w.faults.links[[2]int{from, to}] = true })
		case 2:
			host := a.rng.IntN(w.hosts())
			a.say("host %d is alone", host)
			w.faults.change(func() { w.faults.alone[host] = true })
		case 3, 4:
			w.faults.heal()
			lose, double := pick(a, 0, 0.05, 0.3), pick(a, 0, 0.1, 0.5)
			slow := pick[time.Duration](a, 0, 0, 20, 300) * time.Millisecond
			a.say("lost %v, double %v, slow %s", lose, double, slow)
			w.faults.change(func() { w.faults.lose, w.faults.double, w.faults.slow = lose, double, slow })
		case 5, 6:
			n := pick(a, w.nodes...)
			if n.life == nil {
				break
			}
			n.crash(a)
			w.restart(func(b *actor) {
				if w.db.host == n.host {
					w.db.up = true
				}
				n.start(b)
			})
		case 7:
			if w.db.up && w.db.host != w.nodes[0].host {
				w.db.crash(a)
				w.restart(func(*actor) { w.db.up = true })
			}
		case 8:
			if w.data.up {
				w.data.crash(a)
				w.restart(func(*actor) { w.data.up = true })
			}
		case 9, 10:
			jump := pick(a, 0, 0, time.Millisecond, -time.Millisecond, time.Second, -time.Second, time.Hour, -time.Hour)
			if w.rotates() {
				jump %= time.Hour
			}
			rate := pick(a, 1, 1, 0.5, 0.9, 1.1, 2)
			a.say("the clock jumps by %s and runs at %v", jump, rate)
			w.db.clock.set(jump, rate)
		case 11:
			c := clients[a.rng.IntN(len(clients))]
			a.say("client %d is frozen or not", c.host)
			c.frozen = !c.frozen
		}
	}
	w.faults.heal()
	w.db.clock.set(0, 1)
	for _, c := range clients {
		c.frozen = false
	}
	for up := false; !up; {
		a.some(20*time.Millisecond, 50*time.Millisecond)
		up = w.db.up && w.data.up
		for _, n := range w.nodes {
			up = up && n.life != nil
		}
	}
	a.say("all is well")
}

// restart does something after a while.
func (w *world) restart(fn func(*actor)) {
	a := w.actor("restart")
	w.begin(&w.all, func() {
		a.some(20*time.Millisecond, 900*time.Millisecond)
		fn(a)
	})
}

// rotates: in this world keys are rotated. A key signs after ten minutes, which
// is long after the other nodes have read it, unless the clock jumps: such a
// world's does not jump by hours.
func (w *world) rotates() bool { return w.seed%5 == 0 }

func (w *world) hosts() int { return 4 + len(w.clients) }
