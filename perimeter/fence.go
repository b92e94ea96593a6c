package perimeter

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/eventcodec"
	names "github.com/headgate/headgate/internal/resource"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/store"
)

// Outbox tells what becomes of events that were committed to the node outbox.
type Outbox interface {
	// Expect listens for the publication of an event. The channel gets one
	// result at most; forget must be called in the end.
	Expect(stream, source, id string) (result <-chan broker.Result, forget func())
	// Wake makes it look for rows that were committed.
	Wake()
}

// Fencing is what a perimeter needs to check fences and to commit events
// together with their guards. All fields are required.
type Fencing struct {
	Leases *lease.Service
	Store  store.Store
	Outbox Outbox
}

// fencedWait is how long a fenced publish, once committed, waits for its
// position in the stream.
const fencedWait = 5 * time.Second

// outboxPoll is how often it asks whether another node has published it.
const outboxPoll = 250 * time.Millisecond

// SetFencing makes fences work; without it every event that comes with one, or
// needs one, is refused as unavailable. Call it before the first submission.
func (p *Perimeter) SetFencing(f Fencing) { p.fencing = &f }

// readFences reads the lease tokens once for the whole submission. A bad one
// refuses every item, since what the client meant to protect is not known.
func (r *run) readFences(ctx context.Context) {
	if r.fencesRead {
		return
	}
	r.fencesRead = true
	r.fences = slices.Clone(r.s.Held)
	if len(r.s.Fences) == 0 {
		return
	}
	if r.p.fencing == nil {
		r.fenceErr = noFencing()
		return
	}
	for k, token := range r.s.Fences {
		if slices.Contains(r.s.Fences[:k], token) {
			continue
		}
		f, err := r.p.fencing.Leases.Read(ctx, token, "")
		switch {
		case err != nil:
			r.fenceErr = errorOf(err)
			return
		case f.Holder != r.s.Principal.Name:
			r.fenceErr = headgate.NewError(headgate.CodeFenceForeign, "the lease belongs to another principal")
			return
		}
		r.fences = append(r.fences, &f)
	}
}

func noFencing() *headgate.Error {
	return headgate.NewError(headgate.CodeUnavailable, "this node grants no leases")
}

// fence: where the type demands a lease, its token is among the fences; and
// every fence of the submission is current, as far as can be told before the
// commit, which decides. One that is stale refuses every event: what the
// client believes to hold it does not. The event names the lease that its type
// demands, else all.
func (r *run) fence(ctx context.Context, i int) (Stage, *headgate.Error) {
	r.readFences(ctx)
	if r.fenceErr != nil {
		return StageFence, r.fenceErr
	}
	named := r.fences
	if of := r.entries[i].typ.FenceOf; of != nil {
		if headgate.IsAvro(r.results[i].Event.DataContentType) { // it has to be judged before it can be read
			if bad := r.contract(ctx, i); bad != nil {
				return StageContract, bad
			}
		}
		resource, err := of.EvalOver(r.scope(i))
		if err != nil {
			// A payload against its contract has the better explanation.
			if bad := r.contract(ctx, i); bad != nil {
				return StageContract, bad
			}
			e := headgate.NewError(headgate.CodeBadEnvelope, "the resource that type %s is fenced by cannot be read from the event: %s", r.results[i].Event.Type, errorOf(err).Detail)
			e.Fix = "Make the contract require what the fence expression reads."
			return StageFence, e
		}
		if fault := names.Fault(resource); fault != "" {
			return StageFence, headgate.NewError(headgate.CodeBadEnvelope, "what type %s is fenced by names no resource here: %s", r.results[i].Event.Type, fault)
		}
		k := slices.IndexFunc(r.fences, func(f *lease.Fence) bool { return f.Resource == resource })
		switch {
		case k >= 0:
			named = r.fences[k : k+1]
		case len(r.fences) > 0:
			return StageFence, headgate.NewError(headgate.CodeFenceForeign, "the event is about %q, which none of the fences is for", clip(resource))
		default:
			return StageFence, headgate.NewError(headgate.CodeFenceMissing, "type %s demands the lease on %q", r.results[i].Event.Type, clip(resource))
		}
	}
	if len(r.fences) == 0 {
		return "", nil
	}
	if r.p.fencing == nil {
		return StageFence, noFencing()
	}
	for k, f := range r.fences {
		if err := r.checkFence(ctx, f, k < len(r.s.Held)); err != nil {
			return StageFence, err
		}
	}
	r.entries[i].fences, r.entries[i].fence = r.fences, lease.Attribute(named)
	return "", nil
}

// checkFence asks once per submission and fence: a stale worker is told here,
// without waiting in the queue of writers. What is held by the delivery that
// is being settled may be in the course of being revoked: its settlement is
// what is waited for.
func (r *run) checkFence(ctx context.Context, f *lease.Fence, held bool) *headgate.Error {
	if err, known := r.fenceChecks[f]; known {
		return err
	}
	check := func() error { return r.p.fencing.Leases.Current(ctx, f) }
	if held {
		check = func() error { return r.p.fencing.Leases.Superseded(f) }
	}
	var found *headgate.Error
	if err := check(); err != nil {
		found = errorOf(err)
	}
	if r.fenceChecks == nil {
		r.fenceChecks = map[*lease.Fence]*headgate.Error{}
	}
	r.fenceChecks[f] = found
	return found
}

// fenced is one item on its way through the node outbox.
type fenced struct {
	item   int
	seq    int64
	result <-chan broker.Result
	forget func()
}

// publishFenced commits the fenced items with their guards in one transaction,
// from where the node outbox publishes them in the order of the commits: no
// takeover fits between the check of a fence and the event's place in the
// stream.
func (r *run) publishFenced(ctx context.Context) {
	var items []int
	for i := range r.entries {
		if r.entries[i].state == statePassed && len(r.entries[i].fences) > 0 {
			items = append(items, i)
		}
	}
	if len(items) == 0 {
		return
	}
	if err := ctx.Err(); err != nil {
		for _, i := range items {
			r.fail(i, canceled(err))
		}
		return
	}
	waiting := r.expect(items)
	defer func() {
		for k := range waiting {
			waiting[k].forget()
		}
	}()
	refused, err := r.commitFenced(ctx, waiting)
	if err != nil {
		for _, i := range items {
			r.notCommitted(i, errorOf(err))
		}
		return
	}
	r.p.fencing.Outbox.Wake()
	for k := range waiting {
		i := waiting[k].item
		if e := refused[i]; e != nil {
			r.release(i)
			r.p.fencing.Leases.Refused(e)
			r.refuse(i, StageFence, e)
			continue
		}
		r.entries[i].told = true // the outbox tells the observer
	}
	r.await(ctx, waiting, refused)
}

func (r *run) expect(items []int) []fenced {
	waiting := make([]fenced, len(items))
	for k, i := range items {
		e := r.results[i].Event
		waiting[k] = fenced{item: i}
		waiting[k].result, waiting[k].forget = r.p.fencing.Outbox.Expect(r.results[i].Stream, e.Source, e.ID)
	}
	return waiting
}

// commitFenced is the transaction. Items whose fence is refused are left out;
// the others are committed.
func (r *run) commitFenced(ctx context.Context, waiting []fenced) (refused map[int]*headgate.Error, err error) {
	err = r.p.fencing.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		refused = map[int]*headgate.Error{}
		verdicts := map[*lease.Fence]*headgate.Error{}
		var rows []store.OutboxRow
		var of []int
		for k := range waiting {
			i := waiting[k].item
			for _, f := range r.entries[i].fences {
				verdict, known := verdicts[f]
				if !known {
					if err := r.p.fencing.Leases.Guard(ctx, tx, f); err != nil {
						e := errorOf(err)
						if !isFence(e.Code) {
							return err
						}
						verdict = e
					}
					verdicts[f] = verdict
				}
				if verdict != nil {
					refused[i] = verdict
				}
			}
			if refused[i] == nil {
				rows = append(rows, store.OutboxRow{Stream: r.results[i].Stream, Event: eventcodec.Append(nil, r.results[i].Event)})
				of = append(of, k)
			}
		}
		if len(rows) == 0 {
			return nil
		}
		if err := tx.Outbox.Append(ctx, rows); err != nil {
			return err
		}
		for n, k := range of {
			waiting[k].seq = rows[n].Seq
		}
		return nil
	})
	return refused, err
}

// isFence tells a guard's refusal from a failure of the store.
func isFence(c headgate.Code) bool {
	switch c {
	case headgate.CodeStaleFence, headgate.CodeFenceConflict, headgate.CodeLeaseClosing, headgate.CodeLeaseExpired:
		return true
	}
	return false
}

// notCommitted refuses an item whose transaction failed, or may have.
func (r *run) notCommitted(i int, e *headgate.Error) {
	if e.Info().Outcome == headgate.NotApplied {
		r.fail(i, e)
		return
	}
	r.entries[i].gas.Commit() // it may be committed, so its gas is spent
	r.entries[i].gas = nil
	r.refuse(i, StageStamp, outcomeError(broker.Result{Err: e}, headgate.CodeUnknownOutcome, headgate.Unknown))
}

// await fills in the positions. An event that is committed and not yet in its
// stream when the time is up is accepted all the same: it is pending.
func (r *run) await(ctx context.Context, waiting []fenced, refused map[int]*headgate.Error) {
	ctx, cancel := context.WithTimeout(ctx, fencedWait)
	defer cancel()
	var wg sync.WaitGroup
	results := make([]*broker.Result, len(waiting))
	for k := range waiting {
		if refused[waiting[k].item] == nil {
			wg.Go(func() { results[k] = r.awaitOne(ctx, &waiting[k]) })
		}
	}
	wg.Wait()
	for k, res := range results {
		i := waiting[k].item
		switch {
		case refused[i] != nil:
		case res == nil:
			r.entries[i].gas.Commit()
			r.entries[i].gas = nil
			r.entries[i].state = stateStored
			r.results[i].Pending = true
		default:
			r.settle(i, *res)
		}
	}
}

// awaitOne returns what became of an event, nil when that is not known in
// time. Another node's outbox may publish it, and tells nothing here: then its
// row is gone, and the stream knows it.
func (r *run) awaitOne(ctx context.Context, w *fenced) *broker.Result {
	poll := time.NewTicker(outboxPoll)
	defer poll.Stop()
	for {
		select {
		case res := <-w.result:
			return &res
		case <-poll.C:
		case <-ctx.Done():
			return nil
		}
		gone := false
		err := r.p.fencing.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
			rows, err := tx.Outbox.Pending(ctx, w.seq-1, 1)
			gone = len(rows) == 0 || rows[0].Seq != w.seq
			return err
		})
		if err != nil || !gone {
			continue
		}
		select {
		case res := <-w.result:
			return &res
		default:
		}
		e := r.results[w.item].Event
		if pos, known := r.p.cfg.Broker.Known(r.results[w.item].Stream, e.Source, e.ID); known {
			return &broker.Result{Outcome: broker.OutcomeStored, Position: pos}
		}
	}
}
