package quarantine

import "strings"

// maxTemplateInput is how much of a message counts, in bytes.
const maxTemplateInput = 1024

// Template replaces the variable parts of an error message by names, so that
// messages of the same fault become equal: UUIDs and ULIDs, hexadecimal of 8
// digits and more, numbers and durations, times, IP addresses, mail
// addresses, quoted strings and base64. A three-digit number after a word such
// as status keeps its class (<4xx>). Repetitions in a list become one. Only
// the first KiB counts, on one line.
//
// It is one pass with bounded look-ahead and no regular expression: messages
// hold payload, and a pattern engine that backtracks could be held up by it.
func Template(message string) string {
	s := message[:min(len(message), maxTemplateInput)]
	t := templater{s: s, out: make([]byte, 0, len(s)+16)}
	for q := range t.lastQuote {
		t.lastQuote[q] = lastCloser(s, quotes[q])
	}
	for t.i < len(s) {
		t.step()
	}
	return strings.TrimSpace(string(t.out))
}

// quotes are the characters that open and close a quoted string.
var quotes = [...]byte{'"', '\'', '`'}

type templater struct {
	s   string
	i   int
	out []byte
	// lastQuote is the position of the last character that may close a quoted
	// string, per kind of quote: no search beyond it, so that many unclosed
	// quotes cost no more than one.
	lastQuote [len(quotes)]int
	// Where the last word copied stands in out, for "status 404".
	wordStart, wordEnd int
}

// step consumes at least one byte.
func (t *templater) step() {
	c := t.s[t.i]
	switch {
	case isSpace(c):
		t.space()
		return
	case t.quoted(c):
		return
	}
	if t.atBoundary() {
		for _, match := range matchers {
			if n, name := match(t.s, t.i); n > 0 {
				t.placeholder(name)
				t.i += n
				return
			}
		}
	}
	if n := matchNumber(t.s, t.i, t.atSign()); n > 0 {
		t.placeholder(t.numberName(n))
		t.i += n
		return
	}
	if isAlpha(c) {
		t.word()
		return
	}
	t.out = append(t.out, c)
	t.i++
}

// space writes any run of white space as one blank.
func (t *templater) space() {
	for t.i < len(t.s) && isSpace(t.s[t.i]) {
		t.i++
	}
	if n := len(t.out); n > 0 && t.out[n-1] != ' ' {
		t.out = append(t.out, ' ')
	}
}

// word copies letters up to the next character of another kind.
func (t *templater) word() {
	t.wordStart = len(t.out)
	for t.i < len(t.s) && isAlpha(t.s[t.i]) {
		t.out = append(t.out, t.s[t.i])
		t.i++
	}
	t.wordEnd = len(t.out)
}

// quoted replaces a quoted string that opens here, and reports whether one
// does. An apostrophe within a word opens nothing.
func (t *templater) quoted(c byte) bool {
	for q, quote := range quotes {
		if c != quote {
			continue
		}
		if quote == '\'' && t.i > 0 && isAlnum(t.s[t.i-1]) {
			return false
		}
		for j := t.i + 1; j <= t.lastQuote[q]; j++ {
			if t.s[j] == '\\' {
				j++
				continue
			}
			if t.s[j] == quote && closes(t.s, j) {
				t.placeholder("<str>")
				t.i = j + 1
				return true
			}
		}
		// Nothing closes it, also when every closer there is was escaped:
		// further openers need not look again.
		t.lastQuote[q] = -1
		return false
	}
	return false
}

// closes reports whether the quote at j ends a string: an apostrophe with a
// letter behind it does not.
func closes(s string, j int) bool {
	return s[j] != '\'' || j+1 == len(s) || !isAlnum(s[j+1])
}

func lastCloser(s string, quote byte) int {
	for j := len(s) - 1; j >= 0; j-- {
		if s[j] == quote && closes(s, j) {
			return j
		}
	}
	return -1
}

// separators of lists, longest first.
var separators = [...]string{", ", "; ", ",", ";", " ", "/", "|"}

// placeholder writes a name, unless it only repeats the one before it in a
// list.
func (t *templater) placeholder(name string) {
	for _, sep := range separators {
		n := len(t.out) - len(sep)
		if n >= len(name) && string(t.out[n:]) == sep && string(t.out[n-len(name):n]) == name {
			t.out = t.out[:n]
			return
		}
	}
	t.out = append(t.out, name...)
}

// atBoundary reports whether an id may begin here: not within a word.
func (t *templater) atBoundary() bool {
	return t.i == 0 || !isAlnum(t.s[t.i-1])
}

// atSign reports whether a "-" or "+" here is a sign and not a hyphen.
func (t *templater) atSign() bool {
	if t.i == 0 {
		return true
	}
	p := t.s[t.i-1]
	return !isAlnum(p) && p != ')' && p != ']' && p != '-' && p != '_' && p != '>'
}

// numberName keeps the class of a status code.
func (t *templater) numberName(n int) string {
	tok := t.s[t.i : t.i+n]
	if n != 3 || tok[0] < '1' || tok[0] > '5' || len(t.out)-t.wordEnd > len("/<n> ") {
		return "<n>"
	}
	switch strings.ToLower(string(t.out[t.wordStart:t.wordEnd])) {
	case "status", "code", "http", "statuscode", "returned", "response":
		return "<" + tok[:1] + "xx>"
	}
	return "<n>"
}

func isSpace(c byte) bool { return c <= ' ' || c == 0x7f }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }

// isAlpha counts every byte of a character beyond ASCII as a letter.
func isAlpha(c byte) bool { return isLower(c) || isUpper(c) || c >= 0x80 }

func isAlnum(c byte) bool { return isAlpha(c) || isDigit(c) }

func isHex(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
