package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/hold"
	"github.com/headgate/headgate/store"
)

// TestBoundsOfRequests: what is just within a bound is granted, what is just
// beyond is not.
func TestBoundsOfRequests(t *testing.T) {
	s := service(t, memory(t))
	several := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("many/%d-%d", n, i))
		}
		return all
	}
	long := strings.Repeat("x", 128)
	for name, c := range map[string]struct {
		r    Request
		code headgate.Code
	}{
		"as many":               {Request{Resources: several(MaxResources)}, ""},
		"one more":              {Request{Resources: several(MaxResources + 1)}, headgate.CodeInvalidArgument},
		"none":                  {Request{}, headgate.CodeInvalidArgument},
		"twice":                 {Request{Resources: []string{"a", "b", "a"}}, headgate.CodeInvalidArgument},
		"shortest":              {Request{TTL: MinTTL}, ""},
		"too short":             {Request{TTL: MinTTL - 1}, headgate.CodeInvalidArgument},
		"longest":               {Request{TTL: MaxTTL}, ""},
		"too long":              {Request{TTL: MaxTTL + 1}, headgate.CodeInvalidArgument},
		"negative wait":         {Request{Wait: -1}, headgate.CodeInvalidArgument},
		"longest wait":          {Request{Wait: MaxWait}, ""},
		"too long a wait":       {Request{Wait: MaxWait + 1}, headgate.CodeInvalidArgument},
		"negative hold":         {Request{MaxHold: -1}, headgate.CodeInvalidArgument},
		"shortest hold":         {Request{MaxHold: MinTTL}, ""},
		"too short a hold":      {Request{MaxHold: MinTTL - 1}, headgate.CodeInvalidArgument},
		"longest hold":          {Request{MaxHold: MaxHold}, ""},
		"too long a hold":       {Request{MaxHold: MaxHold + 1}, headgate.CodeInvalidArgument},
		"longest names":         {Request{Worker: long, RequestID: long}, ""},
		"too long a worker":     {Request{Worker: long + "x"}, headgate.CodeInvalidArgument},
		"too long an id":        {Request{RequestID: long + "x"}, headgate.CodeInvalidArgument},
		"a worker that is none": {Request{Worker: "\xff"}, headgate.CodeInvalidArgument},
		"an id with a tab":      {Request{RequestID: "a\tb"}, headgate.CodeInvalidArgument},
		"Headgate's own":        {Request{Resources: []string{ReservedPrefix + "x"}}, headgate.CodeForbidden},
		"many targets":          {Request{Seal: several(MaxSeal + 1)}, headgate.CodeInvalidArgument},
	} {
		if c.r.Resources == nil && name != "none" {
			c.r.Resources = []string{"r/" + name}
			c.r.Resources[0] = strings.ReplaceAll(c.r.Resources[0], " ", "-")
			c.r.Resources[0] = strings.ReplaceAll(c.r.Resources[0], "'", "")
		}
		_, err := s.Acquire(t.Context(), worker("w"), c.r)
		want(t, name, err, c.code)
	}
	if _, err := s.NodeKeeper().AcquireLease(t.Context(), ReservedPrefix+"x", hold.Want{}); err != nil {
		t.Errorf("the node's own role: %v", err)
	}
	g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"renewed"}})
	if err != nil {
		t.Fatal(err)
	}
	for ttl, code := range map[time.Duration]headgate.Code{
		-1: headgate.CodeInvalidArgument, MinTTL - 1: headgate.CodeInvalidArgument, MinTTL: "", MaxTTL: "", MaxTTL + 1: headgate.CodeInvalidArgument,
	} {
		_, err := s.Renew(t.Context(), worker("w"), "", g[0].Token, ttl)
		want(t, fmt.Sprintf("renewed for %s", ttl), err, code)
	}
	for deadline, code := range map[time.Duration]headgate.Code{-1: headgate.CodeInvalidArgument, MaxDrain + 1: headgate.CodeInvalidArgument} {
		_, err := s.Revoke(t.Context(), "renewed", Revocation{Deadline: deadline})
		want(t, fmt.Sprintf("revoked within %s", deadline), err, code)
	}
	_, err = s.Revoke(t.Context(), "", Revocation{})
	want(t, "what is no resource, revoked", err, headgate.CodeInvalidArgument)
	_, err = s.Revoke(t.Context(), "never/leased", Revocation{})
	want(t, "what was never leased, revoked", err, headgate.CodeNotFound)
}

// TestCounts: what the service says that it did is what it did.
func TestCounts(t *testing.T) {
	r := newRig(t, memory(t))
	told := map[string]int64{}
	r.Follow(func(resource string, epoch int64) { told[resource] = epoch })
	expect := func(what string, granted, takeovers, renewed, late, released, revoked uint64) {
		t.Helper()
		st := r.Stats()
		got := fmt.Sprint(st.Granted.Load(), st.Takeovers.Load(), st.Renewed.Load(), st.Late.Load(), st.Released.Load(), st.Revoked.Load())
		if want := fmt.Sprint(granted, takeovers, renewed, late, released, revoked); got != want {
			t.Errorf("%s: counted %s, want %s", what, got, want)
		}
	}
	first := r.acquire("w", "a")
	expect("a grant", 1, 0, 0, 0, 0, 0)
	if told["a"] != first.Epoch {
		t.Errorf("the follower was told of %d, granted %d", told["a"], first.Epoch)
	}
	if n, err := r.Renew(t.Context(), worker("w"), "a", first.Token, 0); err != nil || n.Late || n.ExpiresIn != 10*time.Second {
		t.Errorf("%+v, %v", n, err)
	}
	expect("a renewal", 1, 0, 1, 0, 0, 0)
	r.pass(11 * time.Second)
	if n, err := r.Renew(t.Context(), worker("w"), "a", first.Token, 7*time.Second); err != nil || !n.Late || n.ExpiresIn != 7*time.Second {
		t.Errorf("%+v, %v", n, err)
	}
	expect("a late renewal", 1, 0, 2, 1, 0, 0)
	r.pass(8 * time.Second)
	second := r.acquire("v", "a")
	expect("a takeover", 2, 1, 2, 1, 0, 0)
	_, err := r.Renew(t.Context(), worker("w"), "a", first.Token, 0)
	if want(t, "superseded", err, headgate.CodeLeaseLost); !strings.Contains(err.Error(), fmt.Sprintf("was superseded by %d", second.Epoch)) {
		t.Errorf("%v does not name %d", err, second.Epoch)
	}
	if err := r.Release(t.Context(), worker("v"), "a", second.Token); err != nil {
		t.Fatal(err)
	}
	expect("a release", 2, 1, 2, 1, 1, 0)
	if told["a"] <= second.Epoch {
		t.Error("the follower was not told of the release")
	}
	third := r.acquire("w", "a")
	expect("another grant", 3, 1, 2, 1, 1, 0)
	got, err := r.Revoke(t.Context(), "a", Revocation{Terminate: true})
	if err != nil || !got.Killed || got.Epoch <= third.Epoch || told["a"] != got.Epoch {
		t.Errorf("%+v, %v, told %d", got, err, told["a"])
	}
	expect("a revocation", 3, 1, 2, 1, 1, 1)
	_, err = r.Revoke(t.Context(), "a", Revocation{Terminate: true})
	want(t, "revoked again", err, headgate.CodeNotFound)
	expect("another revocation", 3, 1, 2, 1, 1, 1)
	ask := Request{Resources: []string{"b", "c"}, RequestID: "r"}
	for range 2 {
		if _, err := r.Acquire(t.Context(), worker("w"), ask); err != nil {
			t.Fatal(err)
		}
	}
	expect("a repeated request for two", 5, 1, 2, 1, 1, 1)
}

// TestLongestHold: no renewal goes beyond it, and neither does the grant.
func TestLongestHold(t *testing.T) {
	r := newRig(t, memory(t))
	ask := func(resource string, ttl, most time.Duration) Grant {
		t.Helper()
		g, err := r.Acquire(t.Context(), worker("w"), Request{Resources: []string{resource}, TTL: ttl, MaxHold: most})
		if err != nil {
			t.Fatal(err)
		}
		return g[0]
	}
	if g := ask("short", 10*time.Second, 4*time.Second); g.ExpiresIn != 4*time.Second {
		t.Errorf("granted for %s", g.ExpiresIn)
	}
	g := ask("long", 10*time.Second, 15*time.Second)
	if g.ExpiresIn != 10*time.Second {
		t.Errorf("granted for %s", g.ExpiresIn)
	}
	renew := func(left time.Duration, code headgate.Code) {
		t.Helper()
		n, err := r.Renew(t.Context(), worker("w"), "", g.Token, 0)
		if want(t, "renew", err, code); n.ExpiresIn != left {
			t.Errorf("renewed for %s, want %s", n.ExpiresIn, left)
		}
	}
	r.pass(2 * time.Second)
	renew(10*time.Second, "")
	r.pass(6 * time.Second)
	renew(7*time.Second, "")
	r.pass(7 * time.Second)
	renew(0, headgate.CodeLeaseExpired)
}

// TestEndLeft: after a start the leases of the node's earlier life end, however
// many there are, and no others.
func TestEndLeft(t *testing.T) {
	s := service(t, memory(t))
	const many = 2*leftPage + 3
	grants := map[string]Grant{}
	for i := range many {
		resource := fmt.Sprintf("r/%03d", i)
		g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{resource}, OfNode: i%2 == 0, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		grants[resource] = g[0]
	}
	told := map[string]int64{}
	var mu sync.Mutex
	after := service(t, s.cfg.Store)
	after.Follow(func(resource string, epoch int64) {
		mu.Lock()
		defer mu.Unlock()
		told[resource] = epoch
	})
	n, err := after.EndLeft(t.Context())
	if err != nil || n != (many+1)/2 {
		t.Errorf("%d ended, %v", n, err)
	}
	for i := range many {
		resource := fmt.Sprintf("r/%03d", i)
		st, err := after.Get(t.Context(), resource)
		if err != nil || st.Held() == (i%2 == 0) {
			t.Errorf("%s: %+v, %v", resource, st, err)
		}
		if i%2 == 0 && (st.Epoch <= grants[resource].Epoch || told[resource] != st.Epoch) {
			t.Errorf("%s was granted %d, is at %d, and the follower heard %d", resource, grants[resource].Epoch, st.Epoch, told[resource])
		}
	}
	if n, err := after.EndLeft(t.Context()); err != nil || n != 0 {
		t.Errorf("again: %d, %v", n, err)
	}
	// One that another took meanwhile is left alone.
	g, err := after.Acquire(t.Context(), worker("w"), Request{Resources: []string{"r/000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := after.endLeft(t.Context(), &store.Lease{Resource: "r/000", Epoch: grants["r/000"].Epoch}); err != nil {
		t.Error(err)
	}
	if st, err := after.Get(t.Context(), "r/000"); err != nil || !st.Held() || st.Epoch != g[0].Epoch {
		t.Errorf("%+v, %v", st, err)
	}
}

// failing is a store whose operations on leases fail from the nth on, or the
// nth alone.
type failing struct {
	store.Store
	at, seen int
	once     bool
}

var errFailing = errors.New("the store failed")

func (f *failing) due() bool {
	f.seen++
	return f.at > 0 && (f.seen == f.at || !f.once && f.seen > f.at)
}

func (f *failing) wrap(tx *store.Tx) *store.Tx {
	other := *tx
	other.Leases = failingLeases{tx.Leases, f}
	return &other
}

func (f *failing) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return f.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return fn(ctx, f.wrap(tx)) })
}

func (f *failing) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return f.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error { return fn(ctx, f.wrap(tx)) })
}

type failingLeases struct {
	store.Leases
	f *failing
}

func (l failingLeases) Now(ctx context.Context) (time.Time, error) {
	if l.f.due() {
		return time.Time{}, errFailing
	}
	return l.Leases.Now(ctx)
}

func (l failingLeases) Get(ctx context.Context, resource string) (store.Lease, error) {
	if l.f.due() {
		return store.Lease{}, errFailing
	}
	return l.Leases.Get(ctx, resource)
}

func (l failingLeases) List(ctx context.Context, f store.LeaseFilter) ([]store.Lease, error) {
	if l.f.due() {
		return nil, errFailing
	}
	return l.Leases.List(ctx, f)
}

func (l failingLeases) Grant(ctx context.Context, row store.Lease) error {
	if l.f.due() {
		return errFailing
	}
	return l.Leases.Grant(ctx, row)
}

func (l failingLeases) Touch(ctx context.Context, resource string, epoch int64, expires, changed time.Time, closing bool) error {
	if l.f.due() {
		return errFailing
	}
	return l.Leases.Touch(ctx, resource, epoch, expires, changed, closing)
}

func (l failingLeases) Remember(ctx context.Context, id, asked []byte, at time.Time) error {
	if l.f.due() {
		return errFailing
	}
	return l.Leases.Remember(ctx, id, asked, at)
}

func (l failingLeases) Remembered(ctx context.Context, id []byte) ([]byte, error) {
	if l.f.due() {
		return nil, errFailing
	}
	return l.Leases.Remembered(ctx, id)
}

// TestEveryFailureOfTheStoreIsTold: whichever operation of the store fails, the
// call fails with it and changes nothing.
func TestEveryFailureOfTheStoreIsTold(t *testing.T) {
	type state struct {
		s *Service
		g Grant
	}
	calls := map[string]func(context.Context, state) error{
		"acquire": func(ctx context.Context, x state) error {
			_, err := x.s.Acquire(ctx, worker("w"), Request{Resources: []string{"new", "other"}, RequestID: "r"})
			return err
		},
		"repeat": func(ctx context.Context, x state) error {
			_, err := x.s.Acquire(ctx, worker("w"), Request{Resources: []string{"a"}, RequestID: "first", TTL: time.Minute})
			return err
		},
		"held": func(ctx context.Context, x state) error {
			_, err := x.s.Acquire(ctx, worker("v"), Request{Resources: []string{"a"}})
			if headgate.CodeOf(err) == headgate.CodeLeaseHeld {
				return nil
			}
			return err
		},
		"renew": func(ctx context.Context, x state) error {
			_, err := x.s.Renew(ctx, worker("w"), "a", x.g.Token, 0)
			return err
		},
		"release": func(ctx context.Context, x state) error { return x.s.Release(ctx, worker("w"), "a", x.g.Token) },
		"revoke": func(ctx context.Context, x state) error {
			_, err := x.s.Revoke(ctx, "a", Revocation{Terminate: true})
			return err
		},
		"verify": func(ctx context.Context, x state) error { _, _, err := x.s.Verify(ctx, x.g.Token, ""); return err },
		"get":    func(ctx context.Context, x state) error { _, err := x.s.Get(ctx, "a"); return err },
		"list":   func(ctx context.Context, x state) error { _, err := x.s.List(ctx, Filter{}); return err },
		"end left": func(ctx context.Context, x state) error {
			n, err := x.s.EndLeft(ctx)
			if err == nil && n != 1 {
				return fmt.Errorf("%d were ended", n)
			}
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n := 2; ; n++ {
					at, once := n/2, n%2 == 1
					f := &failing{Store: memory(t), once: once}
					x := state{s: service(t, f)}
					g, err := x.s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}, RequestID: "first", TTL: time.Minute})
					if err == nil {
						_, err = x.s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"left"}, OfNode: true, TTL: time.Minute})
					}
					if err != nil {
						t.Fatal(err)
					}
					x.g = g[0]
					f.at, f.seen = at, 0
					err = call(t.Context(), x)
					reached := f.seen >= at
					f.at = 0
					if reached && err == nil && once && name == "repeat" {
						continue // it asked again
					}
					if reached != (err != nil) {
						t.Errorf("operation %d failed (%t), and the call says %v", at, reached, err)
					}
					if !reached {
						if at == 1 {
							t.Error("the store was not asked")
						}
						return
					}
					if !errors.Is(err, errFailing) {
						t.Errorf("operation %d: the cause is lost: %v", at, err)
					}
					if st, err := x.s.Get(t.Context(), "a"); err != nil || !st.Held() || st.Epoch != x.g.Epoch {
						t.Errorf("operation %d: the lease is %+v, %v", at, st, err)
					}
					if _, err := x.s.Get(t.Context(), "new"); headgate.CodeOf(err) != headgate.CodeNotFound {
						t.Errorf("operation %d: something was granted: %v", at, err)
					}
				}
			})
		})
	}
}
