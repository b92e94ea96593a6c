package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/internal/window"
)

// lookEvery is how often a reader at the end of a partition on a shared server
// looks for frames whose wake-up was lost.
const lookEvery = 5 * time.Second

// subscription is a goroutine for each partition, feeding one window.
type subscription struct {
	b      *Broker
	window *window.Window
	cancel context.CancelFunc
	once   sync.Once
	wg     sync.WaitGroup
}

var _ broker.Subscription = (*subscription)(nil)

// Subscribe implements [broker.Subscriber].
func (b *Broker) Subscribe(ctx context.Context, spec broker.SubscribeSpec) (broker.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := b.stream(spec.Stream)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(b.life)
	sub := &subscription{b: b, window: window.New(len(s.parts), spec.Buffer), cancel: cancel}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		cancel()
		return nil, broker.Closed()
	}
	b.subs[sub] = struct{}{}
	b.mu.Unlock()
	for _, p := range s.parts {
		r := &reader{p: p, window: sub.window, next: spec.From[p.number]}
		p.readers.Add(1)
		sub.wg.Go(func() {
			defer p.readers.Add(-1)
			r.run(life)
		})
	}
	return sub, nil
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context, limit int) ([]broker.Delivery, error) {
	return s.window.Receive(ctx, limit)
}

// Settle implements [broker.Subscription].
func (s *subscription) Settle(ctx context.Context, settlements []broker.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.window.Settle(settlements)
}

// Close implements [broker.Subscription].
func (s *subscription) Close() error {
	s.once.Do(func() {
		s.window.Close(nil)
		s.cancel()
		s.b.mu.Lock()
		delete(s.b.subs, s)
		s.b.mu.Unlock()
	})
	s.wg.Wait()
	return nil
}

// reader reads one partition into a window.
type reader struct {
	p      *partition
	window *window.Window
	f      *fetcher // nil while the cache is enough
	seq    uint64   // of the next frame
	next   uint64   // offset of the next event
	fault  error    // why the frame before could not be read
}

// run reads until the subscription ends. Troubles of the connection are waited
// out: the subscription outlives them.
func (r *reader) run(ctx context.Context) {
	defer r.idle()
	for pause := firstPause; ; {
		err := r.step(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, broker.ErrClosed):
			return
		case err == nil:
			pause = firstPause
		default:
			r.p.b.cfg.Logger.Warn("partition cannot be read now", "stream", r.p.s.name, "partition", r.p.number, "error", err)
			if !rest(ctx, pause) {
				return
			}
			pause = min(2*pause, longestWait)
		}
	}
}

// step waits until there is something to read and room for it, and reads it.
func (r *reader) step(ctx context.Context) error {
	if _, err := r.window.Room(ctx, r.p.number); err != nil {
		return err
	}
	if r.seq == 0 {
		if err := r.seek(ctx); err != nil {
			return err
		}
	}
	end, changed := r.p.visible()
	if r.seq > end {
		r.idle()
		return r.await(ctx, changed)
	}
	if bytes := r.p.cachedFrame(r.seq); bytes != nil {
		m := message{r.seq, bytes}
		if f := r.p.b.decoded.of(r.p, m); f != nil && f.base == r.next {
			return r.takeDecoded(ctx, m.seq, f)
		}
		return r.take(ctx, m)
	}
	return r.fetch(ctx, end)
}

// idle gives the fetcher back: at the end of a partition what is written comes
// from memory mostly, and a fetcher is half a megabyte.
func (r *reader) idle() {
	if r.f != nil {
		r.p.b.release(r.f)
		r.f = nil
	}
}

func (r *reader) seek(ctx context.Context) error {
	if err := r.fetcher(); err != nil {
		return err
	}
	seq, err := r.p.locate(ctx, r.f, r.next)
	if err == nil {
		r.seq = seq
	}
	return err
}

func (r *reader) fetcher() error {
	if r.f != nil {
		return nil
	}
	f, err := r.p.b.fetcher()
	r.f = f
	return err
}

// await blocks until the partition grows. In one process nothing is asked
// meanwhile; on a shared server a look now and then makes up for lost wake-ups.
func (r *reader) await(ctx context.Context, changed <-chan struct{}) error {
	if !r.p.b.shared() {
		select {
		case <-changed:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	t := time.NewTimer(lookEvery)
	defer t.Stop()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return r.p.look(ctx)
	}
}

// fetch reads a batch of frames up to the end. Frames are taken while the
// batch still comes in, so no more than one batch is in memory.
func (r *reader) fetch(ctx context.Context, end uint64) error {
	if err := r.fetcher(); err != nil {
		return err
	}
	start, failed := r.seq, error(nil)
	err := r.f.batch(ctx, r.p.name, r.seq, fetchFrames, func(m message) bool {
		if m.seq > end {
			return false
		}
		failed = r.take(ctx, m)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	if err == nil && r.seq == start {
		return r.missing(ctx, end)
	}
	return err
}

// missing is called when the server has nothing between the reader and the
// end that it acknowledged: a replica that lags, or a loss.
func (r *reader) missing(ctx context.Context, end uint64) error {
	st, err := r.p.state(ctx)
	if err != nil {
		return err
	}
	if st.LastSeq < end {
		return unavailable(nil, "broker stream %s ends at %d, %d was acknowledged", r.p.name, st.LastSeq, end)
	}
	if st.FirstSeq > r.seq {
		r.seq = st.FirstSeq // trimmed
		return nil
	}
	return unavailable(nil, "broker stream %s does not answer for %d", r.p.name, r.seq)
}

// take offers a frame's events to the window.
func (r *reader) take(ctx context.Context, m message) error {
	fr, err := parseFrame(m.data)
	if err != nil {
		r.damaged(m.seq, err)
		return nil
	}
	if fr.base > r.next {
		if err := r.gap(ctx, m.seq, fr.base); err != nil {
			return err
		}
	}
	r.fault = nil
	var failed error
	err = fr.decode(r.next, func(base uint64, slab []headgate.Event) bool {
		failed = r.offer(ctx, base, slab, fr.time)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		r.damaged(m.seq, err)
		if r.next < fr.end() {
			return r.lostTo(fr.end())
		}
		return nil
	}
	r.next = max(r.next, fr.end())
	r.seq = m.seq + 1
	return nil
}

func (r *reader) offer(ctx context.Context, base uint64, slab []headgate.Event, stored time.Time) error {
	events := make([]broker.Stored, len(slab))
	for i := range slab {
		events[i] = broker.Stored{
			Position: headgate.Position{Partition: r.p.number, Offset: base + uint64(i)},
			Event:    &slab[i],
			Time:     stored,
		}
	}
	err := r.window.Offer(ctx, events)
	if err == nil {
		r.next = base + uint64(len(slab))
	}
	return err
}

// damaged skips one message that cannot be read. How many events it held shows
// when the next frame says where it begins.
func (r *reader) damaged(seq uint64, err error) {
	r.p.b.report(Damage{Stream: r.p.s.name, Partition: r.p.number, Sequence: seq, Err: err})
	r.fault = err
	r.seq = seq + 1
}

// gap is called when a frame begins behind the next offset: because what lies
// between was trimmed, or because it is lost.
func (r *reader) gap(ctx context.Context, seq, base uint64) error {
	if r.fault == nil {
		st, err := r.p.state(ctx)
		if err != nil {
			return err
		}
		if st.FirstSeq >= seq {
			r.next = base // trimmed
			return nil
		}
		r.fault = fmt.Errorf("%w: it is missing before message %d", errFrame, seq)
	}
	return r.lostTo(base)
}

// lostTo tells the subscription that the offsets up to end cannot be read.
func (r *reader) lostTo(end uint64) error {
	r.window.Report(&broker.GapError{Stream: r.p.s.name, Partition: r.p.number, From: r.next, To: end, Err: r.fault})
	r.next = end
	return nil
}
