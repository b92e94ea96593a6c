package contract

import (
	"math"
	"math/big"
	"math/bits"
)

// multiple decides whether numbers are whole multiples of one number, which is
// factor × 10^exp with a factor that does not end in zero.
//
// A payload's number is digits × 10^low with digits that do not end in zero
// either. It is a multiple exactly when low is at least exp and the factor
// divides digits × 10^(low-exp): when what is left of the factor without what
// it shares with that power of ten divides the digits. What is left is known
// beforehand for every power, so that the payload's exponent costs nothing.
type multiple struct {
	small    int64 // the number itself, where it fits; else 0
	exp      int
	divisors []divisor // by low-exp; the last one stands for all greater
}

// divisor is a whole number: one word, or 2^twos times an odd number of
// several words.
type divisor struct {
	word   uint64 // 0: see odd
	odd    []uint64
	twos   int
	inv    uint64 // of odd[0], modulo 2^64
	digits int    // decimal ones of the number
}

func newMultiple(b *bound) *multiple {
	m := &multiple{exp: b.dec.exp}
	if b.fits {
		m.small = b.small
	}
	left, ok := new(big.Int).SetString(string(b.dec.digits), 10)
	if !ok { // multipleOf is greater than zero
		return m
	}
	for ten := big.NewInt(10); ; {
		m.divisors = append(m.divisors, newDivisor(left))
		g := new(big.Int).GCD(nil, nil, left, ten)
		if g.Cmp(bigOne) == 0 {
			return m
		}
		left = new(big.Int).Quo(left, g)
	}
}

func newDivisor(n *big.Int) divisor {
	d := divisor{digits: len(n.String())}
	if n.IsUint64() {
		d.word = n.Uint64()
		return d
	}
	d.twos = int(n.TrailingZeroBits())
	odd := new(big.Int).Rsh(n, uint(d.twos))
	low := new(big.Int).SetUint64(math.MaxUint64)
	for word := new(big.Int); odd.Sign() > 0; odd.Rsh(odd, 64) {
		d.odd = append(d.odd, word.And(odd, low).Uint64())
	}
	d.inv = d.odd[0] // right in 3 bits; each step doubles them
	for range 5 {
		d.inv *= 2 - d.odd[0]*d.inv
	}
	return d
}

// divides reports whether the number is a whole multiple.
func (m *multiple) divides(v *numberView) bool {
	if v.first < 0 {
		return true
	}
	shift := v.low() - m.exp
	if shift < 0 || len(m.divisors) == 0 {
		return false // a power of ten would have to divide digits that do not end in zero
	}
	d := &m.divisors[min(shift, len(m.divisors)-1)]
	switch {
	case v.count < d.digits:
		return false
	case d.word == 1:
		return true
	case d.word != 0:
		return v.modulo(d.word) == 0
	}
	return d.divides(v)
}

// A word holds so many decimal digits, of which chunk is the power of ten.
const (
	chunkDigits = 19
	chunk       = 10_000_000_000_000_000_000
)

// chunks calls fn for the digits of the number in portions, with the power of
// ten by which what came before grows.
func (v *numberView) chunks(fn func(power, digits uint64)) {
	power, digits := uint64(1), uint64(0)
	for _, c := range v.raw[v.first : v.last+1] {
		if c == '.' {
			continue
		}
		power *= 10
		if digits = digits*10 + uint64(c-'0'); power == chunk {
			fn(power, digits)
			power, digits = 1, 0
		}
	}
	if power > 1 {
		fn(power, digits)
	}
}

// modulo returns the digits of the number modulo m.
func (v *numberView) modulo(m uint64) uint64 {
	rem := uint64(0)
	v.chunks(func(power, digits uint64) {
		hi, lo := bits.Mul64(rem, power)
		lo, carry := bits.Add64(lo, digits, 0)
		rem = bits.Rem64(hi+carry, lo, m)
	})
	return rem
}

// divisibleWords bounds the numbers that are divided in words: the longest that
// a policy allows has 1024 digits.
const divisibleWords = (maxNumberLength*10/3 + 64) / 64

// divides reports whether the divisor, which has several words, divides the
// digits of the number.
func (d *divisor) divides(v *numberView) bool {
	if v.count > maxNumberLength {
		return d.dividesLong(v)
	}
	var room [divisibleWords + 1]uint64
	n := 0
	v.chunks(func(power, digits uint64) {
		carry := digits
		for i := range n {
			hi, lo := bits.Mul64(room[i], power)
			lo, over := bits.Add64(lo, carry, 0)
			room[i], carry = lo, hi+over
		}
		if carry > 0 {
			room[n] = carry
			n++
		}
	})
	return d.dividesWords(room[:n])
}

// dividesWords divides from the lowest word on, as one does modulo powers of
// two: each word of the quotient is what makes the lowest word of the rest
// zero. The divisor divides exactly when nothing is left, and nothing below
// zero, once the quotient has as many words as it may have.
func (d *divisor) dividesWords(num []uint64) bool {
	for t := d.twos; t > 0; {
		if len(num) == 0 {
			return false
		}
		step := min(t, 63)
		if num[0]&(1<<step-1) != 0 {
			return false
		}
		for i := range num {
			num[i] >>= step
			if i+1 < len(num) {
				num[i] |= num[i+1] << (64 - step)
			}
		}
		t -= step
	}
	for i := 0; i+len(d.odd) <= len(num); i++ {
		q, carry, borrow := num[i]*d.inv, uint64(0), uint64(0)
		for k := i; k < len(num); k++ {
			lo := uint64(0)
			if k-i < len(d.odd) {
				var hi, over uint64
				hi, lo = bits.Mul64(q, d.odd[k-i])
				lo, over = bits.Add64(lo, carry, 0)
				carry = hi + over
			} else {
				lo, carry = carry, 0
			}
			num[k], borrow = bits.Sub64(num[k], lo, borrow)
		}
		if borrow != 0 || carry != 0 {
			return false
		}
	}
	for _, w := range num {
		if w != 0 {
			return false
		}
	}
	return true
}

// dividesLong is for numbers that no payload has.
func (d *divisor) dividesLong(v *numberView) bool {
	n, by := new(big.Int), new(big.Int)
	v.chunks(func(power, digits uint64) {
		n.Mul(n, by.SetUint64(power))
		n.Add(n, by.SetUint64(digits))
	})
	by.SetUint64(0)
	for i := len(d.odd) - 1; i >= 0; i-- {
		by.Lsh(by, 64)
		by.Or(by, new(big.Int).SetUint64(d.odd[i]))
	}
	return n.Rem(n, by.Lsh(by, uint(d.twos))).Sign() == 0
}
