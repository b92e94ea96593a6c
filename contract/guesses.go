package contract

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate"
)

// Bounds of what is remembered of guessed names.
const (
	maxGuessSubjects = 4096
	maxGuessNames    = 64
)

// Guesses counts, for each contract subject, the property names that refused
// payloads had and the contract has not: what senders take the names to be.
// Owners make aliases of the frequent ones, or rename what misleads. The zero
// value is ready to use. It is safe for concurrent use, and bounded: where a
// subject has met more than 64 names, the rarest make room, so that counts of
// rare names are too low.
type Guesses struct {
	mu        sync.Mutex
	bySubject map[string]map[string]*headgate.Guess
}

// Add counts the guessed names of a verdict, each once.
func (g *Guesses) Add(v *headgate.Verdict) {
	if g == nil || v == nil {
		return
	}
	found := map[string]string{}
	for i := range v.Violations {
		x := &v.Violations[i]
		last := x.At[strings.LastIndexByte(x.At, '/')+1:]
		name := strings.ReplaceAll(strings.ReplaceAll(last, "~1", "/"), "~0", "~")
		switch {
		case name == hiddenMark:
		case x.Code == headgate.ViolationUnknownProperty:
			meant := found[name]
			if len(x.Near) > 0 {
				meant = cmp.Or(meant, x.Near[0])
			}
			found[name] = meant
		case x.Code == headgate.ViolationMissingRequired && len(x.Near) > 0:
			found[x.Near[0]] = name
		}
	}
	if len(found) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	names := g.bySubject[v.Contract.Subject]
	if names == nil {
		if len(g.bySubject) >= maxGuessSubjects {
			return
		}
		if g.bySubject == nil {
			g.bySubject = map[string]map[string]*headgate.Guess{}
		}
		names = map[string]*headgate.Guess{}
		g.bySubject[v.Contract.Subject] = names
	}
	for _, name := range sortedKeys(found) {
		count(names, clip(name, clipSample), found[name])
	}
}

func count(names map[string]*headgate.Guess, name, meant string) {
	if known := names[name]; known != nil {
		known.Count++
		known.Meant = cmp.Or(meant, known.Meant)
		return
	}
	if len(names) >= maxGuessNames {
		all := sortedGuesses(names)
		delete(names, all[len(all)-1].Name)
	}
	names[name] = &headgate.Guess{Name: name, Count: 1, Meant: meant}
}

// Of returns the guessed names of a subject, the most frequent first.
func (g *Guesses) Of(subject string) []headgate.Guess {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return sortedGuesses(g.bySubject[subject])
}

func sortedGuesses(names map[string]*headgate.Guess) []headgate.Guess {
	var out []headgate.Guess
	for _, guess := range names {
		out = append(out, *guess)
	}
	slices.SortFunc(out, func(a, b headgate.Guess) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return out
}
