package relay

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// run is one session.
type run struct {
	r      *Relay
	src    Session
	budget *budget
	seed   maphash.Seed
	lanes  []lane
	work   sync.WaitGroup // lane workers
	past   *past
	shelf  *shelf // nil when the source keeps none
	loads  *loads

	outRows, outBytes atomic.Int64 // read again and on their way

	mu      sync.Mutex
	tracker tracker
	moved   chan struct{}      // the tracker may have advanced
	told    map[wait]time.Time // when the log last told of a wait
	fail    context.CancelCauseFunc
}

func newRun(ctx context.Context, r *Relay, src Session) (*run, error) {
	n := &run{
		r: r, src: src, budget: newBudget(r.cfg.InFlight, r.cfg.InFlightBytes), seed: maphash.MakeSeed(),
		lanes: make([]lane, r.cfg.Lanes), tracker: tracker{horizon: r.cfg.Horizon}, moved: make(chan struct{}, 1),
		past: newPast(&r.cfg), told: map[wait]time.Time{}, loads: newLoads(),
	}
	for i := range n.lanes {
		n.lanes[i].woken, n.lanes[i].loads = make(chan struct{}, 1), n.loads
	}
	var err error
	n.shelf, err = openShelf(ctx, &r.cfg, src, n.keyOf)
	return n, err
}

// relay reads until the source fails or ctx ends, then waits for what is in
// flight. Lanes go on after ctx ended, for as long as Drain allows.
func (n *run) relay(ctx context.Context) error {
	lanes, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	n.fail = fail
	reading, stop := context.WithCancel(ctx)
	defer stop()
	unhook := context.AfterFunc(lanes, stop)
	defer unhook()

	confirming, endConfirm := context.WithCancel(lanes)
	var confirmer sync.WaitGroup
	confirmer.Go(func() { n.confirm(confirming) })
	confirmer.Go(func() { n.limit(ctx, lanes) })
	confirmer.Go(func() { n.watch(lanes) })

	again, endAgain := context.WithCancel(lanes)
	var reader sync.WaitGroup
	if n.shelf != nil {
		reader.Go(func() {
			if err := n.readAgain(again); again.Err() == nil {
				n.fail(err)
			}
		})
	}

	err := n.read(reading, lanes)
	endAgain()
	reader.Wait()
	if cause := context.Cause(lanes); cause != nil {
		err = cause
	}
	if ctx.Err() != nil && lanes.Err() == nil {
		err = n.drain(lanes)
	}
	fail(errors.New("the session ended"))
	n.work.Wait()
	endConfirm()
	confirmer.Wait()
	n.mu.Lock()
	pos, _, _ := n.tracker.advance(n.r.cfg.Now())
	n.mu.Unlock()
	if pos > 0 {
		n.src.Confirm(pos) // what was done since the confirmer ended
	}
	return err
}

// watchEvery is how soon the end of the source's session is noticed while
// nothing can be read, because the broker is away and no more may be in flight.
const watchEvery = 250 * time.Millisecond

// watch ends the session with the lead.
func (n *run) watch(lanes context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-lanes.Done():
			return
		}
		if err := n.src.Lead(); err != nil {
			n.fail(err)
			return
		}
	}
}

// errDrained ends what did not come to its end in time.
var errDrained = errors.New("relay: what was in flight did not end in time; it is read again")

// limit ends the session when it still runs Drain after ctx ended.
func (n *run) limit(ctx, lanes context.Context) {
	select {
	case <-ctx.Done():
	case <-lanes.Done():
		return
	}
	if sleep(lanes, n.r.cfg.Drain) {
		n.fail(errDrained)
	}
}

// drain waits until everything that was read is done.
func (n *run) drain(lanes context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	n.signal() // for what was read last
	for {
		n.spill(true)
		if err := n.saveAside(lanes); err != nil {
			return err
		}
		n.mu.Lock()
		empty := n.tracker.empty()
		n.mu.Unlock()
		rows, _ := n.budget.used()
		if empty || rows == 0 && n.onlyHorizon() {
			return n.saveDone(lanes)
		}
		select {
		case <-tick.C:
		case <-lanes.Done():
			return context.Cause(lanes)
		}
	}
}

// onlyHorizon reports whether nothing but the horizon keeps the tracker back:
// then waiting longer is not worth it.
func (n *run) onlyHorizon() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, mark, _ := n.tracker.advance(n.r.cfg.Now())
	return mark == nil
}

// read takes changes in order: it is the only one that opens entries. When ctx
// ends it still reads to the end of the open transaction, so that what is done
// of it can be confirmed and need not be repeated; lanes bounds that.
func (n *run) read(ctx, lanes context.Context) error {
	for {
		changes, err := n.src.Receive(ctx)
		if err != nil && ctx.Err() == nil || lanes.Err() != nil {
			return err
		}
		for i := range changes {
			if ctx.Err() != nil && !n.inTransaction() {
				return ctx.Err()
			}
			if err := n.take(lanes, &changes[i]); err != nil {
				return err
			}
		}
		if err := n.saveAside(lanes); err != nil {
			return err
		}
		n.signal()
		if ctx.Err() != nil {
			return n.finish(lanes)
		}
	}
}

// finish reads on to the end of the open transaction, for as long as Drain
// allows.
func (n *run) finish(lanes context.Context) error {
	for n.inTransaction() {
		changes, err := n.src.Receive(lanes)
		if err != nil {
			return err
		}
		for i := range changes {
			if !n.inTransaction() {
				break
			}
			if err := n.take(lanes, &changes[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *run) inTransaction() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tracker.open
}

func (n *run) take(lanes context.Context, c *Change) error {
	if c.Kind == Insert {
		return n.insert(lanes, c.Row)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch c.Kind {
	case Begin:
		n.tracker.begin()
	case Commit:
		n.tracker.commit(c.Position)
	case Idle:
		n.tracker.idle(c.Position)
	case Beat:
		n.tracker.beat(c.Mark)
		n.shelf.present()
	case Stage:
		n.tracker.beat(c.Mark)
	case Present:
		n.shelf.present()
	}
	return nil
}

// tell adds what is in flight at the moment.
func (n *run) tell(s *Status) {
	s.InFlight, s.InFlightBytes = n.budget.used()
	s.InFlight += int(n.outRows.Load())
	s.InFlightBytes += int(n.outBytes.Load())
	n.shelf.tell(s)
	n.mu.Lock()
	s.Oldest = n.tracker.oldest()
	n.mu.Unlock()
	s.Waiting = map[headgate.Code]int{}
	for i := range n.lanes {
		l := &n.lanes[i]
		l.mu.Lock()
		if len(l.queue) > 0 {
			s.Lanes++
		}
		l.waiting(s.Waiting)
		l.mu.Unlock()
	}
	if t, ok := n.src.(Teller); ok {
		s.Log = t.LogStatus()
	}
}

func (n *run) signal() {
	select {
	case n.moved <- struct{}{}:
	default:
	}
}

// confirm is the only goroutine that tells the source how far it is done.
func (n *run) confirm(ctx context.Context) {
	var told Position
	for {
		n.mu.Lock()
		pos, mark, wait := n.tracker.advance(n.r.cfg.Now())
		empty := n.tracker.empty()
		n.mu.Unlock()
		if empty && !n.shelf.old() {
			n.past.forget()
		}
		if pos > told {
			n.r.cfg.Fault("before confirm")
			n.src.Confirm(pos)
			told = pos
			n.r.cfg.Fault("after confirm")
			n.r.note(func(s *Status) { s.Confirmed = pos })
		}
		if mark != nil {
			if err := n.src.Prove(ctx, *mark); err != nil {
				if ctx.Err() == nil {
					n.fail(err)
				}
				return
			}
			n.mu.Lock()
			n.tracker.proven()
			n.mu.Unlock()
			continue
		}
		var later <-chan time.Time
		if wait > 0 {
			later = time.After(wait)
		}
		select {
		case <-n.moved:
		case <-later:
		case <-ctx.Done():
			return
		}
	}
}
