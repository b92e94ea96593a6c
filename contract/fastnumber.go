package contract

import "strconv"

// numberView is a JSON number taken apart where it stands: its value is
// ±0.d₁d₂… × 10^msd with the digits between first and last, of which neither
// is zero. Zero has first < 0.
type numberView struct {
	raw         []byte
	neg         bool
	first, last int // positions of digits in raw
	msd         int
	count       int // digits from first to last
}

// viewNumber takes a number apart that passed the policy.
func viewNumber(raw []byte) numberView {
	v := numberView{raw: raw, first: -1}
	i := 0
	if raw[0] == '-' {
		v.neg = true
		i++
	}
	whole, digits, firstAt, lastAt := -1, 0, 0, 0 // digits counts those so far
	for ; i < len(raw); i++ {
		c := raw[i]
		if c == '.' {
			whole = digits
			continue
		}
		if !isDigit(c) {
			break
		}
		if c != '0' {
			if v.first < 0 {
				v.first, firstAt = i, digits
			}
			v.last, lastAt = i, digits
		}
		digits++
	}
	if whole < 0 {
		whole = digits
	}
	if v.first < 0 {
		v.neg = false
		return v
	}
	v.count = lastAt - firstAt + 1
	v.msd = whole - firstAt + exponent(raw[i:])
	return v
}

// exponent reads what stands behind the digits of a number, "" included.
func exponent(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	neg, n := false, 0
	for _, c := range b[1:] {
		switch c {
		case '-':
			neg = true
		case '+':
		default:
			n = n*10 + int(c-'0')
		}
	}
	if neg {
		return -n
	}
	return n
}

// low returns the power of ten of the last digit.
func (v *numberView) low() int { return v.msd - v.count }

func (v *numberView) isInteger() bool { return v.first < 0 || v.low() >= 0 }

// appendKey appends the key of decimal.appendKey.
func (v *numberView) appendKey(dst []byte) []byte {
	dst = append(dst, 'n')
	if v.first < 0 {
		return append(dst, '0')
	}
	if v.neg {
		dst = append(dst, '-')
	}
	for _, c := range v.raw[v.first : v.last+1] {
		if c != '.' {
			dst = append(dst, c)
		}
	}
	dst = append(dst, 'e')
	return strconv.AppendInt(dst, int64(v.low()), 10)
}

// compare orders the number against d: -1, 0 or 1.
func (v *numberView) compare(d *decimal) int {
	switch {
	case v.first < 0 && len(d.digits) == 0:
		return 0
	case v.first < 0:
		return -sign(d.neg)
	case len(d.digits) == 0, v.neg != d.neg:
		return sign(v.neg)
	}
	c := v.compareSize(d)
	if v.neg {
		return -c
	}
	return c
}

func sign(neg bool) int {
	if neg {
		return -1
	}
	return 1
}

// compareSize compares the absolute values of two numbers that are not zero.
func (v *numberView) compareSize(d *decimal) int {
	if top := len(d.digits) + d.exp; v.msd != top {
		return compareInts(int64(v.msd), int64(top))
	}
	i := 0
	for _, c := range v.raw[v.first : v.last+1] {
		if c == '.' {
			continue
		}
		if i == len(d.digits) {
			return 1 // the last digit of v is not zero
		}
		if c != d.digits[i] {
			return compareInts(int64(c), int64(d.digits[i]))
		}
		i++
	}
	if i < len(d.digits) {
		return -1
	}
	return 0
}

// fastBound is one of the four bounds of a number.
type fastBound struct {
	decimal   decimal
	small     int64
	fits      bool
	exclusive bool
	wrong     int // the outcome of compare that breaks the bound
}

func newFastBound(b *bound, exclusive bool, wrong int) fastBound {
	return fastBound{decimal: b.dec, small: b.small, fits: b.fits, exclusive: exclusive, wrong: wrong}
}
