package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/headgate/headgate"
)

// agentLines bounds the compact report.
const agentLines = 12

// maxAgentPatch bounds the patch that the compact report quotes, in bytes.
const maxAgentPatch = 2048

// AgentText is the compact form of a refusal for language models: at most 12
// lines, one for each violation, each starting with the verb of what to do.
// Where a JSON Patch mends the payload as a whole, the last line holds it. What
// comes from the payload is clipped, escaped and in quotes, but for the patch.
func (r *Refusal) AgentText() string {
	faults := r.Advice()
	room := agentLines
	patch := r.agentPatch()
	if patch != "" {
		room--
	}
	if len(faults)+r.Truncated > room {
		room-- // for the line that counts the rest
	}
	var lines []string
	for i := range faults[:min(len(faults), room)] {
		v := &faults[i]
		line := oneLine(v.Fix)
		if at := quoted(v.At); v.At != "" && !strings.Contains(line, at) {
			line += " (at " + at + ")"
		}
		if got := strings.TrimSuffix(oneLine(v.Got), "."); got != "" && got != "absent" && !strings.Contains(line, got) {
			line += " Found: " + got + "."
		}
		lines = append(lines, line)
	}
	if rest := len(faults) + r.Truncated - len(lines); len(lines) > 0 && rest > 0 {
		lines = append(lines, fmt.Sprintf("Mend %d more too, which the JSON report lists.", rest))
	}
	if len(lines) == 0 {
		line := oneLine(r.Fix)
		if d := oneLine(r.Detail); d != "" && !strings.Contains(line, d) {
			line += " (" + string(r.Code) + ": " + d + ")"
		} else {
			line += " (" + string(r.Code) + ")"
		}
		lines = append(lines, line)
	}
	if patch != "" {
		lines = append(lines, patch)
	}
	return strings.Join(lines, "\n") + "\n"
}

// Advice returns the violations without those whose fix another one says
// already: a property under a wrong name is missing and unknown at once, and is
// renamed once.
func (r *Refusal) Advice() []headgate.Violation {
	renamed := map[string]bool{}
	for i := range r.Violations {
		if v := &r.Violations[i]; v.Code == headgate.ViolationMissingRequired && len(v.Near) > 0 {
			object, name := cutPointer(v.At)
			renamed[object+"\n"+v.Near[0]+"\n"+name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(r.Violations), func(v headgate.Violation) bool {
		object, name := cutPointer(v.At)
		return v.Code == headgate.ViolationUnknownProperty && len(v.Near) > 0 && renamed[object+"\n"+name+"\n"+v.Near[0]]
	})
}

// cutPointer splits the last token, decoded, off a JSON Pointer.
func cutPointer(at string) (object, name string) {
	i := max(strings.LastIndexByte(at, '/'), 0)
	name = strings.TrimPrefix(at[i:], "/")
	return at[:i], strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
}

// agentPatch is the line with the patch of the best proposal, if a patch is all
// that the payload needs. A model does what it is told: only a patch that loses
// nothing is told to be applied, a guess is put to it as one.
func (r *Refusal) agentPatch() string {
	if len(r.Proposals) == 0 {
		return ""
	}
	p := &r.Proposals[0]
	if len(p.Patch) == 0 || len(p.Cuts) > 0 || p.Decode {
		return ""
	}
	text, err := json.Marshal(p.Patch)
	if err != nil || len(text) > maxAgentPatch {
		return ""
	}
	what := "Apply this JSON Patch (RFC 6902) instead, which loses nothing and after which the payload is valid: "
	if !p.Lossless {
		what = "Consider this JSON Patch (RFC 6902), a guess (" + guessWords(p) + ") after which the payload is valid; apply it only if the result is what you mean: "
	}
	return what + escaped(string(text))
}

// guessWords names the steps of a proposal that are guesses, each once, and how
// sure the least certain is.
func guessWords(p *headgate.Proposal) string {
	var steps []string
	for i := range p.Steps {
		if s := string(p.Steps[i].Step); !p.Steps[i].Lossless && !slices.Contains(steps, s) {
			steps = append(steps, s)
		}
	}
	return strings.Join(append(steps, "confidence "+strconv.FormatFloat(p.Confidence, 'g', 3, 64)), ", ")
}

// quoted clips a pointer, which holds names of the payload, and puts it in quotes.
func quoted(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(s)
}

// escaped writes what is not to be seen in a JSON text as escapes, so that the
// text still means the same.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// oneLine keeps a report line in its line, and free of what is not to be seen.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
