package contract

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/outside"
)

// The outside vectors of RFC 8785; in one, numbers that a double cannot hold
// keep their exact value with us.
func TestCanonicalVectors(t *testing.T) {
	dir := outside.Suites(t, "jcs", "testdata")
	files, err := filepath.Glob(filepath.Join(dir, "input", "*.json"))
	if err != nil || len(files) != 6 {
		t.Fatalf("%v %v", files, err)
	}
	for _, path := range files {
		input, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, "output", filepath.Base(path)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Canonical(input)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if filepath.Base(path) == "values.json" {
			want = bytes.Replace(want, []byte("333333333.3333333"), []byte("33333333333333329e-8"), 1)
		}
		if !bytes.Equal(got, bytes.TrimSpace(want)) {
			t.Errorf("%s:\n got %s\nwant %s", filepath.Base(path), got, want)
		}
	}
}

func TestCanonicalNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"1.0": "1", "1e2": "100", "-0": "0", "0.0e5": "0", "1E21": "1e+21", "1e-7": "1e-7", "0.000001": "0.000001", "1.5": "1.5",
		"9007199254740993": "9007199254740993e0", "1e400": "1e400", "0.1": "0.1", "100000000000000000000": "100000000000000000000",
	} {
		got, err := Canonical([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, want %s (%v)", in, got, want, err)
		}
	}
	for _, bad := range []string{`{"a":1,"a":2}`, "", "\xff", `{`} {
		if _, err := Canonical([]byte(bad)); err == nil {
			t.Errorf("%q has a canonical form", bad)
		}
	}
}

const goldenDigest = "sha256:008575011bd4134cef72a823824ff4d6816ddc7462b8eff9405503149f535ec9"

func TestDigest(t *testing.T) {
	digest := func(schema string, pol Policy) string {
		t.Helper()
		d, err := Digest([]byte(schema), pol)
		if err != nil || !strings.HasPrefix(d, "sha256:") || len(d) != 7+64 {
			t.Fatalf("%s %v", d, err)
		}
		return d
	}
	base := digest(`{"type":"object","maximum":1e2,"title":"é"}`, Policy{})
	for _, same := range []string{`{ "title":"\u00e9", "maximum":100.0,"type":"object" }`} {
		if digest(same, Policy{}) != base {
			t.Errorf("%s has another digest", same)
		}
	}
	if digest(`{"type":"object","maximum":1e2,"title":"é"}`, Policy{Depth: 64, NumberLength: 64, Exponent: 400}) != base {
		t.Error("spelling the defaults out changes the digest")
	}
	seen := map[string]string{base: "base"}
	for name, d := range map[string]string{
		"policy":      digest(`{"type":"object","maximum":1e2,"title":"é"}`, Policy{CloseObjects: true}),
		"depth":       digest(`{"type":"object","maximum":1e2,"title":"é"}`, Policy{Depth: 65}),
		"bound":       digest(`{"type":"object","maximum":101,"title":"é"}`, Policy{}),
		"exact":       digest(`{"maximum":9007199254740993}`, Policy{}),
		"exact below": digest(`{"maximum":9007199254740992}`, Policy{}),
		"decomposed":  digest(`{"type":"object","maximum":1e2,"title":"e\u0301"}`, Policy{}),
	} {
		if other, taken := seen[d]; taken {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
	}
	// A golden value: a change of it changes every stored digest, so it needs
	// a new EngineVersion.
	if got := digest(`{"type":"object"}`, Policy{}); got != goldenDigest {
		t.Errorf("got %s, want %s", got, goldenDigest)
	}
}

func TestPolicyForm(t *testing.T) {
	p := Policy{CloseObjects: true, Exponent: 500}
	back, err := UnmarshalPolicy(MarshalPolicy(p))
	if err != nil || back != p.withDefaults() {
		t.Errorf("%+v %v", back, err)
	}
	if p, err := UnmarshalPolicy(nil); err != nil || p != (Policy{}) {
		t.Errorf("%+v %v", p, err)
	}
	for _, bad := range []string{`{"depth":100000}`, `[`, `{"depth":"x"}`} {
		if _, err := UnmarshalPolicy([]byte(bad)); err == nil {
			t.Errorf("%s is a policy", bad)
		}
	}
	var m map[string]any
	if err := json.Unmarshal(MarshalPolicy(Policy{}), &m); err != nil || m["depth"] != float64(DefaultDepth) {
		t.Errorf("%v %v", m, err)
	}
}

func TestWithVersion(t *testing.T) {
	c := compileOK(t, `{"type":"string"}`)
	d := c.WithVersion(7)
	if c.Ref().Version != 1 || d.Ref().Version != 7 || d.Ref().Digest != c.Ref().Digest {
		t.Errorf("%+v %+v", c.Ref(), d.Ref())
	}
	if v := d.Check([]byte(`1`)); v == nil || v.Contract != d.Ref() {
		t.Errorf("%+v", v)
	}
}
