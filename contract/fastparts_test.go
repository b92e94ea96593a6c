package contract

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/jsontext"
)

// Every pattern that is matched byte by byte gives RE2's answer.
func TestBytePattern(t *testing.T) {
	simple := 0
	rng := rand.New(rand.NewPCG(5, 6))
	for _, src := range []string{
		`^[A-Z0-9-]{3,20}$`, `^[a-z]+$`, `^ID-[0-9]+$`, `^$`, `^`, `^a?b?c{0,2}$`, `^v[0-9]*\.[0-9]*`, `^(?i)get$`, `^[a-z][a-z0-9_]*$`,
		`^\d{4}-\d{2}$`, `^\w+@\w+\.\w{2,}$`, `^(abc)x$`, `^a+a+b$`, `^a*a$`, `^[ab]*b$`, `^aa?a$`, `^x{2}$`, `^[^/]+$`, `^.*$`, `abc`, `^(a|b)*$`,
		`^a*b*c*$`, `^a{2,}b{0,3}`, `^é+$`, `(?m)^a$`, `^[kK]+$`, `^(?i)k$`, `\Aab\z`, `^a??b$`, `^a{1,3}?a?$`, `^\s*x\s*$`, `^a$b`, `^^a$$`, `^[[:alpha:]]+-?$`,
	} {
		p, err := compilePattern(src)
		if err != nil {
			t.Fatal(err)
		}
		b := newBytePattern(p)
		if b.simple {
			simple++
		}
		check := func(s string) {
			if got, want := b.match([]byte(s)), p.MatchString(s); got != want {
				t.Errorf("%s on %q: %v, RE2 says %v (simple: %v)", src, s, got, want, b.simple)
			}
		}
		for range 4000 {
			var s strings.Builder
			for range rng.IntN(8) {
				s.WriteString(draw(rng, []string{"a", "b", "c", "A", "Z", "x", "k", "K", "0", "9", "-", ".", "@", "_", " ", "\n", "é", "\u212a", "/", "get", "ID-", "v"}))
			}
			check(s.String())
		}
		for _, s := range []string{"", "GET", "geT", "ID-42", "v1.2", "2026-11", "a@b.cd", "abcx", strings.Repeat("A", 20), strings.Repeat("A", 21)} {
			check(s)
		}
	}
	if simple < 18 {
		t.Errorf("only %d patterns are matched byte by byte", simple)
	}
}

// Numbers are compared by their exact values, as big.Rat does.
func TestNumberView(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	number := func() string {
		var b strings.Builder
		b.WriteString(draw(rng, []string{"", "-"}))
		whole := ""
		for range rng.IntN(4) + 1 {
			whole += draw(rng, []string{"0", "1", "9", "25", "75", "1000", "123456789"})
		}
		if whole = strings.TrimLeft(whole, "0"); whole == "" {
			whole = "0"
		}
		b.WriteString(whole)
		if rng.IntN(2) == 0 {
			b.WriteByte('.')
			for range rng.IntN(4) + 1 {
				b.WriteString(draw(rng, []string{"0", "5", "25", "001", "9"}))
			}
		}
		if rng.IntN(3) == 0 {
			fmt.Fprintf(&b, "%s%d", draw(rng, []string{"e", "E", "e+", "e-", "E-0"}), rng.IntN(30))
		}
		return b.String()
	}
	for range 60_000 {
		a, b := number(), number()
		ra, rb := ratOf([]byte(a)), ratOf([]byte(b))
		v := viewNumber([]byte(a))
		if got, want := v.isInteger(), ra.IsInt(); got != want {
			t.Fatalf("%s is an integer: %v, want %v", a, got, want)
		}
		bd := newFastBound(newBound(rb), false, 0)
		if got, want := v.compare(&bd.decimal), ra.Cmp(rb); got != want {
			t.Fatalf("%s against %s: %d, want %d", a, b, got, want)
		}
		if got, want := string(v.appendKey(nil)), string(parseDecimal([]byte(a)).appendKey([]byte{'n'})); got != want {
			t.Fatalf("%s has the key %s, want %s", a, got, want)
		}
		if rb.Sign() <= 0 {
			continue
		}
		m := newMultipleBound(rb).multiple
		if got, want := m.divides(&v), new(big.Rat).Quo(ra, rb).IsInt(); got != want {
			t.Fatalf("%s is a multiple of %s: %v, want %v", a, b, got, want)
		}
		product := new(big.Rat).Mul(rb, big.NewRat(rng.Int64N(1<<40), 1))
		n, _ := product.FloatPrec()
		w := viewNumber([]byte(product.FloatString(n)))
		if !m.divides(&w) {
			t.Fatalf("%s is no multiple of %s", product.FloatString(n), b)
		}
	}
}

// Every name of a table is found at its index, and no other is.
func TestNameTable(t *testing.T) {
	for _, n := range []int{1, 2, 7, 8, 9, 64, 300, 600, 5000} {
		for kind, name := range map[string]func(int) string{
			"short":     func(i int) string { return fmt.Sprint(i) },
			"long":      func(i int) string { return fmt.Sprintf("a_long_name_of_a_property_%05d_and_more", i) },
			"same ends": func(i int) string { return fmt.Sprintf("beginning%05dbeginning", i) },
			"lengths":   func(i int) string { return strings.Repeat("x", i%200) + fmt.Sprint(i) },
		} {
			var names []string
			for i := range n {
				names = append(names, name(i))
			}
			table := newNameTable(names)
			for i, s := range names {
				padded := []byte("<" + s + `":[1,2,3,4]`)
				for _, form := range [][]byte{[]byte(s), padded[1 : 1+len(s)], padded[1 : 1+len(s) : 1+len(s)]} {
					if got := table.find(form); got != i {
						t.Fatalf("%s of %d: %q is at %d, want %d", kind, n, s, got, i)
					}
				}
				for _, other := range []string{s + "\x00", s + "x", "", "\x00", s[:len(s)-1] + "\x00", "beginning" + fmt.Sprintf("%05d", i+n) + "beginning"} {
					if got := table.find([]byte(other)); got >= 0 && names[got] != other {
						t.Fatalf("%s of %d: %q is found as %q", kind, n, other, names[got])
					}
				}
			}
		}
	}
}

// The scanner of the fast engine accepts what jsontext accepts.
func TestScanAgainstPolicy(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	parts := []string{"a", "bcdefgh", `\n`, `\"`, `\\`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `\u12`, `\x`, "é", "😀", "\xff", "\xed\xa0\x80", "\x1f", "\x7f", `"`, "\x00", "long enough to fill words"}
	lim := jsontext.Limits{Depth: 64, NumberLength: 64, Exponent: 400}
	numbers := []string{"0", "1", "9", "00", ".", "-", "+", "e", "E", "401", "400", strings.Repeat("1", 30)}
	for range 60_000 {
		text := `"`
		for range rng.IntN(6) {
			text += draw(rng, parts)
		}
		text += `"`
		end, _ := scanString([]byte(text), 0)
		if got, want := end == len(text), jsontext.Check([]byte(text), lim) == nil; got != want {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
		num := ""
		for range 1 + rng.IntN(6) {
			num += draw(rng, numbers)
		}
		if num[0] != '-' && !isDigit(num[0]) {
			continue
		}
		end, _ = scanNumber([]byte(num), 0, &lim)
		if got, want := end == len(num), jsontext.Check([]byte(num), lim) == nil; got != want {
			t.Fatalf("%s: %v, want %v", num, got, want)
		}
	}
}
