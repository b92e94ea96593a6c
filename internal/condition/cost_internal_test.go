package condition

import "testing"

// TestCheap: only what is bounded for every event goes uncounted.
func TestCheap(t *testing.T) {
	env, err := environment()
	if err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]bool{
		`subject.startsWith("ticket/") && hop < 3`:                             true,
		`type == "a" || origin != "agent"`:                                     true,
		`"tenant" in ext && ext.tenant == "acme"`:                              true,
		`subject.matches("^ticket/[0-9]+$")`:                                   true,
		`time > timestamp("2026-01-01T00:00:00Z")`:                             true,
		`[1, 2, 3].all(x, x < ttl)`:                                            true,
		`data.l.all(x, x == 1)`:                                                false,
		`data.s.contains("a")`:                                                 false,
		`data.s.matches("(a*)*b")`:                                             false,
		`ext.all(k, ext.all(l, subject.contains(k) && source.contains(l)))`:    false,
		`[data.s].all(id, id.contains("a"))`:                                   false,
		`data.l.all(type, type.matches("(a*)*b"))`:                             false,
		`subject.matches(subject)`:                                             false,
		`data.l.all(x, [1, 2].all(y, subject.contains("a")))`:                  false,
		`[1,2,3,4,5,6,7,8].all(a, [1,2,3,4,5,6,7,8].all(b, subject.size()>0))`: true,
	} {
		ast, issues := env.Compile(expr)
		if issues.Err() != nil {
			t.Errorf("%s: %v", expr, issues.Err())
			continue
		}
		if got := cheap(env, ast); got != want {
			t.Errorf("cheap(%s) = %v", expr, got)
		}
	}
}
