package powerloss

import (
	"path/filepath"
	"strconv"
	"strings"
)

// call is one finished or begun system call of a trace line.
type call struct {
	pid   string
	name  string
	args  []string
	ret   int64
	retFD string // the path that strace prints behind a returned descriptor
	begun bool   // only its beginning: it has not returned
	ended bool   // only its end: the arguments came earlier
}

// parseLine reads one line of `strace -f -y -s 0`. It answers false for lines
// that are no system call: signals, exits, and what it does not understand.
func parseLine(line string) (call, bool) {
	pid, rest, ok := strings.Cut(strings.TrimLeft(line, " "), " ")
	if !ok {
		return call{}, false
	}
	if _, err := strconv.Atoi(pid); err != nil {
		return call{}, false
	}
	rest = strings.TrimLeft(rest, " ")
	c := call{pid: pid}
	if resumed, ok := strings.CutPrefix(rest, "<... "); ok {
		name, tail, ok := strings.Cut(resumed, " resumed>")
		if !ok {
			return call{}, false
		}
		c.name, c.ended = name, true
		args, tail, ok := cutArgs(tail)
		if !ok {
			return call{}, false
		}
		c.args = args
		return c.result(tail)
	}
	name, tail, ok := strings.Cut(rest, "(")
	if !ok || name == "" || strings.ContainsAny(name, " +-") {
		return call{}, false
	}
	c.name = name
	if head, ok := strings.CutSuffix(tail, " <unfinished ...>"); ok {
		c.begun = true
		c.args = splitArgs(strings.TrimSuffix(strings.TrimRight(head, " "), ","))
		return c, true
	}
	args, tail, ok := cutArgs(tail)
	if !ok {
		return call{}, false
	}
	c.args = args
	return c.result(tail)
}

// result reads " = 3</path>" or " = -1 ENOENT (…)".
func (c call) result(tail string) (call, bool) {
	_, value, ok := strings.Cut(tail, "= ")
	if !ok {
		return call{}, false
	}
	end := 0
	for end < len(value) && (value[end] == '-' || value[end] >= '0' && value[end] <= '9') {
		end++
	}
	n, err := strconv.ParseInt(value[:end], 10, 64)
	if err != nil {
		return call{}, false // "?": the process died meanwhile
	}
	c.ret = n
	if path, ok := fdPath(value); ok {
		c.retFD = path
	}
	return c, true
}

// cutArgs splits "a, b) = 1" into the arguments and what follows the closing
// parenthesis.
func cutArgs(s string) (args []string, rest string, ok bool) {
	end := scan(s, func(c byte, depth int) bool { return c == ')' && depth == 0 })
	if end < 0 {
		return nil, "", false
	}
	return splitArgs(s[:end]), s[end+1:], true
}

func splitArgs(s string) []string {
	var args []string
	for {
		s = strings.TrimLeft(s, " ")
		if s == "" {
			return args
		}
		end := scan(s, func(c byte, depth int) bool { return c == ',' && depth == 0 })
		if end < 0 {
			return append(args, strings.TrimRight(s, " "))
		}
		args = append(args, s[:end])
		s = s[end+1:]
	}
}

// scan returns the index of the first byte outside of quotes and paths for
// which stop answers true, or -1.
func scan(s string, stop func(c byte, depth int) bool) int {
	depth, quoted, path := 0, false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted:
			if c == '\\' {
				i++
			} else if c == '"' {
				quoted = false
			}
		case path:
			// strace escapes '<' and '>' in paths, so the first '>' ends it.
			if c == '>' {
				path = false
			}
		case stop(c, depth):
			return i
		case c == '"':
			quoted = true
		case c == '<':
			path = true
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		}
	}
	return -1
}

// fdPath returns the path of "7</tmp/x>". A descriptor of a removed file, of a
// socket or a pipe has none.
func fdPath(arg string) (string, bool) {
	_, p, ok := strings.Cut(arg, "<")
	if !ok {
		return "", false
	}
	p, tail, ok := strings.Cut(p, ">")
	if !ok || strings.HasPrefix(tail, "(deleted)") || !strings.HasPrefix(p, "/") {
		return "", false
	}
	return unescape(p), true
}

// pathAt resolves a path argument against the folder descriptor before it.
func pathAt(folder, arg string) (string, bool) {
	p, ok := strings.CutPrefix(arg, `"`)
	if !ok {
		return "", false
	}
	p = strings.TrimSuffix(strings.TrimSuffix(p, "..."), `"`)
	p = unescape(p)
	if filepath.IsAbs(p) {
		return filepath.Clean(p), true
	}
	base, ok := fdPath(folder)
	if !ok {
		return "", false
	}
	return filepath.Join(base, p), true
}

// unescape undoes the C escapes of strace: letters, and octal numbers of one to
// three digits.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	letters := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'v': '\v', 'f': '\f'}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		n := 0
		for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
			n++
		}
		if v, err := strconv.ParseUint(s[i:i+n], 8, 8); err == nil {
			b = append(b, byte(v))
			i += n - 1
		} else if c, ok := letters[s[i]]; ok {
			b = append(b, c)
		} else {
			b = append(b, s[i])
		}
	}
	return string(b)
}
