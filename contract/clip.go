package contract

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of what a report echoes.
const (
	clipSample = 64  // code points of a value or name
	clipToken  = 128 // bytes of one token of a pointer
	clipAt     = 1024
)

// clip cuts s after max code points and marks the cut.
func clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	n := 0
	for i := range s {
		if n == max {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

// clipQuote returns s quoted, with control, format and other invisible
// characters escaped, cut after 64 code points.
func clipQuote(s string) string {
	c := clip(s, clipSample)
	if cut, ok := strings.CutSuffix(c, "…"); ok && len(c) < len(s)+len("…") && c != s {
		return strconv.Quote(cut) + "…"
	}
	return strconv.Quote(c)
}

// escapeToken writes a name as one token of a JSON Pointer.
func escapeToken(s string) string {
	if !strings.ContainsAny(s, "~/") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// clipPointerToken escapes a name of a payload for a pointer of a report, cut
// at 128 bytes.
func clipPointerToken(s string) string {
	if len(s) > clipToken {
		cut := clipToken
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return escapeToken(s)
}
