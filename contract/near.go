package contract

import (
	"slices"
	"strings"
	"unicode"
)

// Bounds of the search for near names.
const (
	nearDistance   = 2
	nearMax        = 3
	nearLength     = 64  // longer names are not compared
	nearCandidates = 512 // more are not looked at
)

// nearest returns the candidates that name is most likely meant to be, best
// first, at most three: at a Damerau-Levenshtein distance of at most two (one
// for names of up to four letters, none for two), case aside, or made of the
// same words. Candidates at
// equal distance come in their own order.
func nearest(name string, candidates []string) []string {
	if name == "" || len(name) > nearLength {
		return nil
	}
	if len(candidates) > nearCandidates {
		candidates = candidates[:nearCandidates]
	}
	type hit struct {
		name     string
		distance int
	}
	limit := nearDistance
	switch {
	case len(name) <= 2:
		limit = 0
	case len(name) <= 4:
		limit = 1
	}
	tokens := tokenSet(name)
	var hits []hit
	for _, c := range candidates {
		if c == name || c == "" || len(c) > nearLength {
			continue
		}
		d := limit + 1
		if abs(len(c)-len(name)) <= 4*limit+2 { // in bytes; a code point has at most 4
			d = distance([]rune(strings.ToLower(name)), []rune(strings.ToLower(c)), limit)
		}
		switch {
		case d <= limit:
			hits = append(hits, hit{c, d})
		case tokens != "" && tokens == tokenSet(c):
			hits = append(hits, hit{c, limit})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return a.distance - b.distance })
	if len(hits) > nearMax {
		hits = hits[:nearMax]
	}
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = h.name
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// distance is the optimal string alignment distance: insertions, deletions,
// substitutions, and swaps of neighbours. Above the limit it returns limit+1.
func distance(a, b []rune, limit int) int {
	if abs(len(a)-len(b)) > limit {
		return limit + 1
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		best := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			next[j] = d
			best = min(best, d)
		}
		if best > limit {
			return limit + 1
		}
		before, row, next = row, next, before
	}
	return min(row[len(b)], limit+1)
}

// tokenSet returns the words of a name in order of the alphabet, so that
// userId, user_id, UserID and id-user have one token set.
func tokenSet(name string) string {
	var words []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			words = append(words, string(word))
			word = word[:0]
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush()
		}
		word = append(word, unicode.ToLower(r))
	}
	flush()
	slices.Sort(words)
	return strings.Join(words, " ")
}
