package contract

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// patternPieces are put together to patterns of all kinds.
var patternPieces = [...]string{
	"a", "b", "ab", "_", "x-", "[a-c]", "[^a]", "é", "[à-ü]", ".", "\\d", "\\w", "(a|b)", "(?:ab|é)", "a*", "b+", "c?", "a{2,4}", "(a+)+", "(?i:aB)", "(?s:.)", "$", "^", "(^a|b$)", "()", "[😀-😎]", "\\pL", "\\S", "\\b", "\\B", "(?m:^)", "(?m:$)", "(\\b|_)",
}

func randomPattern(rng *rand.Rand) string {
	var b strings.Builder
	if rng.IntN(2) == 0 {
		b.WriteByte('^')
	}
	for range 1 + rng.IntN(4) {
		b.WriteString(patternPieces[rng.IntN(len(patternPieces))])
	}
	if rng.IntN(2) == 0 {
		b.WriteByte('$')
	}
	return b.String()
}

func randomText(rng *rand.Rand) string {
	letters := []rune("aabbcABé_x-1 \n\v`{[:@ü😀\u212aſ")
	var b strings.Builder
	for range rng.IntN(8) {
		b.WriteRune(letters[rng.IntN(len(letters))])
	}
	return b.String()
}

// An automaton matches what the patterns match one by one, by the standard
// library, for sets of patterns of all kinds.
func TestAutomatonIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	made, matched, rounds := 0, 0, 1500
	switch {
	case os.Getenv("HEADGATE_CAMPAIGN") == "1":
		rounds = 100_000
	case raceEnabled:
		rounds = 150
	}
	for range rounds {
		var patterns []*pattern
		for range 1 + rng.IntN(6) {
			p, err := compilePattern(randomPattern(rng))
			if err != nil {
				t.Fatal(err)
			}
			patterns = append(patterns, p)
		}
		a, forgets := newAutomata().make(patterns, false), newAutomata().make(patterns, true)
		if a == nil || forgets == nil {
			continue
		}
		made++
		for range 60 {
			text := randomText(rng)
			var want []int32
			for i, p := range patterns {
				if regexp.MustCompile(p.String()).MatchString(text) {
					want = append(want, int32(i))
				}
			}
			for _, a := range []*automaton{a, forgets} {
				if got := a.appendMatches(nil, []byte(text)); !slices.Equal(got, want) {
					t.Fatalf("%q matches %v of %v, want %v (forgets %v)", text, got, patterns, want, a.found != nil)
				}
			}
			matched += len(want)
		}
	}
	t.Logf("%d automata, %d matches", made, matched)
	if made < rounds/2 || matched < rounds {
		t.Errorf("%d automata and %d matches of %d rounds say little", made, matched, rounds)
	}
}

// What has no exact automaton, or only a large one, has none.
func TestAutomataAreBounded(t *testing.T) {
	for _, src := range []string{`[ab]*a[ab]{12}c`, `(a|b|ab){1,40}c[a-d]{0,90}x$`} {
		p, err := compilePattern(src)
		if err != nil {
			t.Fatal(err)
		}
		left := newAutomata()
		if a := left.make([]*pattern{p}, false); a != nil {
			t.Errorf("%s has an automaton of %d states", src, len(a.ends))
		}
		if left.work < maxAutomataWork-4*maxAutomatonWork {
			t.Errorf("%s took %d units of work", src, maxAutomataWork-left.work)
		}
	}
	var many []*pattern
	for i := range 100 {
		p, err := compilePattern(fmt.Sprintf("^x%d-", i))
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, p)
	}
	left := newAutomata()
	a := left.make(many, false)
	if a == nil || left.cells != maxAutomataCells-len(a.next) {
		t.Fatalf("100 prefixes: %v, %d cells left", a != nil, left.cells)
	}
	left.cells = len(a.next) - 1
	if left.make(many, false) != nil {
		t.Error("an automaton of more cells than are left")
	}
}
