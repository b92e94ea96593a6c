package contract

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/headgate/headgate"
)

func TestGuesses(t *testing.T) {
	c := compileOK(t, repairSchema)
	var g Guesses
	for _, payload := range []string{`{"sub_pat":1}`, `{"sub_pat":"a"}`, `{"sub_path":"a","note/to self":1}`, `{"sub_path":"a","count":"x"}`} {
		v, _ := c.Report([]byte(payload))
		g.Add(v)
	}
	g.Add(nil)
	want := []headgate.Guess{{Name: "sub_pat", Count: 2, Meant: "sub_path"}, {Name: "note/to self", Count: 1}}
	if got := g.Of("test"); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := g.Of("other"); got != nil {
		t.Errorf("%+v", got)
	}
	var none *Guesses
	none.Add(&headgate.Verdict{})
	if none.Of("t") != nil {
		t.Error("nil guesses")
	}
}

// However many names come, memory is bounded and the frequent ones stay.
func TestGuessesAreBounded(t *testing.T) {
	var g Guesses
	unknown := func(subject, name string) *headgate.Verdict {
		return &headgate.Verdict{
			Contract:   headgate.ContractRef{Subject: subject},
			Violations: []headgate.Violation{{Code: headgate.ViolationUnknownProperty, At: "/" + name}},
		}
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 3000 {
				g.Add(unknown("s", "frequent"))
				g.Add(unknown("s", fmt.Sprint(w, i)))
				g.Add(unknown(fmt.Sprint("subject", w, i), "x"))
			}
		})
	}
	wg.Wait()
	got := g.Of("s")
	if len(got) != maxGuessNames || got[0].Name != "frequent" || got[0].Count != 12000 || len(g.bySubject) > maxGuessSubjects {
		t.Errorf("%d names of %d subjects, first %+v", len(got), len(g.bySubject), got[0])
	}
}
