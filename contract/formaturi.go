package contract

import "strings"

// What a byte may be in a URI or a template, one bit each.
const (
	uriPlain    = 1 << iota // unreserved or a sub-delimiter
	uriColon                // ":"
	uriAt                   // "@"
	uriSlash                // "/"
	uriQuestion             // "?"
	uriLiteral              // a literal of a template, as it stands

	uriPath = uriPlain | uriColon | uriAt | uriSlash
	uriTail = uriPath | uriQuestion
)

var uriClasses = func() (t [256]uint8) {
	for i := range t {
		c := byte(i)
		if isAlpha(c) || isDigit(c) || strings.IndexByte("-._~!$&'()*+,;=", c) >= 0 {
			t[i] |= uriPlain
		}
		if c > ' ' && c != 0x7F && strings.IndexByte("\"<>\\^`{|}%", c) < 0 {
			t[i] |= uriLiteral
		}
	}
	t[':'] |= uriColon
	t['@'] |= uriAt
	t['/'] |= uriSlash
	t['?'] |= uriQuestion
	return t
}()

// isURI checks URI of RFC 3986, appendix A: a scheme is demanded.
func isURI(s string) bool {
	if isPlainHTTPS(s) {
		return true
	}
	colon := strings.IndexByte(s, ':')
	return colon > 0 && isScheme(s[:colon]) && isReference(s[colon+1:], true)
}

// isPlainHTTPS recognises the most common form in one pass: https, a host, and
// a path without anything to decode.
func isPlainHTTPS(s string) bool {
	const scheme = "https://"
	if len(s) <= len(scheme) || s[:len(scheme)] != scheme {
		return false
	}
	i := len(scheme)
	for i < len(s) && uriClasses[s[i]]&uriPlain != 0 {
		i++
	}
	if i < len(s) && s[i] != '/' {
		return false
	}
	for i < len(s) && uriClasses[s[i]]&uriPath != 0 {
		i++
	}
	return i == len(s)
}

// isURIReference checks URI-reference of RFC 3986, appendix A.
func isURIReference(s string) bool { return isURI(s) || isReference(s, false) }

func isScheme(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlpha(c) && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// isReference checks what follows the scheme. Without one, the first segment
// of a path without authority has no colon.
func isReference(s string, afterScheme bool) bool {
	s, fragment, _ := strings.Cut(s, "#")
	s, query, _ := strings.Cut(s, "?")
	if !uriChars(fragment, uriTail) || !uriChars(query, uriTail) {
		return false
	}
	if rest, ok := strings.CutPrefix(s, "//"); ok {
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			slash = len(rest)
		}
		return isAuthority(rest[:slash]) && uriChars(rest[slash:], uriPath)
	}
	if first, _, _ := strings.Cut(s, "/"); !afterScheme && strings.Contains(first, ":") {
		return false
	}
	return uriChars(s, uriPath)
}

func isAuthority(s string) bool {
	if user, host, ok := strings.Cut(s, "@"); ok {
		if !uriChars(user, uriPlain|uriColon) {
			return false
		}
		s = host
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		address, port, ok := strings.Cut(inner, "]")
		if !ok || !isIPv6(address) && !isIPvFuture(address) {
			return false
		}
		return port == "" || port[0] == ':' && portDigits(port[1:])
	}
	host, port, _ := strings.Cut(s, ":")
	return uriChars(host, uriPlain) && portDigits(port)
}

func portDigits(s string) bool {
	_, ok := allDigits(s)
	return s == "" || ok
}

func isIPvFuture(s string) bool {
	if len(s) < 4 || s[0] != 'v' && s[0] != 'V' {
		return false
	}
	version, rest, ok := strings.Cut(s[1:], ".")
	if !ok || version == "" || rest == "" || strings.Contains(rest, "%") {
		return false
	}
	for i := range len(version) {
		if !isHex(version[i]) {
			return false
		}
	}
	return uriChars(rest, uriPlain|uriColon)
}

// uriChars checks for characters of the classes and for percent-encoded ones.
func uriChars(s string, classes uint8) bool {
	i := 0
	for ; i+4 <= len(s); i += 4 { // most have no escape
		if uriClasses[s[i]]&classes == 0 || uriClasses[s[i+1]]&classes == 0 || uriClasses[s[i+2]]&classes == 0 || uriClasses[s[i+3]]&classes == 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if uriClasses[s[i]]&classes != 0 {
			continue
		}
		if s[i] != '%' || i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return false
		}
		i += 2
	}
	return true
}

// isURITemplate checks RFC 6570, section 2, with the apostrophe in literals
// that an erratum to it allows.
func isURITemplate(s string) bool {
	for s != "" {
		open := strings.IndexByte(s, '{')
		if open < 0 {
			return isTemplateLiteral(s)
		}
		end := strings.IndexByte(s, '}')
		if end < open || !isTemplateLiteral(s[:open]) || !isExpression(s[open+1:end]) {
			return false
		}
		s = s[end+1:]
	}
	return true
}

func isTemplateLiteral(s string) bool { return uriChars(s, uriLiteral) }

func isExpression(s string) bool {
	if s != "" && strings.IndexByte("+#./;?&=,!@|", s[0]) >= 0 {
		s = s[1:]
	}
	for spec := range strings.SplitSeq(s, ",") {
		if !isVarSpec(spec) {
			return false
		}
	}
	return true
}

func isVarSpec(s string) bool {
	if name, ok := strings.CutSuffix(s, "*"); ok {
		s = name
	} else if name, length, ok := strings.Cut(s, ":"); ok {
		if _, ok := allDigits(length); !ok || len(length) > 4 || length[0] == '0' {
			return false
		}
		s = name
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" {
			return false
		}
		for i := 0; i < len(part); i++ {
			c := part[i]
			switch {
			case isAlpha(c), isDigit(c), c == '_':
			case c == '%' && i+2 < len(part) && isHex(part[i+1]) && isHex(part[i+2]):
				i += 2
			default:
				return false
			}
		}
	}
	return true
}
