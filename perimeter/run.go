package perimeter

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/topology"
)

// state says how far one item of a run came.
type state uint8

const (
	stateOpen      state = iota
	stateRefused         // result has the error
	statePassed          // reserved and stamped
	stateStored          // the broker has it
	stateDuplicate       // known to the stream at result.Position
	stateTwin            // same id as an earlier item that passed
)

// entry is what a run knows of one item beside its result.
type entry struct {
	state   state
	minted  bool // the id is ours: nobody can have sent it before
	failure bool // of the node, not a refusal: not recorded
	twin    int  // with stateTwin
	told    bool // somebody else tells the observer
	typ     *topology.Resolved
	fences  []*lease.Fence      // that it is written under
	fence   string              // the attribute that names them
	gas     *causal.Reservation // with statePassed
	// original is what the payload was before it was mended.
	original *original
	kept     string             // its record
	unneeded bool               // no event names that record
	framed   []byte             // the payload with its frame, which was taken off
	judged   bool               // the payload passed already
	avro     *contract.Contract // that the payload passed, if it is Avro binary
}

type ident struct{ source, id string }

// run is one submission on its way. It lives on one goroutine.
type run struct {
	p       *Perimeter
	s       *Submission
	now     time.Time // of the admission: recordedtime
	clock   time.Time // the same, still fit for durations
	begun   time.Time // last byte read
	source  string    // default source, made once
	entries []entry
	results []Result

	fences      []*lease.Fence
	fenceErr    *headgate.Error
	fencesRead  bool
	fenceChecks map[*lease.Fence]*headgate.Error

	causes   []*causal.Cause
	causeErr *headgate.Error
	verified bool

	// contractOf is the contract that was looked up last, with its name made
	// once for a run of items of one type.
	contractOf struct {
		c    *contract.Contract
		ref  headgate.ContractRef
		name string
	}

	// passed finds items by id, filled up to passedTo when first asked for.
	passed   map[ident]int
	passedTo int
	// twinsFirst looks for twins before the cause, not only before a refusal
	// stands: where nothing is published that the broker could compare with,
	// and where a twin would hold gas that a later item needs.
	twinsFirst bool

	order order // with InOrder
}

func (p *Perimeter) start(s *Submission) *run {
	now := p.cfg.Now()
	r := &run{
		p: p, s: s, now: now.Round(0).UTC(), clock: now, begun: s.Received,
		entries: make([]entry, len(s.Items)),
		results: make([]Result, len(s.Items)),

		twinsFirst: len(s.Tokens)+len(s.Causes)+len(s.Fences)+len(s.Held) > 0,
	}
	if r.begun.IsZero() {
		r.begun = now
	}
	return r
}

// judge takes every item through the stages.
func (r *run) judge(ctx context.Context) {
	for i := range r.s.Items {
		r.judgeOne(ctx, i)
		if err := r.results[i].Err; r.s.InOrder && err != nil && retryable(err) && err.Code != headgate.CodeHeldBack {
			r.stop(i + 1)
			return
		}
	}
}

// stop answers the items from the given one on as not attempted.
func (r *run) stop(from int) {
	for i := from; i < len(r.s.Items); i++ {
		r.results[i].Event = r.s.Items[i].Event
		r.holdBack(i, heldBack())
	}
}

// retryable reports whether the same item may be admitted later.
func retryable(err *headgate.Error) bool { return err.Info().Retry == headgate.RetryLater }

func (r *run) judgeOne(ctx context.Context, i int) {
	r.results[i].Event = r.s.Items[i].Event
	for _, name := range r.s.Items[i].Ignored {
		r.ignored(name)
	}
	if err := r.principal(); err != nil {
		r.refuse(i, StagePrincipal, err)
		return
	}
	if err := r.envelope(i); err != nil {
		r.refuse(i, StageEnvelope, err)
		return
	}
	if err := r.right(i); err != nil {
		r.refuse(i, StageRight, err)
		return
	}
	if r.known(i) || r.twinsFirst && r.isTwin(i) {
		return
	}
	if r.held(i) {
		r.holdBack(i, heldBack())
		return
	}
	if err := r.cause(ctx, i); err != nil {
		r.refuseLate(i, StageCause, err)
		return
	}
	if stage, err := r.fence(ctx, i); err != nil {
		r.refuseLate(i, stage, err)
		return
	}
	if err := r.contract(ctx, i); err != nil {
		r.refuseLate(i, StageContract, err)
		return
	}
	if err := r.stamp(i); err != nil {
		r.refuseLate(i, StageStamp, err)
		return
	}
	r.entries[i].state = statePassed
}

// ignored tells of something that only the perimeter sets and a client sent.
func (r *run) ignored(what string) {
	if tell := r.p.cfg.Observer.Ignored; tell != nil {
		tell(headgate.IgnoredInfo{Principal: r.principalName(), What: what, Door: r.s.Door})
	}
}

func (r *run) principalName() string {
	if r.s.Principal == nil {
		return ""
	}
	return r.s.Principal.Name
}

// principal: known, enabled, and with anything to publish at all.
func (r *run) principal() *headgate.Error {
	switch p := r.s.Principal; {
	case p == nil:
		return headgate.NewError(headgate.CodeUnauthenticated, "no principal")
	case p.Disabled:
		return headgate.NewError(headgate.CodeForbidden, "the principal is disabled")
	case len(p.Emit) == 0:
		return headgate.NewError(headgate.CodeForbidden, "the principal may not publish any type")
	}
	return nil
}

// right: this type, by this principal. Origin classes are judged with the
// cause, which knows the root's.
func (r *run) right(i int) *headgate.Error {
	e := r.results[i].Event
	if !r.s.Principal.MayEmit(e.Type) {
		return headgate.NewError(headgate.CodeTypeNotAllowed, "the principal may not publish type %s", e.Type)
	}
	return nil
}

// known asks the stream whether it has the id already, and settles the item as
// a duplicate if so.
func (r *run) known(i int) bool {
	en, res := &r.entries[i], &r.results[i]
	if en.minted {
		return false
	}
	pos, ok := r.p.cfg.Broker.Known(en.typ.Stream, res.Event.Source, res.Event.ID)
	if ok {
		en.state = stateDuplicate
		res.Position = pos
	}
	return ok
}

// isTwin asks whether an earlier item of the submission passed with the same
// id, and settles the item as its twin if so.
func (r *run) isTwin(i int) bool {
	en := &r.entries[i]
	if en.minted || i == 0 {
		return false
	}
	if r.passed == nil {
		r.passed = make(map[ident]int)
	}
	for ; r.passedTo < i; r.passedTo++ {
		if r.entries[r.passedTo].state == statePassed {
			e := r.results[r.passedTo].Event
			r.passed[ident{e.Source, e.ID}] = r.passedTo
		}
	}
	e := r.results[i].Event
	k, ok := r.passed[ident{e.Source, e.ID}]
	if ok && r.entries[k].typ.Stream == en.typ.Stream {
		if r.s.InOrder {
			r.holdBack(i, heldBack())
			return true
		}
		en.state, en.twin = stateTwin, k
		return true
	}
	return false
}

// refuseLate refuses at stage cause or later, unless the event was admitted
// before: by another submission meanwhile, or by an item before it.
func (r *run) refuseLate(i int, stage Stage, err *headgate.Error) {
	if g := r.entries[i].gas; g != nil && (err.Code == headgate.CodeContractUnknown || err.Code == headgate.CodeContractInvalid) {
		g.Forgive() // that nobody registered a contract, or one that compiles, is not the sender's doing
		r.entries[i].gas = nil
	}
	r.release(i)
	r.unmend(i)
	if r.known(i) || r.isTwin(i) {
		return
	}
	r.refuse(i, stage, err)
}

func (r *run) refuse(i int, stage Stage, err *headgate.Error) {
	en, res := &r.entries[i], &r.results[i]
	en.state = stateRefused
	en.failure = isFailure(err)
	res.Err, res.Stage = err, stage
	r.lacks(i)
	if e := res.Event; e != nil && err.Info().Outcome == headgate.NotApplied {
		e.Header = headgate.Header{} // else the broker may hold this very event
		r.unmend(i)
	}
	if tell := r.p.cfg.Observer.Refused; tell != nil {
		info := headgate.RefusedInfo{Principal: r.principalName(), Stage: stage, Code: err.Code, Door: r.s.Door, Took: r.p.cfg.Now().Sub(r.begun)}
		if e := res.Event; e != nil {
			info.Type, info.ID = printable(e.Type, headgate.MaxTypeLength), printable(e.ID, headgate.MaxIDLength)
		}
		tell(info)
	}
}

func (r *run) release(i int) {
	if g := r.entries[i].gas; g != nil {
		g.Release()
		r.entries[i].gas = nil
	}
}

// isFailure tells what the node could not do from what it refused: the former
// says nothing about the event, so it is no evidence to keep.
func isFailure(err *headgate.Error) bool {
	return err.Info().Retry == headgate.RetryLater && err.Code != headgate.CodeRateLimited
}

// errorOf returns the headgate error in err's chain, or one that stands for a
// context's end (nothing was applied) or for a fault of ours.
func errorOf(err error) *headgate.Error {
	if e := headgate.AsError(err); e != nil {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return canceled(err)
	}
	return &headgate.Error{Code: headgate.CodeInternal, Err: err}
}

// canceled says that ctx ended before anything was published.
func canceled(cause error) *headgate.Error {
	return &headgate.Error{
		Code: headgate.CodeCanceled, Detail: "the request ended before the event was published", Outcome: headgate.NotApplied, Err: cause,
	}
}
