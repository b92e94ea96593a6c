package causal

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate"
)

func TestTokenCarriesTheCause(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	const uuid = "019ae4d7-1b1e-7c70-8f0c-0123456789ab"
	for _, ids := range [][2]string{
		{"r", "r"},
		{"root", "child"},
		{uuid, "019ae4d7-1b1e-7c70-8f0c-ffffffffffff"},
		{strings.ToUpper(uuid), uuid},
		{"019ae4d7-1b1e-7c70-8f0c-0123456789aG", "019ae4d7-1b1e-7c70-8f0c+0123456789ab"},
		{strings.Repeat("x", 1000), "snow ☃, 100%"},
	} {
		ev := admit(t, e, Request{Principal: desk, Type: "ticket.opened", EventID: ids[0]})
		if ids[1] != ids[0] {
			ev = admit(t, e, Request{Principal: alice, Type: "ticket.triaged", EventID: ids[1], Causes: []*Cause{cause(e, ev, alice)}})
		}
		d := delivered(ev, bob)
		d.Attempt = 3
		got, err := e.Verify(e.Mint(d), "bob")
		if err != nil {
			t.Fatalf("%q: %v", ids, err)
		}
		want := e.CauseOf(d)
		want.Event = nil
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Cause{}, lineage{}, path{}, accountKey{}), cmpopts.EquateApproxTime(time.Second)); diff != "" {
			t.Errorf("%q: -want +got\n%s", ids, diff)
		}
	}
}

// TestTokenAltered is T49's forged half: no truncation, extension or flipped
// bit verifies, in the text or in the bytes below it.
func TestTokenAltered(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r"})
	token := e.Mint(delivered(root, alice))
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what, altered string) {
		t.Helper()
		if altered == token {
			return
		}
		if _, err := e.Verify(altered, "alice"); headgate.CodeOf(err) != headgate.CodeTokenInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range len(token) {
		try("truncated text", token[:n])
	}
	for n := range len(raw) {
		try("truncated bytes", base64.RawURLEncoding.EncodeToString(raw[:n]))
		for bit := range 8 {
			b := bytes.Clone(raw)
			b[n] ^= 1 << bit
			try("flipped bit", base64.RawURLEncoding.EncodeToString(b))
		}
	}
	for i := range len(token) {
		for c := range 256 {
			try("changed character", token[:i]+string([]byte{byte(c)})+token[i+1:])
		}
	}
	for _, tail := range []string{"A", "=", "==", "\n", "\r\n", " ", "AAAA", token} {
		try("extended", token+tail)
		try("prefixed", tail+token)
		try("split", token[:40]+tail+token[40:])
	}
	try("standard alphabet", base64.RawStdEncoding.EncodeToString(raw)+"+")
	try("padded", base64.URLEncoding.EncodeToString(append(bytes.Clone(raw), 0)))
	try("empty", "")
	try("huge", strings.Repeat("A", 1<<20))
}

// TestTokenForeignExpiredSuperseded is T49's genuine half, with the order of
// the checks.
func TestTokenForeignExpiredSuperseded(t *testing.T) {
	t.Parallel()
	clk, claims := newClock(), &takenOver{}
	e := open(t, Config{Store: newMemStore(), Now: clk.now, TokenLife: time.Minute})
	e.SetClaims(claims)
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r"})
	d := delivered(root, alice)
	token := e.Mint(d)
	verify := func(who string) headgate.Code {
		_, err := e.Verify(token, who)
		return headgate.CodeOf(err)
	}
	if got := verify("alice"); got != "" {
		t.Fatalf("fresh: %s", got)
	}
	if claims.asked != (claimAsk{d.Subscription, d.Stream, d.Position, d.Attempt}) {
		t.Errorf("asked about %+v", claims.asked)
	}
	claims.yes = true
	clk.advance(time.Minute - time.Millisecond)
	for _, step := range []struct {
		who  string
		want headgate.Code
	}{{"alice", headgate.CodeTokenSuperseded}, {"bob", headgate.CodeTokenForeign}, {"", headgate.CodeTokenForeign}, {"alice ", headgate.CodeTokenForeign}} {
		if got := verify(step.who); got != step.want {
			t.Errorf("%q: %s, want %s", step.who, got, step.want)
		}
	}
	clk.advance(time.Millisecond)
	if got := verify("alice"); got != headgate.CodeTokenExpired {
		t.Errorf("at its expiry: %s", got)
	}
	if got := verify("bob"); got != headgate.CodeTokenForeign {
		t.Errorf("foreign and expired: %s", got)
	}
	e.SetClaims(nil)
	clk.advance(-time.Second)
	if got := verify("alice"); got != "" {
		t.Errorf("without claims: %s", got)
	}
}

type claimAsk struct {
	subscription, stream string
	pos                  headgate.Position
	attempt              int
}

type takenOver struct {
	yes   bool
	asked claimAsk
}

func (c *takenOver) Superseded(subscription, stream string, pos headgate.Position, attempt int) bool {
	c.asked = claimAsk{subscription, stream, pos, attempt}
	return c.yes
}

// TestTokenOfAnotherDeployment: same claims, other keys.
func TestTokenOfAnotherDeployment(t *testing.T) {
	t.Parallel()
	ours, theirs := open(t, Config{Store: newMemStore()}), open(t, Config{Store: newMemStore()})
	root := admit(t, theirs, Request{Principal: desk, Type: "a", EventID: "r"})
	_, err := ours.Verify(theirs.Mint(delivered(root, alice)), "alice")
	wantCode(t, err, headgate.CodeTokenInvalid)
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	ctx, clk, s := context.Background(), newClock(), newMemStore()
	cfg := Config{Store: s, Now: clk.now, TokenLife: time.Hour}
	one, two := open(t, cfg), open(t, cfg)
	root := admit(t, one, Request{Principal: desk, Type: "a", EventID: "r"})
	mint := func(e *Engine) string { return e.Mint(delivered(root, alice)) }
	mustVerify := func(e *Engine, token string) {
		t.Helper()
		if _, err := e.Verify(token, "alice"); err != nil {
			t.Fatalf("verify: %v", err)
		}
	}
	old := mint(one)
	mustVerify(two, old) // both nodes opened the same key

	clk.advance(10 * time.Minute)
	if err := one.Rotate(ctx); err != nil {
		t.Fatal(err)
	}
	if keyHex(mint(one)) != keyHex(old) {
		t.Fatal("a new key signed before other nodes could know it")
	}
	if err := two.Rotate(ctx); err != nil { // at the same moment: no second key
		t.Fatal(err)
	}
	if n := len(s.settings); n != 2 {
		t.Fatalf("%d keys after two rotations at once, want 2", n)
	}
	clk.advance(activateAfter)
	fresh := mint(one)
	if keyHex(fresh) == keyHex(old) {
		t.Fatal("the new key does not sign")
	}
	mustVerify(two, fresh)
	mustVerify(one, old)

	// The last token under the old key lives until an hour after the new one
	// began to sign. For a week after that it is told from a forged one.
	clk.advance(time.Hour + clockMargin)
	if _, err := one.Verify(old, "alice"); headgate.CodeOf(err) != headgate.CodeTokenExpired {
		t.Fatalf("expired token of a retired key: %v", err)
	}
	clk.advance(keyMemory)
	if err := one.Rotate(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(s.settings); n != 3 {
		t.Fatalf("%d keys within a key's memory, want 3", n)
	}
	clk.advance(time.Second)
	if err := one.Rotate(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(s.settings); n != 2 {
		t.Fatalf("%d keys after it, want 2", n)
	}
	if _, err := one.Verify(old, "alice"); headgate.CodeOf(err) != headgate.CodeTokenInvalid {
		t.Fatalf("token of a deleted key: %v", err)
	}
	mustVerify(one, mint(one))
	reopened := open(t, cfg)
	mustVerify(reopened, mint(one))
}

// TestStolenOldKey: who got hold of a key after its time can make no token that
// is still good.
func TestStolenOldKey(t *testing.T) {
	t.Parallel()
	clk, s := newClock(), newMemStore()
	e := open(t, Config{Store: s, Now: clk.now})
	root := admit(t, e, Request{Principal: desk, Type: "a", EventID: "r"})
	if err := e.Rotate(context.Background()); err != nil { // too soon: does nothing
		t.Fatal(err)
	}
	clk.advance(time.Hour)
	if err := e.Rotate(context.Background()); err != nil {
		t.Fatal(err)
	}
	clk.advance(2 * time.Hour)
	thief := open(t, Config{Store: s, Now: clk.now})
	thief.ring.Store(&ring{keys: thief.ring.Load().keys[:1]})
	_, err := e.Verify(thief.Mint(delivered(root, alice)), "alice")
	wantCode(t, err, headgate.CodeTokenInvalid)
}

func keyHex(token string) string {
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range raw[1:5] {
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

func TestDamagedKeyRefusesToOpen(t *testing.T) {
	t.Parallel()
	s := newMemStore()
	open(t, Config{Store: s})
	for k, v := range s.settings {
		s.settings[k] = v[:len(v)-1]
	}
	_, err := Open(context.Background(), Config{Store: s})
	wantCode(t, err, headgate.CodeInternal)
}

// TestTokenSize is T60: with ids and names of usual length a token stays below
// 512 bytes however deep the tree and however many parents, and the lineage has
// a constant bound.
func TestTokenSize(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Store: newMemStore()})
	name := func(s string, i int) string {
		return s + strings.Repeat("x", 20) + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	const uuid = "019ae4d7-1b1e-7c70-8f0c-0123456789a"
	ev := admit(t, e, Request{Principal: desk, Type: "t", EventID: uuid + "0", TTL: 200, Gas: maxGas})
	longest, lineageMost := 0, 0
	for i := range 90 {
		who := &headgate.Principal{Name: name("p", i)}
		d := Delivered{
			Event: ev, Stream: name("s", 0), Position: headgate.Position{Partition: 100, Offset: 1<<40 + uint64(i)},
			Subscription: name("sub", 0)[:24], Principal: who.Name, Attempt: 100,
		}
		token := e.Mint(d)
		if i <= DefaultTTL {
			longest = max(longest, len(token))
		}
		lineageMost = max(lineageMost, len(ev.Header.Lineage))
		c, err := e.Verify(token, who.Name)
		if err != nil {
			t.Fatal(err)
		}
		ev = admit(t, e, Request{Principal: who, Type: name("t", i), EventID: uuid + "1", Causes: []*Cause{c}, TTL: 200})
		if len(token) > 512 {
			t.Errorf("hop %d: token of %d bytes", i, len(token))
		}
	}
	if lineageMost > 221 {
		t.Errorf("lineage of %d bytes, want at most 221", lineageMost)
	}
	t.Logf("longest token within the default TTL: %d bytes; longest lineage %d bytes", longest, lineageMost)
}

func FuzzVerify(f *testing.F) {
	clk := newClock()
	e := open(f, Config{Store: newMemStore(), Now: clk.now})
	root := admit(f, e, Request{Principal: desk, Type: "a", EventID: "r"})
	token := e.Mint(delivered(root, alice))
	f.Add(token, uint16(0), byte(0))
	f.Add(token[:len(token)-1], uint16(3), byte(1))
	f.Add(token+"\n", uint16(9), byte(0x80))
	f.Add("", uint16(0), byte(0))
	f.Fuzz(func(t *testing.T, text string, at uint16, flip byte) {
		if c, err := e.Verify(text, "alice"); (err == nil) != (text == token) {
			t.Fatalf("Verify(%q) = %+v, %v", text, c, err)
		}
		// The same with a damaged copy of the bytes of a valid one.
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		raw[int(at)%len(raw)] ^= flip
		if _, err := e.Verify(base64.RawURLEncoding.EncodeToString(raw), "alice"); (err == nil) != (flip == 0) {
			t.Fatalf("byte %d xor %x: %v", int(at)%len(raw), flip, err)
		}
		// What passed the MAC is still read with care.
		parseBody([]byte(text))
	})
}

// TestTokensAreCheap: a token costs its own text, and a verified cause its
// names. These are part of every delivery and publish.
func TestTokensAreCheap(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget at random")
	}
	e := open(t, Config{Store: newMemStore()})
	ev := admit(t, e, Request{Principal: desk, Type: "a", EventID: "019ae4d7-1b1e-7c70-8f0c-0123456789ab"})
	d := delivered(ev, alice)
	token := e.Mint(d)
	if n := testing.AllocsPerRun(1000, func() { e.Mint(d) }); n > 1.5 {
		t.Errorf("Mint allocates %v times, want 1", n)
	}
	verify := func() {
		if _, err := e.Verify(token, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(1000, verify); n > 6.5 {
		t.Errorf("Verify allocates %v times, want at most 6", n)
	}
}

func BenchmarkMint(b *testing.B) {
	e := open(b, Config{Store: newMemStore()})
	ev := admit(b, e, Request{Principal: desk, Type: "a", EventID: "019ae4d7-1b1e-7c70-8f0c-0123456789ab"})
	d := delivered(ev, alice)
	b.ReportAllocs()
	for b.Loop() {
		e.Mint(d)
	}
}

func BenchmarkVerify(b *testing.B) {
	e := open(b, Config{Store: newMemStore()})
	ev := admit(b, e, Request{Principal: desk, Type: "a", EventID: "019ae4d7-1b1e-7c70-8f0c-0123456789ab"})
	token := e.Mint(delivered(ev, alice))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Verify(token, "alice"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReserveRoot(b *testing.B) {
	p := &headgate.Principal{Name: "bulk", Roots: headgate.RootRight{Allowed: true, Rate: 1e9, Burst: 1e9}}
	e := open(b, Config{Store: newMemStore()})
	b.ReportAllocs()
	for b.Loop() {
		r, err := e.Reserve(context.Background(), Request{Principal: p, Type: "a", EventID: "r"})
		if err != nil {
			b.Fatal(err)
		}
		r.Commit()
	}
}

func BenchmarkReserveChild(b *testing.B) {
	e := open(b, Config{Store: newMemStore()})
	root := admit(b, e, Request{Principal: desk, Type: "a", EventID: "r", Gas: maxGas})
	c := cause(e, root, alice)
	b.ReportAllocs()
	for b.Loop() {
		r, err := e.Reserve(context.Background(), Request{Principal: alice, Type: "b", EventID: "c", Causes: []*Cause{c}, Breadth: 1 << 30})
		if err != nil {
			b.Fatal(err)
		}
		r.Commit()
	}
}

// BenchmarkEmitters reserves from many goroutines, under one root and under
// one root each, debits included.
func BenchmarkEmitters(b *testing.B) {
	for _, shared := range []bool{true, false} {
		for _, emitters := range []int{1, 8, 64} {
			name := "own-roots"
			if shared {
				name = "one-root"
			}
			b.Run(fmt.Sprint(name, "/", emitters), func(b *testing.B) {
				e := open(b, Config{Store: newMemStore()})
				common := admit(b, e, Request{Principal: desk, Type: "a", EventID: "r", Gas: maxGas})
				var n atomic.Int64
				b.SetParallelism(max(1, emitters/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(pb *testing.PB) {
					root := common
					if !shared {
						root = admit(b, e, Request{Principal: desk, Type: "a", EventID: fmt.Sprint("r", n.Add(1)), Gas: maxGas})
					}
					c := cause(e, root, alice)
					for pb.Next() {
						r, err := e.Reserve(context.Background(), Request{Principal: alice, Type: "b", EventID: "c", Causes: []*Cause{c}, Breadth: 1 << 30})
						if err != nil {
							b.Error(err)
							return
						}
						r.Commit()
					}
				})
			})
		}
	}
}
