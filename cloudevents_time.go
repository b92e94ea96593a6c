package headgate

import "time"

// parseRFC3339 reads a timestamp by the letter of RFC 3339, section 5.6, with
// an upper-case T and Z. Package time also takes a comma before the fraction,
// hours of one digit and offsets beyond a day. Digits below the nanosecond are
// cut; a leap second has no place in package time and is refused.
func parseRFC3339[S []byte | string](s S) (time.Time, bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' {
		return time.Time{}, false
	}
	var bad bool
	number := func(from, to int) int {
		n := 0
		for i := from; i < to; i++ {
			bad = bad || s[i] < '0' || s[i] > '9'
			n = n*10 + int(s[i]-'0')
		}
		return n
	}
	year, month, day := number(0, 4), number(5, 7), number(8, 10)
	hour, minute, second := number(11, 13), number(14, 16), number(17, 19)
	if bad || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	nanos, i := 0, 19
	if s[i] == '.' {
		unit := 100_000_000
		for i++; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			nanos += unit * int(s[i]-'0')
			unit /= 10
		}
		if i == 20 || i == len(s) {
			return time.Time{}, false
		}
	}
	zone := time.UTC
	switch {
	case s[i] == 'Z' && i+1 == len(s):
	case (s[i] == '+' || s[i] == '-') && i+6 == len(s) && s[i+3] == ':':
		h, m := number(i+1, i+3), number(i+4, i+6)
		if bad || h > 23 || m > 59 {
			return time.Time{}, false
		}
		offset := (h*60 + m) * 60
		if s[i] == '-' {
			offset = -offset
		}
		if offset != 0 {
			zone = time.FixedZone("", offset)
		}
	default:
		return time.Time{}, false
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, nanos, zone), true
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
	default:
		return 31
	}
}

// writable reports whether appendTime writes a time that can be read again.
func writable(t time.Time) bool {
	year := t.Year()
	if wholeMinutes(t) {
		return year >= 0 && year <= 9999
	}
	year = t.UTC().Year()
	return year >= 0 && year <= 9999
}

// wholeMinutes reports whether RFC 3339 can write the offset of t's zone.
func wholeMinutes(t time.Time) bool {
	_, offset := t.Zone()
	return offset%60 == 0 && offset > -24*3600 && offset < 24*3600
}
