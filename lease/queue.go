package lease

import (
	"slices"
	"sync"

	"github.com/headgate/headgate"
)

// ticket is one call that wants leases. It may try while it is the first in
// the queue of each of its resources; tickets join all their queues at once,
// so that one of them is always the first everywhere.
type ticket struct {
	principal string
	resources []string
	wake      chan struct{} // of capacity 1
}

// queue keeps the order of the calls of this node.
type queue struct {
	mu          sync.Mutex
	most, each  int
	count       int
	byPrincipal map[string]int
	byResource  map[string][]*ticket
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
// others do.
func (q *queue) join(principal string, resources []string, wait bool) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !wait {
		for _, r := range resources {
			if len(q.byResource[r]) > 0 {
				return nil, nil
			}
		}
	}
	if q.count >= q.most || q.byPrincipal[principal] >= q.each {
		return nil, headgate.NewError(headgate.CodeOverloaded, "Too many calls wait for leases.")
	}
	t := &ticket{principal: principal, resources: resources, wake: make(chan struct{}, 1)}
	q.count++
	q.byPrincipal[principal]++
	for _, r := range resources {
		q.byResource[r] = append(q.byResource[r], t)
	}
	return t, nil
}

// first reports whether the call may try.
func (q *queue) first(t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isFirst(t)
}

func (q *queue) isFirst(t *ticket) bool {
	return !slices.ContainsFunc(t.resources, func(r string) bool { return q.byResource[r][0] != t })
}

// leave ends a call's place and wakes whoever is first now.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count--
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
		q.wakeFirst(r)
	}
}

// notify wakes the first call that waits for a resource.
func (q *queue) notify(resource string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeFirst(resource)
}

func (q *queue) wakeFirst(resource string) {
	waiting := q.byResource[resource]
	if len(waiting) == 0 || !q.isFirst(waiting[0]) {
		return
	}
	select {
	case waiting[0].wake <- struct{}{}:
	default: // it was told already
	}
}
