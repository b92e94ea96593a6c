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
//
// What was counted is in memory; whoever keeps it reads it with
// [Guesses.Known], takes what is new with [Guesses.Take], and hands what could
// not be kept back with [Guesses.Return].
type Guesses struct {
	mu        sync.Mutex
	bySubject guessed
	fresh     guessed // counted since the last Take
}

// guessed are guesses by subject and name.
type guessed map[string]map[string]*headgate.Guess

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
	g.init()
	for _, name := range sortedKeys(found) {
		one := headgate.Guess{Name: clip(name, clipSample), Count: 1, Meant: found[name]}
		if g.bySubject.add(v.Contract.Subject, one) {
			g.fresh.add(v.Contract.Subject, one)
		}
	}
}

func (g *Guesses) init() {
	if g.bySubject == nil {
		g.bySubject, g.fresh = guessed{}, guessed{}
	}
}

// add counts a name so many times more, and reports whether there was room for
// its subject.
func (all guessed) add(subject string, x headgate.Guess) bool {
	names := all[subject]
	if names == nil {
		if len(all) >= maxGuessSubjects {
			return false
		}
		names = map[string]*headgate.Guess{}
		all[subject] = names
	}
	if known := names[x.Name]; known != nil {
		known.Count += x.Count
		known.Meant = cmp.Or(x.Meant, known.Meant)
		return true
	}
	if len(names) >= maxGuessNames {
		list := sortedGuesses(names)
		delete(names, list[len(list)-1].Name)
	}
	names[x.Name] = &x
	return true
}

// Known adds what was counted before, and kept: it is none of what Take takes.
func (g *Guesses) Known(subject string, list []headgate.Guess) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.init()
	for _, x := range list {
		g.bySubject.add(subject, x)
	}
}

// Take returns what was counted since it was called last, by subject, the most
// frequent names first; nil when there is nothing.
func (g *Guesses) Take() map[string][]headgate.Guess {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.fresh) == 0 {
		return nil
	}
	out := make(map[string][]headgate.Guess, len(g.fresh))
	for subject, names := range g.fresh {
		out[subject] = sortedGuesses(names)
	}
	g.fresh = guessed{}
	return out
}

// Return gives back what Take took.
func (g *Guesses) Return(taken map[string][]headgate.Guess) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.init()
	for subject, list := range taken {
		for _, x := range list {
			g.fresh.add(subject, x)
		}
	}
}

// MergeGuesses adds counts to others of the same subject, and bounds what comes
// of it as [Guesses] is bounded.
func MergeGuesses(kept, more []headgate.Guess) []headgate.Guess {
	all := guessed{}
	for _, x := range kept {
		all.add("", x)
	}
	for _, x := range more {
		all.add("", x)
	}
	return sortedGuesses(all[""])
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
