package contract

import (
	"math/big"
	"strconv"
)

// decimal is a number in normal form: 0.digits is never kept, digits has no
// zero at either end, and value = ±digits × 10^exp. Zero has no digits.
type decimal struct {
	neg    bool
	digits []byte
	exp    int
}

// parseDecimal brings a JSON number into normal form without expanding its
// exponent. The number's exponent must fit an int, which the policy's limits
// guarantee.
func parseDecimal(raw []byte) decimal {
	var d decimal
	i := 0
	if i < len(raw) && raw[i] == '-' {
		d.neg = true
		i++
	}
	digits := make([]byte, 0, len(raw))
	point, seen := 0, false
	for ; i < len(raw); i++ {
		c := raw[i]
		if c == '.' {
			seen = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits = append(digits, c)
		if seen {
			point++
		}
	}
	if i < len(raw) { // e or E
		d.exp, _ = strconv.Atoi(string(raw[i+1:]))
	}
	d.exp -= point
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		d.exp++
	}
	if len(digits) == 0 {
		return decimal{}
	}
	d.digits = digits
	return d
}

// appendKey appends a form that two numbers share exactly when they are equal.
func (d decimal) appendKey(dst []byte) []byte {
	if len(d.digits) == 0 {
		return append(dst, '0')
	}
	if d.neg {
		dst = append(dst, '-')
	}
	dst = append(dst, d.digits...)
	dst = append(dst, 'e')
	return strconv.AppendInt(dst, int64(d.exp), 10)
}

// isInteger reports whether the number has no fractional part: 1.0 and 1e2
// are integers.
func isInteger(raw []byte) bool {
	if _, ok := smallInt(raw); ok {
		return true
	}
	v := viewNumber(raw)
	return v.isInteger()
}

// smallInt reads a number written as at most 18 digits.
func smallInt(raw []byte) (int64, bool) {
	neg := len(raw) > 0 && raw[0] == '-'
	if neg {
		raw = raw[1:]
	}
	if len(raw) == 0 || len(raw) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// bound is a number in a schema, ready to be compared with.
type bound struct {
	rat      *big.Rat
	dec      decimal
	small    int64
	fits     bool      // small holds the number
	multiple *multiple // of multipleOf
}

func newBound(r *big.Rat) *bound {
	if r == nil {
		return nil
	}
	n, exact := r.FloatPrec()
	if !exact {
		panic("a bound that is no decimal number") // every number in a schema is one
	}
	b := &bound{rat: r, dec: parseDecimal([]byte(r.FloatString(n)))}
	if r.IsInt() && r.Num().IsInt64() {
		b.small, b.fits = r.Num().Int64(), true
	}
	return b
}

// newMultipleBound returns the bound of multipleOf.
func newMultipleBound(r *big.Rat) *bound {
	b := newBound(r)
	if b != nil {
		b.multiple = newMultiple(b)
	}
	return b
}

// compare orders a payload's number against the bound: -1, 0 or 1.
func (b *bound) compare(raw []byte) int {
	if n, ok := smallInt(raw); ok && b.fits {
		switch {
		case n < b.small:
			return -1
		case n > b.small:
			return 1
		}
		return 0
	}
	v := viewNumber(raw)
	return v.compare(&b.dec)
}

// divides reports whether the payload's number is a multiple of the bound, which
// is that of multipleOf.
func (b *bound) divides(raw []byte) bool {
	if n, ok := smallInt(raw); ok && b.fits && b.small != 0 {
		return n%b.small == 0
	}
	v := viewNumber(raw)
	return b.multiple.divides(&v)
}

// String returns the number in the shortest exact form.
func (b *bound) String() string {
	if b.fits {
		return strconv.FormatInt(b.small, 10)
	}
	if n, exact := b.rat.FloatPrec(); exact && n <= 40 {
		return b.rat.FloatString(n)
	}
	return b.rat.RatString()
}

// ratOf converts a number that passed the policy, so that its exponent is
// bounded.
func ratOf(raw []byte) *big.Rat {
	r, ok := new(big.Rat).SetString(string(raw))
	if !ok {
		return new(big.Rat)
	}
	return r
}
