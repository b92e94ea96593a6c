package hold_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/hold"
)

// keeper grants one lease and does as the test says.
type keeper struct {
	mu       sync.Mutex
	ttl      time.Duration
	delay    time.Duration // of an answer
	acquires []error       // of the next acquisitions
	fail     error         // of renewals
	hang     bool          // renewals get no answer
	ids      []string
	renewed  []time.Duration // since start
	released int
	start    time.Time
}

func (k *keeper) AcquireLease(ctx context.Context, resource string, w hold.Want) (hold.Granted, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids = append(k.ids, w.RequestID)
	if len(k.acquires) > 0 {
		err := k.acquires[0]
		k.acquires = k.acquires[1:]
		if err != nil {
			return hold.Granted{}, err
		}
	}
	k.ttl, k.start = w.TTL, time.Now()
	time.Sleep(k.delay) // virtual
	return hold.Granted{Resource: resource, Epoch: 7, Token: "t0", ExpiresIn: w.TTL}, nil
}

func (k *keeper) RenewLease(ctx context.Context, resource, token string, ttl time.Duration) (hold.Granted, error) {
	k.mu.Lock()
	hang, fail := k.hang, k.fail
	k.renewed = append(k.renewed, time.Since(k.start))
	k.mu.Unlock()
	if hang {
		<-ctx.Done()
		return hold.Granted{}, headgate.NewError(headgate.CodeUnavailable, "no answer")
	}
	if fail != nil {
		return hold.Granted{}, fail
	}
	return hold.Granted{Resource: resource, Epoch: 7, Token: token + "+", ExpiresIn: ttl}, nil
}

func (k *keeper) ReleaseLease(context.Context, string, string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.released++
	return nil
}

func (k *keeper) set(fail error, hang bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail, k.hang = fail, hang
}

func opts(ttl time.Duration) *hold.Opts { return &hold.Opts{Want: hold.Want{TTL: ttl}} }

func acquire(t *testing.T, k hold.Keeper, o *hold.Opts) (context.Context, *hold.Lease) {
	t.Helper()
	ctx, l, err := hold.Acquire(t.Context(), k, "r", o)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, l
}

func cause(ctx context.Context) headgate.Code { return headgate.CodeOf(context.Cause(ctx)) }

func TestRenewsEveryThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		ctx, l := acquire(t, k, opts(30*time.Second))
		time.Sleep(5 * time.Minute)
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		if l.Token() == "t0" || l.Epoch() != 7 || l.Resource() != "r" {
			t.Errorf("%s %d", l.Token(), l.Epoch())
		}
		if err := l.Release(t.Context()); err != nil || k.released != 1 {
			t.Errorf("%v, released %d times", err, k.released)
		}
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("after release: %v", context.Cause(ctx))
		}
		if n := len(k.renewed); n < 30 || n > 38 {
			t.Errorf("%d renewals in 10 TTLs", n)
		}
		for i := 1; i < len(k.renewed); i++ {
			if gap := k.renewed[i] - k.renewed[i-1]; gap < 8*time.Second || gap > 10*time.Second {
				t.Errorf("%s between two renewals", gap)
			}
		}
	})
}

// TestDeadlineIsAnchoredAtTheSend: the slower the answer, the less is left.
func TestDeadlineIsAnchoredAtTheSend(t *testing.T) {
	for _, delay := range []time.Duration{0, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			k := &keeper{delay: delay, hang: true}
			sent := time.Now()
			ctx, l := acquire(t, k, opts(30*time.Second))
			<-ctx.Done()
			if at := time.Since(sent); at != 28*time.Second {
				t.Errorf("with a delay of %s the context ended %s after the request", delay, at)
			}
			if cause(ctx) != headgate.CodeLeaseExpired {
				t.Error(context.Cause(ctx))
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGrantThatArrivesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{delay: 40 * time.Second}
		_, _, err := hold.Acquire(t.Context(), k, "r", opts(30*time.Second))
		if headgate.CodeOf(err) != headgate.CodeLeaseExpired || k.released != 1 {
			t.Errorf("%v, released %d times", err, k.released)
		}
	})
}

// TestPassingFailures: an unreachable keeper is no lost lease before the
// deadline.
func TestPassingFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		ctx, l := acquire(t, k, opts(30*time.Second))
		k.set(headgate.NewError(headgate.CodeUnavailable, "down"), false)
		time.Sleep(20 * time.Second)
		k.set(nil, false)
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Error(context.Cause(ctx))
		}
		k.set(headgate.NewError(headgate.CodeUnavailable, "down"), false)
		began := time.Now()
		<-ctx.Done()
		if took := time.Since(began); took > 28*time.Second || took < 17*time.Second {
			t.Errorf("ended %s after the keeper went down", took)
		}
		if e := headgate.AsError(context.Cause(ctx)); e.Code != headgate.CodeLeaseExpired || e.Err == nil {
			t.Errorf("%+v", e)
		}
		k.set(nil, false)
		time.Sleep(time.Minute)
		if ctx.Err() == nil {
			t.Error("a lost lease came back")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFinalRefusalsEndAtOnce(t *testing.T) {
	for _, code := range []headgate.Code{headgate.CodeLeaseLost, headgate.CodeLeaseClosing, headgate.CodeLeaseExpired, headgate.CodeForbidden} {
		synctest.Test(t, func(t *testing.T) {
			k := &keeper{}
			ctx, l := acquire(t, k, opts(30*time.Second))
			k.set(headgate.NewError(code, "no"), false)
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); cause(ctx) != code || took > 10*time.Second {
				t.Errorf("%v after %s", context.Cause(ctx), took)
			}
			_ = l.Release(t.Context())
		})
	}
}

// TestProgress: a hung worker does not keep the lease.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opts(30 * time.Second)
		o.Progress = time.Minute
		ctx, l := acquire(t, &keeper{}, o)
		for range 20 {
			time.Sleep(30 * time.Second)
			l.Progress()
		}
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		began := time.Now()
		<-ctx.Done()
		if took := time.Since(began); took < time.Minute || took > 90*time.Second || cause(ctx) != headgate.CodeLeaseExpired {
			t.Errorf("%v after %s", context.Cause(ctx), took)
		}
		_ = l.Release(t.Context())
	})
}

// TestLostAnswers: an acquisition whose answer was lost is repeated as the
// same request.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.Unknown}
		k := &keeper{acquires: []error{lost, lost}}
		_, l := acquire(t, k, opts(30*time.Second))
		if len(k.ids) != 3 || k.ids[0] == "" || k.ids[0] != k.ids[2] {
			t.Errorf("request ids %q", k.ids)
		}
		_ = l.Release(t.Context())
		k.acquires = []error{headgate.NewError(headgate.CodeLeaseHeld, "no")}
		k.ids = nil
		if _, _, err := hold.Acquire(t.Context(), k, "r", nil); headgate.CodeOf(err) != headgate.CodeLeaseHeld || len(k.ids) != 1 {
			t.Errorf("%v after %d calls", err, len(k.ids))
		}
	})
}

func TestDoTellsALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		err := hold.Do(t.Context(), k, "r", opts(30*time.Second), func(ctx context.Context, _ *hold.Lease) error {
			k.set(headgate.NewError(headgate.CodeLeaseLost, "taken"), false)
			<-ctx.Done()
			return nil
		})
		if headgate.CodeOf(err) != headgate.CodeLeaseLost {
			t.Error(err)
		}
	})
}

// TestSingleton: the role is taken up again after it was lost, and given back
// at the end.
func TestSingleton(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{acquires: []error{headgate.NewError(headgate.CodeUnavailable, "down"), nil}}
		ctx, stop := context.WithCancel(t.Context())
		terms := 0
		o := opts(30 * time.Second)
		o.RequestID = "one acquisition"
		done := make(chan error, 1)
		go func() {
			done <- hold.Singleton(ctx, k, "role", o, nil, func(ctx context.Context, _ *hold.Lease) error {
				terms++
				if terms == 1 {
					k.set(headgate.NewError(headgate.CodeLeaseLost, "taken"), false)
				}
				<-ctx.Done()
				k.set(nil, false)
				return ctx.Err()
			})
		}()
		time.Sleep(5 * time.Minute)
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if terms != 2 || k.released != 2 {
			t.Errorf("%d terms, %d releases", terms, k.released)
		}
		if slices.Contains(k.ids, o.RequestID) {
			t.Error("the request id of one acquisition was sent for a role")
		}
	})
}

// TestSingletonReturnsWhatStays: the right to the role is missing, or was taken
// between two terms.
func TestSingletonReturnsWhatStays(t *testing.T) {
	for _, code := range []headgate.Code{headgate.CodeForbidden, headgate.CodeUnauthenticated, headgate.CodeInvalidArgument} {
		for _, before := range [][]error{nil, {headgate.NewError(headgate.CodeUnavailable, "down"), nil}} {
			synctest.Test(t, func(t *testing.T) {
				k := &keeper{acquires: append(slices.Clone(before), headgate.NewError(code, "no"))}
				terms := 0
				err := hold.Singleton(t.Context(), k, "role", opts(30*time.Second), nil, func(ctx context.Context, _ *hold.Lease) error {
					terms++
					k.set(headgate.NewError(headgate.CodeLeaseLost, "taken"), false)
					<-ctx.Done()
					k.set(nil, false)
					return ctx.Err()
				})
				if headgate.CodeOf(err) != code || terms != len(before)/2 {
					t.Errorf("%d terms, %v, want %s", terms, err, code)
				}
			})
		}
	}
}

func TestTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := acquire(t, &keeper{}, nil)
		var sent string
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get(hold.HeaderFence)
			return nil, errors.New("enough")
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = l.Transport(base).RoundTrip(req)
		if sent != "t0" || req.Header.Get(hold.HeaderFence) != "" {
			t.Errorf("sent %q, the caller's request has %q", sent, req.Header.Get(hold.HeaderFence))
		}
		_ = l.Release(t.Context())
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
