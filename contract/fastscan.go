package contract

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/jsontext"
)

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// stringEnd has the first of eight bytes that ends a run of plain characters:
// a quote, a backslash, a control character or a byte beyond ASCII. The lowest
// set bit is exact; the ones above it may be wrong.
func stringEnd(w uint64) uint64 {
	quote := w ^ 0x2222222222222222
	slash := w ^ 0x5c5c5c5c5c5c5c5c
	return ((quote-lowBits)&^quote | (slash-lowBits)&^slash | (w-0x2020202020202020)&^w | w) & highBits
}

// What scanString saw.
const (
	sawEscape = 1 << iota
	sawWide   // a byte beyond ASCII
)

// scanString reads the string whose opening quote is at i, with everything
// that the policy demands of it. It returns the position behind the closing
// quote, or bad.
func scanString(text []byte, i int) (end int, saw uint8) {
	i++
	for {
		for len(text)-i >= 8 {
			if m := stringEnd(binary.LittleEndian.Uint64(text[i:])); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		for i < len(text) && text[i] >= ' ' && text[i] < utf8.RuneSelf && text[i] != '"' && text[i] != '\\' {
			i++
		}
		if i >= len(text) {
			return bad, saw
		}
		switch c := text[i]; {
		case c == '"':
			return i + 1, saw
		case c == '\\':
			saw |= sawEscape
			if i = escapeEnd(text, i); i < 0 {
				return bad, saw
			}
		case c < ' ':
			return bad, saw
		default:
			saw |= sawWide
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				return bad, saw
			}
			i += size
		}
	}
}

// escapeEnd returns the position behind the escape at i, behind both halves of
// a surrogate pair, or bad.
func escapeEnd(text []byte, i int) int {
	if i+1 >= len(text) {
		return bad
	}
	switch text[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
	default:
		return bad
	}
	unit := hexUnit(text, i+2)
	switch {
	case unit < 0, unit >= 0xDC00 && unit < 0xE000:
		return bad
	case unit < 0xD800 || unit >= 0xE000:
		return i + 6
	}
	if i+7 >= len(text) || text[i+6] != '\\' || text[i+7] != 'u' {
		return bad
	}
	if low := hexUnit(text, i+8); low < 0xDC00 || low >= 0xE000 {
		return bad
	}
	return i + 12
}

// hexUnit reads four hexadecimal digits, or returns -1.
func hexUnit(text []byte, i int) int {
	if len(text)-i < 4 {
		return -1
	}
	unit := 0
	for _, c := range text[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			unit = unit<<4 | int(c-'0')
		case c >= 'a' && c <= 'f':
			unit = unit<<4 | int(c-'a'+10)
		case c >= 'A' && c <= 'F':
			unit = unit<<4 | int(c-'A'+10)
		default:
			return -1
		}
	}
	return unit
}

// scanNumber reads the number at i under the policy. It returns the position
// behind it, or bad; plain means that it is written in digits alone.
func scanNumber(text []byte, i int, lim *jsontext.Limits) (end int, plain bool) {
	start := i
	if text[i] == '-' {
		i++
	}
	digits := i
	for i < len(text) && isDigit(text[i]) {
		i++
	}
	if i == digits || text[digits] == '0' && i > digits+1 {
		return bad, false
	}
	plain = true
	if i < len(text) && text[i] == '.' {
		plain = false
		i++
		fraction := i
		for i < len(text) && isDigit(text[i]) {
			i++
		}
		if i == fraction {
			return bad, false
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		plain = false
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		first, exp := i, 0
		for ; i < len(text) && isDigit(text[i]); i++ {
			if exp = exp*10 + int(text[i]-'0'); exp > lim.Exponent {
				return bad, false
			}
		}
		if i == first {
			return bad, false
		}
	}
	if i-start > lim.NumberLength {
		return bad, false
	}
	return i, plain
}
