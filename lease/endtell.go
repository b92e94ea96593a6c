package lease

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// tellEnds tells every target of the ends that it has not heard of, each at its
// own pace, until ctx ends; then, for sealTime at most, of those that are left.
func (s *Service) tellEnds(ctx context.Context) {
	var all sync.WaitGroup
	for name, q := range s.endings.queues {
		all.Go(func() {
			e := endTeller{s: s, q: q, target: name}
			e.run(ctx, false)
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealTime)
			defer cancel()
			e.run(last, true)
			e.leave()
		})
	}
	all.Wait()
}

// endTeller tells one target.
type endTeller struct {
	s      *Service
	q      *endQueue
	target string
}

// run tells until ctx ends; at the last until nothing is left or the target
// fails.
func (e *endTeller) run(ctx context.Context, last bool) {
	var telling sync.WaitGroup
	defer telling.Wait()
	if last {
		e.s.endings.mu.Lock()
		e.q.last()
		e.s.endings.mu.Unlock()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		e.s.endings.mu.Lock()
		at, epoch, wait := e.q.next(time.Now())
		idle, failing := e.q.busy == 0, e.q.failing()
		e.s.endings.mu.Unlock()
		if at != nil {
			telling.Go(func() { e.tell(ctx, at, epoch) })
			continue
		}
		if last && idle || last && failing {
			return
		}
		if timer.Stop(); wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.q.wake:
		}
	}
}

// tell tells of one end, and notes how that went.
func (e *endTeller) tell(ctx context.Context, at *untoldEnd, epoch int64) {
	how, err := e.s.tellEnd(ctx, e.target, at.resource, epoch)
	if how != endTold && ctx.Err() != nil {
		how = endBrokenOff
	}
	e.s.endings.mu.Lock()
	gaveUp := e.q.settle(at, epoch, how, time.Now())
	e.q.stir()
	e.s.endings.mu.Unlock()
	e.log(gaveUp, err)
}

// leave says what is left when the service ends.
func (e *endTeller) leave() {
	e.s.endings.mu.Lock()
	var left []*untoldEnd
	for _, at := range e.q.ends {
		left = append(left, at)
	}
	e.s.endings.mu.Unlock()
	slices.SortFunc(left, func(a, b *untoldEnd) int { return a.since.Compare(b.since) })
	e.log(left, headgate.NewError(headgate.CodeUnavailable, "the node ends"))
}

// log names the first of the leases whose end the target does not know.
func (e *endTeller) log(ends []*untoldEnd, err error) {
	const most = 10
	if len(ends) == 0 {
		return
	}
	var some []string
	for _, at := range ends[:min(len(ends), most)] {
		some = append(some, at.resource)
	}
	e.s.cfg.Log.Warn("a target does not know that leases have ended", "target", e.target, "leases", len(ends), "first", some, "error", err)
}

// tellEnd tells a target of one end. One that a newer grant is sealed at learns
// of it from that.
func (s *Service) tellEnd(ctx context.Context, target, resource string, epoch int64) (outcomeOfEnd, error) {
	l := store.Lease{Resource: resource, Epoch: epoch}
	now, _, err := s.look(ctx, resource)
	if err == nil && now.Epoch > epoch && slices.Contains(now.Sealed, target) {
		return endTold, nil
	}
	f, err := s.endFence(ctx, &l)
	if err != nil {
		return endUnreadable, err
	}
	ctx, cancel := context.WithTimeout(ctx, sealTime)
	defer cancel()
	if _, err = s.sealOne(ctx, target, f, false); err != nil && !knowsNewer(err) {
		return endRefused, err
	}
	return endTold, nil
}
