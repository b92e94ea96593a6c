package membroker

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/internal/window"
)

// readBatch bounds what one read copies out of the log.
const readBatch = 256

// subscription is one reader: a goroutine per partition that feeds a window.
type subscription struct {
	b      *Broker
	stream string
	window *window.Window
	cancel context.CancelFunc
	once   sync.Once
	wg     sync.WaitGroup
}

var _ broker.Subscription = (*subscription)(nil)

// Subscribe implements [broker.Subscriber].
func (b *Broker) Subscribe(ctx context.Context, spec broker.SubscribeSpec) (broker.Subscription, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.stream(ctx, spec.Stream)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	sub := &subscription{b: b, stream: spec.Stream, window: window.New(len(s.parts), spec.Buffer), cancel: cancel}
	b.subs[sub] = struct{}{}
	for _, p := range s.parts {
		from := spec.From[p.number] // read now: the map is the caller's
		sub.wg.Go(func() { sub.read(life, p, from) })
	}
	return sub, nil
}

// read feeds one partition into the window until the subscription ends.
func (s *subscription) read(ctx context.Context, p *partition, from uint64) {
	for {
		room, err := s.window.Room(ctx, p.number)
		if err != nil {
			return
		}
		s.b.mu.Lock()
		if next := p.readable(from); next > from {
			s.window.Report(&broker.GapError{Stream: s.stream, Partition: p.number, From: from, To: next, Err: errInjected})
			from = next
		}
		events, changed := p.read(from, min(room, readBatch)), p.changed
		s.b.mu.Unlock()
		if len(events) == 0 {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !sleep(ctx, s.b.faults.reorder()) {
			return
		}
		if s.window.Offer(ctx, events) != nil {
			return
		}
		from = events[len(events)-1].Position.Offset + 1
	}
}

// sleep waits and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context, limit int) ([]broker.Delivery, error) {
	if s.b.faults.hits(func(f Faults) float64 { return f.Crash }) {
		s.b.Crash()
	}
	return s.window.Receive(ctx, limit)
}

// Settle implements [broker.Subscription].
func (s *subscription) Settle(ctx context.Context, settlements []broker.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.b.faults.hits(func(f Faults) float64 { return f.LoseSettle }) {
		return headgate.NewError(headgate.CodeUnavailable, "settlements lost: %v", errInjected)
	}
	return s.window.Settle(settlements)
}

// Close implements [broker.Subscription].
func (s *subscription) Close() error {
	s.end(nil)
	return nil
}

func (s *subscription) end(cause error) {
	s.once.Do(func() {
		s.window.Close(cause)
		s.cancel()
		s.b.mu.Lock()
		delete(s.b.subs, s)
		s.b.mu.Unlock()
	})
	s.wg.Wait()
}
