package quarantine

import (
	"strconv"
	"strings"
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
	var b strings.Builder
	room := limit - len(ellipsis)
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		part := s[:size]
		switch {
		case r == utf8.RuneError && size <= 1:
			part = `\x` + hexByte(s[0])
		case r == '\n' && lines:
		case !printable(r):
			part = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		if b.Len()+len(part) > room {
			if b.Len()+len(part) <= limit && len(s) == size {
				b.WriteString(part)
				return b.String()
			}
			b.WriteString(ellipsis)
			return b.String()
		}
		b.WriteString(part)
		s = s[size:]
	}
	return b.String()
}

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

func hexByte(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}
