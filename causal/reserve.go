package causal

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// maxCauses bounds the parents of one event.
const maxCauses = 16

// Request asks for the admission of one event. A limit of 0 means its default.
type Request struct {
	Principal *headgate.Principal
	Causes    []*Cause // none: a root
	Type      string
	EventID   string
	Origin    headgate.Origin // of a root; empty means the principal's
	Now       time.Time       // of the admission; zero means by the engine's clock
	// Limits of the type.
	TTL, Gas, Breadth, Repeats int
	Origins                    []headgate.Origin // allowed origin classes; empty means all
}

// Reservation is gas taken for one event that is not stored yet. Exactly one
// of Commit and Release is called; what comes after the first is ignored.
type Reservation struct {
	// Header has RootID, Causes, TTL, Hop, Origin and Lineage filled in.
	Header headgate.Header

	breadth    *breadthTable
	deliveries []deliveryKey
	accounts   []*account
	room       [2]*account // most events have one root
	done       atomic.Bool

	// Of a root: whose rate it was counted against.
	rates *rateTable
	by    *headgate.Principal
	at    time.Time
}

// Commit charges the reservation: the event was stored, or may have been.
func (r *Reservation) Commit() { r.done.Store(true) }

// Release returns it: the event was refused or is a duplicate. The units go
// back to this node's balance, never to the store.
func (r *Reservation) Release() {
	if r.done.Swap(true) {
		return
	}
	for _, a := range r.accounts {
		a.giveBack()
	}
	for _, d := range r.deliveries {
		r.breadth.giveBack(d)
	}
}

// Forgive returns it like Release, and takes a root off its principal's rate
// too: for a refusal that says nothing about the sender.
func (r *Reservation) Forgive() {
	if r.done.Load() {
		return
	}
	r.Release()
	if r.rates != nil {
		r.rates.giveBack(r.by, r.at)
	}
}

// Reserve judges the causes of an event and reserves one unit of gas of every
// distinct root. It asks the store only when the local balance of a root is
// used up; then ctx bounds the wait. Errors: root_not_allowed, rate_limited,
// origin_not_allowed, ttl_exhausted, loop, breadth_exhausted, gas_exhausted,
// unavailable, canceled; invalid_argument for too many causes and token_invalid
// for a cause without lineage.
func (e *Engine) Reserve(ctx context.Context, r Request) (*Reservation, error) {
	r = r.withDefaults()
	if len(r.Causes) == 0 {
		return e.reserveRoot(&r)
	}
	return e.reserveChild(ctx, &r)
}

func (r Request) withDefaults() Request {
	if r.TTL <= 0 {
		r.TTL = DefaultTTL
	}
	if r.Gas <= 0 {
		r.Gas = DefaultGas
	}
	if r.Breadth <= 0 {
		r.Breadth = DefaultBreadth
	}
	if r.Repeats <= 0 {
		r.Repeats = DefaultRepeats
	}
	r.Gas = min(r.Gas, maxGas)
	r.Repeats = min(r.Repeats, math.MaxUint8-1) // counts end at 255
	return r
}

// at is when the event is admitted.
func (e *Engine) at(r *Request) time.Time {
	if r.Now.IsZero() {
		return e.cfg.Now()
	}
	return r.Now
}

func (e *Engine) reserveRoot(r *Request) (*Reservation, error) {
	p := r.Principal
	if p == nil || p.Disabled || !p.Roots.Allowed {
		return nil, headgate.NewError(headgate.CodeRootNotAllowed, "an event of type %s came without a causal token, and its principal may not start roots", quote(r.Type))
	}
	origin := r.Origin
	if origin == "" {
		origin = p.Origin()
	}
	if err := r.allow(origin); err != nil {
		return nil, err
	}
	now := e.at(r)
	if wait := e.rates.take(p, now); wait > 0 {
		err := headgate.NewError(headgate.CodeRateLimited, "principal %s starts roots faster than it may", quote(p.Name))
		err.RetryAfter = wait
		return nil, err
	}
	lin := lineage{account: e.ledger.open(), total: r.Gas, granted: min(r.Gas, GrantSize), born: max(now.Unix(), 0)}
	lin.path.add(e.pairs.hash(p.Name, r.Type))
	return &Reservation{Header: headgate.Header{
		RootID:  r.EventID,
		TTL:     r.TTL,
		Origin:  origin,
		Lineage: lin.append(make([]byte, 0, 48)),
	}, rates: e.rates, by: p, at: now}, nil
}

// allow refuses an origin class that the type does not take.
func (r *Request) allow(origin headgate.Origin) error {
	if len(r.Origins) > 0 && !slices.Contains(r.Origins, origin) {
		return headgate.NewError(headgate.CodeOriginNotAllowed, "type %s is not allowed under a root of origin %s", quote(r.Type), quote(string(origin)))
	}
	return nil
}

func (e *Engine) reserveChild(ctx context.Context, r *Request) (*Reservation, error) {
	if r.Principal == nil || r.Principal.Disabled {
		return nil, headgate.NewError(headgate.CodeForbidden, "the principal may not publish")
	}
	causes, err := distinct(r.Causes)
	if err != nil {
		return nil, err
	}
	now := e.at(r)
	res := new(Reservation)
	if err := res.stamp(r, causes); err != nil {
		return nil, err
	}
	lin := causes[0].lineage
	for _, c := range causes {
		if now.Unix()-c.lineage.born > int64(e.cfg.RootLife/time.Second) {
			err := headgate.NewError(headgate.CodeGasExhausted, "the root was admitted more than %s ago, after which its budget is closed", days(e.cfg.RootLife))
			err.Fix = "Start a new root."
			return nil, err
		}
		lin.path.merge(&c.lineage.path)
	}
	if err := e.follow(r, &lin.path, causes); err != nil {
		return nil, err
	}
	res.Header.Lineage = lin.append(make([]byte, 0, 40+8*lin.path.n))
	if err := e.charge(ctx, r, causes, res, now); err != nil {
		res.Release()
		return nil, err
	}
	return res, nil
}

// distinct checks the causes and leaves out those that name the same delivery
// again. The usual single cause costs nothing.
func distinct(causes []*Cause) ([]*Cause, error) {
	if len(causes) > maxCauses {
		return nil, headgate.NewError(headgate.CodeInvalidArgument, "an event has %d causes; at most %d are allowed", len(causes), maxCauses)
	}
	for _, c := range causes {
		if c == nil || c.lineage.total == 0 {
			return nil, headgate.NewError(headgate.CodeTokenInvalid, "a cause carries no lineage, so it cannot be judged")
		}
	}
	if len(causes) == 1 {
		return causes, nil
	}
	out := make([]*Cause, 0, len(causes))
	for _, c := range causes {
		if !slices.ContainsFunc(out, func(o *Cause) bool {
			return o.Subscription == c.Subscription && o.Stream == c.Stream && o.Position == c.Position && o.EventID == c.EventID
		}) {
			out = append(out, c)
		}
	}
	return out, nil
}

// stamp computes the child's header but for its lineage. Every parent's root
// must be of an allowed origin: a second token must not launder the first.
func (res *Reservation) stamp(r *Request, causes []*Cause) error {
	first := causes[0]
	ttl, hop := math.MaxInt, 0
	ids := make([]string, 0, len(causes))
	for _, c := range causes {
		if err := r.allow(c.Origin); err != nil {
			return err
		}
		ttl, hop = min(ttl, c.TTL), max(hop, c.Hop)
		if !slices.Contains(ids, c.EventID) {
			ids = append(ids, c.EventID)
		}
	}
	if ttl <= 1 {
		return headgate.NewError(headgate.CodeTTLExhausted, "the cause at hop %d has no hop left for a child", hop)
	}
	res.Header = headgate.Header{
		RootID: first.Root, Causes: ids, TTL: min(ttl-1, r.TTL), Hop: hop + 1, Origin: first.Origin,
	}
	return nil
}

// follow adds the event to the path, or refuses it as a loop.
func (e *Engine) follow(r *Request, p *path, causes []*Cause) error {
	hash := e.pairs.hash(r.Principal.Name, r.Type)
	if n := p.count(hash); n >= r.Repeats {
		return headgate.NewError(headgate.CodeLoop,
			"%s by %s came %d times on this causal path, and the type allows %d; the cycle: %s",
			quote(r.Type), quote(r.Principal.Name), n, r.Repeats, e.cycle(r, causes, hash))
	}
	p.add(hash)
	return nil
}

// cycle puts the loop that the event would close into words, as it runs through
// the parent with the greatest count.
func (e *Engine) cycle(r *Request, causes []*Cause, hash uint64) string {
	through := slices.MaxFunc(causes, func(a, b *Cause) int {
		return cmp.Compare(a.lineage.path.count(hash), b.lineage.path.count(hash))
	})
	self := quote(r.Type) + " by " + quote(r.Principal.Name)
	between := e.pairs.describe(through.lineage.path.since(hash))
	if between != "" {
		between += " -> "
	}
	return self + " -> " + between + self
}

// charge counts the child at each delivery and takes a unit from each distinct
// root, one after the other and without holding anything meanwhile. What it
// took is in res, also when it fails.
func (e *Engine) charge(ctx context.Context, r *Request, causes []*Cause, res *Reservation, now time.Time) error {
	res.breadth = e.breadth
	for _, c := range causes {
		k := e.breadth.key(&c.Delivered)
		if !e.breadth.take(k, r.Breadth, now) {
			return headgate.NewError(headgate.CodeBreadthExhausted, "the delivery of event %s has %d children already", quote(c.EventID), r.Breadth)
		}
		res.deliveries = append(res.deliveries, k)
	}
	res.accounts = res.room[:0]
	for i, c := range causes {
		if slices.ContainsFunc(causes[:i], func(o *Cause) bool { return o.lineage.account == c.lineage.account }) {
			continue
		}
		a := e.ledger.account(c.Root, &c.lineage)
		if err := e.ledger.take(ctx, a); err != nil {
			return gasError(c, err)
		}
		res.accounts = append(res.accounts, a)
	}
	return nil
}

// gasError says what a failed take means for the publisher.
func gasError(c *Cause, err error) error {
	root := quote(c.Root)
	switch {
	case errors.Is(err, errEmpty):
		return headgate.NewError(headgate.CodeGasExhausted, "root %s used up its budget of %d events", root, c.lineage.total)
	case isCanceled(err):
		e := headgate.NewError(headgate.CodeCanceled, "the caller went away while the gas of root %s was debited: %v", root, err)
		e.Outcome = headgate.NotApplied
		return e
	default:
		e := headgate.NewError(headgate.CodeUnavailable, "the gas of root %s cannot be checked", root)
		e.Err = err
		return e
	}
}
