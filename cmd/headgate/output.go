package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// printJSON prints a value as one indented JSON text.
func (a *app) printJSON(v any) error {
	text, err := jsonText(v, "  ")
	if err != nil {
		return err
	}
	_, err = a.out.Write(text)
	return err
}

// jsonText returns JSON that is safe to look at, too: what could change how a
// terminal shows the text around it is escaped.
func jsonText(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return safeJSON(b.Bytes()), nil
}

// safeJSON escapes in JSON what a terminal would act on. Control characters
// below a space are escaped in any JSON already.
func safeJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r >= 0x7f && unsafeRune(r) }) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for _, r := range string(text) {
		if r >= 0x7f && unsafeRune(r) { // stands in strings alone
			out = fmt.Appendf(out, "\\u%04x", r)
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

// print prints v as JSON with --json, else by the function.
func (a *app) print(v any, human func(w io.Writer)) error {
	if a.json {
		return a.printJSON(v)
	}
	human(a.out)
	return nil
}

// next suggests one command to type next.
func (a *app) next(format string, args ...any) {
	a.suggested = true
	if !a.quiet && !a.json {
		fmt.Fprintf(a.err, "next: "+format+"\n", args...)
	}
}

// table prints rows in aligned columns under a header.
func table(w io.Writer, header string, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = plain(row[i])
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
}

// plain makes text safe for a terminal: control characters become "·".
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unsafeRune(r) {
			return '·'
		}
		return r
	}, s)
}

// unsafeRune reports whether a terminal acts on a character, or shows what
// stands around it elsewhere.
func unsafeRune(r rune) bool {
	return r < 0x20 || (r >= 0x7f && r < 0xa0) || r == 0x2028 || r == 0x2029 || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

// printError prints an error with what to do about it.
func (a *app) printError(err error) {
	e := headgate.AsError(err)
	if e == nil {
		if a.json {
			e = headgate.NewError(headgate.CodeInternal, "%s", err.Error())
		} else {
			fmt.Fprintf(a.err, "error: %s\n", plain(err.Error()))
			return
		}
	}
	refusal := api.NewRefusal(e)
	if a.json {
		if text, err := jsonText(refusal, ""); err == nil {
			_, _ = a.err.Write(text) // stderr is all there is
		}
		return
	}
	if a.agent {
		_, _ = io.WriteString(a.err, refusal.AgentText()) // stderr is all there is
		return
	}
	detail := around(err, e) + firstOf(refusal.Detail, e.Info().Title)
	fmt.Fprintf(a.err, "%s: %s\n", e.Code, strings.ReplaceAll(plainLines(detail), "\n", "\n  "))
	printViolations(a.err, refusal)
	if refusal.Fix != "" {
		fmt.Fprintf(a.err, "fix: %s\n", plain(refusal.Fix))
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(a.err, "retry after: %s\n", e.RetryAfter.Round(time.Millisecond))
	}
	if refusal.Quarantine != "" {
		a.next("headgate quarantine show %s", refusal.Quarantine)
	}
}

// around returns what the callers of the function that failed put before its
// error: the setting, file or principal that it is about.
func around(err error, e *headgate.Error) string {
	before, _, found := strings.Cut(err.Error(), e.Error())
	if !found {
		return ""
	}
	return before
}

func printViolations(w io.Writer, r api.Refusal) {
	for _, v := range r.Advice() {
		at := v.At
		if at == "" {
			at = "(document)"
		}
		fmt.Fprintf(w, "  %s %s: %s\n", plain(at), v.Code, plain(v.Fix))
	}
	if r.Truncated > 0 {
		fmt.Fprintf(w, "  and %d more\n", r.Truncated)
	}
	for i := range r.Proposals {
		printProposal(w, &r.Proposals[i])
	}
}

// printProposal prints one way to mend a payload.
func printProposal(w io.Writer, p *headgate.Proposal) {
	kind := "guesses"
	if p.Lossless {
		kind = "lossless"
	}
	fmt.Fprintf(w, "  valid after (%s, confidence %.2g):\n", kind, p.Confidence)
	for _, s := range p.Steps {
		fmt.Fprintf(w, "    %s %s: %s\n", s.Step, plain(firstOf(s.At, "(document)")), s.Reason)
	}
	if text, err := json.Marshal(p.Patch); err == nil && len(p.Patch) > 0 {
		fmt.Fprintf(w, "    patch %s\n", safeJSON(text))
	}
}

// when prints a time for people: local, to the second; "-" for none.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
