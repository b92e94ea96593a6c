package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// watchers wakes those who look at a resource, on this node.
type watchers struct {
	mu      sync.Mutex
	waiting map[string]*watched
}

// watched is a resource that somebody looks at.
type watched struct {
	moved chan struct{}
	count int
}

// of returns a channel that is closed at the next change of the resource, and
// a function that must be called once nobody looks at the channel any more.
func (w *watchers) of(resource string) (moved <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.waiting[resource]
	if at == nil {
		if w.waiting == nil {
			w.waiting = map[string]*watched{}
		}
		at = &watched{moved: make(chan struct{})}
		w.waiting[resource] = at
	}
	at.count++
	return at.moved, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if at.count--; at.count == 0 && w.waiting[resource] == at {
			delete(w.waiting, resource)
		}
	}
}

func (w *watchers) notify(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.waiting[resource]; at != nil {
		close(at.moved)
		delete(w.waiting, resource)
	}
}

// watchPoll is how often a watcher looks for changes that other nodes made.
const watchPoll = time.Second

// Watch calls tell with the state of a lease, now and after every change of
// its epoch, gate or holder, and when it runs out, until ctx ends or tell
// fails. States in between may be left out; renewals are no changes. A
// resource that was never leased has epoch 0.
func (s *Service) Watch(ctx context.Context, resource string, tell func(State) error) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	type seenState struct {
		epoch         int64
		closing, held bool
	}
	var last *seenState
	for {
		moved, leave := s.watch.of(resource)
		st, err := s.state(ctx, resource)
		if is := (seenState{st.Epoch, st.Closing, st.Held()}); err == nil && (last == nil || *last != is) {
			last = &is
			err = tell(st)
		}
		if err == nil {
			wait := watchPoll
			if st.Held() {
				wait = min(wait, max(st.ExpiresIn, time.Millisecond))
			}
			err = pause(ctx, moved, wait)
		}
		leave()
		if err != nil {
			return err
		}
	}
}

// state is [Service.Get], with a state of epoch 0 for what was never leased.
func (s *Service) state(ctx context.Context, resource string) (State, error) {
	l, now, err := s.look(ctx, resource)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		l.Resource, err = resource, nil
	}
	return stateOf(&l, now), err
}

// guardedPause is how long to wait before trying again beside a write in flight.
const guardedPause = 20 * time.Millisecond

// releasePatience bounds how long a release waits for writes of the holder that
// are in flight.
const releasePatience = 5 * time.Second

// patiently repeats a change of an epoch while a guarded write is in flight,
// at most as long as said or until ctx ends. Not waiting within the store
// keeps its other writers going.
func patiently(ctx context.Context, most time.Duration, change func() error) error {
	end := time.Now().Add(most)
	for {
		err := change()
		if !errors.Is(err, store.ErrGuarded) || time.Until(end) <= 0 {
			return err
		}
		if pause(ctx, nil, guardedPause) != nil {
			return err
		}
	}
}

// pause waits for a change or a time, and fails only when ctx ends.
func pause(ctx context.Context, moved <-chan struct{}, most time.Duration) error {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-moved:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
