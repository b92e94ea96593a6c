package contract

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the search for near names.
const (
	nearDistance   = 2
	nearMax        = 3
	nearLength     = 64  // bytes; longer names are not compared
	nearCandidates = 512 // more are not looked at
	// nearDistances bounds the distances that are worked out for one report, and
	// for one round of a repair, and the sets of words that are compared.
	nearDistances = 2048
)

// nearName is a name, with what tells most others apart from it at a glance.
type nearName struct {
	text  string
	mask  uint64 // of its code points, case aside
	sum   uint32 // of its letters and digits, case and order aside
	runes int16  // code points; -1 for a name that is not compared
}

func newNearName(text string) nearName {
	n := nearName{text: text, runes: -1}
	short := len(text) <= nearLength
	count := int16(0)
	for _, r := range text {
		word := false
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			word = true
		case r >= 'A' && r <= 'Z':
			r, word = r+'a'-'A', true
		case r >= utf8.RuneSelf:
			word = unicode.IsLetter(r) || unicode.IsDigit(r)
			r = unicode.ToLower(r)
		}
		if word {
			x := (uint32(r) + 1) * 0x9E3779B1
			n.sum += x ^ x>>15
		}
		if short {
			n.mask |= 1 << (r & 63)
			count++
		}
	}
	if short && text != "" {
		n.runes = count
	}
	return n
}

// nearSearch looks for the names that one name is most likely meant to be: at
// a Damerau-Levenshtein distance of at most two (one for names of up to four
// letters, none for two), case aside, or made of the same words. It keeps the
// best three; of two at an equal distance the one that was offered first, or,
// with byText, the first in the alphabet.
type nearSearch struct {
	name   nearName
	limit  int
	left   *int // distances, and sets of words, that may still be worked out
	byText bool
	lower  [nearLength]rune
	words  string // the token set, once one was asked for
	asked  bool
	hits   [nearMax]nearHit
	n      int
}

type nearHit struct {
	text     string
	distance int
}

// start begins a search, and reports whether the name is compared at all.
func (s *nearSearch) start(name string, left *int) bool {
	s.begin(newNearName(name), left)
	return s.name.runes >= 0
}

func (s *nearSearch) begin(name nearName, left *int) {
	s.name, s.left, s.asked, s.n = name, left, false, 0
	s.limit = nearLimit(len(name.text))
	if name.runes >= 0 {
		lower(name.text, &s.lower)
	}
}

// nearLimit is the greatest distance that counts as near, by the bytes of the
// name that may be wrong.
func nearLimit(length int) int {
	switch {
	case length <= 2:
		return 0
	case length <= 4:
		return 1
	default:
		return nearDistance
	}
}

func lower(name string, into *[nearLength]rune) {
	i := 0
	for _, r := range name {
		switch {
		case r >= utf8.RuneSelf:
			r = unicode.ToLower(r)
		case r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		}
		into[i] = r
		i++
	}
}

// like reports whether a name is near, and its distance.
func (s *nearSearch) like(c *nearName) (d int, ok bool) {
	if c.runes < 0 || c.text == s.name.text {
		return 0, false
	}
	if mayBeWithin(&s.name, c, s.limit) && *s.left > 0 {
		*s.left--
		var other [nearLength]rune
		lower(c.text, &other)
		if d = distance(s.lower[:s.name.runes], other[:c.runes], s.limit); d <= s.limit {
			return d, true
		}
	}
	return s.limit, s.sameWords(c)
}

// mayBeWithin reports whether two names may be at a distance within the limit.
// False is certain: one edit changes the length by one at most, and adds and
// takes away one code point at most.
func mayBeWithin(a, b *nearName, limit int) bool {
	return abs(int(a.runes)-int(b.runes)) <= limit && bits.OnesCount64(a.mask^b.mask) <= 2*limit
}

// sameWords reports whether a name is made of the same words.
func (s *nearSearch) sameWords(c *nearName) bool {
	if c.sum != s.name.sum || *s.left <= 0 {
		return false
	}
	*s.left--
	if !s.asked {
		s.asked, s.words = true, tokenSet(s.name.text)
	}
	return s.words != "" && s.words == tokenSet(c.text)
}

// offer keeps a name if it is among the nearest. The caller may be asked
// whether it counts, which is only when it is near.
func (s *nearSearch) offer(c *nearName, counts func(name string) bool) {
	d, ok := s.like(c)
	if !ok {
		return
	}
	hit := nearHit{c.text, d}
	at := s.n
	for at > 0 && s.before(hit, s.hits[at-1]) {
		at--
	}
	if at == nearMax || counts != nil && !counts(c.text) {
		return
	}
	for i := range s.n {
		if s.hits[i].text == c.text {
			return
		}
	}
	s.n = min(s.n+1, nearMax)
	copy(s.hits[at+1:s.n], s.hits[at:])
	s.hits[at] = hit
}

func (s *nearSearch) before(a, b nearHit) bool {
	if s.byText {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.text, b.text)) < 0
	}
	return a.distance < b.distance
}

// found returns the names that were kept, best first.
func (s *nearSearch) found() []string {
	if s.n == 0 {
		return nil
	}
	out := make([]string, s.n)
	for i := range out {
		out[i] = s.hits[i].text
	}
	return out
}

// nearest searches a list, of which it looks at the first 512.
func nearest(name string, candidates []string) []string {
	var s nearSearch
	left := nearCandidates
	if !s.start(name, &left) {
		return nil
	}
	for _, c := range candidates[:min(len(candidates), nearCandidates)] {
		n := newNearName(c)
		s.offer(&n, nil)
	}
	return s.found()
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// distance is the optimal string alignment distance: insertions, deletions,
// substitutions, and swaps of neighbours. Above the limit, which is at most
// nearDistance, it returns limit+1. It fills the band of the table that such
// distances can lie in.
func distance(a, b []rune, limit int) int {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if abs(len(a)-len(b)) > limit {
		return limit + 1
	}
	if len(a) == 0 || len(b) == 0 {
		return max(len(a), len(b))
	}
	over := int8(limit + 1)
	var rows [3][nearLength + 1]int8
	for j := range len(b) + 1 {
		rows[0][j], rows[1][j], rows[2][j] = over, over, over
	}
	before, row, next := &rows[0], &rows[1], &rows[2]
	for j := range min(limit, len(b)) + 1 {
		row[j] = int8(j)
	}
	for i := 1; i <= len(a); i++ {
		lo, hi := max(1, i-limit), min(len(b), i+limit)
		next[lo-1] = over
		if lo == 1 {
			next[0] = int8(min(i, limit+1))
		}
		best := next[lo-1]
		for j := lo; j <= hi; j++ {
			cost := int8(1)
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(row[j]+1, next[j-1]+1, row[j-1]+cost, over)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			next[j] = d
			best = min(best, d)
		}
		if best >= over {
			return limit + 1
		}
		before, row, next = row, next, before
	}
	return int(row[len(b)])
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

// foldName leaves case and the signs between words out of a name. A name of
// signs alone is like no other.
func foldName(name string) string {
	folded := strings.Map(func(r rune) rune {
		switch {
		case r == '_' || r == '-' || r == ' ' || r == '.':
			return -1
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return r
	}, name)
	if folded == "" {
		return name
	}
	return folded
}

// sameFolded reports whether two names are one but for case and the signs
// between words.
func sameFolded(a, b *nearName) bool { return a.sum == b.sum && foldName(a.text) == foldName(b.text) }
