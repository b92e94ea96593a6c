package quarantine

import "strings"

// matchers recognise an id at a position of a text where a word begins, best
// first, and return its length and name, or 0. Each looks at a bounded number
// of bytes.
var matchers = [...]func(s string, i int) (int, string){
	matchUUID, matchTime, matchMail, matchIPv4, matchIPv6, matchULID, matchHex, matchBase64,
}

// ends reports whether no word goes on at i.
func ends(s string, i int) bool { return i >= len(s) || !isAlnum(s[i]) }

// run returns the end of the run of accepted bytes from i on, at most limit.
func run(s string, i, limit int, accept func(byte) bool) int {
	end := min(len(s), i+limit)
	for i < end && accept(s[i]) {
		i++
	}
	return i
}

// matchUUID: 8-4-4-4-12 hexadecimal digits.
func matchUUID(s string, i int) (int, string) {
	const size = 36
	if i+size > len(s) || !ends(s, i+size) {
		return 0, ""
	}
	for k := range size {
		c := s[i+k]
		if k == 8 || k == 13 || k == 18 || k == 23 {
			if c != '-' {
				return 0, ""
			}
		} else if !isHex(c) {
			return 0, ""
		}
	}
	return size, "<uuid>"
}

// matchULID: 26 characters of Crockford's base 32, upper case, the first of
// them 0 to 7.
func matchULID(s string, i int) (int, string) {
	const size = 26
	if i+size > len(s) || !ends(s, i+size) || s[i] < '0' || s[i] > '7' {
		return 0, ""
	}
	for k := range size {
		c := s[i+k]
		if !isDigit(c) && (!isUpper(c) || strings.IndexByte("ILOU", c) >= 0) {
			return 0, ""
		}
	}
	return size, "<ulid>"
}

// matchHex: 8 or more hexadecimal digits, or any number after 0x. Without one
// decimal digit among them it needs 16, since words such as "defaced" exist. It
// has the name of a number: of eight random digits, one in forty has no letter.
func matchHex(s string, i int) (int, string) {
	if strings.HasPrefix(s[i:], "0x") || strings.HasPrefix(s[i:], "0X") {
		if end := run(s, i+2, maxTemplateInput, isHex); end > i+2 && ends(s, end) {
			return end - i, "<n>"
		}
		return 0, ""
	}
	end := run(s, i, maxTemplateInput, isHex)
	n := end - i
	if n < 8 || !ends(s, end) {
		return 0, ""
	}
	digits, letters := 0, 0
	for _, c := range []byte(s[i:end]) {
		if isDigit(c) {
			digits++
		} else {
			letters++
		}
	}
	if letters == 0 || digits == 0 && n < 16 {
		return 0, "" // a number, or a word
	}
	return n, "<n>"
}

// matchMail: local@domain, with a dot or localhost behind the @.
func matchMail(s string, i int) (int, string) {
	const local, domain = 64, 255
	at := run(s, i, local, func(c byte) bool {
		return isAlnum(c) || c == '.' || c == '_' || c == '%' || c == '+' || c == '-'
	})
	if at == i || at >= len(s) || s[at] != '@' {
		return 0, ""
	}
	end := run(s, at+1, domain, func(c byte) bool { return isAlnum(c) || c == '.' || c == '-' })
	for end > at+1 && !isAlnum(s[end-1]) {
		end-- // a full stop behind the address
	}
	if host := s[at+1 : end]; host != "localhost" && strings.IndexByte(host, '.') < 0 {
		return 0, ""
	}
	return end - i, "<mail>"
}

// matchIPv4: four numbers of up to three digits, and a port.
func matchIPv4(s string, i int) (int, string) {
	j := i
	for k := range 4 {
		if k > 0 {
			if j >= len(s) || s[j] != '.' {
				return 0, ""
			}
			j++
		}
		end := run(s, j, 3, isDigit)
		if end == j {
			return 0, ""
		}
		j = end
	}
	if !ends(s, j) || j+1 < len(s) && s[j] == '.' && isDigit(s[j+1]) {
		return 0, ""
	}
	return port(s, j) - i, "<ip>"
}

// matchIPv6: groups of up to four hexadecimal digits with colons, at least
// two of them, one of them double unless there are eight groups; also in
// brackets with a port. A time such as 10:20:30 was matched before.
func matchIPv6(s string, i int) (int, string) {
	j, bracket := i, false
	if s[j] == '[' {
		bracket = true
		j++
	}
	start, colons, double, group := j, 0, false, 0
	for ; j < len(s) && j-start < 45; j++ {
		switch c := s[j]; {
		case c == ':':
			if j > start && s[j-1] == ':' {
				double = true
			}
			colons++
			group = 0
			continue
		case isHex(c) && group < 4:
			group++
			continue
		}
		break
	}
	for j > start+1 && s[j-1] == ':' && s[j-2] != ':' {
		j-- // a colon behind the address
		colons--
	}
	if colons < 2 || !double && colons != 7 || !ends(s, j) {
		return 0, ""
	}
	if bracket {
		if j >= len(s) || s[j] != ']' {
			return 0, ""
		}
		return port(s, j+1) - i, "<ip>"
	}
	return j - i, "<ip>"
}

// port returns the end of a ":PORT" at j, or j.
func port(s string, j int) int {
	if j < len(s) && s[j] == ':' {
		if end := run(s, j+1, 5, isDigit); end > j+1 && ends(s, end) {
			return end
		}
	}
	return j
}

// matchBase64: 24 or more characters of standard or URL-safe base 64, with
// digits and both cases so mixed that it is neither a word in camel case nor a
// path. The parts of a JSON web token are one.
func matchBase64(s string, i int) (int, string) {
	const shortest = 24
	end := run(s, i, maxTemplateInput, func(c byte) bool {
		return c < 0x80 && isAlnum(c) || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
	})
	if end-i < shortest || !dense(s[i:end]) {
		return 0, ""
	}
	n := end - i
	if end+1 < len(s) && s[end] == '.' && isAlnum(s[end+1]) {
		if m, _ := matchBase64(s[:min(len(s), end+1+maxTemplateInput)], end+1); m > 0 {
			n += 1 + m
		}
	}
	return n, "<blob>"
}

// dense reports whether upper case, lower case and digits all occur and
// change places in at least 9 of 20 neighbours: two thirds do in random
// base 64, one third in CamelCase2Names, fewer in paths.
func dense(s string) bool {
	class := func(c byte) int {
		switch {
		case isUpper(c):
			return 1
		case isLower(c):
			return 2
		case isDigit(c):
			return 4
		}
		return 0
	}
	seen, changes := 0, 0
	for k := range len(s) {
		c := class(s[k])
		seen |= c
		if k > 0 && class(s[k-1]) != c {
			changes++
		}
	}
	return seen == 7 && changes*20 >= (len(s)-1)*9
}
