package gateway

import (
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// budget bounds requests and body bytes in flight, in total and per principal.
// Nothing waits: what does not fit is refused.
type budget struct {
	maxRequests, maxOwn int
	maxBytes, maxOwnB   int64

	mu       sync.Mutex
	requests int
	bytes    int64
	own      map[string]*usage
}

type usage struct {
	requests int
	bytes    int64
}

func newBudget(requests, own int, bytes, ownBytes int64) *budget {
	return &budget{maxRequests: requests, maxOwn: own, maxBytes: bytes, maxOwnB: ownBytes, own: map[string]*usage{}}
}

// share is one request's part of a budget.
type share struct {
	b     *budget
	who   string
	bytes int64
}

// enter takes a place for one request of a principal.
func (b *budget) enter(who string) (*share, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.own[who]
	if b.requests >= b.maxRequests || (u != nil && u.requests >= b.maxOwn) {
		return nil, overloaded("The node works on as many requests as it takes at once.", u != nil && u.requests >= b.maxOwn)
	}
	if u == nil {
		u = &usage{}
		b.own[who] = u
	}
	b.requests++
	u.requests++
	return &share{b: b, who: who}, nil
}

// reserve takes room for n more body bytes of the request.
func (s *share) reserve(n int64) error {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.own[s.who]
	own := u.bytes+n > b.maxOwnB
	if own || b.bytes+n > b.maxBytes {
		return overloaded("The node holds as many body bytes in memory as it takes at once.", own)
	}
	b.bytes += n
	u.bytes += n
	s.bytes += n
	return nil
}

// leave gives everything back.
func (s *share) leave() {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.own[s.who]
	b.requests--
	b.bytes -= s.bytes
	u.requests--
	u.bytes -= s.bytes
	if u.requests == 0 {
		delete(b.own, s.who)
	}
}

func overloaded(detail string, own bool) *headgate.Error {
	if own {
		detail = "The principal has as much work in progress as one principal may."
	}
	return &headgate.Error{Code: headgate.CodeOverloaded, Detail: detail, RetryAfter: time.Second}
}
