package lease

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// signedBy is a token of the fence, signed by a key of the service.
func signedBy(t *testing.T, s *Service, change func(*Fence)) string {
	t.Helper()
	r := s.ring.Load()
	f := Fence{
		Resource: "a", Epoch: 1, Nonce: make([]byte, nonceSize), Holder: "w", Audience: []string{OwnAudience}, Issuer: r.issuer, KeyID: r.keys[0].id,
	}
	change(&f)
	token, err := sign(&f, r.keys[0].private)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestReadChecksTheSignature: a node reads what one of its keys signed under its
// own name, and nothing else.
func TestReadChecksTheSignature(t *testing.T) {
	s := service(t, memory(t))
	good := signedBy(t, s, func(*Fence) {})
	if f, err := s.Read(t.Context(), good, ""); err != nil || f.String() != "a@1" {
		t.Fatalf("%+v, %v", f, err)
	}
	dot := strings.LastIndexByte(good, '.')
	other := signedBy(t, s, func(f *Fence) { f.Holder = "v" })
	r := s.ring.Load()
	foreign, err := sign(&Fence{
		Resource: "a", Epoch: 1, Nonce: make([]byte, nonceSize), Holder: "w", Audience: []string{OwnAudience}, Issuer: r.issuer, KeyID: r.keys[0].id,
	}, testKey())
	if err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]string{
		"no signature":               good[:dot+1],
		"no dot":                     good[:dot],
		"a signature of nothing":     good[:dot+1] + encoding.EncodeToString(make([]byte, ed25519.SignatureSize)),
		"another token's":            good[:dot] + other[strings.LastIndexByte(other, '.'):],
		"another key's":              foreign,
		"another issuer":             signedBy(t, s, func(f *Fence) { f.Issuer = "headgate-0" }),
		"no issuer":                  signedBy(t, s, func(f *Fence) { f.Issuer = "" }),
		"a key that nobody has":      signedBy(t, s, func(f *Fence) { f.KeyID = "00ff00ff" }),
		"a short nonce":              signedBy(t, s, func(f *Fence) { f.Nonce = f.Nonce[1:] }),
		"a long nonce":               signedBy(t, s, func(f *Fence) { f.Nonce = append(f.Nonce, 1) }),
		"no prefix":                  good[len(tokenPrefix):],
		"another prefix":             "hgl2." + good[len(tokenPrefix):],
		"the same target twice":      signedBy(t, s, func(f *Fence) { f.Audience = []string{OwnAudience, OwnAudience} }),
		"too many targets":           signedBy(t, s, func(f *Fence) { f.Audience = []string{"1", "2", "3", "4", "5", "6", "7", "8", OwnAudience} }),
		"longer than a token may be": signedBy(t, s, func(f *Fence) { f.Holder = strings.Repeat("w", MaxToken) }),
	} {
		_, err := s.Read(t.Context(), token, "")
		want(t, what, err, headgate.CodeFenceInvalid)
	}
	_, err = s.Read(t.Context(), strings.Repeat("a", MaxToken+1), "")
	if err == nil || !strings.Contains(err.Error(), "longer than any token") {
		t.Errorf("a long text: %v", err)
	}
}

// TestVerifierWithAKeyThatIsNone: a key of the wrong size verifies nothing.
func TestVerifierWithAKeyThatIsNone(t *testing.T) {
	f := sample()
	token, err := sign(&f, testKey())
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, ed25519.PublicKeySize - 1, ed25519.PublicKeySize + 1} {
		v := Verifier{Keys: map[string]ed25519.PublicKey{f.KeyID: make([]byte, size)}, Audience: "crm"}
		_, err := v.Verify(token)
		want(t, "a key that is none", err, headgate.CodeFenceInvalid)
	}
}

// TestTargetNames: every byte, alone and beside a letter.
func TestTargetNames(t *testing.T) {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-"
	for c := range 256 {
		is := strings.IndexByte(allowed, byte(c)) >= 0
		for _, name := range []string{string([]byte{byte(c)}), string([]byte{'a', byte(c)}), string([]byte{byte(c), 'a'})} {
			if ValidTarget(name) != is {
				t.Errorf("%q: %v", name, !is)
			}
		}
	}
	if ValidTarget("") || !ValidTarget(strings.Repeat("a", 64)) || ValidTarget(strings.Repeat("a", 65)) {
		t.Error("the length of a target's name is not that of its documentation")
	}
}

// TestAttribute: the order of the fences and what is in their names change
// nothing.
func TestAttribute(t *testing.T) {
	a, b := &Fence{Resource: "x,y%", Epoch: 7}, &Fence{Resource: "b", Epoch: 8}
	for _, fences := range [][]*Fence{{a, b}, {b, a}, {a, b, a}} {
		if got := Attribute(fences); got != "b@8,x%2Cy%25@7" {
			t.Errorf("%v: %q", fences, got)
		}
	}
}

// TestIssuer: a store has one name and, at first, one key, whoever opens it.
func TestIssuer(t *testing.T) {
	st := memory(t)
	one, two, other := service(t, st), service(t, st), service(t, memory(t))
	name, keys := one.Keys()
	again, sameKeys := two.Keys()
	another, _ := other.Keys()
	if !strings.HasPrefix(name, "headgate-") || len(name) != len("headgate-")+16 || again != name || another == name {
		t.Errorf("the names are %q, %q and %q", name, again, another)
	}
	if len(keys) != 1 || len(sameKeys) != 1 || keys[0].ID != sameKeys[0].ID {
		t.Errorf("the keys are %v and %v", keys, sameKeys)
	}
	if err := other.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if is, keys := other.Keys(); is != another || len(keys) != 2 {
		t.Errorf("after a rotation: %q, %d keys", is, len(keys))
	}
}

// TestRotation: a key signs for thirty days; the latest four verify, in the order
// in which they were made, also by a clock that goes back.
func TestRotation(t *testing.T) {
	r := newRig(t, memory(t))
	ids := func() (all []string) {
		_, keys := r.Keys()
		for i, k := range keys {
			all = append(all, k.ID)
			if i > 0 && !k.Created.After(keys[i-1].Created) {
				t.Errorf("key %d is of %s, the one before of %s", i, k.Created, keys[i-1].Created)
			}
		}
		return all
	}
	rotate := func(force bool) []string {
		t.Helper()
		if err := r.Rotate(t.Context(), force); err != nil {
			t.Fatal(err)
		}
		return ids()
	}
	first := ids()
	r.pass(rotateEvery - time.Second)
	if got := rotate(false); !slices.Equal(got, first) {
		t.Errorf("a second before its time: %v", got)
	}
	r.pass(time.Second)
	two := rotate(false)
	if len(two) != 2 || two[0] != first[0] {
		t.Errorf("after thirty days: %v", two)
	}
	if got := rotate(false); !slices.Equal(got, two) {
		t.Errorf("at once again: %v", got)
	}
	r.pass(-365 * 24 * time.Hour)
	all := two
	for range 4 {
		got := rotate(true)
		if n := min(len(all)+1, keyMemory); len(got) != n || !slices.Equal(got[:n-1], all[len(all)-n+1:]) {
			t.Errorf("after %v come %v", all, got)
		}
		all = got
	}
}

// TestKeysOfARestoredStore: a store that was restored to before its first key has
// one again, and a name, without a restart.
func TestKeysOfARestoredStore(t *testing.T) {
	st := memory(t)
	s := service(t, st)
	before, _ := s.Keys()
	empty := func() {
		t.Helper()
		err := st.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			all, err := tx.Settings.List(ctx, "lease/")
			for name := range all {
				err = errors.Join(err, tx.Settings.Delete(ctx, name))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, force := range []bool{false, true} {
		empty()
		if err := s.refreshKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, keys := s.Keys(); len(keys) == 0 {
			t.Fatal("a store without keys took those of the node away")
		}
		if err := s.Rotate(t.Context(), force); err != nil {
			t.Fatal(err)
		}
		name, keys := s.Keys()
		if len(keys) != 1 || name == before || !strings.HasPrefix(name, "headgate-") {
			t.Errorf("%q, %d keys", name, len(keys))
		}
		g, err := s.Acquire(t.Context(), worker("w"), Request{Resources: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := service(t, st).Verify(t.Context(), g[0].Token, ""); err != nil {
			t.Errorf("at another node: %v", err)
		}
		if err := s.Release(t.Context(), worker("w"), "a", g[0].Token); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnknownKeysAreLookedForSeldom: anybody can make up key ids, and each would
// cost a look at the store.
func TestUnknownKeysAreLookedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &counting{Store: memory(t)}
		s := service(t, st)
		forged := signedBy(t, s, func(f *Fence) { f.KeyID = "00ff00ff" })
		good := signedBy(t, s, func(*Fence) {})
		read := func(token string, looks int) {
			t.Helper()
			st.views = 0
			for range 100 {
				_, _ = s.Read(t.Context(), token, "")
			}
			if st.views != looks {
				t.Errorf("%d looks at the store, want %d", st.views, looks)
			}
		}
		read(good, 0)
		read(forged, 1)
		time.Sleep(refreshEvery - time.Nanosecond)
		read(forged, 0)
		time.Sleep(time.Nanosecond)
		read(forged, 1)
	})
}

// counting counts the looks at a store.
type counting struct {
	store.Store
	views int
}

func (c *counting) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	c.views++
	return c.Store.View(ctx, fn)
}

// TestDamagedKeys: a node does not start with keys that it cannot read, and goes
// on with those that it has.
func TestDamagedKeys(t *testing.T) {
	st := memory(t)
	s := service(t, st)
	_, keys := s.Keys()
	name := keyPrefix + keys[0].ID
	var whole []byte
	put := func(v []byte) {
		t.Helper()
		err := st.Update(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
			if whole == nil {
				whole, err = tx.Settings.Get(ctx, name)
				v = bytes.Clone(whole)
				v[0]++
			}
			return errors.Join(err, tx.Settings.Put(ctx, name, v))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string) {
		t.Helper()
		_, err := Open(t.Context(), Config{Store: st})
		want(t, what+": open", err, headgate.CodeInternal)
		want(t, what+": refresh", s.refreshKeys(t.Context()), headgate.CodeInternal)
		want(t, what+": rotate", s.Rotate(t.Context(), true), headgate.CodeInternal)
		if _, keys := s.Keys(); len(keys) != 1 {
			t.Errorf("%s: %d keys are left", what, len(keys))
		}
	}
	put(nil)
	refused("another version")
	put(whole[:keySize-1])
	refused("cut off")
	put(append(bytes.Clone(whole), 0))
	refused("too long")
	put(whole)
	if _, err := Open(t.Context(), Config{Store: st}); err != nil {
		t.Error(err)
	}
}

// noSettings is a store whose settings fail from the nth operation on.
type noSettings struct {
	store.Store
	at, seen int
}

type failingSettings struct {
	store.Settings
	f *noSettings
}

func (f *noSettings) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return f.Store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		other := *tx
		other.Settings = failingSettings{tx.Settings, f}
		return fn(ctx, &other)
	})
}

func (f *noSettings) due() error {
	if f.seen++; f.seen >= f.at {
		return errFailing
	}
	return nil
}

func (s failingSettings) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.f.due(); err != nil {
		return nil, err
	}
	return s.Settings.Get(ctx, key)
}

func (s failingSettings) List(ctx context.Context, prefix string) (map[string][]byte, error) {
	if err := s.f.due(); err != nil {
		return nil, err
	}
	return s.Settings.List(ctx, prefix)
}

func (s failingSettings) Put(ctx context.Context, key string, value []byte) error {
	if err := s.f.due(); err != nil {
		return err
	}
	return s.Settings.Put(ctx, key, value)
}

func (s failingSettings) Delete(ctx context.Context, key string) error {
	if err := s.f.due(); err != nil {
		return err
	}
	return s.Settings.Delete(ctx, key)
}

// TestKeysOfAFailingStore: whichever operation fails, no key is half made, and
// the node keeps those that it has.
func TestKeysOfAFailingStore(t *testing.T) {
	for _, c := range []struct {
		what   string
		before int // keys that are there
		steps  int // operations
		do     func(t *testing.T, st store.Store, s *Service) error
	}{
		{"open", 0, 6, func(t *testing.T, st store.Store, _ *Service) error {
			_, err := Open(t.Context(), Config{Store: st})
			return err
		}},
		{"rotate", keyMemory, 6, func(t *testing.T, _ store.Store, s *Service) error { return s.Rotate(t.Context(), true) }},
	} {
		for at := 1; at <= c.steps+1; at++ {
			st := &noSettings{Store: memory(t), at: 1 << 30}
			var s *Service
			if c.before > 0 {
				s = service(t, st)
				for range c.before - 1 {
					if err := s.Rotate(t.Context(), true); err != nil {
						t.Fatal(err)
					}
				}
			}
			st.at, st.seen = at, 0
			err := c.do(t, st, s)
			if failed := at <= c.steps; errors.Is(err, errFailing) != failed || !failed && err != nil {
				t.Errorf("%s, operation %d: %v", c.what, at, err)
			}
			st.at = 1 << 30
			if s == nil {
				s = service(t, st)
			}
			if _, keys := s.Keys(); len(keys) != max(1, c.before) {
				t.Errorf("%s, operation %d: %d keys", c.what, at, len(keys))
			}
		}
	}
}
