package quarantine

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

func TestFingerprint(t *testing.T) {
	base := Fault{Subscription: "s", Type: "a.b", Contract: "a.b@1", Reason: "r", Message: "took 5s"}
	fp, family := Fingerprint(base)
	if !strings.HasPrefix(fp, "v1:") || len(fp) != 35 || len(family) != 35 {
		t.Fatalf("%s %s", fp, family)
	}
	for _, tt := range []struct {
		name         string
		change       func(*Fault)
		same, family bool
	}{
		{"another number", func(f *Fault) { f.Message = "took 17ms" }, true, true},
		{"another version", func(f *Fault) { f.Contract = "a.b@2" }, true, true},
		{"another message", func(f *Fault) { f.Message = "gave 5s" }, false, true},
		{"another type", func(f *Fault) { f.Type = "a.c" }, false, true},
		{"another contract", func(f *Fault) { f.Contract = "c@1" }, false, true},
		{"another subscription", func(f *Fault) { f.Subscription = "t" }, false, false},
		{"another reason", func(f *Fault) { f.Reason = "q" }, false, false},
		{"moved border", func(f *Fault) { f.Subscription, f.Type = "sa", ".b" }, false, false},
	} {
		f := base
		tt.change(&f)
		got, fam := Fingerprint(f)
		if (got == fp) != tt.same || (fam == family) != tt.family {
			t.Errorf("%s: same %v, family %v", tt.name, got == fp, fam == family)
		}
	}
}

func TestFingerprintOfViolations(t *testing.T) {
	at := func(code headgate.ViolationCode, pointer string) string {
		fp, _ := Fingerprint(Fault{Type: "t", Reason: "contract_violation", Message: pointer, Violation: &headgate.Violation{Code: code, At: pointer}})
		return fp
	}
	if at(headgate.ViolationWrongType, "/items/0/price") != at(headgate.ViolationWrongType, "/items/173/price") {
		t.Error("positions in arrays count")
	}
	if at(headgate.ViolationUnknownProperty, "/a/foo") != at(headgate.ViolationUnknownProperty, "/a/bar") {
		t.Error("invented names count")
	}
	if at(headgate.ViolationWrongType, "/a/foo") == at(headgate.ViolationWrongType, "/a/bar") {
		t.Error("fields do not count")
	}
	if at(headgate.ViolationWrongType, "/a") == at(headgate.ViolationMissingRequired, "/a") {
		t.Error("codes do not count")
	}
}

func TestClean(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"plain", 10, "plain"},
		{"a\x1b[2Jb\r\n", 50, `a\x1b[2Jb\r\n`},
		{"a\u202eb", 50, `a\u202eb`},
		{"\xff\xfe", 50, `\xff\xfe`},
		{"äöü", 6, "äöü"},
		{"äöüx", 6, "ä…"},
		{"abcdefgh", 8, "abcdefgh"},
		{"abcdefghi", 8, "abcde…"},
	} {
		if got := cleanLine(tt.in, tt.limit); got != tt.want {
			t.Errorf("cleanLine(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
	if got := cleanText("a\nb\tc", 50); got != "a\nb\\tc" {
		t.Errorf("cleanText = %q", got)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b\u202e\xff", 12)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = 8 + abs(limit)%1000
		got := cleanLine(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%q of limit %d", got, limit)
		}
		for _, r := range got {
			if !printable(r) {
				t.Fatalf("%q holds %U", got, r)
			}
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
