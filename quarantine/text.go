package quarantine

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Limits of the texts of a record, in bytes.
const (
	maxMessage    = 512  // the one line of lists
	maxDetailText = 4096 // a longer text of the detail
	maxName       = 256  // names: principals, outcomes, doors
	maxAttribute  = 2048 // one attribute of an event
)

// cleanLine makes text safe to print as one line on a terminal: control and
// format characters (escape sequences, line breaks, bidirectional overrides)
// are written as Go escapes, invalid UTF-8 byte by byte, and the result is cut
// to limit bytes with "…" at a character's border.
func cleanLine(s string, limit int) string { return clean(s, limit, false) }

// cleanText is cleanLine for text of several lines: it keeps line feeds.
func cleanText(s string, limit int) string { return clean(s, limit, true) }

func clean(s string, limit int, lines bool) string {
	if len(s) <= limit && plain(s) {
		return s
	}
	const ellipsis = "…"
	out := make([]byte, 0, min(len(s), limit)+16)
	cut := 0 // the last border with room for the ellipsis
	for len(s) > 0 && len(out) <= limit {
		if len(out) <= limit-len(ellipsis) {
			cut = len(out)
		}
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size <= 1:
			out = append(out, '\\', 'x', hexDigits[s[0]>>4], hexDigits[s[0]&15])
		case r == '\n' && lines || printable(r):
			out = append(out, s[:size]...)
		default:
			quoted := strconv.AppendQuoteRuneToASCII(nil, r)
			out = append(out, quoted[1:len(quoted)-1]...)
		}
		s = s[size:]
	}
	if len(out) > limit {
		out = append(out[:cut], ellipsis...)
	}
	return string(out)
}

const hexDigits = "0123456789abcdef"

// plain reports whether s is printable ASCII, the usual case.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// printable excludes controls, formats (bidirectional overrides among them),
// surrogates, private use, and every space but U+0020.
func printable(r rune) bool { return unicode.IsPrint(r) }
