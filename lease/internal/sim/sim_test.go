package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/lease"
)

// workload is how long, in virtual time, the clients work among faults.
const workload = 6 * time.Second

func (w *world) play() {
	a := w.actor("world")
	w.faults.heal()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.data = newUsers(ctx, w, 3)
	w.nodes = []*node{{w: w, host: 0}}
	if w.seed%3 == 0 { // one node beside its database
		w.db = newDatabase(w, 0)
		w.db.clock.restart(time.Time{})
	} else {
		w.db = newDatabase(w, 2)
		w.nodes = append(w.nodes, &node{w: w, host: 1})
	}
	for _, n := range w.nodes {
		n.start(a)
	}
	for i := range 5 {
		name := fmt.Sprint("p", i%4) // two of the workers are one principal's
		w.clients = append(w.clients, &client{actor: w.actor(fmt.Sprint("client ", i)), host: 4 + i, p: principal(name)})
	}
	var working sync.WaitGroup
	for i, c := range w.clients {
		if i < 3 {
			w.begin(&working, func() { c.run(ctx) })
			continue
		}
		renewals := w.actor(fmt.Sprint("renewals ", i))
		w.begin(&working, func() { c.work(ctx, renewals) })
	}
	nemesis := w.actor("nemesis")
	w.begin(&working, func() { w.trouble(nemesis, w.clients) })
	a.wait(workload)
	w.stopped.Store(true)
	working.Wait()
	w.revokes.Wait() // a copy that is late takes a lease from those who settle
	a.wait(0)
	w.settle(ctx)
	a.wait(0)
	for _, n := range w.nodes {
		n.life.dead = true
		n.life.cancel()
	}
	cancel()
	w.all.Wait()
	a.wait(0)
	w.judge.recovered(a, &w.db.state)
	for _, f := range w.data.check() {
		w.judge.fault(a, "%s", f)
	}
	a.say("%d writes, %d users' writes", w.judge.counts["committed writes"], w.judge.counts["users' writes"])
}

// settle: when the faults have ended, whoever waits is served.
func (w *world) settle(ctx context.Context) {
	var served sync.WaitGroup
	for i, c := range w.clients {
		w.begin(&served, func() {
			wanted := [][]string{{resources[i%len(resources)]}, resources, {resources[(i+1)%len(resources)]}}
			for _, r := range wanted {
				grants, err := c.ask(ctx, c.actor, lease.Request{Resources: r, TTL: 1200 * time.Millisecond, Wait: lease.MaxWait, Audience: []string{"data"}})
				if err != nil {
					w.judge.fault(c.actor, "%s waits for %v without a fault around, and is not served: %v", c.p.Name, r, err)
					return
				}
				c.some(0, 300*time.Millisecond)
				for i := range grants {
					if err := c.wroteUsers(ctx, c.actor, grants[i].Token); err != nil {
						w.judge.fault(c.actor, "the holder cannot write: %v", err)
					}
					if err := c.released(ctx, c.actor, grants[i].Token); err != nil {
						w.judge.fault(c.actor, "the holder cannot release: %v", err)
					}
				}
			}
		})
	}
	served.Wait()
}

func seeds(t *testing.T, short, long int) (first uint64, n int) {
	if s := os.Getenv("HEADGATE_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v, 1
	}
	if os.Getenv("HEADGATE_CAMPAIGN") != "" {
		return rand.Uint64N(1 << 40), long
	}
	return rand.Uint64N(1 << 40), short
}

// report fails with what it takes to see it again.
func report(t *testing.T, seed uint64, faults []string) {
	t.Helper()
	o := run(t, seed, "", true)
	first := slices.IndexFunc(o.lines, func(l string) bool { return strings.Contains(l, "FAULT") })
	o.lines = o.lines[max(0, first-120) : max(0, first)+1]
	t.Fatalf("seed %d: %s\nits trace up to the first:\n%s\nsee it again with\n  HEADGATE_SEED=%d go test -v -run '^%s$' ./lease/internal/sim",
		seed, strings.Join(faults, "\n  "), strings.Join(o.lines, "\n"), seed, t.Name())
}

// TestSimulation runs seeds, each twice.
func TestSimulation(t *testing.T) {
	short := 300
	if raced {
		short = 25
	}
	first, n := seeds(t, short, 20_000)
	total := map[string]int{}
	begun := time.Now()
	for i := range n {
		seed := first + uint64(i)
		one := run(t, seed, "", n == 1)
		if len(one.faults) > 0 {
			report(t, seed, one.faults)
		}
		if two := run(t, seed, "", false); two.hash != one.hash {
			report(t, seed, []string{"two runs left different traces"})
		}
		for k, v := range one.counts {
			total[k] += v
		}
		total["actors"] = max(total["actors"], one.actors)
		if n == 1 {
			t.Log(strings.Join(one.lines, "\n"))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%8d %s", total[k], k)
	}
	t.Logf("%d seeds, each twice, in %s", n, time.Since(begun).Round(time.Millisecond))
}

// TestControls: every broken variant is caught soon, and for what is wrong with
// it.
func TestControls(t *testing.T) {
	const most = 100
	for _, v := range variants {
		t.Run(string(v.broken), func(t *testing.T) {
			first, _ := seeds(t, 0, 0)
			for i := range uint64(most) {
				for _, fault := range run(t, first+i, v.broken, false).faults {
					if strings.Contains(fault, v.fault) {
						t.Logf("caught by seed %d of %d: %s", i+1, most, fault)
						return
					}
				}
			}
			t.Errorf("nobody noticed in %d seeds from %d on", most, first)
		})
	}
}
