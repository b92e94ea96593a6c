package causal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
)

func TestRootHeader(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	got := admit(t, e, Request{Principal: desk, Type: "ticket.opened", EventID: "r", TTL: 8, Gas: 200}).Header
	if len(got.Lineage) == 0 || len(got.Lineage) > 48 {
		t.Errorf("lineage of %d bytes", len(got.Lineage))
	}
	got.Lineage = nil
	if diff := cmp.Diff(headgate.Header{RootID: "r", TTL: 8, Origin: headgate.OriginSystem}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	got = admit(t, e, Request{Principal: desk, Type: "tick", EventID: "r2", Origin: headgate.OriginTimer}).Header
	if got.Origin != headgate.OriginTimer || got.TTL != DefaultTTL {
		t.Errorf("named origin %s, default ttl %d", got.Origin, got.TTL)
	}
}

// TestDepth is T55: with D hops a chain of D events passes, one more is
// refused, for publish, join and a type with fewer hops of its own.
func TestDepth(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, 2, 3, 16, 100} {
		e := open(t, Config{Store: newMemStore()})
		ev := admit(t, e, Request{Principal: desk, Type: "t0", EventID: "0", TTL: depth})
		other := admit(t, e, Request{Principal: desk, Type: "t0", EventID: "other", TTL: 1000})
		for hop := 1; hop < depth; hop++ {
			if ev.Header.TTL != depth-hop+1 {
				t.Fatalf("hop %d: ttl %d", hop-1, ev.Header.TTL)
			}
			// Types differ along the path, and the type's own limit is higher.
			ev = admit(t, e, Request{Principal: alice, Type: fmt.Sprint("t", hop), EventID: fmt.Sprint(hop), TTL: 1000, Causes: []*Cause{cause(e, ev, alice)}})
			if ev.Header.Hop != hop {
				t.Fatalf("hop %d, want %d", ev.Header.Hop, hop)
			}
		}
		for name, causes := range map[string][]*Cause{
			"alone":  {cause(e, ev, alice)},
			"first":  {cause(e, ev, alice), cause(e, other, alice)},
			"second": {cause(e, other, alice), cause(e, ev, alice)},
		} {
			_, err := tryAdmit(e, Request{Principal: alice, Type: "more", EventID: "x", TTL: 1000, Causes: causes})
			if headgate.CodeOf(err) != headgate.CodeTTLExhausted {
				t.Errorf("depth %d, %s: %v", depth, name, err)
			}
		}
	}
}

func TestChildHeader(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	human := &headgate.Principal{Name: "ann", Kind: headgate.KindHuman, Roots: headgate.RootRight{Allowed: true}}
	r1 := admit(t, e, Request{Principal: human, Type: "a", EventID: "r1", TTL: 9})
	r2 := admit(t, e, Request{Principal: desk, Type: "b", EventID: "r2", TTL: 5})
	deep := admit(t, e, Request{Principal: alice, Type: "c", EventID: "d", Causes: []*Cause{cause(e, r2, alice)}})
	c1 := cause(e, r1, alice)
	got := admit(t, e, Request{Principal: alice, Type: "e", EventID: "j", Causes: []*Cause{c1, cause(e, deep, alice), c1, cause(e, r1, alice)}}).Header
	got.Lineage = nil
	want := headgate.Header{RootID: "r1", Causes: []string{"r1", "d"}, TTL: 3, Hop: 2, Origin: headgate.OriginHuman}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	low := admit(t, e, Request{Principal: alice, Type: "f", EventID: "k", TTL: 2, Causes: []*Cause{cause(e, r1, alice)}})
	if low.Header.TTL != 2 {
		t.Errorf("ttl %d, want the type's 2", low.Header.TTL)
	}
}

// TestUnsetLimits is T56: an empty request gets the defaults, and none of them
// is infinite.
func TestUnsetLimits(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r"})
	acct, err := e.Gas(context.Background(), root)
	if err != nil || root.Header.TTL != DefaultTTL || acct.Total != DefaultGas {
		t.Fatalf("ttl %d, gas %d, %v", root.Header.TTL, acct.Total, err)
	}
	c := cause(e, root, alice)
	for i := range DefaultBreadth {
		admit(t, e, Request{Principal: alice, Type: "b", EventID: fmt.Sprint(i), Causes: []*Cause{c}})
	}
	_, err = tryAdmit(e, Request{Principal: alice, Type: "b", EventID: "more", Causes: []*Cause{c}})
	wantCode(t, err, headgate.CodeBreadthExhausted)

	// Negative limits mean the defaults too.
	neg := admit(t, e, Request{Principal: desk, Type: "a", EventID: "n", TTL: -1, Gas: -1, Breadth: -1, Repeats: -1})
	if neg.Header.TTL != DefaultTTL {
		t.Errorf("ttl %d", neg.Header.TTL)
	}
	// Repeats cannot be switched off by a large number.
	if got := (Request{Repeats: math.MaxInt}).withDefaults().Repeats; got >= 255 {
		t.Errorf("repeats %d", got)
	}
}

func TestLoop(t *testing.T) {
	t.Parallel()
	for _, repeats := range []int{1, 2, DefaultRepeats, 9} {
		e := open(t, Config{Store: newMemStore()})
		ev := admit(t, e, Request{Principal: desk, Type: "ask", EventID: "r", TTL: 100})
		pair := []*headgate.Principal{alice, bob}
		types := []string{"ticket.updated", "ticket.commented"}
		for i := range 2*repeats + 1 {
			next, err := tryAdmit(e, Request{Principal: pair[i%2], Type: types[i%2], EventID: fmt.Sprint(i), TTL: 100, Repeats: repeats, Causes: []*Cause{cause(e, ev, pair[i%2])}})
			if i < 2*repeats {
				if err != nil {
					t.Fatalf("repeats %d, event %d: %v", repeats, i, err)
				}
				ev = next
				continue
			}
			wantCode(t, err, headgate.CodeLoop)
			const cycle = "ticket.updated by alice -> ticket.commented by bob -> ticket.updated by alice"
			if got := headgate.AsError(err).Detail; !strings.HasSuffix(got, cycle) || !strings.Contains(got, fmt.Sprint("came ", repeats, " times")) {
				t.Errorf("detail %q", got)
			}
		}
		// Another type, or another principal, may go on.
		admit(t, e, Request{Principal: alice, Type: "ticket.commented", EventID: "x", TTL: 100, Repeats: repeats, Causes: []*Cause{cause(e, ev, alice)}})
	}
}

// TestLoopThroughAnyParent: a loop that passes through the second parent is
// seen, whichever order the parents come in.
func TestLoopThroughAnyParent(t *testing.T) {
	t.Parallel()
	for _, last := range []bool{false, true} {
		e := open(t, Config{Store: newMemStore()})
		clean := admit(t, e, Request{Principal: desk, Type: "clean", EventID: "clean", TTL: 100})
		ev := admit(t, e, Request{Principal: desk, Type: "ask", EventID: "r", TTL: 100})
		for i := range DefaultRepeats + 1 {
			causes := []*Cause{cause(e, ev, alice), cause(e, clean, alice)}
			if last {
				causes[0], causes[1] = causes[1], causes[0]
			}
			next, err := tryAdmit(e, Request{Principal: alice, Type: "echo", EventID: fmt.Sprint(i), TTL: 100, Causes: causes})
			if i < DefaultRepeats {
				if err != nil {
					t.Fatal(err)
				}
				ev = next
				continue
			}
			wantCode(t, err, headgate.CodeLoop)
		}
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	human := &headgate.Principal{Name: "ann", Kind: headgate.KindHuman, Roots: headgate.RootRight{Allowed: true}}
	only := []headgate.Origin{headgate.OriginHuman}
	byHuman := admit(t, e, Request{Principal: human, Type: "pay", EventID: "h", Origins: only})
	_, err := tryAdmit(e, Request{Principal: desk, Type: "pay", EventID: "s", Origins: only})
	wantCode(t, err, headgate.CodeOriginNotAllowed)
	bySystem := admit(t, e, Request{Principal: desk, Type: "note", EventID: "s"})
	admit(t, e, Request{Principal: alice, Type: "pay", EventID: "c", Origins: only, Causes: []*Cause{cause(e, byHuman, alice)}})
	for _, causes := range [][]*Cause{
		{cause(e, bySystem, alice)},
		{cause(e, byHuman, alice), cause(e, bySystem, alice)},
		{cause(e, bySystem, alice), cause(e, byHuman, alice)},
	} {
		_, err := tryAdmit(e, Request{Principal: alice, Type: "pay", EventID: "c", Origins: only, Causes: causes})
		wantCode(t, err, headgate.CodeOriginNotAllowed)
	}
}

// TestRootRight is T48: who drops the token to get a fresh root needs the
// right, and then keeps to the rate.
func TestRootRight(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := open(t, Config{Store: newMemStore(), Now: clk.now})
	for name, p := range map[string]*headgate.Principal{
		"nil": nil, "zero": {}, "agent": alice,
		"disabled":       {Name: "d", Disabled: true, Roots: headgate.RootRight{Allowed: true}},
		"rate, no right": {Name: "d", Roots: headgate.RootRight{Rate: 1e9}},
	} {
		_, err := tryAdmit(e, Request{Principal: p, Type: "a", EventID: "r"})
		if headgate.CodeOf(err) != headgate.CodeRootNotAllowed {
			t.Errorf("%s: %v", name, err)
		}
	}
	burst := func(p *headgate.Principal) int {
		for n := 0; ; n++ {
			_, err := tryAdmit(e, Request{Principal: p, Type: "a", EventID: "r"})
			if err == nil && n < 1e6 {
				continue
			}
			wantCode(t, err, headgate.CodeRateLimited)
			if wait := headgate.AsError(err).RetryAfter; wait <= 0 || wait > time.Minute {
				t.Errorf("retry after %s", wait)
			}
			return n
		}
	}
	two := &headgate.Principal{Name: "two", Roots: headgate.RootRight{Allowed: true, Rate: 2, Burst: 5}}
	if got := burst(two); got != 5 {
		t.Errorf("burst of %d, want 5", got)
	}
	clk.advance(time.Second)
	if got := burst(two); got != 2 {
		t.Errorf("%d roots after a second, want 2", got)
	}
	raised := *two
	raised.Roots.Rate = 10
	burst(&raised)
	clk.advance(time.Second)
	if got := burst(&raised); got != 5 { // the burst still bounds it
		t.Errorf("%d roots a second after the raise, want 5", got)
	}
	if got := burst(&headgate.Principal{Name: "def", Roots: headgate.RootRight{Allowed: true}}); got != 200 {
		t.Errorf("default burst %d, want 200", got)
	}
	if got := burst(&headgate.Principal{Name: "nan", Roots: headgate.RootRight{Allowed: true, Rate: math.NaN()}}); got != 200 {
		t.Errorf("burst without a rate %d, want 200", got)
	}
}

// TestBreadth: children count per delivery, across its attempts; what is
// released gives its place back.
func TestBreadth(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := open(t, Config{Store: newMemStore(), Now: clk.now, TokenLife: time.Minute})
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r"})
	d := delivered(root, alice)
	request := func(causes ...*Cause) Request {
		return Request{Principal: alice, Type: "b", EventID: "c", Breadth: 2, Causes: causes}
	}
	reserve := func() *Reservation {
		t.Helper()
		r, err := e.Reserve(context.Background(), request(e.CauseOf(d)))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	reserve().Release()
	one, two := reserve(), reserve()
	_, err := e.Reserve(context.Background(), request(e.CauseOf(d)))
	wantCode(t, err, headgate.CodeBreadthExhausted)
	one.Release()
	one.Release() // ignored
	one.Commit()  // ignored
	two.Commit()
	two.Release() // ignored
	reserve().Commit()
	d.Attempt = 2 // a retry is no fresh allowance
	_, err = e.Reserve(context.Background(), request(e.CauseOf(d)))
	wantCode(t, err, headgate.CodeBreadthExhausted)
	clk.advance(59 * time.Second)
	_, err = e.Reserve(context.Background(), request(e.CauseOf(d)))
	wantCode(t, err, headgate.CodeBreadthExhausted)

	// A join is a child of each of its deliveries, and one refusal frees the
	// others.
	other := e.CauseOf(delivered(root, alice))
	for range 5 {
		_, err = e.Reserve(context.Background(), request(other, e.CauseOf(d)))
		wantCode(t, err, headgate.CodeBreadthExhausted)
	}
	admit(t, e, request(other))
	admit(t, e, request(other))
	_, err = e.Reserve(context.Background(), request(other))
	wantCode(t, err, headgate.CodeBreadthExhausted)

	// The same delivery to another subscription, or its neighbour, is another.
	d.Subscription = "else"
	admit(t, e, request(e.CauseOf(d)))
}

func TestBreadthForgets(t *testing.T) {
	t.Parallel()
	clk := newClock()
	b := newBreadthTable(time.Minute)
	b.room = 10
	key := func(i int) deliveryKey { return deliveryKey{a: breadthShards, b: uint64(i)} }
	for i := range 1000 {
		if !b.take(key(i), 1, clk.now()) {
			t.Fatalf("delivery %d refused", i)
		}
		if b.take(key(i), 1, clk.now()) {
			t.Fatalf("delivery %d took two", i)
		}
	}
	if s := &b.shards[0]; len(s.young)+len(s.old) > 2*b.room {
		t.Errorf("%d counts kept, want at most %d", len(s.young)+len(s.old), 2*b.room)
	}
	b = newBreadthTable(time.Minute)
	b.take(key(1), 1, clk.now())
	clk.advance(time.Minute)
	if b.take(key(1), 1, clk.now()) {
		t.Error("count gone after one life")
	}
	clk.advance(time.Minute)
	if !b.take(key(1), 1, clk.now()) {
		t.Error("count still there after two lives")
	}
}

func TestMalformedCauses(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r"})
	bare := *root
	bare.Header.Lineage = nil
	cut := *root
	cut.Header.Lineage = root.Header.Lineage[:len(root.Header.Lineage)-1]
	spent := *root
	spent.Header.TTL = 0
	for name, tt := range map[string]struct {
		causes []*Cause
		want   headgate.Code
	}{
		"nil":        {[]*Cause{nil}, headgate.CodeTokenInvalid},
		"zero":       {[]*Cause{{}}, headgate.CodeTokenInvalid},
		"no lineage": {[]*Cause{cause(e, &bare, alice)}, headgate.CodeTokenInvalid},
		"cut":        {[]*Cause{cause(e, root, alice), cause(e, &cut, alice)}, headgate.CodeTokenInvalid},
		"ttl 0":      {[]*Cause{cause(e, &spent, alice)}, headgate.CodeTTLExhausted},
		"too many":   {make([]*Cause, maxCauses+1), headgate.CodeInvalidArgument},
	} {
		_, err := tryAdmit(e, Request{Principal: alice, Type: "b", EventID: "c", Causes: tt.causes})
		if headgate.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	// A token of such an event does not verify either.
	if _, err := e.Verify(e.Mint(delivered(&bare, alice)), "alice"); headgate.CodeOf(err) != headgate.CodeTokenInvalid {
		t.Errorf("token without lineage: %v", err)
	}
}

func TestRootGrowsTooOld(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := open(t, Config{Store: newMemStore(), Now: clk.now, RootLife: time.Hour})
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r"})
	clk.advance(time.Hour)
	ev := admit(t, e, Request{Principal: alice, Type: "b", EventID: "c", Causes: []*Cause{cause(e, root, alice)}})
	clk.advance(time.Second)
	// The age is the root's, not the direct cause's.
	_, err := tryAdmit(e, Request{Principal: alice, Type: "d", EventID: "d", Causes: []*Cause{cause(e, ev, alice)}})
	wantCode(t, err, headgate.CodeGasExhausted)
}

func TestHostileNamesAreQuoted(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r\n\x1b[31m" + strings.Repeat("x", 1000), Gas: 1})
	_, err := tryAdmit(e, Request{Principal: alice, Type: "b", EventID: "c", Causes: []*Cause{cause(e, root, alice)}})
	wantCode(t, err, headgate.CodeGasExhausted)
	if d := headgate.AsError(err).Detail; strings.ContainsAny(d, "\n\x1b") || len(d) > 300 {
		t.Errorf("detail %q", d)
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	s := newMemStore()
	e := open(t, Config{Store: s})
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r"})
	down := errors.New("disk on fire")
	s.before = func() error { return down }
	c := cause(e, root, alice)
	for i := range GrantSize - 1 { // the grant needs no store
		admit(t, e, Request{Principal: alice, Type: "b", EventID: fmt.Sprint(i), Causes: []*Cause{c}})
	}
	_, err := tryAdmit(e, Request{Principal: alice, Type: "b", EventID: "x", Causes: []*Cause{c}})
	wantCode(t, err, headgate.CodeUnavailable)
	if !errors.Is(err, down) || strings.Contains(headgate.AsError(err).Detail, "fire") {
		t.Errorf("cause kept for logs and hidden from clients: %v", err)
	}
	s.before = nil
	admit(t, e, Request{Principal: alice, Type: "b", EventID: "x", Causes: []*Cause{c}})
}

// TestNegativeLivesAreRefused: a sum of retentions that overflowed is no life,
// and not the default either.
func TestNegativeLivesAreRefused(t *testing.T) {
	for _, cfg := range []Config{{RootLife: -1}, {TokenLife: -1}, {KeyLife: -1}} {
		cfg.Store = newMemStore()
		if _, err := Open(t.Context(), cfg); headgate.CodeOf(err) != headgate.CodeInvalidConfig {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
