package contract

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// Multiples are told as big.Rat tells them, for divisors of any size that a
// schema can have and numbers of any exponent that a policy lets through.
func TestMultipleIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	digits := func(most int) string {
		b := []byte{'1' + byte(rng.IntN(9))}
		for range rng.IntN(most) {
			b = append(b, '0'+byte(rng.IntN(10)))
		}
		return string(b)
	}
	factor := func() *big.Int {
		n, _ := new(big.Int).SetString(digits(30), 10)
		for _, p := range []int64{2, 5, 3, 7} {
			n.Mul(n, new(big.Int).Exp(big.NewInt(p), big.NewInt(rng.Int64N(30)), nil))
		}
		if rng.IntN(4) == 0 {
			n = new(big.Int).Exp(big.NewInt(2+3*rng.Int64N(2)), big.NewInt(rng.Int64N(200)), nil)
		}
		return n
	}
	yes := 0
	for range 20_000 {
		div := fmt.Sprintf("%se%d", factor(), rng.IntN(60)-30)
		rb := ratOf([]byte(div))
		var num string
		switch rng.IntN(3) {
		case 0: // nothing but chance
			num = fmt.Sprintf("%se%d", digits(20), rng.IntN(240)-40)
		case 1: // a multiple, or nearly
			product := new(big.Rat).Mul(rb, ratOf([]byte(digits(18))))
			n, _ := product.FloatPrec()
			if num = product.FloatString(n); rng.IntN(3) == 0 {
				b := []byte(num)
				if i := rng.IntN(len(b)); i > 0 && b[i] != '.' {
					b[i] = '0' + byte(rng.IntN(10))
				}
				num = string(b)
			}
		default: // what it lacks may be in the power of ten
			num = fmt.Sprintf("%se%d", new(big.Int).Mul(big.NewInt(1+rng.Int64N(50)), factor()), rng.IntN(240)-40)
		}
		if rng.IntN(5) == 0 {
			num = "-" + num
		}
		v, m := viewNumber([]byte(num)), newMultipleBound(rb)
		want := new(big.Rat).Quo(ratOf([]byte(num)), rb).IsInt()
		if got := m.multiple.divides(&v); got != want {
			t.Fatalf("%s is a multiple of %s: %v, want %v", num, div, got, want)
		}
		if got := m.divides([]byte(num)); got != want {
			t.Fatalf("%s is a multiple of %s: %v, want %v", num, div, got, want)
		}
		if want {
			yes++
		}
	}
	if yes < 4000 {
		t.Errorf("only %d are multiples", yes)
	}
}

// The edges of words, and a number longer than a payload's.
func TestMultipleAtTheEdges(t *testing.T) {
	two64 := new(big.Int).Lsh(bigOne, 64)
	for _, n := range []*big.Int{two64, new(big.Int).Sub(two64, bigOne), new(big.Int).Add(two64, bigOne), new(big.Int).Lsh(bigOne, 200), new(big.Int).Exp(big.NewInt(5), big.NewInt(90), nil)} {
		m := newMultipleBound(new(big.Rat).SetInt(n)).multiple
		for k := range int64(40) {
			for d := int64(-1); d <= 1; d++ {
				x := new(big.Int).Add(new(big.Int).Mul(n, big.NewInt(k)), big.NewInt(d))
				v := viewNumber([]byte(x.String()))
				if got, want := m.divides(&v), new(big.Int).Rem(x, n).Sign() == 0; got != want {
					t.Errorf("%s is a multiple of %s: %v", x, n, got)
				}
			}
		}
	}
	n, _ := new(big.Int).SetString(strings.Repeat("12345678901234567891", 3), 10)
	m := newMultipleBound(new(big.Rat).SetInt(n)).multiple
	for _, x := range []*big.Int{new(big.Int).Exp(n, big.NewInt(17), nil), new(big.Int).Add(new(big.Int).Exp(n, big.NewInt(19), nil), bigOne), new(big.Int).Exp(n, big.NewInt(19), nil)} {
		v := viewNumber([]byte(x.String()))
		if got, want := m.divides(&v), new(big.Int).Rem(x, n).Sign() == 0; got != want {
			t.Errorf("a number of %d digits is a multiple: %v", len(x.String()), got)
		}
	}
}

// The table of divisors has no more entries than its factor has powers of two
// or five, and looking a number up costs no allocation.
func TestMultipleIsCheap(t *testing.T) {
	m := newMultipleBound(ratOf([]byte(new(big.Int).Lsh(bigOne, 212).String()))).multiple
	if n := len(m.divisors); n != 213 {
		t.Errorf("%d divisors", n)
	}
	for _, text := range []string{"1e399", strings.Repeat("9", 60) + "e200", "7"} {
		raw := []byte(text)
		if n := testing.AllocsPerRun(100, func() {
			v := viewNumber(raw)
			m.divides(&v)
		}); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}
