package router

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
)

// TestTypeIndexAgainstPatterns holds the index against the patterns, while
// members come and go.
func TestTypeIndexAgainstPatterns(t *testing.T) {
	types := []string{"a", "a.b", "a.b.c", "a.bc", "ab", "b.a", "b", "a.b-c", "a.b.", "."}
	patterns := []string{"*", "a", "a.*", "a.b", "a.b.*", "a.bc", "b.*", "ab", "ab.*"}
	rapid.Check(t, func(t *rapid.T) {
		var x typeIndex
		var in []*member
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(in) > 0 && rapid.IntRange(0, 2).Draw(t, "leave") == 0 {
				i := rapid.IntRange(0, len(in)-1).Draw(t, "who")
				x.remove(in[i])
				in = slices.Delete(in, i, i+1)
			} else {
				m := &member{s: &sub{plan: &plan{Spec: Spec{Types: rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 4).Draw(t, "patterns")}}}}
				x.add(m)
				in = append(in, m)
			}
			for range 3 {
				eventType := rapid.SampledFrom(types).Draw(t, "type")
				got := x.of(eventType)
				for _, m := range in {
					n := 0
					for _, o := range got {
						if o == m {
							n++
						}
					}
					want := 0
					if slices.ContainsFunc(m.s.plan.Types, func(p string) bool { return headgate.MatchType(p, eventType) }) {
						want = 1
					}
					if n != want {
						t.Fatalf("a member with %q is found %d times for %q", m.s.plan.Types, n, eventType)
					}
				}
				if slices.ContainsFunc(got, func(m *member) bool { return !slices.Contains(in, m) }) {
					t.Fatalf("a member that left is found for %q", eventType)
				}
			}
		}
	})
}
