package jsontext

import (
	"encoding/binary"
	"unicode/utf8"
)

// problem is a fault before it has been located and put into words.
type problem uint8

const (
	none problem = iota
	unexpected
	missingColon
	badLiteral
	badNumber
	badEscape
	badControl
	openString
	badUTF8
	loneSurrogate
	tooDeep
	longNumber
	bigExponent
	duplicateName
)

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// special reports whether one of eight bytes ends a run of plain characters:
// a quote, a backslash, a control character or a byte beyond ASCII. The
// subtractions may borrow from a byte that is special itself, so that the
// answer is exact as a whole though not for each byte.
func special(w uint64) bool {
	quote := w ^ 0x2222222222222222
	slash := w ^ 0x5c5c5c5c5c5c5c5c
	return ((quote-lowBits)&^quote|(slash-lowBits)&^slash|(w-0x2020202020202020)|w)&highBits != 0
}

// scanString reads the string whose opening quote is at i. It returns the
// offset after the closing quote, or the offset of the problem.
func scanString(text []byte, i int) (end int, escaped bool, p problem) {
	i++
	for {
		for len(text)-i >= 8 && !special(binary.LittleEndian.Uint64(text[i:])) {
			i += 8
		}
		for i < len(text) && plain[text[i]] {
			i++
		}
		if i >= len(text) {
			return i, escaped, openString
		}
		switch c := text[i]; {
		case c == '"':
			return i + 1, escaped, none
		case c == '\\':
			escaped = true
			next, p := scanEscape(text, i)
			if p != none {
				return next, escaped, p
			}
			i = next
		case c < ' ':
			return i, escaped, badControl
		default:
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				return i, escaped, badUTF8
			}
			i += size
		}
	}
}

// plain marks the bytes that stand for themselves in a string.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// scanEscape reads the escape whose backslash is at i, a whole surrogate pair
// included.
func scanEscape(text []byte, i int) (int, problem) {
	if i+1 >= len(text) {
		return len(text), openString
	}
	switch text[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, none
	case 'u':
	default:
		return i + 1, badEscape
	}
	unit, end, p := hex4(text, i+2)
	if p != none {
		return end, p
	}
	switch {
	case unit >= 0xDC00 && unit < 0xE000:
		return i, loneSurrogate
	case unit < 0xD800 || unit >= 0xE000:
		return end, none
	}
	if end >= len(text) || end+1 >= len(text) && text[end] == '\\' {
		return len(text), openString
	}
	if text[end] != '\\' || text[end+1] != 'u' {
		return i, loneSurrogate
	}
	low, end2, p := hex4(text, end+2)
	if p != none {
		return end2, p
	}
	if low < 0xDC00 || low >= 0xE000 {
		return i, loneSurrogate
	}
	return end2, none
}

func hex4(text []byte, i int) (unit rune, end int, p problem) {
	for n := range 4 {
		if i+n >= len(text) {
			return 0, len(text), openString
		}
		d, valid := hexDigit(text[i+n])
		if !valid {
			return 0, i + n, badEscape
		}
		unit = unit<<4 | d
	}
	return unit, i + 4, none
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0'), true
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10, true
	}
	return 0, false
}

// scanNumber reads the number that starts at i. It returns the offset after
// it, or the offset of the problem; for a limit that is the number's start.
func scanNumber(text []byte, i int, lim *Limits) (int, problem) {
	start := i
	if text[i] == '-' {
		i++
	}
	switch {
	case i >= len(text) || text[i] < '0' || text[i] > '9':
		return i, badNumber
	case text[i] == '0':
		i++
	default:
		i = skipDigits(text, i)
	}
	if i < len(text) && text[i] == '.' {
		if i+1 >= len(text) || text[i+1] < '0' || text[i+1] > '9' {
			return i + 1, badNumber
		}
		i = skipDigits(text, i+1)
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		digits := i
		if i = skipDigits(text, i); i == digits {
			return i, badNumber
		}
		if exponentExceeds(text[digits:i], lim.Exponent) {
			return start, bigExponent
		}
	}
	if i-start > lim.NumberLength {
		return start, longNumber
	}
	return i, none
}

func skipDigits(text []byte, i int) int {
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	return i
}

func exponentExceeds(digits []byte, limit int) bool {
	n := 0
	for _, c := range digits {
		if n = n*10 + int(c-'0'); n > limit {
			return true
		}
	}
	return false
}
