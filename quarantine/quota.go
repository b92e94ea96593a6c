package quarantine

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

const (
	// window is the span of a quota, aligned to the clock, so that a node that
	// restarts comes back to the same one.
	window = time.Hour
	// sampleEvery is how many refusals beyond the quota stand for one kept.
	sampleEvery = 100
	// maxUsages bounds the principals with a quota of their own in one window;
	// those beyond share one.
	maxUsages = 4096
	// shared is the name of that quota. No principal has an empty name.
	shared = ""
)

// grant is what a quota allows for one refusal.
type grant struct {
	keep  bool // as a record; else count it
	whole bool // the body within the hourly bytes
	alarm bool // this refusal is the first beyond the quota in its window
}

// quota limits the refusal records of each principal per window.
type quota struct {
	records int
	bytes   int64

	mu     sync.Mutex
	start  time.Time
	usages map[string]*usage
}

// usage is what one principal used of its quota in the window.
type usage struct {
	loaded chan struct{} // closed once n is counted from the store

	n     int // kept or about to be
	bytes int64
	over  uint64 // refusals beyond the quota
	// reasons are those refused for in this window. The first of each is kept
	// also beyond the quota: a flood must not hide what else goes wrong. They
	// are codes of a closed table, so there are few.
	reasons map[headgate.Code]struct{}
}

func newQuota(records int, bytes int64) *quota {
	return &quota{records: records, bytes: bytes, usages: make(map[string]*usage)}
}

// take decides about one refusal of a principal for a reason, with a body of
// some bytes.
// Count is asked once per principal and window for the records that the store
// already has since its start; when it cannot tell, none are assumed.
func (q *quota) take(ctx context.Context, principal string, reason headgate.Code, body int, now time.Time, count func(ctx context.Context, principal string, since time.Time) int) grant {
	u, first, start := q.usage(principal, now)
	if first {
		n := count(ctx, principal, start)
		q.mu.Lock()
		u.n += n
		q.mu.Unlock()
		close(u.loaded)
	} else {
		select {
		case <-u.loaded:
		case <-ctx.Done():
		}
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	g := grant{keep: true, whole: true}
	if u.n >= q.records {
		u.over++
		g.alarm = u.over == 1
		_, again := u.reasons[reason]
		g.keep = !again || u.over%sampleEvery == 0
	} else {
		u.n++
	}
	u.reasons[reason] = struct{}{}
	if g.keep {
		if g.whole = u.bytes+int64(body) <= q.bytes; g.whole {
			u.bytes += int64(body)
		}
	}
	return g
}

// usage returns the usage of a principal in the window of now, and whether the
// caller is the first and must count.
func (q *quota) usage(principal string, now time.Time) (u *usage, first bool, start time.Time) {
	start = now.Truncate(window)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !start.Equal(q.start) {
		q.start = start
		clear(q.usages)
	}
	u = q.usages[principal]
	if u == nil && len(q.usages) >= maxUsages {
		principal = shared
		u = q.usages[principal]
	}
	if u == nil {
		u = &usage{loaded: make(chan struct{}), reasons: make(map[headgate.Code]struct{})}
		if principal == shared {
			close(u.loaded) // counting everyone's would be wrong
		} else {
			first = true
		}
		q.usages[principal] = u
	}
	return u, first, start
}
