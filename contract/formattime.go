package contract

import "strings"

// isDate checks full-date of RFC 3339, section 5.6.
func isDate(s string) bool {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return false
	}
	y, ok1 := digits(s[:4])
	m, ok2 := digits(s[5:7])
	d, ok3 := digits(s[8:])
	return ok1 && ok2 && ok3 && m >= 1 && m <= 12 && d >= 1 && d <= daysIn(y, m)
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// digits reads a number written in decimal digits and nothing else: no sign,
// no space.
func digits(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, s != ""
}

// isDateTime checks date-time of RFC 3339, section 5.6. "t" and "z" may be
// lower case; a space in place of "T" is refused.
func isDateTime(s string) bool {
	return len(s) > 11 && (s[10] == 'T' || s[10] == 't') && isDate(s[:10]) && isTime(s[11:])
}

// isTime checks full-time of RFC 3339, section 5.6. Second 60 is taken only at
// 23:59:60 UTC, where leap seconds are put in.
func isTime(s string) bool {
	if len(s) < 9 || s[2] != ':' || s[5] != ':' {
		return false
	}
	h, ok1 := digits(s[:2])
	m, ok2 := digits(s[3:5])
	sec, ok3 := digits(s[6:8])
	if !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || sec > 60 {
		return false
	}
	rest := s[8:]
	if rest[0] == '.' {
		n := 1
		for n < len(rest) && isDigit(rest[n]) {
			n++
		}
		if n == 1 || n == len(rest) {
			return false
		}
		rest = rest[n:]
	}
	offset, ok := zoneOffset(rest)
	if !ok {
		return false
	}
	if sec == 60 {
		const day = 24 * 60
		return ((h*60+m-offset)%day+day)%day == day-1
	}
	return true
}

// zoneOffset reads time-offset and returns its minutes east of UTC.
func zoneOffset(s string) (int, bool) {
	if s == "Z" || s == "z" {
		return 0, true
	}
	if len(s) != 6 || s[3] != ':' || s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	h, ok1 := digits(s[1:3])
	m, ok2 := digits(s[4:])
	if !ok1 || !ok2 || h > 23 || m > 59 {
		return 0, false
	}
	if s[0] == '-' {
		return -(h*60 + m), true
	}
	return h*60 + m, true
}

// isDuration checks duration of RFC 3339, appendix A: units in order, none
// left out between two given ones, weeks alone.
func isDuration(s string) bool {
	rest, ok := strings.CutPrefix(s, "P")
	if !ok {
		return false
	}
	if weeks, ok := strings.CutSuffix(rest, "W"); ok {
		_, ok := allDigits(weeks)
		return ok
	}
	date, clock, hasClock := strings.Cut(rest, "T")
	if date == "" && !hasClock {
		return false
	}
	return units(date, "YMD", true) && (!hasClock || units(clock, "HMS", false))
}

func allDigits(s string) (string, bool) {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return s, false
		}
	}
	return s, s != ""
}

// units checks a row of counts, each followed by one of the letters, in their
// order and without a gap.
func units(s, letters string, mayBeEmpty bool) bool {
	if s == "" {
		return mayBeEmpty
	}
	last := -1
	for s != "" {
		n := 0
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		if n == 0 || n == len(s) {
			return false
		}
		at := strings.IndexByte(letters, s[n])
		if at < 0 || last >= 0 && at != last+1 {
			return false
		}
		last, s = at, s[n+1:]
	}
	return true
}
