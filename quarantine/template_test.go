package quarantine

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"  a\n\tb\x00c ", "a b c"},
		{"id 4f9c2d1e-8a5b-4c3d-9e7f-0a1b2c3d4e5f.", "id <uuid>."},
		{"x4f9c2d1e-8a5b-4c3d-9e7f-0a1b2c3d4e5f", "x<n>f<n>c<n>d<n>e-<n>a<n>b-<n>c<n>d-<n>e<n>f-<n>"},
		{"at 2026-11-30T10:20:30.5+02:00 it broke", "at <time> it broke"},
		{"10:20:30 UTC", "<time>"},
		{"10:20:30:40", "<n>:<n>:<n>:<n>"},
		{"file.go:12:45", "file.go:<n>:<n>"},
		{"::1 and [::1]:80 and fe80::1.", "<ip> and <ip> and <ip>."},
		{"std::vector a::b::c", "std::vector <ip>"},
		{"1.2.3.4:80, 5.6.7.8", "<ip>"},
		{"v1.2.3", "v<n>.<n>"},
		{"it's Bob's", "it's Bob's"},
		{"'it' said 'don't'", "<str> said <str>"},
		{`"open`, `"open`},
		{`"a\"b" c`, "<str> c"},
		{"status 404, code=503 http 200 status 999", "status <4xx>, code=<5xx> http <2xx> status <n>"},
		{"1h30m2.5s", "<n>"},
		{"10 m", "<n> m"},
		{"5mm", "<n>mm"},
		{"-5 a-5 (+7)", "<n> a-<n> (<n>)"},
		{"1,234,567 1,2", "<n>"},
		{"a@b a@b.c", "a@b <mail>"},
		{"ünïcode 7", "ünïcode <n>"},
		{"0xZZ 0x", "<n>xZZ <n>x"},
	} {
		if got := Template(tt.in); got != tt.want {
			t.Errorf("Template(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// readFaults returns the paragraphs of the corpus.
func readFaults(t *testing.T) [][]string {
	t.Helper()
	b, err := os.ReadFile("testdata/faults.txt")
	if err != nil {
		t.Fatal(err)
	}
	var groups [][]string
	for par := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		lines := slices.DeleteFunc(strings.Split(par, "\n"), func(l string) bool { return l == "" || l[0] == '#' })
		if len(lines) > 0 {
			groups = append(groups, lines)
		}
	}
	return groups
}

func TestTemplateGroupsRealMessages(t *testing.T) {
	owner := map[string]string{}
	messages := 0
	for _, group := range readFaults(t) {
		want := Template(group[0])
		for _, m := range group {
			messages++
			if got := Template(m); got != want {
				t.Errorf("apart:\n  %q\n  %q\n  %q\n  %q", group[0], want, m, got)
			}
		}
		if other, taken := owner[want]; taken {
			t.Errorf("together as %q:\n  %q\n  %q", want, other, group[0])
		}
		owner[want] = group[0]
	}
	if messages < 200 || len(owner) < 100 {
		t.Errorf("the corpus has %d messages in %d groups; was it cut?", messages, len(owner))
	}
}

// TestTemplateHostile feeds what makes scanners look ahead in vain.
func TestTemplateHostile(t *testing.T) {
	unit := []string{`"`, "'", "`", `"\`, "a.", "1:", "::", "1,234", "0x", "a@", "-", "é", "\xff", "{[(<", "9.9.9.", "aB3", "30 Nov ", "1h2m"}
	for _, u := range unit {
		in := strings.Repeat(u, 1<<20)
		out := Template(in)
		if len(out) > 5*maxTemplateInput {
			t.Errorf("%q…: template has %d bytes", u, len(out))
		}
		if got := testing.AllocsPerRun(1, func() { Template(in) }); got > 8 {
			t.Errorf("%q…: %v allocations", u, got)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{`"a' b`, "1.2.3.4:5", "2026-11-30T10:20:30Z", "::ffff:1", "a@b.c", "0x", "Mon, 30 Nov 2026 1", "\xf0\x90", "9,999,99"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := Template(s)
		if len(out) > 5*maxTemplateInput {
			t.Fatalf("%d bytes out of %d", len(out), len(s))
		}
		for i := range len(out) {
			if c := out[i]; c < ' ' || c == 0x7f {
				t.Fatalf("control character in %q", out)
			}
			// Digits remain in the classes of status codes alone, and none of
			// what was a number does.
			if isDigit(out[i]) && !strings.HasPrefix(out[i+1:], "xx>") {
				t.Fatalf("digit left in %q", out)
			}
		}
		if Template(s) != out {
			t.Fatal("not deterministic")
		}
	})
}
