package router

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/eventcodec"
	"github.com/headgate/headgate/store"
)

// pumpPage is how many rows of the node outbox are read at once.
const pumpPage = 512

// pump publishes the node outbox: events that were committed together with the
// settlement that emitted them. Rows of one stream are published in their
// order; a row is deleted only after the broker stored it. A crash in between
// publishes it again, which the broker's dedupe recognises.
type pump struct {
	r     *Router
	woken chan struct{}

	mu       sync.Mutex
	expected map[expectedID][]chan broker.Result
}

// expectedID names an event that somebody waits for.
type expectedID struct{ stream, source, id string }

func newPump(r *Router) *pump {
	return &pump{r: r, woken: make(chan struct{}, 1), expected: map[expectedID][]chan broker.Result{}}
}

// Expect listens for the publication of an event from the node outbox by this
// node. The channel gets one result at most, and forget must be called in the
// end. With [Router.Wake] it implements perimeter.Outbox.
func (r *Router) Expect(stream, source, id string) (result <-chan broker.Result, forget func()) {
	return r.pump.expect(expectedID{stream, source, id})
}

// Wake makes the node outbox look for rows that were committed.
func (r *Router) Wake() { r.pump.wake() }

func (p *pump) expect(id expectedID) (<-chan broker.Result, func()) {
	c := make(chan broker.Result, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected[id] = append(p.expected[id], c)
	return c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		left := slices.DeleteFunc(p.expected[id], func(o chan broker.Result) bool { return o == c })
		if len(left) == 0 {
			delete(p.expected, id)
			return
		}
		p.expected[id] = left
	}
}

// tell gives the outcome to the first who waits for the event: of two rows
// with the same id the first one stored it, the second is a duplicate.
func (p *pump) tell(stream string, ev *headgate.Event, res broker.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := expectedID{stream, ev.Source, ev.ID}
	waiting := p.expected[id]
	if len(waiting) == 0 {
		return
	}
	waiting[0] <- res
	if len(waiting) == 1 {
		delete(p.expected, id)
	} else {
		p.expected[id] = waiting[1:]
	}
}

func (p *pump) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// run publishes until ctx ends: first what an earlier life left, then what
// comes. It never gives a row up.
func (p *pump) run(ctx context.Context) {
	backoff := time.Duration(0)
	for ctx.Err() == nil {
		stalled, err := p.scan(ctx)
		if err != nil && ctx.Err() == nil {
			p.r.log.Error("node outbox not published, trying again", "err", err)
		}
		if err == nil && !stalled {
			backoff = 0
			select {
			case <-p.woken:
			case <-ctx.Done():
			}
			continue
		}
		backoff = min(max(2*backoff, 50*time.Millisecond), 5*time.Second)
		sleep(ctx, backoff)
	}
}

// scan passes over the whole outbox once. A stream that does not take its rows
// now is left out of the rest of the pass, so that its order is kept and the
// others go on.
func (p *pump) scan(ctx context.Context) (stalled bool, err error) {
	down := map[string]bool{}
	after := int64(0)
	for ctx.Err() == nil {
		var rows []store.OutboxRow
		err := p.r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			rows, err = tx.Outbox.Pending(ctx, after, pumpPage)
			return err
		})
		if err != nil {
			return true, err
		}
		if err := p.publish(ctx, rows, down); err != nil {
			return true, err
		}
		if len(rows) < pumpPage {
			break
		}
		after = rows[len(rows)-1].Seq
	}
	return len(down) > 0, nil
}

// publish publishes one page, stream by stream, and deletes what was stored.
func (p *pump) publish(ctx context.Context, rows []store.OutboxRow, down map[string]bool) error {
	var order []string
	streams := map[string][]outgoing{}
	var done []int64
	var lost []store.QuarantineRecord
	for _, row := range rows {
		if down[row.Stream] {
			continue
		}
		ev, _, err := eventcodec.Decode(row.Event)
		if err != nil {
			p.r.log.Error("node outbox row unreadable, kept in quarantine", "seq", row.Seq, "stream", row.Stream, "err", err)
			lost = append(lost, p.record(row.Stream, nil, row.Event, err))
			done = append(done, row.Seq)
			continue
		}
		if streams[row.Stream] == nil {
			order = append(order, row.Stream)
		}
		streams[row.Stream] = append(streams[row.Stream], outgoing{row.Seq, ev})
	}
	for _, stream := range order {
		stored, refused := p.publishStream(ctx, stream, streams[stream], down)
		done = append(done, stored...)
		lost = append(lost, refused...)
	}
	if len(done) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // it is stored: forget it, also in a drain
	return p.r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		for _, rec := range lost {
			if _, err := tx.Quarantine.Put(ctx, rec); err != nil {
				return err
			}
		}
		return tx.Outbox.Delete(ctx, done)
	})
}

type outgoing struct {
	seq int64
	ev  *headgate.Event
}

// publishStream publishes rows of one stream and returns which are done.
func (p *pump) publishStream(ctx context.Context, stream string, rows []outgoing, down map[string]bool) (done []int64, lost []store.QuarantineRecord) {
	events := make([]*headgate.Event, len(rows))
	for i := range rows {
		events[i] = rows[i].ev
	}
	results, err := p.r.broker.Publish(ctx, stream, events)
	if err != nil || len(results) != len(rows) {
		down[stream] = true
		if ctx.Err() == nil {
			p.r.log.Warn("stream does not take emitted events, trying again", "stream", stream, "err", err)
		}
		return nil, nil
	}
	for i, res := range results {
		switch res.Outcome {
		case broker.OutcomeStored, broker.OutcomeDuplicate:
			done = append(done, rows[i].seq)
			p.tell(stream, rows[i].ev, res)
			if p.r.observer.Admitted != nil {
				p.r.observer.Admitted(headgate.AdmittedInfo{
					Stream: stream, Position: res.Position, Event: rows[i].ev, Duplicate: res.Outcome == broker.OutcomeDuplicate, Door: "router",
				})
			}
		case broker.OutcomeRejected:
			p.r.log.Error("emitted event rejected by the broker, kept in quarantine", "stream", stream, "id", rows[i].ev.ID, "err", res.Err)
			lost = append(lost, p.record(stream, rows[i].ev, nil, res.Err))
			p.tell(stream, rows[i].ev, res)
			done = append(done, rows[i].seq)
		default: // throttled, unknown
			down[stream] = true
		}
	}
	return done, lost
}

// record keeps an emitted event that can never be published.
func (p *pump) record(stream string, ev *headgate.Event, raw []byte, err error) store.QuarantineRecord {
	if ev == nil {
		ev = &headgate.Event{Data: raw, DataContentType: "application/octet-stream"}
	}
	text := ""
	if err != nil {
		text = errText(err)
	}
	return p.r.quarantineRecord(parkedUnpublished(stream, ev, text))
}
