package membroker

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// Publish implements [broker.Publisher].
func (b *Broker) Publish(ctx context.Context, name string, events []*headgate.Event) ([]broker.Result, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, broker.Closed()
	}
	if b.streams[name] == nil {
		b.mu.Unlock()
		return nil, broker.NoStream(name)
	}
	crash := b.crash
	b.flights.Add(1)
	b.mu.Unlock()
	defer b.flights.Done()

	results := make([]broker.Result, len(events))
	if ctx.Err() != nil {
		return unknown(results, ctx.Err()), nil
	}
	sizes := make([]int, len(events))
	for i, e := range events {
		sizes[i] = size(e)
	}
	plan := b.faults.publish(len(events))
	if err := b.pause(ctx, crash, plan.delay); err != nil {
		return unknown(results, err), nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.streams[name]
	before := fates{}
	for i, e := range events {
		fault := before.behind(e.Key, plan.each[i])
		results[i] = b.store(s, e, sizes[i], fault)
		before.note(e.Key, results[i].Outcome, fault)
	}
	return results, nil
}

// fates says, for each key of a call, what became of the first of its events
// that was not stored for certain.
type fates map[string]publishFault

// behind returns what becomes of the key's next event, for which a fault was
// drawn: an answer that was lost may hide that it was stored only while it may
// hide that of the one before.
func (f fates) behind(key string, drawn publishFault) publishFault {
	switch fate := f[key]; {
	case key == "" || fate == faultNone:
		return drawn
	case fate == faultThrottle:
		return faultHeldBack
	case fate == faultUnknownLost:
		return faultUnknownLost
	case drawn == faultNone:
		return faultUnknownStored
	}
	return drawn
}

func (f fates) note(key string, o broker.Outcome, fault publishFault) {
	switch o {
	case broker.OutcomeRejected, broker.OutcomeThrottled:
		f[key] = faultThrottle
	case broker.OutcomeUnknown:
		f[key] = fault
	}
}

// pause waits as a slow broker would. An error means that the call broke off
// before anything was stored, though its caller cannot know.
func (b *Broker) pause(ctx context.Context, crash <-chan struct{}, delay time.Duration) error {
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-crash:
		return errCrashed
	case <-b.closing:
		return broker.ErrClosed
	}
}

func (b *Broker) store(s *stream, e *headgate.Event, size int, fault publishFault) broker.Result {
	now := b.cfg.Now()
	if size > b.cfg.MaxEventBytes {
		return broker.TooLarge(size, b.cfg.MaxEventBytes)
	}
	k := ident{e.Source, e.ID}
	if pos, ok := s.known.get(k, now, b.cfg.DedupeWindow); ok {
		return broker.Result{Outcome: broker.OutcomeDuplicate, Position: pos}
	}
	switch fault {
	case faultHeldBack:
		return broker.HeldBack()
	case faultThrottle:
		return broker.Throttled(headgate.CodeOverloaded, "fault injected")
	case faultUnknownLost:
		return broker.Unknown(errInjected)
	}
	p := s.partitionFor(e.Key)
	if s.spec.MaxBytes > 0 && p.bytes+int64(size) > s.spec.MaxBytes {
		return broker.Throttled(headgate.CodeStreamFull, "partition %d of stream %s holds %d of %d bytes", p.number, s.spec.Name, p.bytes, s.spec.MaxBytes)
	}
	pos := p.append(e, size, now)
	s.known.put(k, pos, now, b.cfg.DedupeWindow, b.cfg.DedupeIDs)
	if fault == faultUnknownStored {
		return broker.Unknown(errInjected)
	}
	return broker.Result{Outcome: broker.OutcomeStored, Position: pos}
}

func unknown(results []broker.Result, cause error) []broker.Result {
	for i := range results {
		results[i] = broker.Unknown(cause)
	}
	return results
}
