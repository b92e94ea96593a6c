package headgate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate"
)

func TestExtensionsStaySorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e headgate.Event
		want := map[string]string{}
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			name, value := rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "name"), rapid.String().Draw(t, "value")
			e.SetExtension(headgate.Extension{Name: name, Value: value})
			want[name] = value
		}
		got := map[string]string{}
		for i, x := range e.Extensions {
			if i > 0 && e.Extensions[i-1].Name >= x.Name {
				t.Fatalf("out of order: %v", e.Extensions)
			}
			got[x.Name] = x.Value
			if v, found := e.Extension(x.Name); !found || v != x.Value {
				t.Fatalf("Extension(%q) = %q, %v", x.Name, v, found)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if _, found := e.Extension("zzz"); found {
			t.Fatal("found what is not there")
		}
	})
}

func TestCausesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.OneOf(
			rapid.StringMatching(`[a,%2C5]{1,8}`),
			rapid.StringN(1, 20, 80),
		)).Draw(t, "ids")
		got := headgate.SplitCauses(headgate.JoinCauses(ids))
		if len(ids)+len(got) > 0 && !cmp.Equal(ids, got) {
			t.Fatalf("%q came back as %q", ids, got)
		}
	})
	if s := headgate.JoinCauses([]string{"plain"}); s != "plain" {
		t.Errorf("a plain id became %q", s)
	}
}

func TestPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := headgate.Position{Partition: rapid.Uint32().Draw(t, "partition"), Offset: rapid.Uint64().Draw(t, "offset")}
		if got, err := headgate.ParsePosition(p.String()); err != nil || got != p {
			t.Fatalf("%v came back as %v, %v", p, got, err)
		}
	})
	for _, s := range []string{"", ":", "1", "1:", ":1", "-1:1", "1:-1", "+1:1", "1:1:1", " 1:1", "4294967296:0", "0:18446744073709551616", "a:b", "0x1:1", "1_0:1"} {
		if p, err := headgate.ParsePosition(s); err == nil {
			t.Errorf("%q is read as %v", s, p)
		}
	}
}

func TestMatchType(t *testing.T) {
	tests := []struct {
		pattern, typ string
		want         bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.b", "a.b.c", false},
		{"a.*", "a.b", true},
		{"a.*", "a.b.c", true},
		{"a.*", "a", false},
		{"a.*", "a.", false},
		{"a.*", "ab.c", false},
		{"*", "a.b", true},
		{"a*", "ab", false},
		{"", "", true},
		{"", "a", false},
		// Patterns in the place of types.
		{"*", "a.*", true},
		{"*", "*", true},
		{"a.*", "a.*", true},
		{"a.*", "a.b.*", true},
		{"a.b.*", "a.*", false},
		{"a.b", "a.*", false},
		{"a.*", "*", false},
	}
	for _, tt := range tests {
		if got := headgate.MatchType(tt.pattern, tt.typ); got != tt.want {
			t.Errorf("MatchType(%q, %q) = %v", tt.pattern, tt.typ, got)
		}
	}
}

// TestCoverage: what a pattern covers whole, it covers in every part.
func TestCoverage(t *testing.T) {
	pattern := rapid.StringMatching(`(\*|[ab](\.[ab]){0,2}(\.\*)?)`)
	typ := rapid.StringMatching(`[ab](\.[ab]){0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		p, q, x := pattern.Draw(t, "p"), pattern.Draw(t, "q"), typ.Draw(t, "type")
		if !headgate.ValidPattern(p) || !headgate.ValidType(x) {
			t.Fatalf("%q or %q is not valid", p, x)
		}
		if headgate.MatchType(p, q) && headgate.MatchType(q, x) && !headgate.MatchType(p, x) {
			t.Fatalf("%q covers %q, which matches %q, but does not match it itself", p, q, x)
		}
	})
}

func TestValidTypes(t *testing.T) {
	for _, s := range []string{"a", "ticket.opened", "com.github.issues.opened", "A-b_c/d.9", strings.Repeat("x", 200)} {
		if !headgate.ValidType(s) || !headgate.ValidPattern(s) || len(s) < 200 && !headgate.ValidPattern(s+".*") {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", ".", ".a", "a.", "a..b", "a b", "a*", "é", "a\x00", "a:b", strings.Repeat("x", 201)} {
		if headgate.ValidType(s) {
			t.Errorf("%q is a type", s)
		}
	}
	for _, s := range []string{"", ".*", "**", "*.a", "a.*.b", "a*", "a.*.*", "a..*"} {
		if headgate.ValidPattern(s) {
			t.Errorf("%q is a pattern", s)
		}
	}
}

func TestPrincipals(t *testing.T) {
	var nobody headgate.Principal
	if nobody.MayEmit("a") || nobody.MayListen("a") || nobody.Can(headgate.RoleViewer) {
		t.Error("the zero principal may do something")
	}
	p := headgate.Principal{
		Kind: headgate.KindAgent, Emit: []string{"ticket.*"}, Listen: []string{"ticket.opened", "note.*"},
		Roles: []headgate.Role{headgate.RoleDeveloper, headgate.RoleApprover, "unheard-of"},
	}
	for _, tt := range []struct {
		right     string
		got, want bool
	}{
		{"emit below a prefix", p.MayEmit("ticket.opened"), true},
		{"emit the prefix itself", p.MayEmit("ticket"), false},
		{"listen to a type", p.MayListen("ticket.opened"), true},
		{"listen to more than listed", p.MayListen("ticket.*"), false},
		{"listen to a part of a pattern", p.MayListen("note.a.*"), true},
		{"listen to all", p.MayListen("*"), false},
		{"view", p.Can(headgate.RoleViewer), true},
		{"develop", p.Can(headgate.RoleDeveloper), true},
		{"operate", p.Can(headgate.RoleOperator), false},
		{"approve as an agent", p.Can(headgate.RoleApprover), false},
		{"administrate", p.Can(headgate.RoleAdmin), false},
		{"an unknown role", p.Can("unheard-of"), false},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %v", tt.right, tt.got)
		}
	}
	p.Disabled = true
	if p.MayEmit("ticket.opened") || p.MayListen("ticket.opened") || p.Can(headgate.RoleViewer) {
		t.Error("a disabled principal may do something")
	}
	human := headgate.Principal{Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleApprover}}
	admin := headgate.Principal{Kind: headgate.KindHuman, Roles: []headgate.Role{headgate.RoleAdmin}}
	if !human.Can(headgate.RoleApprover) || admin.Can(headgate.RoleApprover) || !admin.Can(headgate.RoleOperator) {
		t.Error("approving is for approvers alone")
	}
	for kind, origin := range map[headgate.Kind]headgate.Origin{
		headgate.KindHuman: headgate.OriginHuman, headgate.KindAgent: headgate.OriginAgent, headgate.KindSystem: headgate.OriginSystem, "": headgate.OriginSystem,
	} {
		if got := (&headgate.Principal{Kind: kind}).Origin(); got != origin {
			t.Errorf("%q starts roots of %q", kind, got)
		}
	}
}
