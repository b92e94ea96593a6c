package lease

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// ticket is one call that wants leases. It may try while nobody who came
// before wants any of its resources. Who came before and waits for another
// resource does not count, see [ticket.reserves].
type ticket struct {
	principal string
	resources []string
	joined    time.Time
	wake      chan struct{} // of capacity 1
	number    uint64        // of its arrival
	// held is one of its resources that another held when it last tried; empty
	// when none is known.
	held string
	// request is the key of its request; empty when that has no id.
	request string
	// served is true when another call of the same request was granted: this
	// one gets the same grant, and waits for nobody.
	served bool
}

// reserveAfter is how long a call for several resources waits before it keeps
// the free ones among them from those who came later for the first time.
const reserveAfter = time.Second

// reserves reports whether the call keeps the free ones among its resources
// from those who came later, although it waits for another one.
//
// Always doing so would deny what nobody uses; never doing so would let it
// starve while its resources are free in turn and never all at once. So phases
// alternate, each as long as all before it: from 1 s to 2 s, from 4 s to 8 s,
// from 16 s to 32 s. Once such a phase is longer than others hold its
// resources, it is served.
func (t *ticket) reserves(now time.Time) bool {
	waited := now.Sub(t.joined) / reserveAfter
	return waited > 0 && bits.Len64(uint64(waited))%2 == 1
}

// queue keeps the order of the calls of this node.
type queue struct {
	mu          sync.Mutex
	most, each  int
	count       int
	several     int // calls for more than one resource
	arrived     uint64
	byPrincipal map[string]int
	byResource  map[string][]*ticket // in the order of their arrival
}

func (q *queue) init(most, each int) {
	q.most, q.each = most, each
	q.byPrincipal, q.byResource = map[string]int{}, map[string][]*ticket{}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}

// join adds a call to its queues. One that would not wait gets no ticket when
// others come first, unless it repeats the request of one of them.
func (q *queue) join(principal, request string, resources []string, wait bool, now time.Time) (t *ticket, repeats bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t = &ticket{principal: principal, request: request, resources: resources, joined: now, wake: make(chan struct{}, 1), number: q.arrived}
	if !wait && !q.mayTry(t, now) {
		if repeats = q.asks(t); !repeats {
			return nil, false, nil
		}
	}
	if q.count >= q.most || q.byPrincipal[principal] >= q.each {
		return nil, false, headgate.NewError(headgate.CodeOverloaded, "Too many calls wait for leases.")
	}
	q.arrived++
	q.count++
	if len(resources) > 1 {
		q.several++
	}
	q.byPrincipal[principal]++
	for _, r := range resources {
		q.byResource[r] = append(q.byResource[r], t)
	}
	return t, repeats, nil
}

// asks reports whether another call makes the same request.
func (q *queue) asks(t *ticket) bool {
	return t.request != "" && slices.ContainsFunc(q.byResource[t.resources[0]], func(o *ticket) bool { return o.request == t.request })
}

// first reports whether the call may try, and otherwise whether that may
// change although nobody leaves and nothing is released.
func (q *queue) first(t *ticket, now time.Time) (may, lookAgain bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return t.served || q.mayTry(t, now), q.several > 0
}

// sight bounds how many earlier calls are looked at to find out whether one
// may try. Behind more of them it waits for its turn.
const sight = 256

// look is one such search: what it found of the calls that it met.
type look struct {
	q    *queue
	now  time.Time
	left int
	of   map[*ticket]string // what a call lacks
}

// mayTry reports whether nobody stands before the call.
func (q *queue) mayTry(t *ticket, now time.Time) bool {
	l := look{q: q, now: now, left: sight}
	return l.behind(t) == ""
}

// behind returns a resource that earlier calls keep this one from, empty when
// none does.
func (l *look) behind(t *ticket) string {
	for _, r := range t.resources {
		for _, u := range l.q.byResource[r] {
			if u.number >= t.number {
				break
			}
			if l.left--; l.left < 0 {
				return r
			}
			if kept := l.keeps(u, t, r); kept != "" {
				return kept
			}
		}
	}
	return ""
}

// keeps returns the resource that an earlier call, which wants r, too, keeps
// from a later one. It is empty when the earlier one lets the later one pass:
// it cannot be served now, for want of a resource that the later one does not
// take.
func (l *look) keeps(u, t *ticket, r string) string {
	if len(u.resources) == 1 || u.reserves(l.now) {
		return r
	}
	lacks := l.lacks(u)
	switch {
	case lacks == "":
		return r
	case slices.Contains(t.resources, lacks):
		return lacks
	}
	return ""
}

// lacks returns a resource that a call waits for, empty when it may be served.
func (l *look) lacks(u *ticket) string {
	if u.held != "" {
		return u.held
	}
	lacks, known := l.of[u]
	if !known {
		lacks = l.behind(u)
		if l.of == nil {
			l.of = map[*ticket]string{}
		}
		l.of[u] = lacks
	}
	return lacks
}

// denied notes that a call found a resource held, and wakes those behind it
// who may pass it now.
func (q *queue) denied(t *ticket, resource string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(t.resources) == 1 || t.held == resource {
		return
	}
	t.held = resource
	for _, r := range t.resources {
		q.wakeFirst(r, t.number+1, now)
	}
}

// leave ends a call's place and wakes who may try now.
func (q *queue) leave(t *ticket, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count--
	if len(t.resources) > 1 {
		q.several--
	}
	if q.byPrincipal[t.principal]--; q.byPrincipal[t.principal] == 0 {
		delete(q.byPrincipal, t.principal)
	}
	for _, r := range t.resources {
		left := slices.DeleteFunc(q.byResource[r], func(o *ticket) bool { return o == t })
		if len(left) == 0 {
			delete(q.byResource, r)
			continue
		}
		q.byResource[r] = left
	}
	for _, r := range t.resources {
		q.wakeFirst(r, 0, now)
	}
}

// notify tells of a change of a resource: it may be free.
func (q *queue) notify(resource string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.byResource[resource] {
		if t.held == resource {
			t.held = ""
		}
	}
	q.wakeFirst(resource, 0, now)
}

// granted tells the calls that repeat a request of its grant.
func (q *queue) granted(resource, request string) {
	if request == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.byResource[resource] {
		if t.request == request {
			t.served = true
			select {
			case t.wake <- struct{}{}:
			default: // it was told already
			}
		}
	}
}

// wakeFirst wakes those of a resource's queue who may try: the first, and
// those whom it lets pass; only those who came with the number or later.
func (q *queue) wakeFirst(resource string, from uint64, now time.Time) {
	for i, t := range q.byResource[resource] {
		if i == sight {
			return
		}
		if t.number >= from && q.mayTry(t, now) {
			select {
			case t.wake <- struct{}{}:
			default: // it was told already
			}
		}
		if len(t.resources) == 1 || t.reserves(now) {
			return // nobody passes this one
		}
	}
}
