package hold

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// HeaderFence is the header that carries lease tokens.
const HeaderFence = "Headgate-Fence"

// DefaultTTL is the TTL of a lease whose Opts name none.
const DefaultTTL = 30 * time.Second

// Want says what a keeper is asked for. Zero fields mean its defaults.
type Want struct {
	TTL, Wait, MaxHold time.Duration
	Worker, RequestID  string
	Audience           []string
	// Seal are the node's targets that must know of the lease before it is
	// returned.
	Seal []string
}

// Granted is a keeper's answer to an acquisition or a renewal.
type Granted struct {
	Resource string
	Epoch    int64
	Token    string
	// ExpiresIn is what was left when the keeper answered.
	ExpiresIn time.Duration
}

// Keeper is where leases come from.
type Keeper interface {
	// AcquireLease acquires one lease, waiting as long as Want says.
	AcquireLease(ctx context.Context, resource string, w Want) (Granted, error)
	// RenewLease makes it last for ttl from now.
	RenewLease(ctx context.Context, resource, token string, ttl time.Duration) (Granted, error)
	// ReleaseLease gives it back.
	ReleaseLease(ctx context.Context, resource, token string) error
}

// Opts change how a lease is held. Zero fields mean the defaults.
type Opts struct {
	Want
	// Margin is how long before the lease runs out the context ends; default a
	// tenth of the TTL, at most 2s.
	Margin time.Duration
	// Progress is how long the work may take without calling [Lease.Progress];
	// 0: it need not.
	Progress time.Duration
	// Random returns numbers from 0 to below 1 for jitter; default
	// math/rand/v2.
	Random func() float64
}

// Lease is a lease that is being held.
type Lease struct {
	keeper   Keeper
	resource string
	epoch    int64
	opts     Opts

	token    atomic.Pointer[string]
	progress atomic.Int64 // nanoseconds since begun
	begun    time.Time
	cancel   context.CancelCauseFunc
	stop     context.CancelFunc // of the renewals alone
	ended    chan struct{}      // closed when the renewals have ended
	release  sync.Once
	released error

	mu       sync.Mutex
	deadline *time.Timer
	why      error // the last failed renewal
}

// Acquire acquires a lease and starts to renew it. The returned context ends
// when ctx does, when the lease may be lost, and with Release, which must be
// called in the end.
func Acquire(ctx context.Context, k Keeper, resource string, o *Opts) (context.Context, *Lease, error) {
	l := &Lease{keeper: k, resource: resource, ended: make(chan struct{})}
	if o != nil {
		l.opts = *o
	}
	if l.opts.TTL <= 0 {
		l.opts.TTL = DefaultTTL
	}
	if l.opts.Margin <= 0 {
		l.opts.Margin = min(l.opts.TTL/10, 2*time.Second)
	}
	if l.opts.Random == nil {
		l.opts.Random = mathrand.Float64
	}
	g, sent, err := l.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	// While the call waited the lease was not yet running, and while targets
	// were sealed it was: counting from the send is too early, never too late.
	if l.opts.Wait > 0 || len(l.opts.Seal) > 0 {
		n := time.Now()
		again, err := k.RenewLease(ctx, resource, g.Token, l.opts.TTL)
		if err != nil {
			return nil, nil, l.giveUp(ctx, g.Token, err)
		}
		g.Token, g.ExpiresIn, sent = again.Token, again.ExpiresIn, n
	}
	left := g.ExpiresIn - l.opts.Margin - time.Since(sent)
	if left <= 0 {
		return nil, nil, l.giveUp(ctx, g.Token, headgate.NewError(headgate.CodeLeaseExpired, "the lease had run out when its grant arrived"))
	}
	l.epoch, l.begun = g.Epoch, time.Now()
	l.token.Store(&g.Token)
	held, cancel := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancel(held)
	l.cancel, l.stop = cancel, stop
	l.deadline = time.AfterFunc(left, l.overdue)
	go l.renew(renewing, sent.Add(g.ExpiresIn-l.opts.Margin))
	return held, l, nil
}

// acquireTries is how often an acquisition is tried whose answer was lost.
const acquireTries = 3

// acquire acquires under a request id of its own, so that an acquisition whose
// answer was lost can be repeated without being locked out by itself. Sent is
// when the attempt that succeeded was sent.
func (l *Lease) acquire(ctx context.Context) (g Granted, sent time.Time, err error) {
	w := l.opts.Want
	if w.RequestID == "" {
		w.RequestID = rand.Text()
	}
	for try := 1; ; try++ {
		sent = time.Now()
		g, err = l.keeper.AcquireLease(ctx, l.resource, w)
		e := headgate.AsError(err)
		if e == nil || e.Info().Outcome != headgate.Unknown || try == acquireTries || ctx.Err() != nil {
			return g, sent, err
		}
	}
}

// giveUp releases what cannot be used, and returns why.
func (l *Lease) giveUp(ctx context.Context, token string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.TTL)
	defer cancel()
	_ = l.keeper.ReleaseLease(ctx, l.resource, token) // else it runs out
	return why
}

// Do runs fn under a lease and releases it afterwards. When the lease is lost
// meanwhile the error says so, whatever fn returned.
func Do(ctx context.Context, k Keeper, resource string, o *Opts, fn func(context.Context, *Lease) error) error {
	held, l, err := Acquire(ctx, k, resource, o)
	if err != nil {
		return err
	}
	err = fn(held, l)
	lost := headgate.AsError(context.Cause(held))
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.TTL)
	defer cancel()
	gone := l.Release(rctx)
	switch {
	case lost != nil:
		return lost
	case err == nil && headgate.CodeOf(gone) == headgate.CodeLeaseLost:
		return gone
	}
	return err
}

// Resource returns what is leased.
func (l *Lease) Resource() string { return l.resource }

// Epoch returns the epoch of the grant.
func (l *Lease) Epoch() int64 { return l.epoch }

// Token returns the latest token. It goes with every write and is a secret.
func (l *Lease) Token() string { return *l.token.Load() }

// Progress says that the work goes on, see Opts.Progress.
func (l *Lease) Progress() { l.progress.Store(int64(time.Since(l.begun))) }

// hangs reports whether the work has not reported progress for too long.
func (l *Lease) hangs() bool {
	return l.opts.Progress > 0 && time.Since(l.begun)-time.Duration(l.progress.Load()) > l.opts.Progress
}

// Release ends the context and gives the lease back. Errors tell that it had
// ended before (lease_lost), or that the keeper could not be told: then it
// runs out by itself. Later calls return the same.
func (l *Lease) Release(ctx context.Context) error {
	l.release.Do(func() {
		l.cancel(context.Canceled)
		l.mu.Lock()
		l.deadline.Stop()
		l.mu.Unlock()
		l.stop()
		<-l.ended
		l.released = l.keeper.ReleaseLease(ctx, l.resource, l.Token())
	})
	return l.released
}

// overdue ends the context at the deadline.
func (l *Lease) overdue() {
	l.mu.Lock()
	why := l.why
	l.mu.Unlock()
	text := fmt.Sprintf("the lease on %s was not renewed in time", l.resource)
	switch {
	case l.hangs():
		text += fmt.Sprintf(": the work reported no progress for %s", l.opts.Progress)
	case why != nil:
		text += ": " + why.Error()
	}
	e := headgate.NewError(headgate.CodeLeaseExpired, "%s", text)
	e.Err = why
	l.cancel(e)
}

// renew renews until the context ends.
func (l *Lease) renew(ctx context.Context, deadline time.Time) {
	defer close(l.ended)
	third := l.opts.TTL / 3
	wait := l.jitter(third)
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		if l.hangs() {
			wait = l.jitter(third / 4)
			continue
		}
		sent := time.Now()
		call, cancel := context.WithDeadline(ctx, deadline)
		g, err := l.keeper.RenewLease(call, l.resource, l.Token(), l.opts.TTL)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if final(err) {
				l.cancel(err)
				return
			}
			l.mu.Lock()
			l.why = err
			l.mu.Unlock()
			wait = l.jitter(max(third/8, 10*time.Millisecond))
			continue
		}
		l.token.Store(&g.Token)
		deadline = sent.Add(g.ExpiresIn - l.opts.Margin)
		l.mu.Lock()
		l.why = nil
		if l.deadline.Stop() { // else the context has ended, for good
			l.deadline.Reset(time.Until(deadline))
		}
		l.mu.Unlock()
		wait = l.jitter(min(third, time.Until(deadline)/2))
	}
}

// jitter draws from 80 to 100 percent of d, in whole steps: a simulation can
// tell the instants of its actors apart by what is below a step.
func (l *Lease) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.2*l.opts.Random())).Truncate(jitterStep)
}

const jitterStep = 10 * time.Microsecond

// final reports whether a renewal can never succeed again.
func final(err error) bool {
	switch headgate.CodeOf(err) {
	case headgate.CodeLeaseLost, headgate.CodeLeaseClosing, headgate.CodeLeaseExpired, headgate.CodeStaleFence, headgate.CodeFenceConflict,
		headgate.CodeFenceForeign, headgate.CodeFenceInvalid, headgate.CodeForbidden, headgate.CodeUnauthenticated:
		return true
	}
	return false
}

// Transport returns a round tripper that sends the lease's token with every
// request; base nil means http.DefaultTransport. Use it for hosts that may
// know the token.
func (l *Lease) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{l, base}
}

type transport struct {
	lease *Lease
	base  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(HeaderFence, t.lease.Token())
	return t.base.RoundTrip(r)
}
