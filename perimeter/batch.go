package perimeter

import (
	"context"
	"sync/atomic"

	"github.com/headgate/headgate/causal"
)

// Batch is a prepared submission. It is safe for concurrent use.
type Batch struct {
	// Results has one result per item, in order. Those with a nil Err that are
	// no duplicates are reserved and stamped: the caller stores exactly these.
	Results []Result

	done atomic.Bool
	gas  []*causal.Reservation
}

// Prepare runs the pipeline up to the stamp, without storing anything in a
// stream: for events that are committed to the node outbox first and published
// from there. Exactly one of Commit and Release of the batch must be called,
// also when every item was refused. Refusals are recorded as by Admit;
// Observer.Admitted is the publisher's to call, but for duplicates.
func (p *Perimeter) Prepare(ctx context.Context, s Submission) *Batch {
	r := p.start(&s)
	r.twinsFirst = true
	r.judge(ctx)
	r.keepOriginals(ctx)
	r.holdBackPassed()
	r.finish(ctx)
	b := &Batch{Results: r.results}
	for i := range r.entries {
		if g := r.entries[i].gas; g != nil {
			b.gas = append(b.gas, g)
		}
	}
	return b
}

// Commit charges the gas of what passed: the caller committed it to the node
// outbox, or may have. After Commit or Release it does nothing.
func (b *Batch) Commit() {
	if b.done.Swap(true) {
		return
	}
	for _, g := range b.gas {
		g.Commit()
	}
}

// Release returns the gas: nothing was committed. After Commit or Release it
// does nothing.
func (b *Batch) Release() {
	if b.done.Swap(true) {
		return
	}
	for _, g := range b.gas {
		g.Release()
	}
}
