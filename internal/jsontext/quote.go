package jsontext

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote returns the content of a raw Name or String token. It returns a part
// of raw where nothing is escaped, whatever dst holds, and appends to dst
// otherwise.
func Unquote(dst, raw []byte) []byte {
	body := raw[1 : len(raw)-1]
	at := bytes.IndexByte(body, '\\')
	if at < 0 {
		return body
	}
	for at >= 0 {
		dst = append(dst, body[:at]...)
		dst, body = appendUnescaped(dst, body[at:])
		at = bytes.IndexByte(body, '\\')
	}
	return append(dst, body...)
}

// appendUnescaped appends the character of the escape that body starts with,
// and returns what follows it.
func appendUnescaped(dst, body []byte) (out, rest []byte) {
	c := body[1]
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		unit, end, p := hex4(body, 2)
		if p != none {
			return utf8.AppendRune(dst, utf8.RuneError), body[2:]
		}
		if utf16.IsSurrogate(unit) {
			low := rune(utf8.RuneError)
			if len(body) >= end+6 {
				low, _, _ = hex4(body, end+2)
			}
			unit, end = utf16.DecodeRune(unit, low), min(end+6, len(body))
		}
		return utf8.AppendRune(dst, unit), body[end:]
	}
	return append(dst, c), body[2:]
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string, quotes included. Invalid UTF-8 is
// replaced by U+FFFD.
func AppendString[S []byte | string](dst []byte, s S) []byte {
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			var window [utf8.UTFMax]byte
			n := copy(window[:], s[i:])
			r, size := utf8.DecodeRune(window[:n])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[done:i]...)
				dst = append(dst, "\uFFFD"...)
				done = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[done:i]...)
		dst = appendEscape(dst, c)
		i++
		done = i
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
}
