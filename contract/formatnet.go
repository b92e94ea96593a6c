package contract

import (
	"net/netip"
	"strings"
	"unicode/utf8"
)

// isIPv4 checks dotted decimals without leading zeros.
func isIPv4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}

// isIPv6 checks RFC 4291, section 2.2, without a zone.
func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && a.Zone() == ""
}

// isHostname checks RFC 1123, section 2.1, in ASCII: labels of 1 to 63
// letters, digits and inner hyphens, 253 in all. A label in ACE form ("xn--")
// must at least decode; no other label has hyphens in its third and fourth
// place.
func isHostname(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		if c := label[i]; !isAlpha(c) && !isDigit(c) && c != '-' {
			return false
		}
	}
	if len(label) >= 4 && label[2] == '-' && label[3] == '-' {
		return (label[0] == 'x' || label[0] == 'X') && (label[1] == 'n' || label[1] == 'N') && isPunycode(label[4:])
	}
	return true
}

// isPunycode reports whether s decodes under RFC 3492, section 6.2. Which code
// points IDNA allows in a name is not checked.
func isPunycode(s string) bool {
	const base, tmin, tmax, skew, damp = 36, 1, 26, 38, 700
	count := 0
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		count, s = i, s[i+1:]
	}
	if s == "" {
		return false
	}
	n, bias, i := 128, 72, 0
	for s != "" {
		old, w := i, 1
		for k := base; ; k += base {
			if s == "" {
				return false
			}
			d := punycodeDigit(s[0])
			s = s[1:]
			if d < 0 || d > (1<<31-1-i)/w {
				return false
			}
			i += d * w
			t := min(max(k-bias, tmin), tmax)
			if d < t {
				break
			}
			w *= base - t
			if w > 1<<31-1 {
				return false
			}
		}
		count++
		delta := i - old
		if old == 0 {
			delta /= damp
		} else {
			delta /= 2
		}
		delta += delta / count
		k := 0
		for ; delta > (base-tmin)*tmax/2; k += base {
			delta /= base - tmin
		}
		bias = k + (base-tmin+1)*delta/(delta+skew)
		n += i / count
		i = i%count + 1
		if n > utf8.MaxRune || n >= 0xD800 && n <= 0xDFFF {
			return false
		}
	}
	return true
}

func punycodeDigit(c byte) int {
	switch {
	case isDigit(c):
		return int(c-'0') + 26
	case c >= 'a' && c <= 'z':
		return int(c - 'a')
	case c >= 'A' && c <= 'Z':
		return int(c - 'A')
	}
	return -1
}

// isEmail checks Mailbox of RFC 5321, section 4.1.2, in ASCII: dot-string or
// quoted-string, "@", host name or address literal.
func isEmail(s string) bool {
	at := strings.LastIndexByte(s, '@')
	if at < 1 || at > 64 || len(s) > 254 {
		return false
	}
	local, domain := s[:at], s[at+1:]
	if local[0] == '"' {
		if !isQuotedString(local) {
			return false
		}
	} else if !isDotString(local) {
		return false
	}
	if inner, ok := strings.CutPrefix(domain, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if v6, is6 := strings.CutPrefix(inner, "IPv6:"); is6 {
			return ok && isIPv6(v6)
		}
		return ok && isIPv4(inner)
	}
	return isHostname(domain)
}

func isDotString(s string) bool {
	for atom := range strings.SplitSeq(s, ".") {
		if atom == "" {
			return false
		}
		for i := range len(atom) {
			if c := atom[i]; !isAlpha(c) && !isDigit(c) && strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) < 0 {
				return false
			}
		}
	}
	return true
}

func isQuotedString(s string) bool {
	if len(s) < 2 || s[len(s)-1] != '"' {
		return false
	}
	s = s[1 : len(s)-1]
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < ' ' || c > '~' || c == '"':
			return false
		case c == '\\':
			i++
			if i == len(s) || s[i] < ' ' || s[i] > '~' {
				return false
			}
		}
	}
	return true
}
