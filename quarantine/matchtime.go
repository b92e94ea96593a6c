package quarantine

import "strings"

// matchTime: a date (2026-11-30, 2026/11/30), a time of day (10:20, 10:20:30.5,
// with a zone), or both, joined by "T" or a blank; and what HTTP and syslog
// write (Mon, 30 Nov 2026 10:20:30 GMT; Nov 30 10:20:30).
func matchTime(s string, i int) (int, string) {
	if end := isoTime(s, i); end > i {
		return end - i, "<time>"
	}
	if end := namedTime(s, i); end > i {
		return end - i, "<time>"
	}
	return 0, ""
}

func isoTime(s string, i int) int {
	date := isoDate(s, i)
	if date == i {
		if i > 0 && s[i-1] == ':' {
			return i // line and column, as in file.go:12:45
		}
		return clock(s, i)
	}
	if date < len(s) && (s[date] == 'T' || s[date] == 't' || s[date] == ' ' || s[date] == '_') {
		if end := clock(s, date+1); end > date+1 {
			return end
		}
	}
	if !ends(s, date) {
		return i
	}
	return date
}

// isoDate returns the end of YYYY-MM-DD or YYYY/MM/DD, or i.
func isoDate(s string, i int) int {
	const size = 10
	if i+size > len(s) {
		return i
	}
	for k := range size {
		c := s[i+k]
		if k == 4 || k == 7 {
			if c != '-' && c != '/' || c != s[i+4] {
				return i
			}
		} else if !isDigit(c) {
			return i
		}
	}
	return i + size
}

// clock returns the end of HH:MM, HH:MM:SS or HH:MM:SS.fraction with an
// optional zone, or i.
func clock(s string, i int) int {
	j := run(s, i, 2, isDigit)
	if j != i+2 {
		return i
	}
	for range 2 {
		if j+3 > len(s) || s[j] != ':' || !isDigit(s[j+1]) || !isDigit(s[j+2]) {
			break
		}
		j += 3
	}
	if j == i+2 || j < len(s) && (isDigit(s[j]) || s[j] == ':' && j+1 < len(s) && isHex(s[j+1])) {
		return i // no minutes, a longer number, or an IPv6 address
	}
	if j+1 < len(s) && (s[j] == '.' || s[j] == ',') && isDigit(s[j+1]) {
		j = run(s, j+1, 12, isDigit)
	}
	return zone(s, j)
}

// zone returns the end of Z, +02:00, -0700, " UTC", " GMT" or " +0000" at j.
func zone(s string, j int) int {
	if j < len(s) && (s[j] == 'Z' || s[j] == 'z') && ends(s, j+1) {
		return j + 1
	}
	for _, name := range [...]string{" UTC", " GMT"} {
		if strings.HasPrefix(s[j:], name) && ends(s, j+len(name)) {
			return j + len(name)
		}
	}
	k := j
	if k < len(s) && s[k] == ' ' {
		k++
	}
	if k >= len(s) || s[k] != '+' && s[k] != '-' {
		return j
	}
	h := run(s, k+1, 2, isDigit)
	if h != k+3 {
		return j
	}
	if h < len(s) && s[h] == ':' {
		h++
	}
	if m := run(s, h, 2, isDigit); m == h+2 && ends(s, m) {
		return m
	}
	return j
}

const (
	weekdays = "Mon Tue Wed Thu Fri Sat Sun"
	months   = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
)

// namedTime returns the end of a time that begins with a day of the week or a
// month, or i.
func namedTime(s string, i int) int {
	j := i
	if named(s, j, weekdays) {
		if j += 3; j < len(s) && s[j] == ',' {
			j++
		}
		if j = blank(s, j); j < 0 {
			return i
		}
	}
	switch {
	case named(s, j, months): // Nov 30 10:20:30
		if j = blank(s, j+3); j < 0 {
			return i
		}
		if day := run(s, j, 2, isDigit); day > j {
			j = day
		} else {
			return i
		}
	default: // 30 Nov 2026 10:20:30
		day := run(s, j, 2, isDigit)
		if day == j {
			return i
		}
		if j = blank(s, day); j < 0 || !named(s, j, months) {
			return i
		}
		if j = blank(s, j+3); j < 0 {
			return i
		}
		year := run(s, j, 4, isDigit)
		if year != j+4 {
			return i
		}
		j = year
	}
	if j = blank(s, j); j < 0 {
		return i
	}
	if end := clock(s, j); end > j {
		return end
	}
	return i
}

// named reports whether one of the three-letter names stands at j as a word.
func named(s string, j int, names string) bool {
	if j+3 > len(s) || !ends(s, j+3) {
		return false
	}
	at := strings.Index(names, s[j:j+3])
	return at >= 0 && at%4 == 0
}

// blank returns the end of one or two blanks at j, or -1.
func blank(s string, j int) int {
	end := run(s, j, 2, func(c byte) bool { return c == ' ' })
	if end == j {
		return -1
	}
	return end
}

// matchNumber returns the length of a number at i, or 0: a sign where one may
// stand, digits, groups of thousands, a fraction, an exponent, and units of
// time behind it ("1h30m", "250ms"), which make it a duration.
func matchNumber(s string, i int, signed bool) int {
	j := i
	if signed && (s[j] == '-' || s[j] == '+') {
		j++
	}
	end := digits(s, j)
	if end == j {
		return 0
	}
	for {
		unit := timeUnit(s, end)
		if unit == end {
			return end - i
		}
		next := digits(s, unit)
		if next == unit {
			if !ends(s, unit) {
				return end - i
			}
			return unit - i
		}
		end = next
	}
}

// digits returns the end of an unsigned number at j, or j.
func digits(s string, j int) int {
	end := run(s, j, maxTemplateInput, isDigit)
	if end == j {
		return j
	}
	for end+3 < len(s) && s[end] == ',' && end-j <= maxTemplateInput && run(s, end+1, 4, isDigit) == end+4 {
		end += 4
	}
	if end+1 < len(s) && s[end] == '.' && isDigit(s[end+1]) {
		end = run(s, end+1, maxTemplateInput, isDigit)
	}
	if end < len(s) && (s[end] == 'e' || s[end] == 'E') {
		k := end + 1
		if k < len(s) && (s[k] == '-' || s[k] == '+') {
			k++
		}
		if exp := run(s, k, 5, isDigit); exp > k && ends(s, exp) {
			end = exp
		}
	}
	return end
}

// timeUnit returns the end of a unit of time at j, or j.
func timeUnit(s string, j int) int {
	for _, unit := range [...]string{"ns", "us", "µs", "μs", "ms", "s", "m", "h"} {
		if strings.HasPrefix(s[j:], unit) {
			return j + len(unit)
		}
	}
	return j
}
