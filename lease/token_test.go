package lease

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
)

func testKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

func sample() Fence {
	return Fence{
		Resource: "ticket/42 ä <&>", Epoch: maxEpoch, Nonce: []byte("0123456789abcdef"), Holder: "a\"b", Audience: []string{"crm", "headgate"},
		Issuer: "headgate-1", KeyID: "00ff",
	}
}

func verifier() Verifier {
	return Verifier{Keys: map[string]ed25519.PublicKey{"00ff": testKey().Public().(ed25519.PublicKey)}, Issuer: "headgate-1", Audience: "crm"}
}

// TestTokensRoundTrip also keeps the largest epoch exact (T27).
func TestTokensRoundTrip(t *testing.T) {
	f := sample()
	token, err := sign(&f, testKey())
	if err != nil {
		t.Fatal(err)
	}
	v := verifier()
	got, err := v.Verify(token)
	if err != nil || got.String() != f.String() || string(got.Nonce) != string(f.Nonce) || got.Holder != f.Holder {
		t.Errorf("%+v, %v", got, err)
	}
	v.Issuer = "other"
	_, err = v.Verify(token)
	want(t, "another issuer", err, headgate.CodeFenceForeign)
	v = verifier()
	v.Audience = "erp"
	_, err = v.Verify(token)
	want(t, "another audience", err, headgate.CodeFenceForeign)
}

// TestEveryBitCounts: no token that differs in one bit, or has one character
// more or less, passes.
func TestEveryBitCounts(t *testing.T) {
	f := sample()
	token, err := sign(&f, testKey())
	if err != nil {
		t.Fatal(err)
	}
	v := verifier()
	for i := range len(token) {
		for bit := range 8 {
			b := []byte(token)
			b[i] ^= 1 << bit
			if _, err := v.Verify(string(b)); err == nil {
				t.Errorf("byte %d, bit %d changed, and the token passes", i, bit)
			}
		}
	}
	for cut := range len(token) {
		if _, err := v.Verify(token[:cut]); err == nil {
			t.Errorf("the first %d bytes pass", cut)
		}
	}
	for at := range len(token) + 1 {
		for _, more := range []string{"\n", "\r", " ", "=", "."} {
			if _, err := v.Verify(token[:at] + more + token[at:]); err == nil {
				t.Errorf("%q at byte %d passes", more, at)
			}
		}
	}
}

// TestOneSpelling: what is signed but not as we would write it is no token.
func TestOneSpelling(t *testing.T) {
	odd := func(text string) string {
		signed := tokenPrefix + encoding.EncodeToString([]byte(text))
		return signed + "." + encoding.EncodeToString(ed25519.Sign(testKey(), []byte(signed)))
	}
	good, err := (&Fence{Resource: "r", Epoch: 1, Nonce: make([]byte, 16), Holder: "a", Audience: []string{"crm"}, Issuer: "headgate-1", KeyID: "00ff"}).text()
	if err != nil {
		t.Fatal(err)
	}
	v := verifier()
	if _, err := v.Verify(odd(string(good))); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"space":           " " + string(good),
		"unknown member":  strings.Replace(string(good), `{`, `{"x":1,`, 1),
		"repeated member": strings.Replace(string(good), `{`, `{"res":"q",`, 1),
		"number epoch":    strings.Replace(string(good), `"epoch":"1"`, `"epoch":1`, 1),
		"leading zero":    strings.Replace(string(good), `"epoch":"1"`, `"epoch":"01"`, 1),
		"epoch zero":      strings.Replace(string(good), `"epoch":"1"`, `"epoch":"0"`, 1),
		"huge epoch":      strings.Replace(string(good), `"epoch":"1"`, `"epoch":"9007199254740992"`, 1),
		"no resource":     strings.Replace(string(good), `"res":"r"`, `"res":""`, 1),
		"no audience":     strings.Replace(string(good), `["crm"]`, `[]`, 1),
		"unsorted":        strings.Replace(string(good), `["crm"]`, `["x","crm"]`, 1),
		"text after":      string(good) + "{}",
		"null":            "null",
	} {
		if _, err := v.Verify(odd(text)); headgate.CodeOf(err) != headgate.CodeFenceInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	s := sample()
	token, err := sign(&s, testKey())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Add("hgl1.e30.AAAA")
	f.Add(strings.Repeat("hgl1.", 1000))
	f.Fuzz(func(t *testing.T, token string) {
		p, refusal := parse(token)
		if refusal != nil {
			return
		}
		if again, err := p.text(); err != nil || tokenPrefix+encoding.EncodeToString(again) != p.signed {
			t.Errorf("%q has another spelling", token)
		}
	})
}

// TestEpochsRiseWhateverTheClock: T14, T16.
func TestEpochsRiseWhateverTheClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRigOver(t)
		last := int64(0)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			r.st.now = r.st.now.Add(rapid.SampledFrom(jumps).Draw(t, "jump"))
			g, err := r.Acquire(t.Context(), worker("a"), Request{Resources: []string{"r"}, TTL: MinTTL})
			if headgate.CodeOf(err) == headgate.CodeLeaseHeld {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if g[0].Epoch <= last {
				t.Fatalf("epoch %d after %d", g[0].Epoch, last)
			}
			last = g[0].Epoch
			if rapid.Bool().Draw(t, "release") {
				if err := r.Release(t.Context(), worker("a"), "", g[0].Token); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
