package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate/headgate"
)

// wantedList is a list of values that a contract asks for, in the forms that
// reports and repairs need. It is made when the first payload is refused over
// it, and then kept.
type wantedList struct {
	// words are the values as JSON, clipped.
	words []string
	// values are those of them that one value of a payload may be meant to be.
	values []wantedValue
	// names are the values that are strings, at most nearCandidates.
	names []nearName
	// bySum has the places of values, by the sum of their text.
	bySum []sumPlace
}

type wantedValue struct {
	near nearName // its text, without quotes where it is a string
	text []byte   // its JSON, of what is no string
}

func (v *wantedValue) isString() bool { return v.text == nil }

type sumPlace struct {
	sum uint32
	at  int32
}

// lazyWanted makes a list once.
type lazyWanted struct {
	once sync.Once
	list *wantedList
}

func (l *lazyWanted) get(build func() *wantedList) *wantedList {
	l.once.Do(func() { l.list = build() })
	return l.list
}

// wantedList returns the values of an enum.
func (e *enumSet) wantedList() *wantedList {
	return e.lazy.get(func() *wantedList {
		l := &wantedList{words: make([]string, len(e.values))}
		for i, v := range e.values {
			l.words[i] = literalText(v.value)
			switch s := v.value.(type) {
			case string:
				l.addString(s)
			case []any, map[string]any:
			default:
				if text := fallbackOf(s); text != nil {
					l.values = append(l.values, wantedValue{near: newNearName(string(text)), text: text})
				}
			}
		}
		return l.index()
	})
}

// wantedList returns the values that a discriminator tells apart.
func (d *discriminator) wantedList() *wantedList {
	return d.lazy.get(func() *wantedList { return newWantedList(literalWords(d.byKey)) })
}

// newWantedList makes a list of values that are words already.
func newWantedList(words []string) *wantedList {
	l := &wantedList{words: words}
	for _, w := range words {
		if s, err := strconv.Unquote(w); err == nil {
			l.addString(s)
		}
	}
	return l.index()
}

// addString adds a string, unless it is too long to be shown whole.
func (l *wantedList) addString(s string) {
	if clip(s, clipSample) != s {
		return
	}
	l.values = append(l.values, wantedValue{near: newNearName(s)})
	if len(l.names) < nearCandidates {
		l.names = append(l.names, l.values[len(l.values)-1].near)
	}
}

func (l *wantedList) index() *wantedList {
	l.bySum = make([]sumPlace, len(l.values))
	for i := range l.values {
		l.bySum[i] = sumPlace{l.values[i].near.sum, int32(i)}
	}
	slices.SortFunc(l.bySum, func(a, b sumPlace) int { return cmp.Or(cmp.Compare(a.sum, b.sum), cmp.Compare(a.at, b.at)) })
	return l
}

// maxSameSum bounds the values that are looked at for having the letters of
// another.
const maxSameSum = 64

// likely lists the values that have the letters and digits of a text, case and
// order aside, in the order of the list.
func (l *wantedList) likely(sum uint32) []sumPlace {
	i, _ := slices.BinarySearchFunc(l.bySum, sum, func(p sumPlace, sum uint32) int { return cmp.Compare(p.sum, sum) })
	end := i
	for end < len(l.bySum) && end-i < maxSameSum && l.bySum[end].sum == sum {
		end++
	}
	return l.bySum[i:end]
}

// near returns the strings that a text is most likely meant to be.
func (l *wantedList) near(text string, left *int) []string {
	var s nearSearch
	if !s.start(text, left) {
		return nil
	}
	for i := range l.names {
		s.offer(&l.names[i], nil)
	}
	return s.found()
}

// otherCase returns the first string that differs from a text in case alone.
func (l *wantedList) otherCase(text string) string {
	for _, p := range l.likely(newNearName(text).sum) {
		v := &l.values[p.at]
		if v.isString() && v.near.text != text && strings.EqualFold(v.near.text, text) {
			return v.near.text
		}
	}
	return ""
}

// folded lists the strings that differ from a text in case and the signs
// between words alone, or are it.
func (l *wantedList) folded(text string) []string {
	var out []string
	name := newNearName(text)
	for _, p := range l.likely(name.sum) {
		if v := &l.values[p.at]; v.isString() && sameFolded(&v.near, &name) {
			out = append(out, v.near.text)
		}
	}
	return out
}

// writtenAs returns the JSON of the only value that is written as a text is,
// case and quotes aside: 5 for "5", true for "TRUE". Of a string only what is no
// string is looked for.
func (l *wantedList) writtenAs(text string, isString bool) []byte {
	var found []byte
	for _, p := range l.likely(newNearName(text).sum) {
		v := &l.values[p.at]
		if v.isString() && isString || !strings.EqualFold(v.near.text, text) {
			continue
		}
		if found != nil {
			return nil
		}
		if found = v.text; found == nil {
			found = fallbackOf(v.near.text)
		}
	}
	return bytes.Clone(found)
}

// constList returns the value of a const as a list.
func constList(lit *literal) *wantedList {
	l := &wantedList{words: []string{literalText(lit.value)}}
	switch v := lit.value.(type) {
	case string:
		l.addString(v)
	case []any, map[string]any:
	case nil, bool, json.Number:
		if text := fallbackOf(v); text != nil {
			l.values = append(l.values, wantedValue{near: newNearName(string(text)), text: text})
		}
	}
	return l.index()
}

// wanted returns the values that a finding asks for.
func (f *finding) wanted() *wantedList {
	switch {
	case f.list != nil:
		return f.list
	case f.keyword == "const" && f.n.konst != nil:
		return constList(f.n.konst)
	case f.keyword == "enum" && f.n.enum != nil:
		return f.n.enum.wantedList()
	}
	return &wantedList{}
}

// maxMerged bounds the lists that are kept for one union: of which branches
// a value asks depends on its type, say, and the sender may alternate.
const maxMerged = 8

// mergedWanted is the list of all that some branches of one union ask for at
// one place. It does not change once it is stored.
type mergedWanted struct {
	from  []wantedSource
	list  *wantedList
	older *mergedWanted
}

// newest returns what is kept of the newest n.
func (m *mergedWanted) newest(n int) *mergedWanted {
	if m == nil || n == 0 {
		return nil
	}
	return &mergedWanted{from: m.from, list: m.list, older: m.older.newest(n - 1)}
}

// wantedSource is what one branch asks for.
type wantedSource struct {
	n       *node
	keyword string
	list    *wantedList
}

// merge returns what the branches of a union ask for. The list is kept for the
// next value and the next payload, too.
func (u *union) merge(from []wantedSource) *wantedList {
	kept := u.merged.Load()
	for m := kept; m != nil; m = m.older {
		if slices.Equal(m.from, from) {
			return m.list
		}
	}
	var words []string
	for _, s := range from {
		words = append(words, (&finding{code: headgate.ViolationNotInEnum, n: s.n, keyword: s.keyword, list: s.list}).wanted().words...)
	}
	slices.Sort(words)
	list := newWantedList(slices.Compact(words))
	u.merged.Store(&mergedWanted{from: slices.Clone(from), list: list, older: kept.newest(maxMerged - 1)})
	return list
}
