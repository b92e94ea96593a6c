package perimeter

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

// publish stores what passed: one call per stream, each in input order. Where
// keys have to keep their order, it takes another call for each change of the
// stream within a key.
func (r *run) publish(ctx context.Context) {
	if err := ctx.Err(); err != nil {
		r.each(statePassed, func(i int) { r.fail(i, canceled(err)) })
		return
	}
	for first := 0; first < len(r.entries); {
		if r.entries[first].state != statePassed {
			first++
			continue
		}
		stream := r.results[first].Stream
		// Made anew each time: the broker may keep what it was given.
		events := make([]*headgate.Event, 0, len(r.entries)-first)
		items := make([]int, 0, len(r.entries)-first)
		var elsewhere map[string]bool // keys whose next item goes to another stream
		for i := first; i < len(r.entries); i++ {
			if r.entries[i].state != statePassed {
				continue
			}
			e := r.results[i].Event
			switch {
			case r.results[i].Stream != stream:
				if r.s.InOrder && e.Key != "" {
					if elsewhere == nil {
						elsewhere = map[string]bool{}
					}
					elsewhere[e.Key] = true
				}
			case !elsewhere[e.Key]:
				events, items = append(events, e), append(items, i)
			}
		}
		r.publishTo(ctx, stream, events, items)
		r.holdBackPassed()
	}
}

func (r *run) publishTo(ctx context.Context, stream string, events []*headgate.Event, items []int) {
	outcomes, err := r.p.cfg.Broker.Publish(ctx, stream, events)
	for k, i := range items {
		switch {
		case err != nil:
			r.settle(i, refusedWhole(err))
		case k >= len(outcomes):
			r.settle(i, broker.Result{Outcome: broker.OutcomeUnknown})
		default:
			r.settle(i, outcomes[k])
		}
	}
}

// refusedWhole is the outcome of each event when the broker answered with an
// error alone: nothing was attempted, unless the driver says that it may.
func refusedWhole(err error) broker.Result {
	e := errorOf(err)
	if headgate.AsError(err) != nil && e.Info().Outcome == headgate.Unknown {
		return broker.Result{Outcome: broker.OutcomeUnknown, Err: e}
	}
	return broker.Result{Outcome: broker.OutcomeThrottled, Err: e}
}

// settle turns the broker's outcome into the item's result.
func (r *run) settle(i int, out broker.Result) {
	en, res := &r.entries[i], &r.results[i]
	switch out.Outcome {
	case broker.OutcomeStored:
		en.gas.Commit()
		en.gas = nil
		en.state = stateStored
		res.Position = out.Position
		r.admitted(i)
	case broker.OutcomeDuplicate:
		r.release(i)
		en.state = stateDuplicate
		res.Position = out.Position
	case broker.OutcomeRejected, broker.OutcomeThrottled:
		if headgate.CodeOf(out.Err) == headgate.CodeHeldBack {
			r.holdBack(i, outcomeError(out, headgate.CodeHeldBack, headgate.NotApplied))
			return
		}
		r.fail(i, outcomeError(out, headgate.CodeNotDurable, headgate.NotApplied))
	default:
		// It may be stored, so its gas is spent.
		en.gas.Commit()
		en.gas = nil
		r.refuse(i, StageStamp, outcomeError(out, headgate.CodeUnknownOutcome, headgate.Unknown))
	}
}

// fail gives the gas back and refuses at the last stage.
func (r *run) fail(i int, err *headgate.Error) {
	r.release(i)
	r.refuse(i, StageStamp, err)
}

// outcomeError is the driver's error, provided that it agrees with the outcome.
func outcomeError(out broker.Result, code headgate.Code, want headgate.Outcome) *headgate.Error {
	e := headgate.AsError(out.Err)
	if e == nil {
		e = &headgate.Error{Code: code, Err: out.Err}
	}
	if e.Info().Outcome != want {
		other := *e
		other.Outcome = want
		e = &other
	}
	return e
}

func (r *run) admitted(i int) {
	if tell := r.p.cfg.Observer.Admitted; tell != nil && !r.entries[i].told {
		res := &r.results[i]
		tell(headgate.AdmittedInfo{Stream: res.Stream, Position: res.Position, Event: res.Event, Duplicate: res.Duplicate, Door: r.s.Door})
	}
}

func (r *run) each(s state, do func(i int)) {
	for i := range r.entries {
		if r.entries[i].state == s {
			do(i)
		}
	}
}
